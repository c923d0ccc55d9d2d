//! The session against scripted servers with unusual behaviour.

use std::sync::Arc;
use std::time::Duration;

use proto::checksum::ChecksumAlgorithm;
use proto::listing::EntryKind;

use super::ClientSession;
use super::scripted_server::{
    ScriptedAction, ScriptedFtpServer, command_and_reply, login_script, login_script_with_feat,
    script,
};
use crate::location::{Scheme, Server};
use crate::{Credential, Failure, FailureKind};
use ScriptedAction::{ExpectLine, ExpectPassiveAndReply, SendData, SendLine, Sleep};

mod checksum;
mod facts;
mod links;
mod listing;
mod metadata;
mod pipelining;
mod ports;
mod preliminary;
mod secured;
mod telnet;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn open_script(actions: Vec<ScriptedAction>) -> Result<ClientSession, Failure> {
    let peer = ScriptedFtpServer::start_session(actions).await;
    ClientSession::open(&peer.server, TIMEOUT).await
}

async fn open_session(actions: Vec<ScriptedAction>) -> (ClientSession, ScriptedFtpServer) {
    let peer = ScriptedFtpServer::start_session(actions).await;
    let session = ClientSession::open(&peer.server, TIMEOUT).await.unwrap();
    (session, peer)
}

#[tokio::test]
async fn login_accepts_multi_line_and_stray_lines() {
    let actions = script([
        vec![SendLine("220-Welcome\n220-second\nno code here\n220 ready")],
        command_and_reply("USER joe", "331-\n331 Password please"),
        vec![
            ExpectLine("PASS secret"),
            SendLine("stray\n230-hello joe\n230 End."),
        ],
        command_and_reply("FEAT", "211-Features\n SIZE\n MLST type*;\n211 End"),
        command_and_reply("TYPE I", "200 ok"),
    ]);
    let (session, peer) = open_session(actions).await;
    assert!(session.features().feat_answered && session.features().mlst);
    assert!(session.rtt() > Duration::ZERO);
    peer.finish().await;
}

#[tokio::test]
async fn a_peer_that_does_not_speak_ftp_fails_at_once() {
    for (said, shown) in [
        ("SSH-2.0-OpenSSH_9.6", "it said `SSH-2.0-OpenSSH_9.6`"),
        ("999 hi", "it said `999 hi`"),
        ("\u{15}\u{3}\u{1}", "it said `\\x15\\x03\\x01`"),
    ] {
        // The server stays connected and the timeout is an hour, so only the text can end this.
        let peer =
            ScriptedFtpServer::start_session(vec![SendLine(said), ScriptedAction::ExpectEof]).await;
        let failure = ClientSession::open(&peer.server, Duration::from_secs(3600)).await;
        let failure = failure.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Protocol);
        assert!(!failure.may_retry());
        assert!(
            failure.to_string().contains("does not speak FTP"),
            "{failure}"
        );
        assert!(failure.to_string().contains(shown), "{failure}");
    }
}

/// Replies of a server without MLST for a missing path.
fn not_found_replies(cwd: &'static str, size: &'static str) -> Vec<ScriptedAction> {
    [
        command_and_reply(cwd, "550 Failed to change directory."),
        command_and_reply(size, "550 Could not get file size."),
    ]
    .concat()
}

