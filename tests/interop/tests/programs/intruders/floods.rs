//! Handshakes that are never completed, and clients that send a byte now and then.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use security::gsi::{Delegation, GsiInitiator, GsiStep};
use security::tls::{TlsConfig, TlsEngine};

use super::session::{IntruderSession, take_outgoing};
use super::target::AttackTarget;

/// Half-open handshakes of the flood.
const FLOOD: usize = 1000;

/// Most memory that the flood may cost, bytes. It costs 24 MB, since one address has 256 handshakes at
/// most; without that bound it costs 48 MB.
const FLOOD_MEMORY: u64 = 40_000_000;

/// A first flight of a TLS client.
fn client_hello(config: &TlsConfig) -> Result<Vec<u8>> {
    let mut engine = TlsEngine::new(config, None)?;
    engine.handshake()?;
    Ok(take_outgoing(&mut engine))
}

/// A first token of a GSI client.
fn first_token(config: &TlsConfig) -> Result<String> {
    let mut initiator = GsiInitiator::new(config, Delegation::None)?;
    match initiator.step(None)? {
        GsiStep::Continue(token) => Ok(BASE64.encode(token)),
        GsiStep::Complete(..) => anyhow::bail!("complete at once"),
    }
}

#[test]
fn a_thousand_half_open_handshakes_cost_bounded_memory_and_others_are_served() {
    let mut target = AttackTarget::start(&[]).unwrap();
    let web = target.pki.web_client(None).unwrap();
    let grid = target.pki.grid_client(&target.pki.user).unwrap();
    // Memory that the server needs once, for any number of clients, is not counted.
    target.serves_others().unwrap();
    let before = target.server.resident_memory().unwrap();
    let mark = target.log_mark();
    let hello = client_hello(&web).unwrap();
    let token = first_token(&grid).unwrap();
    let mut open = Vec::new();
    for number in 0..FLOOD {
        let session = IntruderSession::connect(target.server.address());
        let mut session = session.with_context(|| format!("client {number}")).unwrap();
        match number % 4 {
            // Silent behind AUTH, in the middle of a record, behind the server's flight, and behind a token.
            0 => session.expect("AUTH TLS", "234").map(drop),
            1 => session
                .expect("AUTH TLS", "234")
                .and_then(|_| session.send_raw(&hello[..hello.len() / 2])),
            2 => session
                .expect("AUTH TLS", "234")
                .and_then(|_| session.send_raw(&hello))
                .and_then(|()| Ok(session.stream.read_exact(&mut [0])?)),
            _ => session
                .expect("AUTH GSSAPI", "334")
                .and_then(|_| session.expect(&format!("ADAT {token}"), "335"))
                .map(drop),
        }
        .with_context(|| format!("client {number}"))
        .unwrap();
        open.push(session);
        if number == FLOOD / 2 {
            target.serves_others().unwrap();
        }
    }
    target.serves_others().unwrap();
    let after = target.server.resident_memory().unwrap();
    println!("{FLOOD} half-open handshakes: from {before} to {after} bytes");
    assert!(
        after < before + FLOOD_MEMORY,
        "memory has grown from {before} to {after} bytes"
    );
    let words = [
        "TLS handshake abandoned",
        "newer handshakes have displaced it",
    ];
    target.server.wait_for_message(mark, &words).unwrap();
    drop(open);
    target.serves_others().unwrap();
    target.ensure_running().unwrap();
}

/// A client that sends `bytes`, one at a time, and never reads.
struct SlowClient {
    stream: TcpStream,
    bytes: Vec<u8>,
    sent: usize,
}

impl SlowClient {
    /// Sends the next byte. Returns whether the connection is still open.
    fn drip(&mut self) -> bool {
        let byte = self.bytes.get(self.sent).copied();
        self.sent += 1;
        let sent = byte.is_none_or(|byte| self.stream.write_all(&[byte]).is_ok());
        let mut buffer = [0; 4096];
        // Replies are of no interest, but the end of the connection is.
        let ended = match self.stream.read(&mut buffer) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        sent && !ended
    }
}

fn slow_clients(server: SocketAddr, web: &TlsConfig, grid: &TlsConfig) -> Result<Vec<SlowClient>> {
    let hello = client_hello(web)?;
    let records = |session: &mut IntruderSession| -> Result<Vec<u8>> {
        session.start_tls(web)?;
        let mut all = Vec::new();
        for _ in 0..50 {
            all.extend(session.records("NOOP")?);
        }
        Ok(all)
    };
    let mut clients = Vec::new();
    for number in 0..60 {
        let mut session = IntruderSession::connect(server)?;
        let bytes = match number % 4 {
            0 => b"AUTH TLS".repeat(500),
            1 => {
                session.expect("AUTH TLS", "234")?;
                hello.clone()
            }
            2 => {
                session.expect("AUTH GSSAPI", "334")?;
                format!("ADAT {}", first_token(grid)?).into_bytes()
            }
            _ => records(&mut session)?,
        };
        session.stream.set_nonblocking(true)?;
        clients.push(SlowClient {
            stream: session.stream,
            bytes,
            sent: 0,
        });
    }
    Ok(clients)
}

/// Slow AUTH, slow ADAT, slow handshakes and slow records: none extends the time for the login.
#[test]
fn clients_of_a_byte_now_and_then_are_closed_and_others_are_served() {
    let mut target = AttackTarget::start(&["--login-timeout", "5"]).unwrap();
    let web = target.pki.web_client(None).unwrap();
    let grid = target.pki.grid_client(&target.pki.user).unwrap();
    let mark = target.log_mark();
    let mut clients = slow_clients(target.server.address(), &web, &grid).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| target.serves_others());
        let start = Instant::now();
        while !clients.is_empty() {
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "{} slow clients are still connected",
                clients.len()
            );
            clients.retain_mut(SlowClient::drip);
            std::thread::sleep(Duration::from_millis(20));
        }
        served.join().unwrap().unwrap();
    });
    for words in [
        &[
            "TLS handshake abandoned",
            "not complete within login-timeout",
        ],
        &["closing session", "no login in time"],
    ] {
        target.server.wait_for_message(mark, words).unwrap();
    }
    target.serves_others().unwrap();
    target.ensure_running().unwrap();
}

/// A client that begins a data connection's handshake and stops holds nobody up but itself.
#[test]
fn slow_handshakes_of_data_connections_end_with_the_stall_time() {
    let target = AttackTarget::start(&["--stall-timeout", "2"]).unwrap();
    let web = target.pki.web_client(None).unwrap();
    let mut session = IntruderSession::with_tls(target.server.address(), &web).unwrap();
    session.log_in_anonymously().unwrap();
    session.expect("PBSZ 0", "200").unwrap();
    session.expect("PROT P", "200").unwrap();
    let reply = session.expect("PASV", "227").unwrap();
    session.send("RETR src/f65536").unwrap();
    let address = interop::net::passive_address(&reply).unwrap();
    let mut data = TcpStream::connect(address).unwrap();
    let hello = client_hello(&web).unwrap();
    let mark = target.log_mark();
    data.write_all(&hello[..hello.len() / 2]).unwrap();
    target.serves_others().unwrap();
    let mut reply = session.reply().unwrap();
    while reply.starts_with('1') {
        reply = session.reply().unwrap();
    }
    assert!(reply.starts_with("42"), "{reply}");
    let words = ["data connection", "handshake"];
    target.server.wait_for_message(mark, &words).unwrap();
    session.expect("NOOP", "200").unwrap();
}
