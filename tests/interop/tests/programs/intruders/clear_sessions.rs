//! Sessions that are held in the clear, or in an old TLS, where the server requires more.

use std::net::TcpStream;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};

use super::session::IntruderSession;
use super::target::AttackTarget;

/// A client between which and the server somebody removes AUTH.
#[test]
fn sessions_without_auth_are_refused_where_tls_is_required() {
    let target = AttackTarget::start(&["--tls", "required"]).unwrap();
    let mut cells = MatrixRow::new("--tls required");
    for command in ["USER anonymous", "USER alice", "USER :bearer:"] {
        cells.check(command, || {
            let mark = target.log_mark();
            let mut session = IntruderSession::connect(target.server.address())?;
            let refusal = session.expect(command, "5")?;
            ensure!(refusal.contains("AUTH TLS"), "{refusal}");
            session.expect("PASS x", "503")?;
            session.expect("PASV", "5")?;
            let words = ["command refused", "USER", "AUTH TLS"];
            target.server.wait_for_message(mark, &words).map(drop)
        });
    }
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}

#[test]
fn data_in_the_clear_is_refused_where_protection_is_required() {
    let target = AttackTarget::start(&["--require-protection", "data"]).unwrap();
    let web = target.pki.web_client(None).unwrap();
    let mark = target.log_mark();
    let mut session = IntruderSession::with_tls(target.server.address(), &web).unwrap();
    session.log_in_anonymously().unwrap();
    session.expect("PBSZ 0", "200").unwrap();
    session.expect("PROT C", "200").unwrap();
    session.expect("PASV", "521").unwrap();
    session.expect("RETR src/f1", "5").unwrap();
    let words = ["command refused", "PASV", "requires PROT P"];
    target.server.wait_for_message(mark, &words).unwrap();
    target.serves_ftps().unwrap();
}

#[test]
fn old_versions_of_tls_are_refused() {
    let target = AttackTarget::start(&[]).unwrap();
    let mut cells = MatrixRow::new("old TLS");
    for version in [SslVersion::TLS1, SslVersion::TLS1_1] {
        cells.check(format!("{version:?}"), || {
            let mark = target.log_mark();
            let mut session = IntruderSession::connect(target.server.address())?;
            session.expect("AUTH TLS", "234")?;
            let stream = session.stream.try_clone()?;
            ensure!(old_handshake(stream, version).is_err(), "accepted");
            let words = ["TLS handshake failed", "no TLS version that is accepted"];
            target.server.wait_for_message(mark, &words).map(drop)
        });
    }
    cells.check("what is no TLS", || {
        let mark = target.log_mark();
        let mut session = IntruderSession::connect(target.server.address())?;
        session.expect("AUTH TLS", "234")?;
        session.send_raw(b"USER anonymous\r\nPASS x\r\n")?;
        session.expect_end()?;
        let words = ["TLS handshake failed", "does not speak TLS"];
        target.server.wait_for_message(mark, &words).map(drop)
    });
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}

/// A handshake of a client that has nothing newer than `version`.
fn old_handshake(stream: TcpStream, version: SslVersion) -> Result<()> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_security_level(0);
    builder.set_cipher_list("ALL:@SECLEVEL=0")?;
    builder.set_min_proto_version(Some(version))?;
    builder.set_max_proto_version(Some(version))?;
    builder.set_verify(SslVerifyMode::NONE);
    builder.build().connect("localhost", stream)?;
    Ok(())
}
