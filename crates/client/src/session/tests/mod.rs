//! The session against scripted servers with odd manners.

use std::time::Duration;

use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;

use super::ClientSession;
use super::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script, login_script_with_feat,
};
use crate::location::{Scheme, Server};
use crate::{CopyFailure, Credential, Exit};
use ScriptedAction::{ExpectLine, ExpectPassiveAndReply, SendData, SendLine, Sleep};

mod links;
mod pipelining;
mod preliminary;
mod telnet;

const PATIENCE: Duration = Duration::from_secs(60);

fn script<const N: usize>(parts: [Vec<ScriptedAction>; N]) -> Vec<ScriptedAction> {
    parts.into_iter().flatten().collect()
}

async fn open_on(acts: Vec<ScriptedAction>) -> Result<ClientSession, CopyFailure> {
    let fake = ScriptedFtpServer::start_session(acts).await;
    ClientSession::open(&fake.server, PATIENCE).await
}

async fn opened(acts: Vec<ScriptedAction>) -> (ClientSession, ScriptedFtpServer) {
    let fake = ScriptedFtpServer::start_session(acts).await;
    let session = ClientSession::open(&fake.server, PATIENCE).await.unwrap();
    (session, fake)
}

#[tokio::test]
async fn logs_in_with_many_lines_and_stray_ones() {
    let acts = script([
        vec![SendLine("220-Welcome\n220-second\nno code here\n220 ready")],
        command_and_reply("USER joe", "331-\n331 Password please"),
        vec![
            ExpectLine("PASS secret"),
            SendLine("stray\n230-hello joe\n230 End."),
        ],
        command_and_reply("FEAT", "211-Features\n SIZE\n MLST type*;\n211 End"),
        command_and_reply("TYPE I", "200 ok"),
    ]);
    let (session, fake) = opened(acts).await;
    assert!(session.features().feat_answered && session.features().mlst);
    assert!(session.rtt() > Duration::ZERO);
    fake.finish().await;
}

#[tokio::test]
async fn a_peer_that_does_not_speak_ftp_is_told_so_at_once() {
    for (said, shown) in [
        ("SSH-2.0-OpenSSH_9.6", "it said `SSH-2.0-OpenSSH_9.6`"),
        ("999 hi", "it said `999 hi`"),
        ("\u{15}\u{3}\u{1}", "it said `\\x15\\x03\\x01`"),
    ] {
        // It stays and waits: only what it said can end this, as the patience is an hour.
        let fake =
            ScriptedFtpServer::start_session(vec![SendLine(said), ScriptedAction::ExpectEof]).await;
        let failure = ClientSession::open(&fake.server, Duration::from_secs(3600)).await;
        let failure = failure.unwrap_err();
        assert_eq!((failure.exit, failure.transient), (Exit::Protocol, false));
        assert!(failure.message.contains("does not speak FTP"), "{failure}");
        assert!(failure.message.contains(shown), "{failure}");
    }
}

#[tokio::test]
async fn facts_that_are_refused_without_a_reason_are_of_nothing() {
    for reply in ["550 MLST", "550 /x: No such file or directory"] {
        let acts = script([
            login_script_with_feat("211-x\n MLST type*;size*;\n211 End"),
            command_and_reply("MLST /x", reply),
        ]);
        let (mut session, _fake) = opened(acts).await;
        let failure = session.stat(b"/x").await.unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(failure.message.contains("has no /x"), "{failure}");
    }
}

/// The answers of a server without MLST that shows nothing at `path`.
fn nothing_at(cwd: &'static str, size: &'static str) -> Vec<ScriptedAction> {
    [
        command_and_reply(cwd, "550 Failed to change directory."),
        command_and_reply(size, "550 Could not get file size."),
    ]
    .concat()
}

