//! Which end of a host's sessions can reach ports of the other.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use proto::address::is_same_host;
use proto::carried::PortProbe;
use proto::sizing::SocketBuffers;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Shortest time for a connection. One that a firewall drops is not refused.
const SHORTEST: Duration = Duration::from_secs(1);
/// Longest time.
const LONGEST: Duration = Duration::from_secs(5);
/// Interval of attempts: a SYN that is lost is sent again after 1 s only (RFC 6298 §2.1).
const INTERVAL: Duration = Duration::from_millis(300);
/// Attempts.
const ATTEMPTS: usize = 3;
/// How much later than this end's connection the far end's may come: both began a round trip before.
pub(super) const LATER: Duration = Duration::from_millis(30);

/// Knows from earlier runs which hosts have no open ports. A host is named by the addresses of both ends, of which the memory may keep
/// prefixes alone, and the port of ssh.
pub trait PortMemory: Send + Sync + Debug {
    /// Whether no port of the host could be reached when a run searched last.
    fn were_closed(&self, local: IpAddr, host: SocketAddr) -> bool;

    /// Takes the result of a search. May block for a moment.
    fn note(&self, local: IpAddr, host: SocketAddr, are_closed: bool);
}

/// The ports that can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenPorts {
    /// This machine reaches ports of the far end.
    pub(crate) far: bool,
    /// The far end reaches ports of this machine.
    pub(crate) near: bool,
}

/// The search of a run for [`OpenPorts`] of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortSearch {
    /// No session has begun it.
    Pending,
    /// A session has begun it. Nothing is known, or an earlier run found no open port.
    Begun { were_closed: bool },
    /// Its result.
    Done(OpenPorts),
}

/// This end's part of a search that is to begin.
pub(super) struct NearPort {
    /// `None`: another host is on the way, or no port is free.
    listener: Option<TcpListener>,
}

impl NearPort {
    /// Listens, at a port of the range, for a host that may reach this machine.
    pub(super) fn listen(is_direct: bool, ports: Option<(u16, u16)>) -> Self {
        let options = ListenOptions {
            ip: Ipv6Addr::UNSPECIFIED.into(),
            ports: ports.map(|(low, high)| RangeInclusive::new(low, high)),
            accept: AllowedPeers::Any,
            buffers: SocketBuffers::default(),
        };
        let listen = || {
            let descriptor = SessionDataChannel::listen(&options)
                .ok()?
                .listener_descriptor()?;
            TcpListener::from_std(descriptor.into()).ok()
        };
        Self {
            listener: is_direct.then(listen).flatten(),
        }
    }

    /// The far end's part.
    pub(super) fn probe(&self) -> PortProbe {
        let listener = self.listener.as_ref();
        let address = listener.and_then(|listener| listener.local_addr().ok());
        PortProbe {
            client: address.map(|address| address.port()),
        }
    }

    /// Searches. `port` is the far end's, if it listens, and `login_time` that of the session: several round trips.
    pub(super) async fn search(
        self,
        host: IpAddr,
        port: Option<u16>,
        login_time: Duration,
    ) -> OpenPorts {
        let bound = (login_time / 2).clamp(SHORTEST, LONGEST);
        let until = Instant::now() + bound;
        let near = async {
            match self.listener {
                Some(listener) => timeout_at(until, accept_from(listener, host)).await.is_ok(),
                None => false,
            }
        };
        let far = async {
            match port {
                Some(port) => {
                    let connecting = connect(SocketAddr::new(host, port));
                    timeout_at(until, connecting).await.unwrap_or(false)
                }
                None => false,
            }
        };
        let (mut near, mut far) = (std::pin::pin!(near), std::pin::pin!(far));
        tokio::select! {
            near = near.as_mut() => OpenPorts { far: far.await, near },
            far = far.as_mut() => {
                // The far end's connection began with its line: it is here, too, or will not come.
                let near = timeout(LATER, near).await.unwrap_or(false);
                OpenPorts { far, near }
            }
        }
    }
}

/// Whether a connection succeeds. Without an answer, this takes as long as the system tries (tcp(7), tcp_syn_retries).
async fn connect(to: SocketAddr) -> bool {
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        attempts.spawn(TcpStream::connect(to));
        if let Ok(Some(Ok(connected))) = timeout(INTERVAL, attempts.join_next()).await {
            return connected.is_ok();
        }
    }
    matches!(attempts.join_next().await, Some(Ok(Ok(_))))
}

/// Waits for a connection from a host.
async fn accept_from(listener: TcpListener, host: IpAddr) {
    loop {
        match listener.accept().await {
            Ok((_, peer)) if is_same_host(peer.ip(), host) => return,
            Ok(_) => {}
            // Descriptors may be short for a moment.
            Err(_) => sleep(INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn each_end_is_searched_for_itself() {
        let far = TcpListener::bind((HOST, 0)).await.unwrap();
        let far_port = far.local_addr().unwrap().port();
        let closed = TcpListener::bind((HOST, 0)).await.unwrap();
        let closed_port = closed.local_addr().unwrap().port();
        drop(closed);
        for (is_far_open, is_near_open) in [(true, true), (true, false), (false, true)] {
            let near = NearPort::listen(true, None);
            let port = near.probe().client.unwrap();
            let _connection = match is_near_open {
                true => Some(TcpStream::connect((HOST, port)).await.unwrap()),
                false => None,
            };
            let port = if is_far_open { far_port } else { closed_port };
            let found = near.search(HOST, Some(port), Duration::ZERO).await;
            let expected = OpenPorts {
                far: is_far_open,
                near: is_near_open,
            };
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn a_stranger_at_the_port_is_not_the_host() {
        let near = NearPort::listen(true, None);
        let port = near.probe().client.unwrap();
        let _stranger = TcpStream::connect((HOST, port)).await.unwrap();
        let elsewhere = "192.0.2.1".parse().unwrap();
        let found = near.search(elsewhere, None, Duration::ZERO).await;
        assert_eq!((found.far, found.near), (false, false));
    }

    #[test]
    fn behind_another_host_no_port_is_named() {
        assert_eq!(NearPort::listen(false, None).probe().client, None);
    }
}
