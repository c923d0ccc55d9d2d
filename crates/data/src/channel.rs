//! The data channel of a session: where connections come from, and the ones kept for reuse.
//!
//! A channel is passive (it has a listener) or active (it has addresses). MODE E keeps
//! connections whose end mark had no CLOSE bit for the next transfer in the same direction
//! (GFD.20 §3.4.3); a new PASV or PORT makes a new channel and drops the old one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use socket2::Socket;

use crate::budget::{StreamBudget, StreamPermit};
use crate::connect::{ConnectAttempt, OpenedConnections, accept_one, connect_all, start_attempt};
use crate::error::DataError;
use crate::listener::bind_free_port;
pub use crate::listener::{AllowedPeers, ListenOptions};
use crate::settings::TransferSettings;
pub use crate::stream::DataStream;
use crate::transfer::ActiveTransfer;

/// Where the connections of a channel come from.
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
    },
    /// Used by a MODE S transfer (RFC 959 §3.3: one file per connection).
    Used,
}

/// Connections kept after a MODE E transfer.
#[derive(Debug)]
struct CachedStreams {
    sending: bool,
    streams: Vec<Arc<DataStream>>,
}

impl CachedStreams {
    /// Whether a connection is of use in the next transfer. A sender that is ahead of this end may
    /// have sent its part, and closed the connection, before this end begins.
    fn is_reusable(&self, stream: &DataStream) -> bool {
        stream.is_alive() || (!self.sending && stream.readable_bytes().is_ok_and(|bytes| bytes > 0))
    }
}

/// A session's data channel.
#[derive(Debug)]
pub struct SessionDataChannel {
    endpoint: ChannelEndpoint,
    cached: Option<CachedStreams>,
    budget: Option<StreamBudget>,
}

impl SessionDataChannel {
    /// Listens. [`DataError::Listen`] with `AddrInUse` when no port of the range is free.
    pub fn listen(options: &ListenOptions) -> Result<Self, DataError> {
        let listener = bind_free_port(options)?;
        let at = SocketAddr::new(options.ip, 0);
        let address = listener
            .local_addr()
            .and_then(|a| a.as_socket().ok_or_else(|| io::ErrorKind::Other.into()))
            .map_err(|source| DataError::Listen { at, source })?;
        Ok(Self::from_endpoint(ChannelEndpoint::Passive {
            listener,
            address,
            accept: options.accept,
        }))
    }

    /// Will connect to these addresses when a transfer starts. `local`: address to bind, used for
    /// targets of its family.
    pub fn connect_to(targets: Vec<SocketAddr>, local: Option<IpAddr>) -> Self {
        Self::from_endpoint(ChannelEndpoint::Active { targets, local })
    }

    fn from_endpoint(endpoint: ChannelEndpoint) -> Self {
        Self {
            endpoint,
            cached: None,
            budget: None,
        }
    }

    /// Counts this channel's streams against a bound that it shares with others.
    pub fn set_budget(&mut self, budget: StreamBudget) {
        self.budget = Some(budget);
    }

