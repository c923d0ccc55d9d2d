//! Orders of a session to its data side: all that is to be done as plain data, and beside it the handles
//! that only this process has to do it with.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data::budget::StreamBudget;
use data::channel::{ListenOptions, SessionDataChannel};
use data::drs;
use data::job::TransferSettings;
use data::options::{CongestionChoice, IoMethod, TransferOptions};
use data::rate::RateLimit;
use proto::server::{FileError, TransferKind, TransferRequest};
use proto::sizing::BufferSizing;
use proto::stripes::{Stripe, StripeAddresses};
use tune::Prior;
use tune::sizing::drs::DrsInterval;

use super::file_error;
use crate::data_address::advertised_address;
use crate::files::{ControlSocket, SessionFiles, Uploader};
use crate::limits::QueuePermit;

/// All that whoever carries a transfer out must be told. Nothing in it is open, shared or alive: it
/// could be written down and given to another process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransferOrder {
    /// Task: file, ranges, mode, streams, buffers, markers.
    pub(crate) request: TransferRequest,
    /// Share of it.
    pub(crate) stripe: Stripe,
    /// Where its data connections come from or go to.
    pub(crate) connections: DataAddresses,
    /// How they behave.
    pub(crate) terms: TransferTerms,
    /// Whose upload it would be.
    pub(crate) uploader: Uploader,
}

/// Where the data connections of a transfer come from or go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataAddresses {
    /// None was told or asked for: before any PASV or PORT.
    Unknown,
    /// PASV: they are awaited at these addresses of this host, of which each stripe has one.
    Awaited(StripeAddresses),
    /// Delayed passive: they will be awaited at an address that is yet to be made.
    ToListen {
        /// How to listen.
        options: ListenOptions,
        /// Address to tell in place of a local one.
        public: Option<IpAddr>,
    },
    /// PORT: they are made to these addresses, of which each stripe has one or several.
    Targets(StripeAddresses),
}

/// How the data connections of a transfer behave, as far as the request does not say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransferTerms {
    /// Congestion control of this end's sockets.
    pub(crate) congestion: CongestionChoice,
    /// How often a receiving end computes the bandwidth ([`BufferSizing::Drs`]).
    pub(crate) drs_interval: DrsInterval,
    /// How bytes move between file and socket.
    pub(crate) io: IoMethod,
    /// Payload of a MODE E block when sending, and unit of store access, bytes.
    pub(crate) block: usize,
    /// Longest time in which nothing moves.
    pub(crate) stall: Duration,
    /// Longest wait for the first data connection.
    pub(crate) connect: Duration,
    /// Data connections at a time.
    pub(crate) most_connections: usize,
    /// Knowledge of the path.
    pub(crate) prior: Prior,
}

/// Handles that this process carries an order out with: all that is open, counted or shared.
#[derive(Debug)]
pub(crate) struct LocalHandles {
    /// Where the session's files are.
    pub(crate) files: SessionFiles,
    /// The control connection.
    pub(crate) control_socket: Arc<ControlSocket>,
    /// The session's data channel; `None` before any PASV or PORT.
    pub(crate) channel: Option<SessionDataChannel>,
    /// Bound on streams, for a channel that is yet to be made.
    pub(crate) stream_budget: StreamBudget,
    /// The server's budget of bytes per second.
    pub(crate) rate: Option<RateLimit>,
    /// This end of the DRS channel.
    pub(crate) drs: Option<Arc<drs::DrsEndpoint>>,
    /// This transfer's place among those that the server runs at once.
    pub(crate) permit: QueuePermit,
}

impl TransferOrder {
    /// Settings of the pump: everything but what the opened file decides.
    pub(super) fn settings(
        &self,
        rate: Option<RateLimit>,
        drs: Option<Arc<drs::DrsEndpoint>>,
    ) -> TransferSettings {
        let Self { request, terms, .. } = self;
        let sends = matches!(request.kind, TransferKind::Retrieve { .. });
        TransferSettings {
            options: TransferOptions {
                buffers: request.buffers,
                drs_interval: terms.drs_interval,
                congestion: terms.congestion.clone(),
                io: terms.io,
                block: terms.block,
                rate,
                stall: terms.stall,
            },
            mode: request.mode,
            type_: request.type_,
            streams: request.streams.start as usize,
            max_streams: request.streams.max as usize,
            min_streams: request.streams.min as usize,
            max_connections: terms.most_connections,
            adapt: sends && request.streams.is_adjustable(),
            prior: terms.prior.clone(),
            checksum: None,
            connect_timeout: terms.connect,
            drs: drs.filter(|_| request.buffers.sizing == BufferSizing::Drs),
            close_after: false,
        }
    }
}

impl DataAddresses {
    /// Those of a channel that there is.
    pub(crate) fn of(channel: Option<&SessionDataChannel>) -> Self {
        let Some(channel) = channel else {
            return Self::Unknown;
        };
        match channel.local_addr() {
            Some(address) => Self::Awaited(StripeAddresses::single(address)),
            None => StripeAddresses::new(channel.targets().to_vec())
                .map_or(Self::Unknown, Self::Targets),
        }
    }

    /// Listens if that is yet to be done; gives the channel and which addresses to tell.
    pub(super) fn listen(
        &self,
        streams: StreamBudget,
    ) -> Result<Option<(SessionDataChannel, Option<StripeAddresses>)>, FileError> {
        let Self::ToListen { options, public } = self else {
            return Ok(None);
        };
        let mut channel =
            SessionDataChannel::listen(options).map_err(|error| file_error(&error))?;
        channel.set_budget(streams);
        let tell = |at: SocketAddr| StripeAddresses::single(advertised_address(at, *public));
        let addresses = channel.local_addr().map(tell);
        Ok(Some((channel, addresses)))
    }
}

#[cfg(test)]
mod tests;
