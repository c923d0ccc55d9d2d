//! The data channel of a session: the source of its connections, and those cached for reuse.
//!
//! A channel is passive (it has a listener) or active (it has addresses). MODE E caches connections
//! whose end-of-data mark had no CLOSE bit for the next transfer in the same direction (GFD.20
//! §3.4.3). A new PASV or PORT makes a new channel and drops the old one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use socket2::Socket;

use crate::budget::{StreamBudget, StreamPermit};
use crate::connect::{
    ConnectAttempt, OpenedConnections, OutgoingPath, accept_one, connect_all, start_attempt,
};
use crate::error::DataError;
use crate::listener::bind_free_port;
pub use crate::listener::{AllowedPeers, ListenOptions};
use crate::options::TransferOptions;
use crate::settings::TransferSettings;
pub use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;
use crate::tunnel::DataRoute;

/// The source of a channel's connections.
#[derive(Debug)]
pub(crate) enum ChannelEndpoint {
    /// PASV, EPSV, SPAS.
    Passive {
        listener: Socket,
        address: SocketAddr,
        accept: AllowedPeers,
    },
    /// PORT, EPRT, SPOR.
    Active {
        targets: Vec<SocketAddr>,
        local: Option<IpAddr>,
        /// The way, if it is not direct.
        route: Option<Arc<DataRoute>>,
    },
    /// The one connection of a MODE S transfer, begun before the transfer.
    Connecting(Box<ConnectAttempt>),
    /// Already used by a MODE S transfer (RFC 959 §3.3: one file per connection).
    Used,
}

impl ChannelEndpoint {
    /// How connections to its targets are made.
    fn path(&self) -> OutgoingPath<'_> {
        match self {
            Self::Active { local, route, .. } => OutgoingPath {
                local: *local,
                route: route.as_deref(),
            },
            Self::Passive { .. } | Self::Connecting(_) | Self::Used => OutgoingPath {
                local: None,
                route: None,
            },
        }
    }
}

/// Connections cached after a MODE E transfer.
#[derive(Debug)]
struct CachedStreams {
    sending: bool,
    streams: Vec<Arc<DataStream>>,
}

impl CachedStreams {
    /// Whether a connection can serve the next transfer. A fast sender may already have sent its
    /// part of the next transfer and closed the connection before this end starts, so a closed
    /// connection with unread bytes still counts.
    fn is_reusable(&self, stream: &DataStream) -> bool {
        // Only a receiver can use a closed connection: its data may be complete. A sender needs a
        // live one.
        stream.is_alive() || (!self.sending && stream.readable_bytes().is_ok_and(|bytes| bytes > 0))
    }
}

/// A session's data channel.
#[derive(Debug)]
pub struct SessionDataChannel {
    endpoint: ChannelEndpoint,
    cached: Option<CachedStreams>,
    budget: Option<StreamBudget>,
    /// Number of a server's stripes that its connections are with, at least 1; `None`: they are with the server itself.
    stripes: Option<u32>,
}

impl SessionDataChannel {
    /// Listens for connections.
    ///
    /// # Errors
    /// [`DataError::Listen`], with `AddrInUse` when no port of the range is free.
    pub fn listen(options: &ListenOptions) -> Result<Self, DataError> {
        let listener = bind_free_port(options)?;
        let at = SocketAddr::new(options.ip, 0);
        // The port is known only now if it was chosen by the kernel.
        let address = listener
            .local_addr()
            .and_then(|a| a.as_socket().ok_or_else(|| io::ErrorKind::Other.into()))
            .map_err(|source| DataError::Listen { at, source })?;
        Ok(Self::from_endpoint(ChannelEndpoint::Passive {
            listener,
            address,
            accept: options.accept.clone(),
        }))
    }

    /// A channel that connects to these addresses when a transfer starts. `local` is the address to
    /// bind, used for targets of its family.
    pub fn connect_to(targets: Vec<SocketAddr>, local: Option<IpAddr>) -> Self {
        Self::connect_by(targets, local, None)
    }

    /// [`SessionDataChannel::connect_to`], by a route if there is one.
    pub fn connect_by(
        targets: Vec<SocketAddr>,
        local: Option<IpAddr>,
        route: Option<Arc<DataRoute>>,
    ) -> Self {
        Self::from_endpoint(ChannelEndpoint::Active {
            targets,
            local,
            route,
        })
    }

