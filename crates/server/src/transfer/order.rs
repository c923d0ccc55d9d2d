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
use proto::stripes::StripeAddresses;
use tune::Prior;
use tune::sizing::drs::DrsInterval;
use tune::sizing::drs1::Drs1Reads;

use super::{StripedWork, TransferMemory, advertised_address, file_error};
use crate::config::ServerConfig;
use crate::files::{ControlSocket, Uploader};
use crate::limits::QueuePermit;
use crate::session_files::SessionFiles;

/// The complete description of a transfer. It holds no open files, connections or shared state: what a data node needs of it is a
/// [`crate::stripes::NodeOrder`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TransferOrder {
    /// File, ranges, mode, streams, buffers and markers.
    pub(crate) request: TransferRequest,
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
    /// Interval at which a receiving end computes the bandwidth ([`proto::sizing::BufferSizing::Drs`]).
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
    /// The data nodes that carry out the order; `None`: this process does.
    pub(crate) striped: Option<StripedWork>,
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
                drs1_reads: Drs1Reads::default(),
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
            drs: drs.filter(|_| request.buffers.sizing.uses_drs_channel()),
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
mod tests {
    use proto::command::{DataType, TransferMode};
    use proto::path::VPath;
    use proto::ranges::RangeSet;
    use proto::server::TransferKind;
    use proto::sizing::{BufferSizing, SocketBuffers};
    use proto::streams::ParallelismRange;

    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn order() -> TransferOrder {
        let mut have = RangeSet::new();
        have.insert(0, 1000);
        TransferOrder {
            request: TransferRequest {
                kind: TransferKind::Retrieve {
                    path: VPath::root(),
                    partial: Some((5000, 7000)),
                    already_received: have,
                    checksum_algorithm: None,
                },
                mode: TransferMode::Extended,
                type_: DataType::Image,
                streams: ParallelismRange {
                    start: 3,
                    min: 2,
                    max: 9,
                },
                layout: Default::default(),
                congestion_control: "auto".to_owned(),
                delayed_passive: None,
                buffers: SocketBuffers::sized_by(BufferSizing::Auto),
                perf_marker_seconds: 5,
                range_marker_seconds: 0,
                protection: proto::security::DataChannelProtection::default(),
            },
            connections: DataAddresses::Targets(StripeAddresses::single(at(40_000))),
            terms: TransferTerms {
                congestion: CongestionChoice::Auto,
                drs_interval: DrsInterval::default(),
                io: IoMethod::Sendfile,
                block: 1 << 18,
                stall: Duration::from_secs(7),
                connect: Duration::from_secs(8),
                max_connections: 12,
                prior: Prior::with_streams(4),
            },
            uploader: Uploader::User("ann".to_owned()),
        }
    }

    /// Accepts only types of plain data: they can be cloned and compared, and borrow nothing.
    fn is_plain<T: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static>() {}

    /// Fails to compile if `$handle` implements `$plain`: then the call of `check` is ambiguous.
    macro_rules! lacks {
        ($handle:ty, $plain:path) => {{
            trait NotImplemented<Which> {
                fn check() {}
            }
            struct Implemented;
            impl<T: ?Sized> NotImplemented<()> for T {}
            impl<T: ?Sized + $plain> NotImplemented<Implemented> for T {}
            <$handle as NotImplemented<_>>::check();
        }};
    }

    #[test]
    fn orders_are_plain_data_and_handles_are_not() {
        is_plain::<TransferOrder>();
        // Open, counted or shared things do not implement PartialEq, so an order cannot contain them.
        lacks!(LocalHandles, PartialEq);
        lacks!(LocalHandles, Clone);
        lacks!(SessionFiles, PartialEq);
        lacks!(ControlSocket, PartialEq);
        lacks!(SessionDataChannel, PartialEq);
        lacks!(StreamBudget, PartialEq);
        lacks!(RateLimit, PartialEq);
        lacks!(drs::DrsEndpoint, PartialEq);
        lacks!(QueuePermit, PartialEq);
    }

    #[test]
    fn a_copy_of_an_order_is_the_same_order() {
        let one = order();
        let copy = one.clone();
        assert_eq!(one, copy);
        // The copy does not change when the original is dropped or changed.
        let mut other = one.clone();
        drop(one);
        other.uploader = Uploader::User("bob".to_owned());
        assert_ne!(other, copy);
        assert_eq!(copy, order());
        let elsewhere = TransferOrder {
            connections: DataAddresses::Targets(StripeAddresses::single(at(40_001))),
            ..order()
        };
        assert_ne!(elsewhere, copy);
    }

    #[test]
    fn settings_combine_the_order_and_the_local_handles() {
        let settings = order().settings(Some(RateLimit::new(9000)), None);
        assert_eq!(
            (settings.mode, settings.type_),
            (TransferMode::Extended, DataType::Image)
        );
        let streams = [
            settings.streams,
            settings.min_streams,
            settings.max_streams,
            settings.max_connections,
        ];
        assert_eq!(streams, [3, 2, 9, 12]);
        assert!(settings.adapt);
        let options = &settings.options;
        assert_eq!(options.congestion, CongestionChoice::Auto);
        assert_eq!((options.io, options.block), (IoMethod::Sendfile, 1 << 18));
        assert_eq!(options.buffers.sizing, BufferSizing::Auto);
        let seconds = [options.stall, settings.connect_timeout].map(|time| time.as_secs());
        assert_eq!(seconds, [7, 8]);
        assert_eq!(options.rate.as_ref().map(RateLimit::rate), Some(9000));
        assert_eq!(settings.prior, Prior::with_streams(4));
    }

    #[test]
    fn only_a_retrieve_with_a_range_of_streams_adapts() {
        let with = |change: fn(&mut TransferRequest)| {
            let mut order = order();
            change(&mut order.request);
            order.settings(None, None).adapt
        };
        assert!(with(|_| {}));
        assert!(!with(|request| request.streams = ParallelismRange::fixed(3)));
        assert!(!with(|request| {
            request.kind = TransferKind::Store {
                path: VPath::root(),
                disposition: proto::server::StoreDisposition::Truncate,
                announced_size: None,
                checksum_algorithm: None,
                expected_checksum: None,
                modified: None,
            };
        }));
    }

    #[test]
    fn the_order_has_the_addresses_of_the_channel() {
        let of = |channel: &SessionDataChannel| DataAddresses::of(Some(channel));
        assert_eq!(DataAddresses::of(None), DataAddresses::Unknown);
        let none = SessionDataChannel::connect_to(Vec::new(), None);
        assert_eq!(of(&none), DataAddresses::Unknown);
        let targets = vec![at(40_000), at(40_001)];
        let active = SessionDataChannel::connect_to(targets.clone(), None);
        let expected = StripeAddresses::new(targets).unwrap();
        assert_eq!(of(&active), DataAddresses::Targets(expected));
        let passive = SessionDataChannel::listen(&ListenOptions {
            ip: [127, 0, 0, 1].into(),
            ports: None,
            accept: data::channel::AllowedPeers::Any,
            buffers: SocketBuffers::default(),
        })
        .unwrap();
        let expected = StripeAddresses::single(passive.local_addr().unwrap());
        assert_eq!(of(&passive), DataAddresses::Awaited(expected));
    }
}
