//! A way between two programs that can be cut: afterwards nothing passes, and neither end hears of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

/// How often the threads look for a cut or the end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A relay to a server. Its connections end when it is dropped.
pub struct CuttableRelay {
    address: SocketAddr,
    state: Arc<RelayState>,
}

#[derive(Default)]
struct RelayState {
    is_cut: AtomicBool,
    is_closed: AtomicBool,
}

impl CuttableRelay {
    /// Relays connections to a free port of the server's host.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((server.ip(), 0))?;
        let address = listener.local_addr()?;
        // Non-blocking, so that the thread notices the end without a connection.
        listener.set_nonblocking(true)?;
        let state = Arc::new(RelayState::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            while !shared.is_closed.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) if !shared.is_cut.load(Ordering::Relaxed) => {
                        let _ = relay(&client, server, &shared);
                    }
                    // A host behind a cut answers nobody.
                    Ok((client, _)) => hold(client, &shared),
                    Err(_) => std::thread::sleep(CHECK_INTERVAL),
                }
            }
        });
        Ok(Self { address, state })
    }

    /// Where the relay listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing passes from now on, and no connection ends.
    pub fn cut(&self) {
        self.state.is_cut.store(true, Ordering::Relaxed);
    }
}

impl Drop for CuttableRelay {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
    }
}

fn relay(client: &TcpStream, server: SocketAddr, state: &Arc<RelayState>) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect(server)?;
    for (from, to) in [(client, &server), (&server, client)] {
        let (from, to, state) = (from.try_clone()?, to.try_clone()?, Arc::clone(state));
        from.set_read_timeout(Some(CHECK_INTERVAL))?;
        std::thread::spawn(move || pass(from, to, &state));
    }
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &RelayState) {
    let mut buffer = vec![0; 1 << 16];
    while !state.is_closed.load(Ordering::Relaxed) {
        if state.is_cut.load(Ordering::Relaxed) {
            std::thread::sleep(CHECK_INTERVAL);
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) if !state.is_cut.load(Ordering::Relaxed) => {
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

fn hold(client: TcpStream, state: &Arc<RelayState>) {
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        while !state.is_closed.load(Ordering::Relaxed) {
            std::thread::sleep(CHECK_INTERVAL);
        }
        drop(client);
    });
}
