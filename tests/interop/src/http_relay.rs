//! A relay before an HTTP server that keeps what the server says, and slows it down.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::net::HOST;

/// Most bytes of responses that are kept.
const KEPT: usize = 1 << 20;

/// Bytes that are passed on at a time.
const PIECE: usize = 64 << 10;

/// A running relay; it takes no more connections when it is dropped.
#[derive(Debug)]
pub struct HttpRelay {
    address: SocketAddr,
    state: Arc<HttpRelayState>,
}

#[derive(Debug)]
struct HttpRelayState {
    server: SocketAddr,
    /// Bytes per second of each connection, from the server.
    rate: u64,
    said: Mutex<Vec<u8>>,
    is_closed: AtomicBool,
}

impl HttpRelay {
    /// Starts a relay to a server whose responses pass at `rate` bytes per second.
    pub fn start(server: SocketAddr, rate: u64) -> Result<Self> {
        let listener = TcpListener::bind((HOST, 0)).context("no port for a relay")?;
        let address = listener.local_addr()?;
        let state = Arc::new(HttpRelayState {
            server,
            rate,
            said: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_closed.load(Ordering::Relaxed) {
                    break;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.relay(client));
            }
        });
        Ok(Self { address, state })
    }

    /// Address of the relay.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The first MiB of all that the server has said so far.
    #[must_use]
    pub fn responses(&self) -> String {
        let said = self.state.said.lock();
        let said = said.unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for HttpRelay {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
        // A connection wakes the thread that waits in accept(2).
        let _ = TcpStream::connect(self.address);
    }
}

impl HttpRelayState {
    fn relay(&self, client: TcpStream) -> Option<()> {
        let server = TcpStream::connect(self.server).ok()?;
        let (mut from_client, mut to_server) = (client.try_clone().ok()?, server.try_clone().ok()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Write);
        });
        self.pass_on(server, client)
    }

    fn pass_on(&self, mut server: TcpStream, mut client: TcpStream) -> Option<()> {
        let (begun, mut passed) = (Instant::now(), 0);
        let mut piece = vec![0; PIECE];
        loop {
            let length = server.read(&mut piece).ok().filter(|length| *length > 0);
            let Some(length) = length else {
                return client.shutdown(Shutdown::Write).ok();
            };
            client.write_all(&piece[..length]).ok()?;
            if let Ok(mut said) = self.said.lock() {
                let room = KEPT.saturating_sub(said.len()).min(length);
                said.extend(&piece[..room]);
            }
            passed += length as u64;
            let due = Duration::from_micros(passed * 1_000_000 / self.rate);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
    }
}
