//! Addresses, free ports and listeners.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// The loopback address of tests that need no other one.
pub const HOST: &str = "127.0.0.1";

/// Ports below the ephemeral ports of Linux (ip_local_port_range), so that the kernel does not assign one
/// between its selection here and its use by a server.
const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Passive data ports for servers that would use any port. A test's check whether some server listens
/// must never connect to a data port.
pub const PASSIVE_PORTS: std::ops::RangeInclusive<u16> = 10_000..=19_999;

/// The address in the reply to PASV.
pub fn passive_address(reply: &str) -> Result<SocketAddr> {
    let inside = reply
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let (numbers, _) = inside.with_context(|| format!("no address in {reply:?}"))?;
    let numbers: Vec<u8> = numbers
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("no address in {reply:?}"))?;
    let [a, b, c, d, high, low] = numbers[..] else {
        bail!("no address in {reply:?}");
    };
    Ok(([a, b, c, d], u16::from_be_bytes([high, low])).into())
}

/// A free port for a server that cannot select one itself.
pub fn free_port() -> Result<u16> {
    free_ports(1)
}

/// The first port of a range of free ports.
pub fn free_ports(count: u16) -> Result<u16> {
    static NEXT: OnceLock<Mutex<u16>> = OnceLock::new();
    // Test programs that run at the same time start at different ports.
    let start = || Mutex::new(u16::try_from(std::process::id() * 61 % 12_000).unwrap_or(0));
    let mut next = NEXT
        .get_or_init(start)
        .lock()
        .map_err(|_| anyhow!("a port search failed"))?;
    for _ in SERVER_PORTS {
        let first = SERVER_PORTS.start + *next % (SERVER_PORTS.end - SERVER_PORTS.start - count);
        *next = (*next + count) % SERVER_PORTS.end;
        // Binding is the only reliable test; the listeners are closed at once for the server.
        if (first..first + count).all(|port| TcpListener::bind((HOST, port)).is_ok()) {
            return Ok(first);
        }
    }
    bail!("no {count} free ports in {SERVER_PORTS:?}")
}

/// Whether a server listens on this address.
#[must_use]
pub fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// An address of this machine outside of the loopback network.
pub fn outside_address() -> Result<IpAddr, String> {
    // The kernel selects the address of the route; nothing is sent.
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    match found {
        Ok(address) if !address.ip().is_loopback() => Ok(address.ip()),
        _ => Err("this machine has no address outside of the loopback network".to_owned()),
    }
}

/// Whether this machine has an IPv6 loopback.
#[must_use]
pub fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}
