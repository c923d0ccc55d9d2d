//! One session that a program carries, which has logged its user in to this process's account (ssh).

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use data::channel::{AllowedPeers, ListenOptions, SessionDataChannel};
use data::transport::ControlTransport;
use nix::unistd::{Uid, User};
use proto::carried::{CarriedEnds, PortProbe};
use proto::path::VPath;
use proto::server::{AccountRights, CarriedRules};
use proto::sizing::SocketBuffers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::ServerConfig;
use crate::session;
use crate::startup::{self, ServeError};
use crate::state::ServerState;
use crate::transfer::ControlAddresses;
use crate::users::UserAccount;

/// How long a port is open for the client to try it.
const PROBE_TIME: Duration = Duration::from_secs(5);
/// Connections of others that are accepted meanwhile.
const MAX_STRANGERS: usize = 16;
/// Attempts at the client's port: a SYN may be lost.
const PROBE_ATTEMPTS: usize = 3;
/// Time of each.
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// The client of a carried session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedClient {
    /// longhaul, which protects the data connections (DCSC).
    Longhaul,
    /// A client of sshftp: URLs, which knows clear data connections only.
    Sshftp,
}

/// A server for one session.
#[derive(Debug)]
pub struct CarriedServer {
    shared: Arc<ServerState>,
    client: CarriedClient,
}

impl CarriedServer {
    /// Opens all that the session needs.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn open(config: ServerConfig, client: CarriedClient) -> Result<Self, ServeError> {
        let shared = startup::begin_carried(ServerConfig {
            // Whoever reaches a port of clear data first would have it.
            foreign_data_addresses: config.foreign_data_addresses
                || client == CarriedClient::Longhaul,
            ..config
        })?;
        Ok(Self { shared, client })
    }

    /// Opens a port as sessions do, for a moment, and connects to one of the client: so both ends learn whose ports can be reached.
    /// Returns this end's port; `None`: none is free.
    #[must_use]
    pub fn probe_ports(&self, ends: &CarriedEnds, probe: PortProbe) -> Option<u16> {
        if let (Some(client), Some(port)) = (ends.client, probe.client) {
            thread::spawn(move || {
                for _ in 0..PROBE_ATTEMPTS {
                    // The client's end says whether it has come.
                    let connected =
                        TcpStream::connect_timeout(&SocketAddr::new(client, port), PROBE_INTERVAL);
                    if let Ok(mut connected) = connected {
                        let _ = connected.write_all(&probe.proof.of_near_port());
                        break;
                    }
                }
            });
        }
        let options = ListenOptions {
            ip: ends.server.unwrap_or(Ipv6Addr::UNSPECIFIED.into()),
            ports: self
                .shared
                .config
                .data_ports
                .map(|(low, high)| RangeInclusive::new(low, high)),
            accept: AllowedPeers::Any,
            buffers: SocketBuffers::default(),
        };
        let channel = SessionDataChannel::listen(&options).ok()?;
        let port = channel.local_addr()?.port();
        let listener = TcpListener::from(channel.listener_descriptor()?);
        let expected = ends.client;
        thread::spawn(move || {
            let until = Instant::now() + PROBE_TIME;
            let mut clients = Vec::new();
            // A stranger is no answer. The port may be the only one of its range, so it is not held for longer than needed.
            while let Some(mut client) = accept_until(&listener, until) {
                // It fits into any send buffer.
                let _ = client.write_all(&probe.proof.of_far_port());
                let ip = client.peer_addr().ok().map(|peer| peer.ip().to_canonical());
                clients.push(client);
                if ip == expected || clients.len() == MAX_STRANGERS {
                    break;
                }
            }
            drop((listener, channel));
            // The client closes first: the end of a listener would reset a connection that it has just seen open.
            thread::sleep(PROBE_INTERVAL);
        });
        Some(port)
    }

    /// Serves the client at the other end of `stream`, whose line of [`CarriedEnds`] has been sent, and returns when the session
    /// has ended: after its input, at the latest. The client has the rights of this process's account below the configured root,
    /// and whoever shows the certificate that the client names (DCSC) may open protected data connections, from any host; clear
    /// ones are the client's own, and those of a host that it names.
    ///
    /// Must be called inside a tokio runtime with time and I/O enabled.
    ///
    /// # Errors
    /// The session could not begin; see [`ServeError`].
    pub async fn serve(self, stream: UnixStream, ends: CarriedEnds) -> Result<(), ServeError> {
        let carried = |source| ServeError::Carried { source };
        let stream = stream
            .set_nonblocking(true)
            .and_then(|()| tokio::net::UnixStream::from_std(stream))
            .map_err(carried)?;
        let address = |ip: Option<IpAddr>| {
            // All addresses of this host: the client has come by one of them.
            SocketAddr::new(ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), 0)
        };
        let addresses = ControlAddresses::new(address(ends.server), address(ends.client));
        let transport = ControlTransport::carried(stream);
        let slot = self.shared.session_limits.admit(addresses.peer.ip());
        // The settings may permit no session at all.
        let slot = slot.map_err(|reason| carried(std::io::Error::other(reason.to_string())))?;
        let is_whole = self.shared.config.root == Path::new("/");
        let rules = CarriedRules {
            // Elsewhere a home directory would be that of the same name below the root.
            home_of: is_whole.then_some(home_of),
            clear_data: self.client == CarriedClient::Sshftp,
        };
        let account = this_account();
        session::run_carried(self.shared, transport, account, rules, addresses, slot).await;
        Ok(())
    }
}

/// The home directory of a user of this machine.
fn home_of(user: &[u8]) -> Option<VPath> {
    let user = User::from_name(str::from_utf8(user).ok()?).ok()??;
    VPath::root().resolve(user.dir.as_os_str().as_bytes()).ok()
}

/// The next connection to a port; `None`: none has come in time.
fn accept_until(listener: &TcpListener, until: Instant) -> Option<TcpStream> {
    let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok()?;
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left)).ok()?;
    (ready > 0)
        .then(|| listener.accept().ok())
        .flatten()
        .map(|(client, _)| client)
}

/// This process's account, with its home.
fn this_account() -> UserAccount {
    let uid = Uid::effective();
    let (name, home) = match User::from_uid(uid) {
        Ok(Some(user)) => (user.name, Some(user.dir)),
        _ => (uid.to_string(), None),
    };
    let home = home.and_then(|home| VPath::root().resolve(home.as_os_str().as_bytes()).ok());
    UserAccount {
        name,
        root: None,
        rights: AccountRights {
            write: true,
            third_party: true,
        },
        home: home.unwrap_or_else(VPath::root),
    }
}