    fn from_endpoint(endpoint: ChannelEndpoint) -> Self {
        Self {
            endpoint,
            cached: None,
            budget: None,
            stripes: None,
        }
    }

    /// Begins the connection of a MODE S transfer, with the socket options that `options` ask for: some servers wait for it
    /// before they read the next command. An error shows when the transfer runs.
    pub fn begin_connection(&mut self, options: &TransferOptions) {
        let settings = TransferSettings {
            options: options.clone(),
            ..TransferSettings::default()
        };
        let until = Instant::now() + settings.connect_timeout;
        if let ChannelEndpoint::Active { targets, .. } = &self.endpoint
            && let [target] = targets[..]
            && let Ok(permit) = self.permit()
            && let Ok(attempt) =
                start_attempt(&settings, target, self.endpoint.path(), until, permit)
        {
            self.endpoint = ChannelEndpoint::Connecting(Box::new(attempt));
        }
    }

    /// Counts this channel's streams against a budget shared with other channels.
    pub fn set_budget(&mut self, budget: StreamBudget) {
        self.budget = Some(budget);
    }

    /// Its connections are with this number of a server's stripes. Each of them ends its part of a file as if it were alone (MODE E).
    pub fn set_stripes(&mut self, count: u32) {
        self.stripes = Some(count.max(1));
    }

    /// Whether its connections are with stripes, so that they serve no other transfer.
    pub fn is_striped(&self) -> bool {
        self.stripes.is_some()
    }

    /// Number of senders that each end their part by an EOF of their own.
    pub(crate) fn senders(&self) -> u32 {
        self.stripes.unwrap_or(1)
    }

    /// A copy of the listener's descriptor, which is readable while a connection waits to be
    /// accepted; `None` for an active channel, and without free descriptors.
    pub fn listener_descriptor(&self) -> Option<OwnedFd> {
        match &self.endpoint {
            ChannelEndpoint::Passive { listener, .. } => listener.try_clone().ok().map(Into::into),
            ChannelEndpoint::Active { .. }
            | ChannelEndpoint::Connecting(_)
            | ChannelEndpoint::Used => None,
        }
    }