#[tokio::test]
async fn a_refusal_to_make_a_directory_names_the_one_that_is_missing() {
    let acts = script([
        login_script(),
        command_and_reply("MKD /no/x", "550 Create directory operation failed."),
        command_and_reply("CWD /no/x", "550 Failed to change directory."),
        nothing_at("CWD /no/x", "SIZE /no/x"),
        command_and_reply("CWD /no\r", "550 Failed to change directory."),
    ]);
    let (mut session, fake) = opened(acts).await;
    let failure = session.make_dir(b"/no/x").await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    assert!(failure.message.contains("no directory /no "), "{failure}");
    fake.finish().await;
}

#[tokio::test]
async fn a_refusal_without_a_reason_of_what_is_there_is_one_of_permission() {
    let acts = script([
        login_script(),
        command_and_reply("DELE /a", "550 Delete operation failed."),
        command_and_reply("CWD /a", "550 Failed to change directory."),
        command_and_reply("SIZE /a", "213 5"),
        command_and_reply("MDTM /a", "500 what?"),
    ]);
    let (mut session, fake) = opened(acts).await;
    let failure = session.delete(b"/a").await.unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Refused, false));
    fake.finish().await;
}

#[tokio::test]
async fn a_login_without_password_sends_none() {
    let acts = script([
        vec![SendLine("220 hi")],
        command_and_reply("USER joe", "230 in already"),
        command_and_reply("FEAT", "500 what?"),
        command_and_reply("TYPE I", "200 ok"),
    ]);
    let (_session, fake) = opened(acts).await;
    fake.finish().await;
}

#[tokio::test]
async fn refused_logins_say_why() {
    let table: &[(&'static str, &str, Exit, bool)] = &[
        (
            "530 Login incorrect.",
            "check user name",
            Exit::Refused,
            false,
        ),
        (
            "530 Must perform GSSAPI authentication.",
            "needs GSI security",
            Exit::Refused,
            false,
        ),
        (
            "530 Non-anonymous sessions must use encryption.",
            "needs TLS",
            Exit::Refused,
            false,
        ),
        ("332 account?", "ACCT", Exit::Refused, false),
        ("421 too many", "try again later", Exit::Unreachable, true),
    ];
    for (reply, words, exit, transient) in table {
        let acts = script([
            vec![SendLine("220 hi")],
            command_and_reply("USER joe", reply),
        ]);
        let failure = open_on(acts).await.unwrap_err();
        assert!(failure.message.contains(words), "{failure}");
        assert_eq!((failure.exit, failure.transient), (*exit, *transient));
    }
}

#[tokio::test]
async fn unusable_greetings() {
    let busy = open_on(vec![SendLine("421 Service busy")])
        .await
        .unwrap_err();
    assert_eq!((busy.exit, busy.transient), (Exit::Unreachable, true));
    assert!(busy.message.contains("Service busy"), "{busy}");

    let http = "HTTP/1.1 400 Bad Request\n".repeat(40);
    let garbage = open_on(vec![SendLine(http.leak())]).await.unwrap_err();
    assert_eq!((garbage.exit, garbage.transient), (Exit::Protocol, false));

    let closed = open_on(vec![]).await.unwrap_err();
    assert_eq!((closed.exit, closed.transient), (Exit::Unreachable, true));
}

#[tokio::test]
async fn a_silent_server_runs_into_the_time_out() {
    let fake = ScriptedFtpServer::start_session(vec![ScriptedAction::ExpectEof]).await;
    let failure = ClientSession::open(&fake.server, Duration::from_millis(200))
        .await
        .unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Unreachable, true));
    assert!(failure.message.contains("did not answer"), "{failure}");
}

#[tokio::test]
async fn hosts_that_are_not_there() {
    let server = |host: &str, port| Server {
        scheme: Scheme::Ftp,
        host: host.to_owned(),
        port,
        credential: Credential::password("joe", "secret"),
        query: None,
    };
    // Bound and not listening: nobody else can get the port and answer there.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    deaf.bind(&any_port.into()).unwrap();
    let port = deaf.local_addr().unwrap().as_socket().unwrap().port();
    let refused = ClientSession::open(&server("127.0.0.1", port), PATIENCE)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.exit, refused.transient),
        (Exit::Unreachable, false)
    );
    assert!(refused.message.contains("cannot connect"), "{refused}");

    let unknown = ClientSession::open(&server("no-such-host.invalid", 21), PATIENCE)
        .await
        .unwrap_err();
    assert_eq!(
        (unknown.exit, unknown.transient),
        (Exit::Unreachable, false)
    );
}

