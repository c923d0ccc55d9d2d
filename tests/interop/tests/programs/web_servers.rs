//! longhaul with nginx and Apache: ranges, checksums, kills, relays, refusals, TLS with a private certificate
//! authority, WebDAV.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::binary::longhaul;
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::kill_when_safe;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::{PASSWORD, apache, nginx};
use interop::pki::PeerPki;
use interop::require;
use interop::run::FinishedProgram;
use interop::test_files;

/// Time after which safe bytes are in the journal: the client writes it every 200 ms; the rest is for a
/// busy machine.
const JOURNAL: Duration = Duration::from_millis(400);
/// A password file of Apache with the SHA-1 of [`PASSWORD`].
const USERS: &[u8] = b"somebody:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

/// Copies with these options; returns how the copy was verified.
fn cp(options: &[&str], from: &str, to: &str) -> Result<String> {
    Ok(copy::cp(&[options, &[from, to]].concat())?.verified)
}

fn both_ways(name: &str, store: &TestStore, url: &dyn Fn(&str) -> String) {
    let mut cells = MatrixRow::new(name);
    for options in [&[][..], &["-p", "4"]] {
        matrix::get(&mut cells, store, &test_files::SIZES, |from, to| {
            cp(options, &url(from), &path_argument(to)).map(drop)
        });
    }
    matrix::put(&mut cells, store, &test_files::SIZES, |from, to| {
        cp(&[], &path_argument(from), &url(to)).map(drop)
    });
    cells.finish();
}

#[test]
fn nginx_serves_and_stores_files() {
    require!(nginx::find());
    let store = TestStore::new().unwrap();
    let server = nginx::start(&store, None).unwrap();
    both_ways("nginx", &store, &|path| {
        format!("http://{}/{path}", server.address())
    });
}

#[test]
fn apache_serves_and_stores_files_with_md5_checksums() {
    require!(apache::find());
    let store = TestStore::new().unwrap();
    let server = apache::start(&store).unwrap();
    let url = |path: &str| format!("http://{}/{path}", server.address());
    both_ways("apache", &store, &url);
    let from = url(&format!("src/{}", test_files::name(test_files::SIZES[1])));
    let local = path_argument(&store.local());
    assert_eq!(cp(&[], &from, &local).unwrap(), "md5");
    assert_eq!(cp(&[], &local, &url(&store.upload())).unwrap(), "md5");
}

