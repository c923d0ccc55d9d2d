//! Which end of a host's sessions can reach ports of the other.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::os::random;
use proto::address::is_same_host;
use proto::carried::{PROOF_LENGTH, PortProbe, PortProof};
use proto::sizing::SocketBuffers;
use tokio::io::AsyncReadExt;
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
/// Connections of others that may be open meanwhile.
const MAX_STRANGERS: usize = 16;
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
    proof: PortProof,
}

impl NearPort {
    /// Listens, at a port of the range, for a host that may reach this machine.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn listen(is_direct: bool, ports: Option<(u16, u16)>) -> io::Result<Self> {
        let mut digits = [0; 16];
        random::fill(&mut digits)?;
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
        Ok(Self {
            listener: is_direct.then(listen).flatten(),
            proof: PortProof {
                digits: u128::from_ne_bytes(digits),
            },
        })
    }

    /// The far end's part.
    pub(super) fn probe(&self) -> PortProbe {
        let listener = self.listener.as_ref();
        let address = listener.and_then(|listener| listener.local_addr().ok());
        PortProbe {
            client: address.map(|address| address.port()),
            proof: self.proof,
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
                Some(listener) => {
                    let accepting = accept_from(listener, host, self.proof);
                    timeout_at(until, accepting).await.is_ok()
                }
                None => false,
            }
        };
        let far = async {
            match port {
                Some(port) => {
                    let connecting = reaches(SocketAddr::new(host, port), self.proof);
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

/// Whether the far end answers at this port. Without an answer, this takes as long as the system tries (tcp(7), tcp_syn_retries).
async fn reaches(to: SocketAddr, proof: PortProof) -> bool {
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        attempts.spawn(async move {
            match TcpStream::connect(to).await {
                Ok(connection) => says(connection, proof.of_far_port()).await,
                Err(_) => false,
            }
        });
        if let Ok(is_far_end) = timeout(INTERVAL, any_succeeds(&mut attempts)).await {
            return is_far_end;
        }
    }
    any_succeeds(&mut attempts).await
}

/// Whether one of the attempts succeeds. One that fails decides nothing while another is under way: the far end closes its port
/// after the first connection, and so resets a second one.
async fn any_succeeds(attempts: &mut JoinSet<bool>) -> bool {
    while let Some(ended) = attempts.join_next().await {
        if matches!(ended, Ok(true)) {
            return true;
        }
    }
    false
}

/// Whether the peer proves to be the far end of the session.
async fn says(mut connection: TcpStream, expected: [u8; PROOF_LENGTH]) -> bool {
    let mut said = [0; PROOF_LENGTH];
    connection.read_exact(&mut said).await.is_ok() && said == expected
}

/// Waits for a connection from the far end.
async fn accept_from(listener: TcpListener, host: IpAddr, proof: PortProof) {
    let mut peers = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(is_proved) = peers.join_next() => match is_proved {
                Ok(true) => return,
                _ => continue,
            },
        };
        match accepted {
            Ok((connection, peer))
                if is_same_host(peer.ip(), host) && peers.len() < MAX_STRANGERS =>
            {
                peers.spawn(says(connection, proof.of_near_port()));
            }
            Ok(_) => {}
            // Descriptors may be short for a moment.
            Err(_) => sleep(INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn each_end_is_searched_for_itself() {
        let closed = TcpListener::bind((HOST, 0)).await.unwrap();
        let closed_port = closed.local_addr().unwrap().port();
        drop(closed);
        for (is_far_open, is_near_open) in [(true, true), (true, false), (false, true)] {
            let near = NearPort::listen(true, None).unwrap();
            let PortProbe { client, proof } = near.probe();
            let _connection = match is_near_open {
                true => Some(connection_that_says(client.unwrap(), &proof.of_near_port()).await),
                false => None,
            };
            let port = match is_far_open {
                true => port_that_says(proof.of_far_port()).await,
                false => closed_port,
            };
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
        for host in ["192.0.2.1".parse().unwrap(), HOST] {
            let near = NearPort::listen(true, None).unwrap();
            let PortProbe { client, proof } = near.probe();
            // A proof that a stranger hears at the far end's port does not let him in here.
            let _stranger = connection_that_says(client.unwrap(), &proof.of_far_port()).await;
            let strange = port_that_says(proof.of_near_port()).await;
            let found = near.search(host, Some(strange), Duration::ZERO).await;
            assert_eq!((found.far, found.near), (false, false));
        }
    }

    #[tokio::test]
    async fn a_second_connection_that_the_far_end_resets_does_not_hide_the_first() {
        let proof = NearPort::listen(false, None).unwrap().probe().proof;
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            // The far end is slow, so that another attempt waits when it closes its port.
            sleep(INTERVAL * 3 / 2).await;
            drop(listener);
            sleep(INTERVAL / 3).await;
            client.write_all(&proof.of_far_port()).await.unwrap();
        });
        assert!(reaches(SocketAddr::new(HOST, port), proof).await);
    }

    async fn connection_that_says(port: u16, proof: &[u8]) -> TcpStream {
        let mut connection = TcpStream::connect((HOST, port)).await.unwrap();
        connection.write_all(proof).await.unwrap();
        connection
    }

    /// A port at which each client hears this.
    async fn port_that_says(proof: [u8; PROOF_LENGTH]) -> u16 {
        let listener = TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(&proof).await.unwrap();
            }
        });
        port
    }

    #[test]
    fn behind_another_host_no_port_is_named() {
        let near = NearPort::listen(false, None).unwrap();
        assert_eq!(near.probe().client, None);
    }
}
