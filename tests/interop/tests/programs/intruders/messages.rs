//! Commands and tokens that are altered, replayed, or sent outside of the protection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use interop::cells::MatrixRow;
use security::gsi::{Delegation, GsiInitiator, GsiStep};
use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine};

use super::session::{IntruderSession, protected, take_outgoing};
use super::target::AttackTarget;

/// Reads a data connection inside TLS up to its first bytes, or fails.
pub(super) fn read_data(mut stream: TcpStream, config: &TlsConfig) -> Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let mut engine = TlsEngine::new(config, None)?;
    let mut is_complete = false;
    loop {
        if !is_complete {
            let progress = engine.handshake();
            stream.write_all(&take_outgoing(&mut engine))?;
            is_complete = progress? == Handshake::Complete;
        }
        if is_complete {
            let mut plain = vec![0; 1 << 14];
            match engine.read(&mut plain)? {
                ReadResult::Bytes(count) => {
                    plain.truncate(count);
                    return Ok(plain);
                }
                ReadResult::Closed => anyhow::bail!("no data"),
                ReadResult::NeedsInput => {}
            }
        }
        let mut buffer = [0; 1 << 14];
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the connection ended");
        engine.receive(&buffer[..count]);
    }
}

/// The tokens of RFC 2228: an altered one, one that is sent twice, one that is missing, and one that is no
/// base64.
#[test]
fn tampered_commands_end_gsi_sessions() {
    let mut target = AttackTarget::start(&[]).unwrap();
    let config = target.pki.grid_client(&target.pki.user).unwrap();
    let connect = || IntruderSession::with_grid(target.server.address(), &config);
    let mut cells = MatrixRow::new("tampered commands");
    for verb in ["MIC", "CONF", "ENC"] {
        cells.check(format!("{verb}, altered"), || {
            let mut session = connect()?;
            let mark = target.log_mark();
            let mut token = session.wrap("MKD made")?;
            *token.last_mut().context("empty")? ^= 1;
            session.send_raw(&protected(verb, &token))?;
            target.ends_with_message(
                &mut session,
                mark,
                &["a protected command is forged or damaged", "altered"],
            )
        });
        cells.check(format!("{verb}, replayed"), || {
            let mut session = connect()?;
            let mark = target.log_mark();
            let token = session.wrap("MKD made")?;
            session.send_raw(&protected(verb, &token))?;
            session.expect_reply("257")?;
            session.expect("RMD made", "250")?;
            session.send_raw(&protected(verb, &token))?;
            target.ends_with_message(
                &mut session,
                mark,
                &["a protected command is forged or damaged"],
            )
        });
        cells.check(format!("{verb}, behind one that was dropped"), || {
            let mut session = connect()?;
            let mark = target.log_mark();
            let _dropped = session.wrap("NOOP")?;
            let token = session.wrap("MKD made")?;
            session.send_raw(&protected(verb, &token))?;
            target.ends_with_message(
                &mut session,
                mark,
                &["a protected command is forged or damaged"],
            )
        });
        cells.check(format!("{verb}, no token"), || {
            let mut session = connect()?;
            let mark = target.log_mark();
            session.send_raw(format!("{verb} ***\r\n").as_bytes())?;
            target.ends_with_message(
                &mut session,
                mark,
                &["a forged or damaged command ends the session"],
            )
        });
    }
    cells.check("nothing was carried out", || {
        ensure!(!target.store.path("made").exists());
        Ok(())
    });
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
    target.ensure_running().unwrap();
}

#[test]
fn commands_outside_of_the_protection_are_refused_and_logged() {
    let target = AttackTarget::start(&[]).unwrap();
    let grid = target.pki.grid_client(&target.pki.user).unwrap();
    let web = target.pki.web_client(None).unwrap();
    let mut cells = MatrixRow::new("commands outside of the protection");
    cells.check("in the clear, inside GSI", || {
        let mut session = IntruderSession::with_grid(target.server.address(), &grid)?;
        let mark = target.log_mark();
        session.send_raw(b"MKD made\r\n")?;
        session.expect_reply("533")?;
        let words = ["command refused", "MKD", "must be protected"];
        target.server.wait_for_message(mark, &words).map(drop)
    });
    cells.check("in the clear, inside TLS", || {
        let mut session = IntruderSession::with_tls(target.server.address(), &web)?;
        session.log_in_anonymously()?;
        let mark = target.log_mark();
        session.send_raw(b"MKD made\r\n")?;
        target.ends_with_message(&mut session, mark, &["session lost", "TLS"])
    });
    cells.check("a record that was altered", || {
        let mut session = IntruderSession::with_tls(target.server.address(), &web)?;
        session.log_in_anonymously()?;
        let mark = target.log_mark();
        let mut record = session.records("MKD made")?;
        *record.last_mut().context("empty")? ^= 1;
        session.send_raw(&record)?;
        target.ends_with_message(
            &mut session,
            mark,
            &["session lost", "a record was altered"],
        )
    });
    for (name, auth) in [("TLS", "AUTH TLS"), ("GSI", "AUTH GSSAPI")] {
        cells.check(format!("injected behind AUTH, {name}"), || {
            let mut session = IntruderSession::connect(target.server.address())?;
            let mark = target.log_mark();
            session.send_raw(format!("{auth}\r\nMKD made\r\n").as_bytes())?;
            target.ends_with_message(&mut session, mark, &["data was sent behind AUTH"])
        });
    }
    cells.check("nothing was carried out", || {
        ensure!(!target.store.path("made").exists());
        Ok(())
    });
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}

/// The tokens of one exchange, as its client sends them, and as an eavesdropper may send them again.
#[test]
fn replayed_exchanges_are_refused() {
    let target = AttackTarget::start(&[]).unwrap();
    let config = target.pki.grid_client(&target.pki.user).unwrap();
    let mut session = IntruderSession::connect(target.server.address()).unwrap();
    session.expect("AUTH GSSAPI", "334").unwrap();
    let mut initiator = GsiInitiator::new(&config, Delegation::None).unwrap();
    let (mut token, mut seen) = (None::<Vec<u8>>, Vec::new());
    loop {
        let (output, is_complete) = match initiator.step(token.as_deref()).unwrap() {
            GsiStep::Continue(output) => (output, false),
            GsiStep::Complete(output, _) => (output.unwrap(), true),
        };
        let line = format!("ADAT {}", BASE64.encode(output));
        let reply = session.command(&line).unwrap();
        seen.push(line);
        if is_complete {
            assert!(reply.starts_with("235"), "{reply}");
            break;
        }
        let text = reply.split_once("ADAT=").unwrap().1;
        token = Some(BASE64.decode(text.trim()).unwrap());
    }
    let mark = target.log_mark();
    let mut replay = IntruderSession::connect(target.server.address()).unwrap();
    replay.expect("AUTH GSSAPI", "334").unwrap();
    let mut last = String::new();
    for line in &seen {
        last = replay.command(line).unwrap();
        if !last.starts_with("335") {
            break;
        }
    }
    assert!(last.starts_with("535"), "{last}");
    let words = ["GSI exchange refused", "altered"];
    target.server.wait_for_message(mark, &words).unwrap();
    target.serves_others().unwrap();
}