#[tokio::test]
async fn names_that_no_line_can_carry_are_refused_before_anything_is_sent() {
    let (mut session, fake) = opened(login_script()).await;
    for path in [&b"/a\nDELE /b"[..], b"/a\rb", b"/a\0b", b""] {
        let failure = session.delete(path).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }
    fake.finish().await;
    let mut server = ScriptedFtpServer::start_session(login_script())
        .await
        .server;
    let unspoken = Credential::Token("secret".into());
    for credential in [Credential::password("joe\r\nDELE x", "secret"), unspoken] {
        server.credential = credential;
        let failure = ClientSession::open(&server, PATIENCE).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
    }
}

#[tokio::test]
async fn stat_on_a_plain_server() {
    let acts = script([
        login_script(),
        command_and_reply("CWD /d/f", "550 Failed to change directory."),
        command_and_reply("SIZE /d/f", "213 42"),
        command_and_reply("MDTM /d/f", "213 20240102030405"),
        command_and_reply("CWD /d", "250 ok"),
        command_and_reply("MDTM /d", "550 not a plain file"),
        command_and_reply("CWD /none", "550 Failed to change directory."),
        command_and_reply("SIZE /none", "550 Could not get file size."),
    ]);
    let (mut session, fake) = opened(acts).await;
    let file = session.stat(b"/d/f").await.unwrap();
    assert_eq!((file.name.as_slice(), file.size), (&b"f"[..], Some(42)));
    assert!(file.modified.is_some());
    assert_eq!(session.stat(b"/d").await.unwrap().kind, EntryKind::Dir);
    assert_eq!(
        session.stat(b"/none").await.unwrap_err().exit,
        Exit::NotFound
    );
    fake.finish().await;
}

#[tokio::test]
async fn mkdir_of_a_directory_that_is_there() {
    let acts = script([
        login_script(),
        command_and_reply("MKD /d", "550 Create directory operation failed."),
        command_and_reply("CWD /d", "250 ok"),
        command_and_reply("MKD /e", "550 Permission denied."),
        command_and_reply("CWD /e", "550 Failed to change directory."),
        command_and_reply("MKD /f", "257 \"/f\" created"),
    ]);
    let (mut session, fake) = opened(acts).await;
    assert!(!session.make_dir(b"/d").await.unwrap());
    assert_eq!(
        session.make_dir(b"/e").await.unwrap_err().exit,
        Exit::Refused
    );
    assert!(session.make_dir(b"/f").await.unwrap());
    fake.finish().await;
}

const NO_SUCH_FILE: &str = "500-Command failed\n500 No such file or directory";

#[tokio::test]
async fn a_damaged_sum_is_asked_for_again_and_never_means_that_there_is_none() {
    let feat = "211-x\n CKSM CRC32C:1;\n211 End.";
    let question = "CKSM CRC32C 0 -1 /f";
    let acts = script([
        login_script_with_feat(feat),
        command_and_reply("OPTS CKSM Markers=", "200 ok"),
        command_and_reply(question, "213 8Nbe7658"),
        command_and_reply(question, "213 8bbe7658"),
        command_and_reply(question, "501 CKSM CR#32C: no such algorithm"),
        command_and_reply(question, "213 8bbe7658"),
        command_and_reply(question, "213 8Nbe7658"),
        command_and_reply(question, "213 x"),
    ]);
    let (mut session, fake) = opened(acts).await;
    for _ in 0..2 {
        let sum = session
            .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
            .await;
        assert_eq!(sum.unwrap(), "8bbe7658");
    }
    let failure = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await
        .unwrap_err();
    assert_eq!((failure.exit, failure.transient), (Exit::Integrity, true));
    fake.finish().await;
}

