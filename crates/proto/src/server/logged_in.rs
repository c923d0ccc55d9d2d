//! The session of a client that has logged in: its state, grouped by lifetime (connection, login, one
//! transfer), and which module answers a command or an event.

use std::net::IpAddr;

use super::announcement_memory::AnnouncementShare;
use super::data_address::PassiveReplyForm;
use super::data_protection::DataProtectionSettings;
use super::files::FileTask;
use super::parameters::{lang, stru};
use super::replies::{self, CommandResult};
use super::transfer::RunningTransfer;
use super::{AccountRights, DriverEvent, FindHome, LoginGrant, SessionAction, SessionConfig};
use crate::bundle::BundleFile;
use crate::checksum::ChecksumAlgorithm;
use crate::command::{
    Command, DataType, ExtendedRetrieve, ExtendedStore, RestartMarker, TransferMode,
};
use crate::listing::FactSet;
use crate::marker::checksum_marker_reply;
use crate::path::VPath;
use crate::reply::Reply;
use crate::sizing::SocketBuffers;
use crate::streams::ParallelismRange;
use crate::stripes::{STRIPE_BLOCK, StripeAddresses, StripeLayout};
use crate::timestamp::Timestamp;

/// Login state of a control connection.
#[derive(Debug)]
pub(super) enum LoginState {
    /// No user is logged in; USER is expected.
    Connected,
    /// USER was given; PASS is expected.
    UserGiven(String),
    /// The driver checks the login. Holds the user's name while only USER was given.
    Authenticating(Option<String>),
    /// A user is logged in.
    LoggedIn(Box<LoggedInSession>),
    /// [`super::SessionAction::Close`] was returned; all input is ignored.
    Closed,
}

/// Input that a security exchange waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeWait {
    /// The driver's response whether the exchange can start.
    ExchangeReady,
    /// ADAT from the client.
    Adat,
    /// The mechanism's result for a token, from the driver.
    MechanismResult,
    /// The end of the handshake, from the driver.
    Handshake,
}

/// State of a session after login.
#[derive(Debug)]
pub(super) struct LoggedInSession {
    /// Name shown by SITE WHOAMI and STAT.
    pub(super) user: String,
    /// The directory that `~` stands for.
    pub(super) home: VPath,
    /// Finds the directory that `~user` stands for.
    pub(super) home_of: Option<FindHome>,
    /// Rights of the account that is logged in.
    pub(super) rights: AccountRights,
    /// The control connection's peer, IPv4-mapped addresses as IPv4.
    pub(super) peer: IpAddr,
    /// The other hosts allowed for data connections (SITE DATAPEER), in the same form.
    pub(super) data_peers: Vec<IpAddr>,
    /// Data connections with any host are allowed.
    pub(super) any_host: bool,
    /// Current directory.
    pub(super) cwd: VPath,
    /// Parameters that last until REIN or the end of the session.
    pub(super) parameters: SessionParameters,
    /// The login needed no PASS (232).
    pub(super) by_certificate: bool,
    /// Protection of data connections.
    pub(super) protection: DataProtectionSettings,
    /// Parameters of the next transfer only.
    pub(super) next_transfer: NextTransferParameters,
    /// Files of the next bundle.
    pub(super) announced_bundle: AnnouncedBundle,
    /// The memory of the last bundle, whose files are kept until the next one.
    pub(super) last_bundle_memory: AnnouncementShare,
    /// Data channel of the next transfer.
    pub(super) data_channel: DataChannel,
    /// The driver has an address for the DRS channel (DPSV, DPRT).
    pub(super) has_drs_address: bool,
    /// Path of an accepted RNFR; kept until RNTO.
    pub(super) rename_from: Option<VPath>,
    /// Path of an accepted SITE SYMLINKFROM; kept until SITE SYMLINKTO.
    pub(super) link_from: Option<VPath>,
    /// Task of the driver that the session waits for.
    pub(super) pending: PendingTask,
}