#[tokio::test]
async fn refused_mkd_names_the_missing_parent_directory() {
    let actions = script([
        login_script(),
        command_and_reply("MKD /no/x", "550 Create directory operation failed."),
        command_and_reply("CWD /no/x", "550 Failed to change directory."),
        not_found_replies("CWD /no/x", "SIZE /no/x"),
        command_and_reply("CWD /no\r", "550 Failed to change directory."),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let failure = session.make_dir(b"/no/x").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(
        failure.to_string().contains("no directory /no "),
        "{failure}"
    );
    peer.finish().await;
}

#[tokio::test]
async fn an_unexplained_refusal_of_an_existing_file_means_permission() {
    let actions = script([
        login_script(),
        command_and_reply("DELE /a", "550 Delete operation failed."),
        command_and_reply("CWD /a", "550 Failed to change directory."),
        command_and_reply("SIZE /a", "213 5"),
        command_and_reply("MDTM /a", "500 what?"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    let failure = session.delete(b"/a").await.unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Refused);
    assert!(!failure.may_retry());
    peer.finish().await;
}

#[tokio::test]
async fn a_login_without_password_sends_no_pass() {
    let actions = script([
        vec![SendLine("220 hi")],
        command_and_reply("USER joe", "230 in already"),
        command_and_reply("FEAT", "500 what?"),
        command_and_reply("TYPE I", "200 ok"),
    ]);
    let (_session, peer) = open_session(actions).await;
    peer.finish().await;
}

#[tokio::test]
async fn refused_logins_give_the_reason() {
    let table: &[(&'static str, &str, FailureKind, bool)] = &[
        (
            "530 Login incorrect.",
            "check user name",
            FailureKind::Refused,
            false,
        ),
        (
            "530 Must perform GSSAPI authentication.",
            "needs GSI security",
            FailureKind::Refused,
            false,
        ),
        (
            "530 Non-anonymous sessions must use encryption.",
            "needs TLS",
            FailureKind::Refused,
            false,
        ),
        ("332 account?", "ACCT", FailureKind::Refused, false),
        (
            "421 too many",
            "try again later",
            FailureKind::SessionLimit,
            true,
        ),
    ];
    for (reply, words, kind, may_retry) in table {
        let actions = script([
            vec![SendLine("220 hi")],
            command_and_reply("USER joe", reply),
        ]);
        let failure = open_script(actions).await.unwrap_err();
        assert!(failure.to_string().contains(words), "{failure}");
        assert_eq!((failure.kind(), failure.may_retry()), (*kind, *may_retry));
    }
}

#[tokio::test]
async fn unusable_greetings_fail_with_their_class() {
    let busy = open_script(vec![SendLine("421 Service busy")])
        .await
        .unwrap_err();
    assert_eq!(busy.kind(), FailureKind::SessionLimit);
    assert!(busy.may_retry());
    assert!(busy.to_string().contains("Service busy"), "{busy}");

    let http = "HTTP/1.1 400 Bad Request\n".repeat(40);
    let garbage = open_script(vec![SendLine(http.leak())]).await.unwrap_err();
    assert_eq!(garbage.kind(), FailureKind::Protocol);
    assert!(!garbage.may_retry());

    let closed = open_script(vec![]).await.unwrap_err();
    assert_eq!(closed.kind(), FailureKind::Unreachable);
    assert!(closed.may_retry());
}

#[tokio::test]
async fn a_silent_server_runs_into_the_timeout() {
    let peer = ScriptedFtpServer::start_session(vec![ScriptedAction::ExpectEof]).await;
    let failure = ClientSession::open(&peer.server, Duration::from_millis(200))
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Unreachable);
    assert!(failure.may_retry());
    assert!(failure.to_string().contains("did not answer"), "{failure}");
}

#[tokio::test]
async fn refused_connections_and_unknown_hosts_are_not_retried() {
    let server = |host: &str, port| Server {
        scheme: Scheme::Ftp,
        host: host.to_owned(),
        port,
        credential: Credential::password("joe", "secret"),
        query: None,
        security: Arc::default(),
    };
    // Bound but not listening: nobody else can take the port and answer there.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    deaf.bind(&any_port.into()).unwrap();
    let port = deaf.local_addr().unwrap().as_socket().unwrap().port();
    let refused = ClientSession::open(&server("127.0.0.1", port), TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), FailureKind::Unreachable);
    assert!(!refused.may_retry());
    assert!(refused.to_string().contains("cannot connect"), "{refused}");

    let unknown = ClientSession::open(&server("no-such-host.invalid", 21), TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(unknown.kind(), FailureKind::Unreachable);
    assert!(!unknown.may_retry());
}

#[tokio::test]
async fn names_with_line_breaks_are_refused_before_anything_is_sent() {
    let (mut session, peer) = open_session(login_script()).await;
    for path in [&b"/a\nDELE /b"[..], b"/a\rb", b"/a\0b", b""] {
        let failure = session.delete(path).await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage);
    }
    peer.finish().await;
    let mut server = ScriptedFtpServer::start_session(login_script())
        .await
        .server;
    let unsupported = Credential::Token("secret".into());
    for credential in [Credential::password("joe\r\nDELE x", "secret"), unsupported] {
        server.credential = credential;
        let failure = ClientSession::open(&server, TIMEOUT).await.unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage);
    }
}

#[tokio::test]
async fn mkdir_reports_an_existing_directory() {
    let actions = script([
        login_script(),
        command_and_reply("MKD /e", "550 Permission denied."),
        // Perhaps the server wants the name alone.
        command_and_reply("CWD /\r\n", "250 ok"),
        command_and_reply("CWD /.longhaul-no-such-name", "550 no"),
        command_and_reply("MKD e", "550 Permission denied."),
        command_and_reply("CWD /e", "550 Failed to change directory."),
        command_and_reply("MKD /d", "550 Create directory operation failed."),
        command_and_reply("CWD /d", "250 ok"),
        command_and_reply("MKD /f", "257 \"/f\" created"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    assert_eq!(
        session.make_dir(b"/e").await.unwrap_err().kind(),
        FailureKind::Refused
    );
    assert!(!session.make_dir(b"/d").await.unwrap());
    assert!(session.make_dir(b"/f").await.unwrap());
    peer.finish().await;
}

#[tokio::test]
async fn an_unexplained_550_is_resolved_by_stat() {
    let (mut session, peer) = open_session(script([
        login_script(),
        command_and_reply("DELE /gone", "550 Delete operation failed."),
        command_and_reply("CWD /gone", "550 Failed to change directory."),
        command_and_reply("SIZE /gone", "550 Could not get file size."),
        command_and_reply("DELE /kept", "550 Delete operation failed."),
        command_and_reply("CWD /kept", "550 Failed to change directory."),
        command_and_reply("SIZE /kept", "213 5"),
        command_and_reply("MDTM /kept", "213 20200101000000"),
        command_and_reply("DELE /protected", "550 Permission denied."),
        command_and_reply("CWD /\r\n", "550 Failed to change directory."),
        command_and_reply("RNFR /gone", "550 RNFR command failed."),
        command_and_reply("CWD /gone", "550 Failed to change directory."),
        command_and_reply("SIZE /gone", "550 Could not get file size."),
    ]))
    .await;
    let missing = session.delete(b"/gone").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound, "{missing}");
    assert!(
        missing.to_string().contains("Delete operation"),
        "{missing}"
    );
    let kept = session.delete(b"/kept").await.unwrap_err();
    assert_eq!(kept.kind(), FailureKind::Refused, "{kept}");
    let denied = session.delete(b"/protected").await.unwrap_err();
    assert_eq!(denied.kind(), FailureKind::Refused, "{denied}");
    let missing = session.rename(b"/gone", b"/new").await.unwrap_err();
    assert_eq!(missing.kind(), FailureKind::NotFound, "{missing}");
    peer.finish().await;
}

#[tokio::test]
async fn data_connections_use_the_servers_host_unless_foreign_hosts_are_allowed() {
    let (mut session, _peer) = open_session(login_script()).await;
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
async fn datapeer_is_announced_once_per_host() {
    let feat = "211-Features\n DATAPEER\n211 End";
    let actions = script([
        login_script_with_feat(feat),
        command_and_reply("SITE DATAPEER 192.0.2.1", "200 ok"),
        command_and_reply("SITE DATAPEER 192.0.2.2", "501 no"),
        command_and_reply("NOOP", "200 ok"),
    ]);
    let (mut session, peer) = open_session(actions).await;
    // The last two are hosts of this machine, which needs no announcement.
    for host in [
        "192.0.2.1",
        "::ffff:192.0.2.1",
        "127.0.0.1",
        "::1",
        "192.0.2.2",
    ] {
        let named = session.announce_data_peers(&[host.parse().unwrap()]).await;
        named.unwrap();
    }
    let noop = proto::command::Command::Noop;
    assert!(session.control.call(&noop).await.unwrap().is_success());
    peer.finish().await;
}
