//! Python's ftplib over TLS against `longhaul serve`: sessions step by step.

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::rows::path_argument;
use interop::longhaul::serve::{PASSWORD, ServeCommand, USER, add_user};
use interop::matrix::{self, TestStore};
use interop::net;
use interop::peer::ftplib::{Ftplib, TlsScript};
use interop::pki::PeerPki;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;
use interop::wire_tap::WireTap;

/// Gets a file, puts it back, and lists the folder.
const THERE_AND_BACK: &str = "
f.voidcmd('PBSZ 0')
getattr(f, args[0])()
f.retrbinary('RETR /src/' + args[1], open(args[2], 'wb').write)
f.storbinary('STOR /' + args[3], open(args[2], 'rb'))
assert args[1] in str(f.nlst('/src'))
";

const ANONYMOUS: (&str, &str) = ("anonymous", "x");

#[test]
fn ftps_ftplib_transfers_files() {
    let ftplib = require!(Ftplib::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let users = store.path("users");
    add_user(&users, store.root()).unwrap();
    let implicit = format!("127.0.0.1:{}", net::free_port().unwrap());
    let server = ServeCommand::anonymous(store.root())
        .option("--users", &path_argument(&users))
        .certificate(&pki.host)
        .option("--implicit-tls", &implicit)
        .start()
        .unwrap();
    let authority = pki.ca_file();
    let mut cells = MatrixRow::new("ftplib");
    for (kind, login, protection) in [
        ("plain", ANONYMOUS, "prot_p"),
        ("plain", ANONYMOUS, "prot_c"),
        ("plain", (USER, PASSWORD), "prot_p"),
        ("reuse", ANONYMOUS, "prot_p"),
        ("implicit", ANONYMOUS, "prot_p"),
        ("implicit", (USER, PASSWORD), "prot_c"),
    ] {
        let session = TlsScript {
            authority: &authority,
            kind,
            login,
        };
        let at = match kind {
            "implicit" => implicit.parse().unwrap(),
            _ => server.address(),
        };
        for size in test_files::SIZES {
            cells.check(format!("{kind} {protection} {size} bytes"), || {
                let (local, served) = (store.local(), store.upload());
                let args = [
                    protection,
                    &test_files::name(size),
                    &path_argument(&local),
                    &served,
                ];
                server.explain(ftplib.tls_script(at, &session, THERE_AND_BACK, &args))?;
                let source = test_files::shared(size)?;
                matrix::check_and_remove(&source, &local)?;
                matrix::check_and_remove(&source, &store.path(&served))
            });
        }
    }
    cells.finish();
}

/// A session's script, run against an anonymous server with TLS.
fn session_script(script: &str, settings: impl Fn(ServeCommand) -> ServeCommand, kind: &str) {
    let ftplib = require!(Ftplib::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = settings(ServeCommand::anonymous(store.root()).certificate(&pki.host))
        .start()
        .unwrap();
    let authority = pki.ca_file();
    let session = TlsScript::anonymous(&authority, kind);
    server
        .explain(ftplib.tls_script(server.address(), &session, script, &[]))
        .unwrap();
}

#[test]
fn ftps_a_data_connection_without_a_resumed_session_is_refused_where_required() {
    let script = "
f.prot_p()
try:
    f.nlst('/src')
    sys.exit('data without a resumed session')
except ftplib.Error as refused:
    print(refused)
except (OSError, EOFError) as refused:
    # The reply to the transfer is still to come.
    try:
        sys.exit('the transfer is said to be complete: ' + f.getresp())
    except ftplib.Error as reply:
        print(refused, reply)
";
    let required = |serve: ServeCommand| serve.option("--tls-session-reuse", "required");
    session_script(script, required, "plain");
    let script = "f.prot_p()\nassert 'f65535' in str(f.nlst('/src'))";
    session_script(script, required, "reuse");
}

/// A stranger who reaches the data port gets neither the file nor a session with which the next connection
/// would be taken for the client's.
#[test]
fn ftps_sessions_of_refused_data_connections_are_worth_nothing() {
    let script = "
import socket
f.prot_p()
host, port = f.makepasv()
f.putcmd('RETR /src/f65536')
def connect(session):
    data = f.context.wrap_socket(
        socket.create_connection((host, port), 20), server_hostname=host, session=session)
    got = b''
    try:
        while more := data.recv(65536):
            got += more
    except OSError as error:
        print(error)
    print(len(got), 'bytes, resumed:', data.session_reused)
    return data.session, got
try:
    session, got = connect(None)
except OSError as refused:
    print(refused)
    session, got = None, b''
assert not got, 'data without a resumed session'
if session is not None:
    try:
        session, got = connect(session)
    except OSError as error:
        print(error)
    assert not got, 'the session of a refused connection was resumed'
f.sock.close()
sys.exit(0)
";
    let required = |serve: ServeCommand| serve.option("--tls-session-reuse", "required");
    session_script(script, required, "plain");
}

#[test]
fn ftps_a_data_connection_without_tls_gets_nothing() {
    let script = "
import socket
f.prot_p()
host, port = f.makepasv()
data = socket.create_connection((host, port), 20)
f.putcmd('RETR /src/f65536')
print(f.getresp())
data.sendall(b'x' * 100)
got = b''
try:
    while more := data.recv(65536):
        got += more
except OSError:
    pass
assert len(got) < 100, 'clear data: %d bytes' % len(got)
data.close()
try:
    f.getresp()
    sys.exit('the transfer is said to be complete')
except ftplib.Error as refused:
    print(refused)
f.voidcmd('NOOP')
";
    session_script(script, |serve| serve, "plain");
}

#[test]
fn ftps_replies_follow_rfc_4217() {
    let script = "
def code(command):
    try:
        return f.sendcmd(command)[:3]
    except ftplib.Error as error:
        return str(error)[:3]
features = f.sendcmd('FEAT')
assert ' PBSZ' in features and ' PROT' in features, features
assert ' DCAU' not in features, features
assert code('PROT C') == '503', 'PROT before PBSZ'
assert code('PBSZ 0') == '200', 'PBSZ'
assert code('PROT E') == '536', 'PROT E'
assert code('PROT S') == '536', 'PROT S'
assert code('PROT X') == '536', 'PROT X'
assert code('PROT P') == '200', 'PROT P'
assert code('CCC')[0] == '5', 'CCC'
assert code('NOOP') == '200', 'NOOP'
";
    session_script(script, |serve| serve, "plain");
}

#[test]
fn ftps_a_clear_session_sees_the_mechanisms() {
    let ftplib = require!(Ftplib::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root())
        .gsi(&pki)
        .unwrap()
        .start()
        .unwrap();
    let script = "
features = f.sendcmd('FEAT').splitlines()
for line in [' AUTH TLS', ' AUTH GSSAPI', ' PBSZ', ' PROT']:
    assert any(feature.startswith(line) for feature in features), (line, features)
assert not any(feature.startswith(' DCAU') for feature in features), features
for command in ['AUTH KERBEROS_V4', 'ADAT abcd', 'PROT P', 'CCC']:
    try:
        f.sendcmd(command)
        sys.exit('accepted: ' + command)
    except ftplib.Error as refused:
        print(refused)
";
    server
        .explain(ftplib.script(server.address(), script, &[]))
        .unwrap();
}

/// The packets of a transfer have the file's content only where the client asked for clear data.
#[test]
fn ftps_protected_content_is_not_on_the_wire() {
    let ftplib = require!(Ftplib::find());
    let pki = require!(PeerPki::find());
    require!(WireTap::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root())
        .certificate(&pki.host)
        .start()
        .unwrap();
    let authority = pki.ca_file();
    let session = TlsScript::anonymous(&authority, "plain");
    let mut cells = MatrixRow::new("content on the wire");
    for (seed, protection, expected) in [(71, "prot_c", true), (72, "prot_p", false)] {
        cells.check(protection, || {
            let own = format!("secret{seed}");
            // A seed of this process: other tests must not send the same content.
            let seed = seed << 32 | u64::from(std::process::id());
            test_files::write(&store.path(&format!("src/{own}")), 1_000_000, seed)?;
            let tap = WireTap::start(&store.path(&format!("src/{own}")))?;
            let (local, served) = (store.local(), store.upload());
            let args = [protection, &own, &path_argument(&local), &served];
            let done: Result<FinishedProgram> =
                ftplib.tls_script(server.address(), &session, THERE_AND_BACK, &args);
            server.explain(done)?;
            let seen = tap.has_seen_content()?;
            ensure!(seen == expected, "content on the wire: {seen}");
            Ok(())
        });
    }
    cells.finish();
}