    /// The listener's address; `None` for an active channel.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.endpoint {
            ChannelEndpoint::Passive { address, .. } => Some(*address),
            _ => None,
        }
    }

    /// The addresses that an active channel connects to; none of another one.
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

    /// Whether a transfer can run at all (an address was given, or connections are cached);
    /// MODE S uses a channel once.
    pub fn is_usable(&self) -> bool {
        match &self.endpoint {
            ChannelEndpoint::Passive { .. } => true,
            ChannelEndpoint::Active { targets, .. } => !targets.is_empty(),
            ChannelEndpoint::Used => false,
        }
    }

    pub(crate) fn endpoint(&self) -> &ChannelEndpoint {
        &self.endpoint
    }

    pub(crate) fn budget(&self) -> Option<&StreamBudget> {
        self.budget.as_ref()
    }

    /// The right to have one connection.
    pub(crate) fn permit(&self) -> Result<StreamPermit, DataError> {
        self.budget
            .as_ref()
            .map_or_else(|| Ok(StreamPermit::unlimited()), StreamBudget::take)
    }

    /// Endpoint that a MODE S transfer takes its one connection from. The channel is spent afterwards,
    /// whatever happens.
    pub(crate) fn take_endpoint(&mut self) -> ChannelEndpoint {
        self.cached = None;
        std::mem::replace(&mut self.endpoint, ChannelEndpoint::Used)
    }

    /// The one connection of a MODE S transfer: the first that is made. The channel is spent
    /// afterwards, whatever happens.
    pub(crate) fn open_single(
        &mut self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
    ) -> Result<Arc<DataStream>, DataError> {
        let permit = self.permit()?;
        open_first(&self.take_endpoint(), transfer, settings, permit)
    }

    /// The connections of a MODE E transfer that can be had without waiting for the peer to
    /// connect: the cached ones, else (active) new ones, up to `each` per target. Permits are taken
    /// before sockets are opened: one a target at least, or it is an error.
    pub(crate) fn open_extended(
        &mut self,
        transfer: &ActiveTransfer,
        settings: &TransferSettings,
        sending: bool,
        each: usize,
    ) -> Result<OpenedConnections, DataError> {
        let cached = self.take_cached(sending, settings)?;
        let passive_receiver = !sending && matches!(self.endpoint, ChannelEndpoint::Passive { .. });
        if !cached.is_empty() || passive_receiver {
            return Ok(OpenedConnections {
                open: cached,
                pending: Vec::new(),
            });
        }
        if let ChannelEndpoint::Active { targets, local } = &self.endpoint {
            let permits = self.permits(targets.len(), each, settings.max_connections)?;
            return connect_all(transfer, settings, targets, *local, permits);
        }
        let permit = self.permit()?;
        Ok(OpenedConnections {
            open: vec![open_first(&self.endpoint, transfer, settings, permit)?],
            pending: Vec::new(),
        })
    }

    /// Permits for up to `each` connections to so many targets, and `most` in all.
    fn permits(
        &self,
        targets: usize,
        each: usize,
        most: usize,
    ) -> Result<Vec<StreamPermit>, DataError> {
        if targets > most {
            return Err(DataError::TooManyStreams { limit: most });
        }
        let mut permits = Vec::new();
        for _ in 0..targets {
            permits.push(self.permit()?);
        }
        let more = targets.saturating_mul(each).min(most);
        permits.extend((targets..more).map_while(|_| self.permit().ok()));
        Ok(permits)
    }

    /// The cached connections that still work.
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
            stream.prepare_reuse(&settings.options.congestion)?;
        }
        Ok(streams)
    }

    /// Begins one more connection to a target of this channel, given up at `until`.
    ///
    /// # Errors
    /// Also for a channel that does not connect, but is connected to.
    pub(crate) fn dial(
        &self,
        settings: &TransferSettings,
        to: SocketAddr,
        until: Instant,
        permit: StreamPermit,
    ) -> Result<ConnectAttempt, DataError> {
        match &self.endpoint {
            ChannelEndpoint::Active { targets, local } if targets.contains(&to) => {
                start_attempt(settings, to, *local, until, permit)
            }
            _ => Err(DataError::Connect {
                to,
                source: io::ErrorKind::Unsupported.into(),
            }),
        }
    }

    /// Keeps connections for the next transfer in the same direction: those that have a permit, or
    /// can have one.
    pub(crate) fn keep_streams(&mut self, sending: bool, mut streams: Vec<Arc<DataStream>>) {
        streams.retain(|stream| {
            if stream.has_permit() {
                return true;
            }
            let permit = self.permit();
            permit.map(|permit| stream.set_permit(permit)).is_ok()
        });
        if !streams.is_empty() {
            self.cached = Some(CachedStreams { sending, streams });
        }
    }
}

/// The first connection that an endpoint gives.
pub(crate) fn open_first(
    endpoint: &ChannelEndpoint,
    transfer: &ActiveTransfer,
    settings: &TransferSettings,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    match endpoint {
        ChannelEndpoint::Passive {
            listener, accept, ..
        } => accept_one(transfer, listener, *accept, settings, permit),
        // RFC 959 knows one target; of several (SPOR) MODE S has always taken the last.
        ChannelEndpoint::Active { targets, local } => {
            let one = targets.last().map_or(&[][..], std::slice::from_ref);
            let made = connect_all(transfer, settings, one, *local, vec![permit])?;
            let seconds = settings.connect_timeout.as_secs();
            made.open
                .into_iter()
                .next()
                .ok_or(DataError::NoPeer { seconds })
        }
        ChannelEndpoint::Used => Err(DataError::NoPeer { seconds: 0 }),
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
    fn every_port_of_a_range_is_used_before_it_is_full() {
        // Any free neighbourhood of ports will do.
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
    fn usable_says_whether_there_is_an_address() {
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
    fn a_listener_with_buffers_pins_them() {
        let mut options = options(None);
        options.buffers.receive = Some(128 << 10);
        let channel = SessionDataChannel::listen(&options).unwrap();
        let ChannelEndpoint::Passive { listener, .. } = &channel.endpoint else {
            unreachable!()
        };
        assert_eq!(listener.recv_buffer_size().unwrap(), 256 << 10);
    }
}