/// A sum that takes longer than the client is patient, with markers on the way.
async fn long_sum() -> Result<(String, ClientSession, ScriptedFtpServer), CopyFailure> {
    let feat = "211-x\n CKSM CRC32C:1;MD5:2;\n211 End.";
    let marker = "113-Status Marker\n Timestamp: 1.0\n Bytes Processed: 5\n113 End.";
    let acts = script([
        login_script_with_feat(feat),
        command_and_reply("OPTS CKSM Markers=", "200 ok"),
        vec![ExpectLine("CKSM CRC32C 0 -1 /f")],
        vec![
            Sleep(250),
            SendLine(marker),
            Sleep(250),
            SendLine(marker),
            Sleep(250),
        ],
        vec![SendLine("213 ABCDEF")],
        command_and_reply("CKSM MD5 0 5 /f", NO_SUCH_FILE),
        command_and_reply("CKSM MD5 0 5 /f", NO_SUCH_FILE),
    ]);
    let fake = ScriptedFtpServer::start_session(acts).await;
    let patience = Duration::from_millis(400);
    let mut session = ClientSession::open(&fake.server, patience).await?;
    let sum = session
        .checksum(ChecksumAlgorithm::Crc32c, 0, None, b"/f")
        .await?;
    Ok((sum, session, fake))
}

#[tokio::test]
async fn checksum_markers_keep_a_long_sum_alive() {
    let mut tries = 0;
    let (sum, mut session, fake) = loop {
        match long_sum().await {
            Ok(long) => break long,
            // A busy machine may delay a marker, but not every time.
            Err(failure) => assert!(tries < 5, "{failure}"),
        }
        tries += 1;
    };
    assert_eq!(sum, "00abcdef");
    let failure = session
        .checksum(ChecksumAlgorithm::Md5, 0, Some(5), b"/f")
        .await
        .unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    let cannot = session
        .checksum(ChecksumAlgorithm::Sha1, 0, None, b"/f")
        .await
        .unwrap_err();
    assert_eq!(cannot.exit, Exit::Protocol);
    fake.finish().await;
}

#[tokio::test]
async fn listing_by_ls_with_hidden_names() {
    let text = b"total 8\r\n\
        drwxr-xr-x    2 0 0  4096 Nov 20 08:21 .\r\n\
        drwxr-xr-x    2 0 0  4096 Nov 20 08:21 ..\r\n\
        -rw-r--r--    1 0 0     7 Nov 20 08:21 .hidden\r\n\
        -rw-r--r--    1 0 0    42 Nov 20 08:21 a b\r\n";
    let acts = script([
        login_script(),
        command_and_reply("CWD /d", "250 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("150 go"),
        ],
        vec![SendData(text.to_vec()), SendLine("226 done")],
    ]);
    let (mut session, fake) = opened(acts).await;
    let names: Vec<_> = session
        .list(b"/d")
        .await
        .unwrap()
        .into_iter()
        .map(|e| (e.name, e.size))
        .collect();
    assert_eq!(
        names,
        [(b".hidden".to_vec(), Some(7)), (b"a b".to_vec(), Some(42))]
    );
    fake.finish().await;
}

#[tokio::test]
async fn listing_by_names_when_nothing_else_is_known() {
    let acts = script([
        login_script(),
        command_and_reply("CWD /d", "250 ok"),
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST -a"),
            SendLine("502 no"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("LIST\r"),
            SendLine("502 no"),
        ],
        vec![
            ExpectPassiveAndReply("PASV"),
            ExpectLine("NLST\r"),
            SendLine("150 go"),
        ],
        vec![SendData(b"f\r\n/d/g\r\n".to_vec()), SendLine("226 done")],
        command_and_reply("CWD /d/f", "550 no"),
        command_and_reply("SIZE /d/f", "213 1"),
        command_and_reply("MDTM /d/f", "502 no"),
        command_and_reply("CWD /d/g", "250 ok"),
        command_and_reply("MDTM /d/g", "502 no"),
    ]);
    let (mut session, fake) = opened(acts).await;
    let entries = session.list(b"/d").await.unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_slice(), e.kind))
        .collect();
    assert_eq!(
        kinds,
        [(&b"f"[..], EntryKind::File), (b"g", EntryKind::Dir)]
    );
    fake.finish().await;
}

