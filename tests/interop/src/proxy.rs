//! A proxy between an FTP client and a server that cuts data connections.
//!
//! It replaces the addresses in 227, 127 and 229 replies and in PORT and EPRT commands by addresses of its
//! own relays, so that all data passes through it. It forwards everything else unchanged.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::net::HOST;

/// Rules for the connections of the proxy, and what has happened to them.
#[derive(Debug, Default)]
struct ProxyRules {
    /// Data bytes of a connection before it is cut.
    cut_after: u64,
    /// Number of cuts still to do.
    cuts_left: AtomicU64,
    /// Number of cuts done.
    cuts_made: AtomicU64,
    /// The server is told an address to connect to where nobody listens.
    hides_others: bool,
    /// A cut takes the control connection, too.
    cuts_sessions: bool,
    /// Set when the proxy is dropped; the relays then end.
    is_closed: AtomicBool,
}

/// A session through the proxy.
#[derive(Debug)]
struct ProxySession {
    /// The control connections with both ends.
    control: [TcpStream; 2],
    rules: Arc<ProxyRules>,
}

/// A running proxy; its connections end when it is dropped.
#[derive(Debug)]
pub struct FtpProxy {
    address: SocketAddr,
    rules: Arc<ProxyRules>,
}

impl FtpProxy {
    /// Starts a proxy for `server` that cuts `times` data connections, each after `after` bytes.
    pub fn cutting(server: SocketAddr, after: u64, times: u64) -> Result<Self> {
        Self::start(
            server,
            ProxyRules {
                cut_after: after,
                cuts_left: AtomicU64::new(times),
                ..ProxyRules::default()
            },
        )
    }

    /// Like [`FtpProxy::cutting`], with the control connections of these sessions.
    pub fn cutting_sessions(server: SocketAddr, after: u64, times: u64) -> Result<Self> {
        Self::start(
            server,
            ProxyRules {
                cut_after: after,
                cuts_left: AtomicU64::new(times),
                cuts_sessions: true,
                ..ProxyRules::default()
            },
        )
    }

    /// Starts a proxy for `server` that lets it connect to nobody.
    pub fn apart(server: SocketAddr) -> Result<Self> {
        Self::start(
            server,
            ProxyRules {
                hides_others: true,
                ..ProxyRules::default()
            },
        )
    }

    fn start(server: SocketAddr, rules: ProxyRules) -> Result<Self> {
        let listener = TcpListener::bind((HOST, 0)).context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let rules = Arc::new(rules);
        let shared = Arc::clone(&rules);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_closed.load(Ordering::Relaxed) {
                    break;
                }
                if let Ok(server) = TcpStream::connect(server) {
                    control(client, server, &shared);
                }
            }
        });
        Ok(Self { address, rules })
    }

    /// Anonymous URL of a served path, through the proxy.
    #[must_use]
    pub fn url(&self, served: &str) -> String {
        format!("ftp://{}/{served}", self.address)
    }

    /// Number of data connections cut so far.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.rules.cuts_made.load(Ordering::Relaxed)
    }
}

impl Drop for FtpProxy {
    fn drop(&mut self) {
        self.rules.is_closed.store(true, Ordering::Relaxed);
        // A connection wakes the thread that waits in accept(2).
        let _ = TcpStream::connect(self.address);
    }
}

/// Relays a control connection in both directions, line by line.
fn control(client: TcpStream, server: TcpStream, rules: &Arc<ProxyRules>) {
    let ends = [(&client, &server), (&server, &client)]
        .map(|(from, to)| Some((from.try_clone().ok()?, to.try_clone().ok()?)));
    let session = Arc::new(ProxySession {
        control: [client, server],
        rules: Arc::clone(rules),
    });
    for (from, to) in ends.into_iter().flatten() {
        let session = Arc::clone(&session);
        std::thread::spawn(move || lines(from, to, &session));
    }
}

fn lines(from: TcpStream, mut to: TcpStream, session: &Arc<ProxySession>) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        let sent = match redirect(&text, session) {
            Some(other) => to.write_all(other.as_bytes()),
            None => to.write_all(&line),
        };
        if sent.is_err() {
            break;
        }
        line.clear();
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = reader.get_ref().shutdown(Shutdown::Both);
}