    /// The listener's address; `None` for an active channel.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            ChannelEndpoint::Passive { address, .. } => Some(*address),
            _ => None,
        }
    }

    /// The addresses that an active channel connects to; empty for a passive one.
    pub fn targets(&self) -> &[SocketAddr] {
        match &self.endpoint {
            ChannelEndpoint::Active { targets, .. } => targets,
            _ => &[],
        }
    }

    /// Whether a transfer in this direction would use cached connections (reply 125): there are
    /// some that the peer has not closed.
    pub fn has_cached(&self, sending: bool) -> bool {
        self.cached
            .as_ref()
            .is_some_and(|c| c.sending == sending && c.streams.iter().any(|s| c.is_reusable(s)))
    }

    /// Whether a transfer can run (an address is known, or the channel listens). MODE S uses a
    /// channel once.
    pub fn is_usable(&self) -> bool {
        match &self.endpoint {
            ChannelEndpoint::Passive { .. } => true,
            ChannelEndpoint::Active { targets, .. } => !targets.is_empty(),
            ChannelEndpoint::Connecting(_) => true,
            ChannelEndpoint::Used => false,
        }
    }

    pub(crate) fn endpoint(&self) -> &ChannelEndpoint {
        &self.endpoint
    }

    pub(crate) fn budget(&self) -> Option<&StreamBudget> {
        self.budget.as_ref()
    }

    /// Takes the permit for one connection.
    pub(crate) fn permit(&self) -> Result<StreamPermit, DataError> {
        self.budget
            .as_ref()
            .map_or_else(|| Ok(StreamPermit::unlimited()), StreamBudget::take)
    }

    /// Takes the permit for a connection beyond the first of a transfer.
    pub(crate) fn further_permit(&self) -> Result<StreamPermit, DataError> {
        self.budget
            .as_ref()
            .map_or_else(|| Ok(StreamPermit::unlimited()), StreamBudget::take_further)
    }

    /// Takes the endpoint for the one connection of a MODE S transfer. The channel is used up
    /// afterwards, also after an error.
    pub(crate) fn take_endpoint(&mut self) -> ChannelEndpoint {
        // Cached MODE E connections cannot carry a MODE S file.
        self.cached = None;
        std::mem::replace(&mut self.endpoint, ChannelEndpoint::Used)
    }

    /// Opens the one connection of a MODE S transfer: the first that is established. The channel is
    /// used up afterwards, also after an error.
    pub(crate) fn open_single(
        &mut self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
    ) -> Result<Arc<DataStream>, DataError> {
        let permit = self.permit()?;
        open_taken(self.take_endpoint(), transfer, settings, permit)
    }

    /// Opens the connections of a MODE E transfer that need no wait for the peer to connect: the
    /// cached ones, else (active) up to `per_target` new ones per target. Permits are taken before
    /// sockets are opened; a target without any permit is an error.
    pub(crate) fn open_extended(
        &mut self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
        sending: bool,
        per_target: usize,
    ) -> Result<OpenedConnections, DataError> {
        let cached = self.take_cached(sending, settings)?;
        let passive_receiver = !sending && matches!(self.endpoint, ChannelEndpoint::Passive { .. });
        // A passive receiver waits for its connections in `recv`, where it can also inspect them.
        if !cached.is_empty() || passive_receiver {
            return Ok(OpenedConnections {
                open: cached,
                pending: Vec::new(),
            });
        }
        if let ChannelEndpoint::Active { targets, .. } = &self.endpoint {
            let permits = self.permits(targets.len(), per_target, settings.max_connections)?;
            return connect_all(transfer, settings, targets, self.endpoint.path(), permits);
        }
        // A passive sender takes one connection: only the connecting end can open more (GFD.20
        // §3.4).
        let permit = self.permit()?;
        Ok(OpenedConnections {
            open: vec![open_first(&self.endpoint, transfer, settings, permit)?],
            pending: Vec::new(),
        })
    }

    /// Takes permits for up to `per_target` connections to each of `targets` targets, at most `max`
    /// in total.
    fn permits(
        &self,
        targets: usize,
        per_target: usize,
        max: usize,
    ) -> Result<Vec<StreamPermit>, DataError> {
        // Targets are stripes or addresses of one receiver; each of them must get its part.
        if targets > max {
            return Err(DataError::TooManyStreams { limit: max });
        }
        let mut permits = Vec::new();
        for _ in 0..targets {
            permits.push(self.permit()?);
        }
        let more = targets.saturating_mul(per_target).min(max);
        // Further connections are optional, so a missing permit only means fewer streams.
        permits.extend((targets..more).map_while(|_| self.further_permit().ok()));
        Ok(permits)
    }

    /// Takes the cached connections that still work.
    fn take_cached(
        &mut self,
        sending: bool,
        settings: &TransferSettings,
    ) -> Result<Vec<Arc<DataStream>>, DataError> {
        let Some(cached) = self.cached.take().filter(|c| c.sending == sending) else {
            return Ok(Vec::new());
        };
        let streams = cached.streams.iter().filter(|s| cached.is_reusable(s));
        let streams: Vec<_> = streams.map(Arc::clone).collect();
        for stream in &streams {
            // The next transfer may use another congestion control than the last one did.
            stream.prepare_reuse(&settings.options.congestion)?;
        }
        Ok(streams)
    }

    /// Starts one more connection to a target of this channel. The attempt ends at `until`.
    ///
    /// # Errors
    /// The connection cannot be started, or the channel is passive.
    pub(crate) fn dial(
        &self,
        settings: &TransferSettings,
        to: SocketAddr,
        until: Instant,
        permit: StreamPermit,
    ) -> Result<ConnectAttempt, DataError> {
        match &self.endpoint {
            ChannelEndpoint::Active { targets, .. } if targets.contains(&to) => {
                start_attempt(settings, to, self.endpoint.path(), until, permit)
            }
            _ => Err(DataError::Connect {
                to,
                source: io::ErrorKind::Unsupported.into(),
            }),
        }
    }

    /// Caches connections for the next transfer in the same direction, if they hold or get a
    /// permit.
    pub(crate) fn keep_streams(&mut self, sending: bool, mut streams: Vec<Arc<DataStream>>) {
        // A stream whose permit went to another connection during the transfer needs a new one.
        streams.retain(|stream| {
            if stream.has_permit() {
                return true;
            }
            let permit = self.further_permit();
            permit.map(|permit| stream.set_permit(permit)).is_ok()
        });
        if !streams.is_empty() {
            self.cached = Some(CachedStreams { sending, streams });
        }
    }
}