#[tokio::test]
async fn epsv_when_pasv_is_refused() {
    let acts = script([
        login_script_with_feat("211-x\n MLST type*;size*;\n211 End"),
        command_and_reply("PASV", "500 no PASV here"),
        vec![
            ExpectPassiveAndReply("EPSV"),
            ExpectLine("MLSD /d"),
            SendLine("150 go"),
        ],
        vec![SendData(
            b"type=cdir; .\r\nType=file;Size=3; x;y z\r\n".to_vec(),
        )],
        vec![
            SendLine("226 done"),
            ExpectPassiveAndReply("EPSV"),
            ExpectLine("MLSD /e"),
        ],
        vec![SendLine("550 /e: No such file or directory")],
    ]);
    let (mut session, fake) = opened(acts).await;
    let entries = session.list(b"/d").await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].name, b"x;y z");
    let failure = session.list(b"/e").await.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    fake.finish().await;
}

#[tokio::test]
async fn a_bare_550_is_settled_by_looking() {
    let (mut session, fake) = opened(script([
        login_script(),
        command_and_reply("DELE /gone", "550 Delete operation failed."),
        command_and_reply("CWD /gone", "550 Failed to change directory."),
        command_and_reply("SIZE /gone", "550 Could not get file size."),
        command_and_reply("DELE /kept", "550 Delete operation failed."),
        command_and_reply("CWD /kept", "550 Failed to change directory."),
        command_and_reply("SIZE /kept", "213 5"),
        command_and_reply("MDTM /kept", "213 20200101000000"),
        command_and_reply("DELE /told", "550 Permission denied."),
        command_and_reply("RNFR /gone", "550 RNFR command failed."),
        command_and_reply("CWD /gone", "550 Failed to change directory."),
        command_and_reply("SIZE /gone", "550 Could not get file size."),
    ]))
    .await;
    let gone = session.delete(b"/gone").await.unwrap_err();
    assert_eq!(gone.exit, Exit::NotFound, "{gone}");
    assert!(gone.message.contains("Delete operation"), "{gone}");
    let kept = session.delete(b"/kept").await.unwrap_err();
    assert_eq!(kept.exit, Exit::Refused, "{kept}");
    let told = session.delete(b"/told").await.unwrap_err();
    assert_eq!(told.exit, Exit::Refused, "{told}");
    let gone = session.rename(b"/gone", b"/new").await.unwrap_err();
    assert_eq!(gone.exit, Exit::NotFound, "{gone}");
    fake.finish().await;
}

#[tokio::test]
async fn data_connections_go_to_the_server_itself_unless_others_are_allowed() {
    let (mut session, _fake) = opened(login_script()).await;
    let other = "192.0.2.1:4000".parse().unwrap();
    let mut warnings = Vec::new();
    let own = session.checked_data_address(other, &mut warnings);
    assert_eq!(own, "127.0.0.1:4000".parse().unwrap());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--allow-foreign-data-address"));
    session.set_allow_foreign_data(true);
    assert_eq!(session.checked_data_address(other, &mut warnings), other);
    assert_eq!(warnings.len(), 1);
}

#[tokio::test]
async fn a_server_that_wants_to_know_is_told_once_of_the_other_host_of_its_data() {
    let feat = "211-Features\n DATAPEER\n211 End";
    let acts = script([
        login_script_with_feat(feat),
        command_and_reply("SITE DATAPEER 192.0.2.1", "200 ok"),
        command_and_reply("SITE DATAPEER 192.0.2.2", "501 no"),
        command_and_reply("NOOP", "200 ok"),
    ]);
    let (mut session, fake) = opened(acts).await;
    // This machine may connect anyway.
    for host in [
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "127.0.0.1",
        "::1",
        "192.0.2.2",
    ] {
        let named = session.announce_data_peer(host.parse().unwrap()).await;
        named.unwrap();
    }
    let noop = proto::command::Command::Noop;
    assert!(session.control.call(&noop).await.unwrap().is_success());
    fake.finish().await;
}
