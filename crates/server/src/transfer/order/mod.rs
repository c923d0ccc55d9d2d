//! The order for a transfer: plain data that says what to do, and, apart from it, the handles of this
//! process that carry it out.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data::budget::StreamBudget;
use data::channel::{ListenOptions, SessionDataChannel};
use data::drs;
use data::job::TransferSettings;
use data::options::{CongestionChoice, IoMethod, TransferOptions};
use data::rate::RateLimit;
use data::security::DataSecurity;
use proto::server::{FileError, TransferRequest};
use proto::sizing::BufferSizing;
use proto::stripes::{Stripe, StripeAddresses};
use tune::Prior;
use tune::sizing::drs::DrsInterval;

use super::{TransferMemory, advertised_address, file_error};
use crate::config::ServerConfig;
use crate::files::{ControlSocket, SessionFiles, Uploader};
use crate::limits::QueuePermit;

/// The complete description of a transfer. It holds no open files, connections or shared state, so it
/// could be serialized and sent to another process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransferOrder {
    /// File, ranges, mode, streams, buffers and markers.
    pub(crate) request: TransferRequest,
    /// The stripe of the transfer that this order covers.
    pub(crate) stripe: Stripe,
    /// Addresses of the data connections.
    pub(crate) connections: DataAddresses,
    /// Behaviour of the data connections.
    pub(crate) terms: TransferTerms,
    /// The account that an upload belongs to.
    pub(crate) uploader: Uploader,
}

/// Addresses of the data connections of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataAddresses {
    /// Unknown: there was no PASV or PORT.
    Unknown,
    /// PASV: the server listens on these addresses, one for each stripe.
    Awaited(StripeAddresses),
    /// Delayed passive: the server will listen on an address that does not exist yet.
    ToListen {
        /// Options of the listener.
        options: ListenOptions,
        /// Address to advertise instead of the local one.
        public: Option<IpAddr>,
    },
    /// PORT: the server connects to these addresses, one or several for each stripe.
    Targets(StripeAddresses),
}

/// Behaviour of the data connections of a transfer that the request does not determine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransferTerms {
    /// Congestion control of this server's sockets.
    pub(crate) congestion: CongestionChoice,
    /// Interval at which a receiving end computes the bandwidth ([`BufferSizing::Drs`]).
    pub(crate) drs_interval: DrsInterval,
    /// Method of moving bytes between file and socket.
    pub(crate) io: IoMethod,
    /// Payload of a sent MODE E block, and unit of file access, bytes.
    pub(crate) block: usize,
    /// Longest time without progress.
    pub(crate) stall: Duration,
    /// Longest wait for the first data connection.
    pub(crate) connect: Duration,
    /// Largest number of concurrent data connections.
    pub(crate) max_connections: usize,
    /// Prior knowledge of the path.
    pub(crate) prior: Prior,
}

/// The handles with which this process carries out an order: everything open, counted or shared.
#[derive(Debug)]
pub(crate) struct LocalHandles {
    /// Access to the session's files.
    pub(crate) files: SessionFiles,
    /// The socket of the control connection.
    pub(crate) control_socket: Arc<ControlSocket>,
    /// The session's data channel; `None` before any PASV or PORT.
    pub(crate) channel: Option<SessionDataChannel>,
    /// Budget of streams, for a channel that is opened later.
    pub(crate) stream_budget: StreamBudget,
    /// The server's rate limit, shared by all transfers.
    pub(crate) rate: Option<RateLimit>,
    /// This end of the DRS channel.
    pub(crate) drs: Option<Arc<drs::DrsEndpoint>>,
    /// Protection of the data connections; `None`: they are in the clear.
    pub(crate) security: Option<Arc<DataSecurity>>,
    /// The memory of the path, for a transfer that sends.
    pub(crate) memory: Option<TransferMemory>,
    /// The permit of this transfer.
    pub(crate) permit: QueuePermit,
}

impl TransferTerms {
    /// The terms from the configuration and the client's request.
    pub(crate) fn of(request: &TransferRequest, config: &ServerConfig) -> Self {
        let configured = &config.transfer;
        Self {
            congestion: match request.kind.is_retrieve() {
                // Only the sender's congestion control matters; a receiver keeps the system's.
                true => congestion(request, config),
                false => CongestionChoice::System,
            },
            drs_interval: configured.drs_interval,
            io: configured.io,
            block: configured.block,
            stall: configured.stall,
            // Waiting for the first connection is a stall like any other.
            connect: configured.stall,
            max_connections: config.max_streams_per_transfer as usize,
            prior: Prior::default(),
        }
    }
}

/// The congestion control. A client's `auto` means the server's default, which the administrator may
/// have set to another one.
fn congestion(request: &TransferRequest, config: &ServerConfig) -> CongestionChoice {
    match request.congestion_control.as_str() {
        "" | "auto" => config.transfer.congestion.clone(),
        asked => CongestionChoice::parse(asked),
    }
}

impl TransferOrder {
    /// The settings of the data transfer, except those that depend on the opened file.
    pub(super) fn settings(
        &self,
        rate: Option<RateLimit>,
        drs: Option<Arc<drs::DrsEndpoint>>,
    ) -> TransferSettings {
        let Self { request, terms, .. } = self;
        let sends = request.kind.is_retrieve();
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
            max_connections: terms.max_connections,
            // Only a sender can change the number of streams: in MODE E it opens them (GFD.20).
            adapt: sends && request.streams.is_adjustable(),
            prior: terms.prior.clone(),
            checksum: None,
            connect_timeout: terms.connect,
            // A client may have opened a DRS channel and then selected another sizing.
            drs: drs.filter(|_| request.buffers.sizing == BufferSizing::Drs),
            // The worker adds what this process holds.
            security: None,
            close_after: false,
        }
    }
}

impl DataAddresses {
    /// The addresses of an existing channel.
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

    /// Opens the listener of a delayed passive transfer; returns the channel and the addresses to
    /// advertise. `None` for all others.
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