impl LoggedInSession {
    /// State directly after login: every parameter has its default.
    pub(super) fn new(
        config: &SessionConfig,
        protection: DataProtectionSettings,
        grant: LoginGrant,
    ) -> Self {
        Self {
            user: grant.user,
            cwd: grant.home.clone(),
            home: grant.home,
            home_of: config.carried.home_of,
            // Both the account and the administrator must allow foreign hosts.
            any_host: grant.rights.third_party && config.foreign_data_addresses,
            rights: grant.rights,
            data_peers: Vec::new(),
            // Addresses are compared in canonical form, so that `::ffff:a.b.c.d` equals `a.b.c.d`.
            peer: config.peer.to_canonical(),
            parameters: SessionParameters::new(config),
            by_certificate: false,
            protection,
            next_transfer: NextTransferParameters::default(),
            announced_bundle: AnnouncedBundle::default(),
            last_bundle_memory: AnnouncementShare::default(),
            data_channel: DataChannel::None,
            has_drs_address: false,
            rename_from: None,
            link_from: None,
            pending: PendingTask::Nothing,
        }
    }

    /// Handles a command while nothing is pending.
    pub(super) fn on_command(
        &mut self,
        config: &SessionConfig,
        command: Command,
    ) -> Vec<SessionAction> {
        self.on_file_command(config, command)
            .unwrap_or_else(|refusal| refusal)
    }

    /// Handles commands with a path. The error holds the reply that refuses the path or restart marker.
    fn on_file_command(&mut self, config: &SessionConfig, command: Command) -> CommandResult {
        match command {
            Command::Cwd(path) => self.cwd(&path),
            Command::Mkd(path) => self.mkd(&path),
            Command::Rmd(path) => self.rmd(&path),
            Command::Dele(path) => self.dele(&path),
            Command::Rnfr(path) => self.rnfr(&path),
            Command::Rnto(path) => self.rnto(&path),
            Command::Size(path) => self.size(&path),
            Command::Mdtm(path) => self.mdtm(&path),
            Command::Mfmt(time, path) => self.mfmt(time, &path),
            Command::Stat(Some(path)) => self.stat_path(&path),
            Command::Mlst(path) => self.mlst(path.as_deref()),
            Command::Mlsc(path) => self.mlsc(path.as_deref()),
            Command::List(path) => self.list(path.as_deref()),
            Command::Nlst(path) => self.nlst(path.as_deref()),
            Command::Mlsd(path) => self.mlsd(path.as_deref()),
            Command::Mlsr(path) => self.mlsr(path.as_deref()),
            Command::Retr(path) => self.retr("RETR", None, &path),
            Command::Eret(ExtendedRetrieve::Partial { offset, length }, path) => {
                self.retr("ERET", Some((offset, length)), &path)
            }
            Command::Eret(ExtendedRetrieve::Bundle { count }, path) => {
                self.retrieve_bundle(count, &path)
            }
            Command::Stor(path) => self.stor("STOR", &path),
            Command::Get(request) => self.get(&request),
            Command::Put(request) => self.put(&request),
            Command::Appe(path) => self.appe(&path),
            Command::Stou(path) => self.stou(path.as_deref()),
            Command::Esto(ExtendedStore::Adjusted { offset }, path) => self.esto(offset, &path),
            Command::Esto(ExtendedStore::Bundle { count }, path) => self.store_bundle(count, &path),
            Command::Cksm {
                algorithm,
                offset,
                length,
                path,
            } => self.cksm(algorithm, offset, length, &path),
            Command::Site(site) => self.site(config, site),
            other => Ok(self.on_parameter_command(config, other)),
        }
    }

    /// Handles commands without a path.
    fn on_parameter_command(
        &mut self,
        config: &SessionConfig,
        command: Command,
    ) -> Vec<SessionAction> {
        match command {
            Command::Cdup => self.cdup(),
            Command::Pwd => self.pwd(),
            Command::Syst => replies::reply(215, "UNIX Type: L8"),
            Command::Stat(_) => vec![SessionAction::Reply(self.status(config))],
            Command::Acct(_) => replies::reply(202, "ACCT is not needed here."),
            Command::Abor => replies::reply(226, "Abort successful"),
            Command::Lang(tag) => lang(tag.as_deref()),
            Command::Opts(opts) => self.opts(config, opts),
            Command::Type(type_) => self.set_type(type_),
            Command::Mode(mode) => self.set_mode(mode),
            Command::Stru(code) => stru(code),
            Command::Rest(restart) => self.rest(restart),
            Command::Allo(bytes) => self.allo(bytes),
            Command::Sbuf(bytes) => self.sbuf(bytes),
            Command::Abuf => self.abuf(config),
            Command::Dcsc(credential) => self.dcsc(credential),
            Command::Pasv => self.pasv(),
            Command::Epsv(argument) => self.epsv(argument),
            Command::Spas(argument) => self.spas(argument),
            Command::Port(address) => self.port("PORT", StripeAddresses::single(address), false),
            Command::Eprt(address) => self.port("EPRT", StripeAddresses::single(address), false),
            Command::Spor(addresses) => self.port("SPOR", addresses, true),
            Command::Dpsv => self.dpsv(),
            Command::Dprt(address) => self.dprt(address),
            Command::Scks(algorithm, hex) => self.scks(algorithm, hex),
            Command::Trev(event, seconds) => self.trev(event, seconds),
            other => replies::reply(503, format!("{} is not possible now.", other.verb())),
        }
    }

