//! Free ports and waiting for listeners.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// The loopback host of every test that is not about addresses.
pub const HOST: &str = "127.0.0.1";

/// A port that was free a moment ago, for servers that cannot pick one themselves. The kernel
/// hands out ephemeral ports in turn, so that another process taking it at once is unlikely.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((HOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether something listens there.
#[must_use]
pub fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// Whether this machine has an IPv6 loopback.
#[must_use]
pub fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}