/// Opens the one connection of an endpoint that is used up.
pub(crate) fn open_taken(
    endpoint: ChannelEndpoint,
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    match endpoint {
        ChannelEndpoint::Connecting(attempt) => attempt.complete(transfer, settings),
        other => open_first(&other, transfer, settings, permit),
    }
}

/// Opens the first connection of an endpoint.
fn open_first(
    endpoint: &ChannelEndpoint,
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    match endpoint {
        ChannelEndpoint::Passive {
            listener, accept, ..
        } => accept_one(transfer, listener, accept, settings, permit),
        // RFC 959 has one target. If SPOR gave several, MODE S uses the last.
        ChannelEndpoint::Active { targets, .. } => {
            let one = targets.last().map_or(&[][..], std::slice::from_ref);
            let opened = connect_all(transfer, settings, one, endpoint.path(), vec![permit])?;
            let seconds = settings.connect_timeout.as_secs();
            opened
                .open
                .into_iter()
                .next()
                .ok_or(DataError::NoPeer { seconds })
        }
        ChannelEndpoint::Connecting(_) | ChannelEndpoint::Used => {
            Err(DataError::NoPeer { seconds: 0 })
        }
    }
}

#[cfg(test)]
impl SessionDataChannel {
    /// Listens on loopback for anybody; the channel's address.
    pub(crate) fn listen_on_loopback() -> (Self, SocketAddr) {
        let channel = Self::listen(&ListenOptions {
            ip: std::net::Ipv4Addr::LOCALHOST.into(),
            ports: None,
            accept: AllowedPeers::Any,
            buffers: proto::sizing::SocketBuffers::sized_by(proto::sizing::BufferSizing::Kernel),
        })
        .unwrap();
        let address = channel.local_addr().unwrap();
        (channel, address)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use proto::sizing::BufferSizing;

    use proto::sizing::SocketBuffers;

    use super::*;

    fn options(ports: Option<RangeInclusive<u16>>) -> ListenOptions {
        ListenOptions {
            ip: [127, 0, 0, 1].into(),
            ports,
            accept: AllowedPeers::Any,
            buffers: SocketBuffers::sized_by(BufferSizing::Kernel),
        }
    }

    #[test]
    fn all_ports_of_a_range_are_used_before_listen_fails() {
        // Any free neighbouring ports.
        let base = (20_000..60_000)
            .step_by(7)
            .find(|base| {
                (*base..base + 3).all(|p| std::net::TcpListener::bind(("127.0.0.1", p)).is_ok())
            })
            .unwrap();
        let options = options(Some(base..=base + 2));
        let channels: Vec<_> = (0..3)
            .map(|_| SessionDataChannel::listen(&options).unwrap())
            .collect();
        let mut ports: Vec<_> = channels
            .iter()
            .map(|c| c.local_addr().unwrap().port())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [base, base + 1, base + 2]);
        let full = SessionDataChannel::listen(&options).unwrap_err();
        assert!(
            matches!(&full, DataError::Listen { source, .. }
                if source.kind() == io::ErrorKind::AddrInUse),
            "{full}"
        );
    }

    #[test]
    fn a_channel_is_usable_only_with_an_address() {
        assert!(
            SessionDataChannel::listen(&options(None))
                .unwrap()
                .is_usable()
        );
        assert!(!SessionDataChannel::connect_to(Vec::new(), None).is_usable());
        let active = SessionDataChannel::connect_to(vec![([127, 0, 0, 1], 9).into()], None);
        assert!(active.is_usable() && active.local_addr().is_none());
        assert!(!active.has_cached(true) && !active.has_cached(false));
    }

    #[test]
    fn a_listener_sets_the_pinned_receive_buffer() {
        let mut options = options(None);
        options.buffers.receive = Some(128 << 10);
        let channel = SessionDataChannel::listen(&options).unwrap();
        let ChannelEndpoint::Passive { listener, .. } = &channel.endpoint else {
            unreachable!()
        };
        // The kernel doubles SO_RCVBUF for its own bookkeeping (socket(7)).
        assert_eq!(listener.recv_buffer_size().unwrap(), 256 << 10);
    }
}