    /// STAT without path: the server's status (RFC 959 §4.1.3).
    fn status(&self, config: &SessionConfig) -> Reply {
        let type_ = match self.parameters.type_ {
            DataType::Ascii => "A",
            DataType::Image => "I",
        };
        let mode = match self.parameters.mode {
            TransferMode::Stream => "S",
            TransferMode::Extended => "E",
        };
        let lines = vec![
            format!("Version: {}", config.version).into_bytes(),
            format!("Logged in as {}", self.user).into_bytes(),
            format!("TYPE {type_}, MODE {mode}, STRU F").into_bytes(),
            format!("Parallelism {}", self.parameters.parallelism.start).into_bytes(),
        ];
        Reply::with_inner_lines(211, "Server status:", lines, "End.")
    }

    /// Handles a driver event. An event that nothing waits for changes nothing.
    pub(super) fn on_driver_event(&mut self, event: DriverEvent) -> Vec<SessionAction> {
        // The pending task is moved out; arms that continue put it back.
        match (std::mem::take(&mut self.pending), event) {
            (PendingTask::File(task), DriverEvent::File(response)) => {
                self.on_file_response(*task, response)
            }
            (PendingTask::File(task), DriverEvent::ChecksumProgress { now, bytes }) => {
                self.pending = PendingTask::File(task);
                vec![SessionAction::Reply(checksum_marker_reply(now, bytes))]
            }
            (PendingTask::Listen(form), DriverEvent::Listening(addresses)) => {
                self.on_listening(form, addresses)
            }
            (PendingTask::ListenDrs, DriverEvent::DrsListening(address)) => {
                self.on_drs_listening(address)
            }
            (PendingTask::DataCredential, DriverEvent::DataCredential(result)) => match result {
                Ok(()) => replies::reply(250, "OK."),
                Err(reason) => replies::reply(500, format!("Credential import failed: {reason}")),
            },
            (PendingTask::Transfer(running), event) => self.on_transfer_event(running, event),
            (pending, _) => {
                self.pending = pending;
                Vec::new()
            }
        }
    }
}

/// Parameters that last until REIN or the end of the session.
#[derive(Debug)]
pub(super) struct SessionParameters {
    /// TYPE. The default is A (RFC 959 §3.1.1.1).
    pub(super) type_: DataType,
    /// MODE. The default is S (RFC 959 §3.4).
    pub(super) mode: TransferMode,
    /// Data connections when sending in MODE E (`OPTS RETR Parallelism`).
    pub(super) parallelism: ParallelismRange,
    /// Layout of stripes (OPTS RETR).
    pub(super) layout: StripeLayout,
    /// Block of the blocked layout, bytes.
    pub(super) stripe_block: u64,
    /// Congestion control for sending (`OPTS TUNE Congestion`); empty for the server's own.
    pub(super) congestion_control: String,
    /// Socket buffers: pinned by SBUF, otherwise sized as set by `OPTS DRS`.
    pub(super) buffers: SocketBuffers,
    /// The client reads remarks in a 226 ([`crate::remark`]).
    pub(super) reads_remarks: bool,
    /// Seconds between performance markers (112) during stores; 0 for none.
    pub(super) store_perf_seconds: u32,
    /// Seconds between restart markers (111) during stores; 0 for none.
    pub(super) store_range_seconds: u32,
    /// Seconds between performance markers (112) during retrieves; 0 for none.
    pub(super) retrieve_perf_seconds: u32,
    /// Seconds between status markers (113) of CKSM; 0 for none.
    pub(super) checksum_seconds: u32,
    /// `OPTS PASV AllowDelayed=1`
    pub(super) allow_delayed: bool,
    /// EPSV ALL was given (RFC 2428 §4).
    pub(super) epsv_only: bool,
    /// Facts that MLST, MLSD, MLSC and MLSR show.
    pub(super) facts: FactSet,
    /// `OPTS MLSR Deflate=1`
    pub(super) deflate_trees: bool,
    /// `OPTS STOR Checksum`: checksum to compute while storing.
    pub(super) store_checksum: Option<ChecksumAlgorithm>,
    /// `OPTS RETR Checksum`: checksum to compute while sending.
    pub(super) retrieve_checksum: Option<ChecksumAlgorithm>,
    /// Idle timeout from SITE IDLE, seconds; `None` for the server's own.
    pub(super) idle_seconds: Option<u32>,
}

