//! Data connections to hosts that have nothing to do with the client (FTP bounce, RFC 2577 section 3).

use std::net::TcpListener;

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;

use super::session::IntruderSession;
use super::target::AttackTarget;

/// The host of the victim.
const VICTIM: &str = "127.0.0.7";

fn bounce(target: &AttackTarget, session: &mut IntruderSession) -> Result<()> {
    let victim = TcpListener::bind((VICTIM, 0))?;
    victim.set_nonblocking(true)?;
    let port = victim.local_addr()?.port();
    let (high, low) = (port >> 8, port & 255);
    for command in [
        format!("PORT 127,0,0,7,{high},{low}"),
        format!("EPRT |1|{VICTIM}|{port}|"),
        format!("SPOR 127,0,0,7,{high},{low}"),
    ] {
        let mark = target.log_mark();
        session.expect(&command, "5")?;
        // No earlier address may be in force either.
        let reply = session.command("RETR src/f1")?;
        ensure!(reply.starts_with(['4', '5']), "{command}: {reply}");
        let words = ["command refused", &command, "to other hosts"];
        target.server.wait_for_message(mark, &words)?;
        ensure!(victim.accept().is_err(), "{command}: connected");
    }
    Ok(())
}

#[test]
fn bounces_to_other_hosts_are_refused_and_logged() {
    let target = AttackTarget::start(&[]).unwrap();
    let address = target.server.address();
    let mut cells = MatrixRow::new("PORT to other hosts");
    cells.check("anonymous, in the clear", || {
        let mut session = IntruderSession::connect(address)?;
        session.log_in_anonymously()?;
        bounce(&target, &mut session)
    });
    cells.check("anonymous, inside TLS", || {
        let config = target.pki.web_client(None)?;
        let mut session = IntruderSession::with_tls(address, &config)?;
        session.log_in_anonymously()?;
        session.expect("PBSZ 0", "200")?;
        session.expect("PROT P", "200")?;
        bounce(&target, &mut session)
    });
    cells.check("the server serves on", || target.serves_others());
    cells.finish();
}