#[test]
fn ssl_cert_file_names_a_private_certificate_authority() {
    require!(nginx::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let server = nginx::start(&store, Some(&pki.host)).unwrap();
    let name = test_files::name(test_files::SIZES[1]);
    let url = format!("https://{}/src/{name}", server.address());
    let to = store.local();
    let get = |authority: &Path| -> Result<FinishedProgram> {
        let mut command = copy::command(&["-p", "4", &url, &path_argument(&to)])?;
        command.env("SSL_CERT_FILE", authority);
        interop::run::run(&mut command)
    };
    get(&pki.ca_file())
        .and_then(FinishedProgram::expect_success)
        .unwrap();
    matrix::check_and_remove(&store.path(&format!("src/{name}")), &to).unwrap();
    // With another authority the certificate is not valid.
    let refused = get(&pki.other_authority.certificate()).unwrap();
    assert!(
        copy::failure_message(&refused).is_some_and(|why| why.contains("certificate")),
        "{refused:?}"
    );
}

#[test]
fn a_killed_get_from_a_web_server_is_resumed() {
    require!(nginx::find());
    require!(apache::find());
    let store = TestStore::new().unwrap();
    let source = store.path("src/large");
    test_files::write(&source, test_files::LARGE, 105).unwrap();
    let servers = [nginx::start(&store, None), apache::start(&store)].map(Result::unwrap);
    let mut cells = MatrixRow::new("kill -9 and --resume");
    for (server, streams) in servers
        .iter()
        .flat_map(|server| [(server, "1"), (server, "4")])
    {
        cells.check(format!("-p {streams} from {}", server.address()), || {
            let to = store.local();
            let url = format!("http://{}/src/large", server.address());
            let arguments =
                ["-p", streams, "--resume", &url, &path_argument(&to)].map(str::to_owned);
            let slow = ["--limit-rate".to_owned(), "400M".to_owned()];
            let command = copy::command(&[&slow[..], &arguments].concat())?;
            let safe = kill_when_safe(command, test_files::LARGE / 4, JOURNAL)?;
            ensure!(!to.exists(), "a partial file has the final name");
            let resumed = copy::cp(&arguments)?;
            ensure!(
                resumed.bytes <= test_files::LARGE - safe,
                "{} bytes moved again, {safe} were safe",
                resumed.bytes
            );
            matrix::check_and_remove(&source, &to)
        });
    }
    cells.finish();
}

/// The Repr-Digest field (RFC 9530) of a file.
fn digest(file: &Path) -> Result<String> {
    let sums = "openssl dgst -sha256 -binary \"$0\" | openssl base64 -A";
    let done = Command::new("sh").arg("-c").arg(sums).arg(file).output()?;
    ensure!(done.status.success(), "openssl: {done:?}");
    Ok(format!("sha-256=:{}:", String::from_utf8(done.stdout)?))
}

#[test]
fn repr_digest_is_compared_with_the_copy() {
    require!(apache::find());
    let store = TestStore::new().unwrap();
    let [right, wrong] = [3, 4].map(|index| test_files::name(test_files::SIZES[index]));
    let digest_field = digest(&store.path(&format!("src/{right}"))).unwrap();
    let settings = [&right, &wrong].map(|name| {
        format!("<Files {name}>\nContentDigest Off\nHeader set Repr-Digest \"{digest_field}\"\n</Files>\n")
    });
    let server = apache::start_with(&store, &["headers"], &settings.concat()).unwrap();
    let url = |name: &str| format!("http://{}/src/{name}", server.address());
    for streams in ["1", "4"] {
        let to = store.local();
        let verified = cp(&["-p", streams], &url(&right), &path_argument(&to)).unwrap();
        assert_eq!(verified, "sha256");
        matrix::check_and_remove(&store.path(&format!("src/{right}")), &to).unwrap();
        let to = store.local();
        let refused = copy::run(&["-p", streams, &url(&wrong), &path_argument(&to)]).unwrap();
        let refused = refused.expect_code(6).unwrap();
        assert!(!to.exists(), "{refused}");
    }
}

#[test]
fn files_are_relayed_between_web_and_ftp_servers() {
    require!(apache::find());
    let store = TestStore::new().unwrap();
    let web = apache::start(&store).unwrap();
    let ftp = ServeCommand::anonymous(store.root()).start().unwrap();
    let http = |path: &str| format!("http://{}/{path}", web.address());
    let mut cells = MatrixRow::new("relayed");
    for size in test_files::SIZES {
        for (streams, up) in [("1", false), ("4", false), ("1", true)] {
            cells.check(
                format!("{size} bytes, -p {streams}, to the web server: {up}"),
                || {
                    let (from, to) = (format!("src/{}", test_files::name(size)), store.upload());
                    let verified = match up {
                        false => cp(&["-p", streams], &http(&from), &ftp.url(&to))?,
                        true => cp(&["-p", streams], &ftp.url(&from), &http(&to))?,
                    };
                    ensure!(verified == "md5", "verified by {verified}");
                    matrix::check_and_remove(&store.path(&from), &store.path(&to))
                },
            );
        }
    }
    cells.finish();
}

/// Runs a copy; fails unless it ends with this code and one line on standard error that contains `why`.
fn refused(url: &str, to: &Path, code: i32, why: &str) -> Result<()> {
    let mut command = longhaul()?;
    command.args(["cp", url]).arg(to);
    let finished = interop::run::run(&mut command)?.expect_code(code)?;
    let message = finished.stderr_text();
    ensure!(message.lines().count() == 1, "not one line: {finished}");
    ensure!(message.contains(why), "{why:?} is missing: {finished}");
    ensure!(!to.exists(), "the destination exists");
    Ok(())
}

#[test]
fn refusals_of_web_servers_have_one_line_and_their_exit_code() {
    require!(apache::find());
    require!(nginx::find());
    let pki = require!(PeerPki::find());
    let store = TestStore::new().unwrap();
    let users = store.scratch().file("web-users", USERS).unwrap();
    let [open, locked] = [1, 2].map(|index| test_files::name(test_files::SIZES[index]));
    let settings = format!(
        "<Files {locked}>\nAuthType Basic\nAuthName store\nAuthUserFile {}\nRequire valid-user\n</Files>\n",
        users.display()
    );
    let modules = ["auth_basic", "authn_core", "authn_file", "authz_user"];
    let server = apache::start_with(&store, &modules, &settings).unwrap();
    let url = |login: &str, name: &str| format!("http://{login}{}/src/{name}", server.address());
    let secure = nginx::start(&store, Some(&pki.untrusted_host)).unwrap();
    let secure = format!("https://{}/src/{open}", secure.address());
    let mut cells = MatrixRow::new("refused");
    for (url, code, why) in [
        (url("", "none"), 4, "no such file"),
        (url("", &locked), 3, "requires a user and a password"),
        (
            url("somebody:wrong@", &locked),
            3,
            "requires a user and a password",
        ),
        (secure, 5, "certificate is not valid"),
    ] {
        cells.check(&url, || refused(&url, &store.local(), code, why));
    }
    cells.finish();
    let login = format!("somebody:{PASSWORD}@");
    cp(&[], &url(&login, &locked), &path_argument(&store.local())).unwrap();
}