impl SessionParameters {
    fn new(config: &SessionConfig) -> Self {
        Self {
            type_: DataType::Ascii,
            mode: TransferMode::Stream,
            // GFD.20 §4.2: without OPTS RETR the server opens a single connection.
            parallelism: ParallelismRange::fixed(1),
            layout: StripeLayout::Free,
            stripe_block: STRIPE_BLOCK,
            congestion_control: String::new(),
            buffers: SocketBuffers::sized_by(config.default_buffer_sizing()),
            reads_remarks: false,
            store_perf_seconds: config.perf_marker_seconds,
            store_range_seconds: config.range_marker_seconds,
            retrieve_perf_seconds: 0,
            checksum_seconds: 0,
            allow_delayed: false,
            epsv_only: false,
            facts: FactSet::default(),
            deflate_trees: false,
            store_checksum: None,
            retrieve_checksum: None,
            idle_seconds: None,
        }
    }
}

/// Parameters of the next transfer only.
#[derive(Debug, Default)]
pub(super) struct NextTransferParameters {
    /// REST. Every transfer command consumes it, even one that fails.
    pub(super) restart: Option<RestartMarker>,
    /// Parameters that only a store consumes.
    pub(super) store: NextStoreParameters,
}

/// Files that SITE BUNDLE ADD has announced since the last bundle.
#[derive(Debug, Default)]
pub(super) struct AnnouncedBundle {
    /// The files, in order.
    pub(super) files: Vec<BundleFile>,
    /// Bytes of their paths.
    pub(super) path_bytes: usize,
    /// The memory that they take.
    pub(super) memory: AnnouncementShare,
}

/// Parameters of the next store only.
#[derive(Debug, Default)]
pub(super) struct NextStoreParameters {
    /// Size from ALLO, bytes.
    pub(super) announced_size: Option<u64>,
    /// Checksum from SCKS or SITE STORATTR.
    pub(super) expected_checksum: Option<(ChecksumAlgorithm, String)>,
    /// Modification time from SITE STORATTR.
    pub(super) modified: Option<Timestamp>,
}

/// Data channel: how the next data connection is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataChannel {
    /// No address: a transfer is refused with 425. The default port of RFC 959 (20) is never used.
    None,
    /// The driver listens.
    Passive {
        /// MODE E connections of an earlier transfer are cached.
        cached: bool,
    },
    /// The driver connects to the client.
    Active {
        /// Addresses from PORT, EPRT or SPOR.
        to: StripeAddresses,
        /// MODE E connections of an earlier transfer are cached.
        cached: bool,
    },
    /// Delayed passive mode: the driver starts to listen when the transfer starts, and the session sends
    /// the address then.
    DelayedPassive(PassiveReplyForm),
}

impl DataChannel {
    /// Whether connections of an earlier transfer are cached.
    pub(super) fn is_cached(&self) -> bool {
        matches!(
            self,
            Self::Passive { cached: true } | Self::Active { cached: true, .. }
        )
    }
}

/// Task of the driver that a logged-in session waits for.
#[derive(Debug, Default)]
pub(super) enum PendingTask {
    /// None; the session waits for the next line.
    #[default]
    Nothing,
    /// A file operation without data channel.
    File(Box<FileTask>),
    /// Opening a listener; holds the form of the reply with its address.
    Listen(PassiveReplyForm),
    /// Opening a listener for the DRS channel.
    ListenDrs,
    /// Taking over the credential of DCSC.
    DataCredential,
    /// A transfer.
    Transfer(Box<RunningTransfer>),
}