/// The line with its address replaced by that of a new relay; `None` if it has no address.
fn redirect(line: &str, session: &Arc<ProxySession>) -> Option<String> {
    let line = line.trim_end();
    let verb = line.get(..4)?;
    if session.rules.hides_others && ["PORT", "EPRT", "SPOR"].contains(&verb) {
        return Some("PORT 127,0,0,1,4,1\r\n".to_owned());
    }
    if ["227 ", "127 "].contains(&verb) || verb.eq_ignore_ascii_case("PORT") {
        let digits = line.get(4..)?;
        let start = 4 + digits.find(|c: char| c.is_ascii_digit())?;
        let numbers = line[start..].trim_end_matches([')', '.', ' ']);
        let relay = relay(parse_port(numbers)?, session)?;
        let [high, low] = relay.to_be_bytes();
        return Some(format!(
            "{}127,0,0,1,{high},{low}{}\r\n",
            &line[..start],
            &line[start + numbers.len()..]
        ));
    }
    if verb == "229 " {
        let (before, rest) = line.split_once("|||")?;
        let (port, after) = rest.split_once('|')?;
        let relay = relay((Ipv4Addr::LOCALHOST, port.parse().ok()?).into(), session)?;
        return Some(format!("{before}|||{relay}|{after}\r\n"));
    }
    if verb.eq_ignore_ascii_case("EPRT") {
        let mut fields = line.get(6..)?.split('|');
        let (_, host, port) = (fields.next()?, fields.next()?, fields.next()?);
        let relay = relay(
            (host.parse::<Ipv4Addr>().ok()?, port.parse().ok()?).into(),
            session,
        )?;
        return Some(format!("EPRT |1|127.0.0.1|{relay}|\r\n"));
    }
    None
}

/// Parses `h1,h2,h3,h4,p1,p2` (RFC 959).
fn parse_port(text: &str) -> Option<SocketAddr> {
    let numbers: Vec<u8> = text
        .split(',')
        .map(|n| n.trim().parse().ok())
        .collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers[..] else {
        return None;
    };
    Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
}

/// Listens on a new port and relays every connection to `target`; returns the port.
fn relay(target: SocketAddr, session: &Arc<ProxySession>) -> Option<u16> {
    let listener = TcpListener::bind((HOST, 0)).ok()?;
    let port = listener.local_addr().ok()?.port();
    // Non-blocking, so that the thread notices `is_closed` without a connection.
    listener.set_nonblocking(true).ok()?;
    let session = Arc::clone(session);
    std::thread::spawn(move || {
        while !session.rules.is_closed.load(Ordering::Relaxed) {
            let Ok((client, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let connected = client
                .set_nonblocking(false)
                .and_then(|()| TcpStream::connect(target));
            if let Ok(server) = connected {
                data(&client, &server, &session);
            }
        }
    });
    Some(port)
}

fn data(client: &TcpStream, server: &TcpStream, session: &Arc<ProxySession>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
            return;
        };
        let (is_cut, session) = (Arc::clone(&is_cut), Arc::clone(session));
        std::thread::spawn(move || pass(from, to, &is_cut, &session));
    }
}

/// Forwards bytes in one direction until the end, or until the cut, which resets both connections.
fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool, session: &ProxySession) {
    let rules = &session.rules;
    let mut buffer = vec![0; 1 << 16];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        passed += count as u64;
        if passed > rules.cut_after && decrement_if_positive(&rules.cuts_left) {
            is_cut.store(true, Ordering::Relaxed);
            rules.cuts_made.fetch_add(1, Ordering::Relaxed);
            for end in [&from, &to] {
                // With SO_LINGER of 0 the last close sends RST (socket(7)): a lost connection must not
                // look like an end of file. Shutting down reads lets the other thread close as well.
                let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
                let _ = end.shutdown(Shutdown::Read);
            }
            for end in session.control.iter().filter(|_| rules.cuts_sessions) {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
        if is_cut.load(Ordering::Relaxed) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    if !is_cut.load(Ordering::Relaxed) {
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn decrement_if_positive(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<ProxySession> {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let control = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let rules = ProxyRules::default();
        rules.is_closed.store(true, Ordering::Relaxed);
        Arc::new(ProxySession {
            control: [control(), control()],
            rules: Arc::new(rules),
        })
    }

    #[test]
    fn addresses_are_replaced_in_every_form() {
        for line in [
            "227 Entering Passive Mode (10,1,2,3,4,5)\r\n",
            "227 Entering Passive Mode (10,1,2,3,4,5).\r\n",
            "PORT 10,1,2,3,4,5\r\n",
        ] {
            let other = redirect(line, &session()).unwrap();
            assert!(
                other.contains("127,0,0,1,") && !other.contains("10,1,2,3"),
                "{other}"
            );
            assert_eq!(other.contains(')'), line.contains(')'));
        }
        let other = redirect(
            "229 Entering Extended Passive Mode (|||1234|)\r\n",
            &session(),
        );
        assert!(other.is_some_and(|text| !text.contains("1234") && text.ends_with("|)\r\n")));
        let other = redirect("EPRT |1|10.1.2.3|1234|\r\n", &session()).unwrap();
        assert!(
            other.starts_with("EPRT |1|127.0.0.1|") && !other.contains("1234"),
            "{other}"
        );
        assert_eq!(redirect("226 Transfer complete.\r\n", &session()), None);
    }
}
