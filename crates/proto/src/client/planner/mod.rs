//! The settings in force at a server, and the commands that bring them to what a transfer requires.

mod protection;
mod right_sizing;
mod step;

use crate::checksum::ChecksumAlgorithm;
use crate::command::{
    BufferDirection, Command, DataType, ExtendedStore, OptsCommand, RestartMarker, RetrieveOption,
    SiteCommand, TransferMode, TriggerEvent,
};
use crate::feature::ServerFeatures;
use crate::security::{DataCredential, ExchangeKind};
use crate::sizing::BufferSizing;
use crate::streams::ParallelismRange;

use protection::ProtectionState;
pub use protection::early_protection_commands;
use right_sizing::RightSizingState;
pub use right_sizing::{RIGHT_SIZING_UNSUPPORTED, ServerDrsAddress};
pub use step::{PlanStep, RefusalEffect, TransferDirection, TransferRequirements};

/// Message to the user, after the server's name, when it refuses a buffer size.
const BUFFER_SIZE_REFUSED: &str =
    "does not accept a socket buffer size; --buffer applies to this end only";
/// Message to the user, after the server's name, when it refuses a number of streams.
const PARALLELISM_REFUSED: &str = "does not accept a number of parallel streams; it uses its own";

/// Message to the user, after the server's name, when it refuses a congestion control.
pub const CONGESTION_CONTROL_REFUSED: &str =
    "does not accept the congestion control of --cc; it sends with its own";

/// Stores in MODE E of at least so many bytes request frequent markers. Ranges that a restart marker
/// lists need not be sent again after a broken connection, and the default period of servers is 5 s.
const MIN_SIZE_FOR_MARKERS: u64 = 16 << 20;
/// Requested period of markers, seconds.
const MARKER_SECONDS: u32 = 1;

/// Planner of the commands of one control connection. It tracks the settings that are in force at the
/// server, so that no setting is sent twice.
#[derive(Debug, Clone)]
pub struct CommandPlanner {
    pub(super) features: ServerFeatures,
    right_sizing: RightSizingState,
    /// The server accepts commands before it has answered the previous one.
    pub(super) pipelines: bool,
    /// The server accepts commands before it has answered the previous one, if that moves no data.
    pub(super) sends_ahead: bool,
    protection: ProtectionState,
    type_: Option<DataType>,
    mode: TransferMode,
    parallelism: Option<ParallelismRange>,
    congestion: Option<String>,
    send_buffer: Option<u64>,
    receive_buffer: Option<u64>,
    store_checksum: Option<ChecksumAlgorithm>,
    retrieve_checksum: Option<ChecksumAlgorithm>,
    data_address: ServerDataAddress,
    buffer_refused: bool,
    extended_refused: bool,
    markers_requested: bool,
}

/// Data address that the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerDataAddress {
    /// No address, or one that cannot be used again.
    None,
    /// An address for this direction, mode and parallelism.
    Given(TransferDirection, TransferMode, ParallelismRange),
}

impl CommandPlanner {
    /// State directly after login: MODE S, all other settings unknown. The default of TYPE is A in
    /// RFC 959, but servers differ.
    pub fn new(features: ServerFeatures) -> Self {
        Self {
            features,
            right_sizing: RightSizingState::default(),
            pipelines: false,
            sends_ahead: false,
            protection: ProtectionState::default(),
            type_: None,
            mode: TransferMode::Stream,
            parallelism: None,
            congestion: None,
            send_buffer: None,
            receive_buffer: None,
            store_checksum: None,
            retrieve_checksum: None,
            data_address: ServerDataAddress::None,
            buffer_refused: false,
            extended_refused: false,
            markers_requested: false,
        }
    }

    /// The planner of a session that this exchange has secured.
    pub fn with_security(mut self, exchange: ExchangeKind) -> Self {
        self.protection = ProtectionState::secured_by(exchange);
        self
    }

    /// Makes the following transfers use this credential for data connections (DCSC). The caller has
    /// checked that the server announces it.
    pub fn use_data_credential(&mut self, credential: DataCredential) {
        self.protection.use_credential(credential);
    }

    /// Features that the server announced.
    pub fn features(&self) -> &ServerFeatures {
        &self.features
    }

    /// Records that the server does not have a checksum that it announced.
    pub fn on_checksum_missing(&mut self, algorithm: ChecksumAlgorithm) {
        self.features
            .checksum_algorithms
            .retain(|announced| *announced != algorithm);
        self.features
            .x_checksum_algorithms
            .retain(|announced| *announced != algorithm);
    }

    /// Records that REST has no effect, so that it is not used again.
    pub fn on_restart_ignored(&mut self) {
        self.features.ignores_rest = true;
    }

    /// Whether the client may try MODE E: the server announced `PARALLEL` or did not answer FEAT, and
    /// has not refused MODE E.
    pub fn may_use_extended_mode(&self) -> bool {
        !self.extended_refused && (self.features.parallel || !self.features.feat_answered)
    }

    /// Whether MODE E was refused.
    pub fn is_extended_mode_refused(&self) -> bool {
        self.extended_refused
    }

    /// The steps that set what the transfer requires, and start it: TYPE, MODE, protection, OPTS DRS,
    /// buffer, OPTS, DRS channel, data address, announcements, ALLO, REST, transfer command. Settings that are in force are left out,
    /// and so is the data address when open connections can be reused (MODE E, same direction, same
    /// parallelism; GFD.20 §3.4.3).
    pub fn plan(&self, requirements: &TransferRequirements) -> Vec<PlanStep> {
        let mut steps = self.setting_steps(requirements);
        steps.extend(self.drs_step(requirements));
        if !self.reuses_connections(requirements) {
            steps.push(if requirements.server_listens {
                PlanStep::Listen
            } else {
                PlanStep::Connect
            });
        }
        // A server that refuses one of them refuses the transfer command, which has the number of files.
        let announcements = requirements.announcements.iter().cloned();
        steps.extend(announcements.map(|command| PlanStep::Set(command, RefusalEffect::Ignore)));
        // ALLO and REST come last: REST must be followed immediately by the transfer command
        // (RFC 959 §4.1.3).
        if let Some(size) = requirements.announced_size {
            steps.push(PlanStep::Set(Command::Allo(size), RefusalEffect::Ignore));
        }
        if let Some(restart) = &requirements.restart {
            let refusal = match (requirements.mode, restart) {
                // Only a single offset can fall back to 0: the receiver then gets all bytes again, in order.
                (TransferMode::Stream, RestartMarker::Offset(_)) => RefusalEffect::RestartFromZero,
                _ => RefusalEffect::Fatal,
            };
            steps.push(PlanStep::Set(Command::Rest(restart.clone()), refusal));
        }
        steps.push(PlanStep::Transfer(requirements.command.clone()));
        steps
    }

    /// Whether the transfer reuses the data connections of the last one. They must have been opened
    /// with the same direction, parallelism, protection, buffers and congestion control.
    pub fn reuses_connections(&self, requirements: &TransferRequirements) -> bool {
        requirements.connections_reusable
            && requirements.mode == TransferMode::Extended
            && self.mode == TransferMode::Extended
            && self.data_address
                == ServerDataAddress::Given(
                    requirements.direction,
                    TransferMode::Extended,
                    requirements.streams,
                )
            && self
                .protection
                .steps(requirements.protection.as_ref())
                .is_empty()
            && self.sizing_step(requirements).is_none()
            && self.buffer_step(requirements).is_none()
            && self.congestion_step(requirements).is_none()
    }

    /// Only the steps for settings that last for the session, for third-party transfers, whose other
    /// steps are interleaved with those of another server.
    pub fn setting_steps(&self, requirements: &TransferRequirements) -> Vec<PlanStep> {
        let mut steps = Vec::new();
        // A refused TYPE I is fatal: in TYPE A the server would translate line endings and so change
        // the file.
        if self.type_ != Some(DataType::Image) {
            steps.push(PlanStep::Set(
                Command::Type(DataType::Image),
                RefusalEffect::Fatal,
            ));
        }
        if self.mode != requirements.mode {
            let refusal = match requirements.mode {
                // A server without MODE E answers 504; one stream in MODE S still works.
                TransferMode::Extended => RefusalEffect::FallBackToStreamMode,
                TransferMode::Stream => RefusalEffect::Fatal,
            };
            steps.push(PlanStep::Set(Command::Mode(requirements.mode), refusal));
        }
        steps.extend(self.protection.steps(requirements.protection.as_ref()));
        // OPTS DRS comes before SBUF: while drs1 is in force, SBUF announces a size instead of
        // pinning it.
        steps.extend(self.sizing_step(requirements));
        steps.extend(self.buffer_step(requirements));
        steps.extend(self.parallelism_step(requirements));
        steps.extend(self.checksum_step(requirements));
        steps.extend(self.congestion_step(requirements));
        steps.extend(self.marker_steps(requirements));
        steps
    }

    /// TREV (GFD.20 §4.4) is not announced by FEAT. A server that refuses it keeps its own marker
    /// periods.
    fn marker_steps(&self, requirements: &TransferRequirements) -> Vec<PlanStep> {
        // Markers matter only while the server stores, and only MODE E has them (GFD.20 §3.8).
        let is_large = requirements
            .announced_size
            .is_none_or(|size| size >= MIN_SIZE_FOR_MARKERS)
            // A part of a file has others beside it, whose number of streams the markers decide.
            || matches!(requirements.command, Command::Esto(ExtendedStore::Adjusted { .. }, _));
        if requirements.direction != TransferDirection::Receive
            || requirements.mode != TransferMode::Extended
            || self.markers_requested
            || !is_large
        {
            return Vec::new();
        }
        [TriggerEvent::RestartMarker, TriggerEvent::PerformanceMarker]
            .map(|event| PlanStep::Set(Command::Trev(event, MARKER_SECONDS), RefusalEffect::Ignore))
            .into()
    }

    /// SBUF (GFD.20 §4.1), or its SITE form. The globus server announces neither but supports both;
    /// `PARALLEL` identifies it.
    fn buffer_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        let size = requirements.buffer.filter(|_| !self.buffer_refused)?;
        let (current, direction) = match requirements.direction {
            TransferDirection::Send => (self.send_buffer, BufferDirection::Send),
            TransferDirection::Receive => (self.receive_buffer, BufferDirection::Receive),
        };
        if current == Some(size) {
            return None;
        }
        // SBUF sets both directions, the SITE forms one.
        let command = if self.features.sbuf {
            Command::Sbuf(size)
        } else if self.features.parallel {
            Command::Site(SiteCommand::Buffer(direction, size))
        } else {
            return None;
        };
        Some(PlanStep::Set(
            command,
            RefusalEffect::Warn(BUFFER_SIZE_REFUSED),
        ))
    }

    /// OPTS TUNE, only for servers that announce it and only when the server sends.
    fn congestion_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        let name = requirements.congestion_control.as_ref()?;
        let supported = requirements.direction == TransferDirection::Send
            && self.features.takes_congestion_control;
        if !supported || self.congestion.as_ref() == Some(name) {
            return None;
        }
        let command = Command::Opts(OptsCommand::CongestionControl(name.clone()));
        Some(PlanStep::Set(
            command,
            RefusalEffect::Warn(CONGESTION_CONTROL_REFUSED),
        ))
    }

    fn parallelism_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        // In MODE S there is always a single connection, so the number is not sent.
        if requirements.direction != TransferDirection::Send
            || requirements.mode != TransferMode::Extended
            || self.parallelism == Some(requirements.streams)
        {
            return None;
        }
        let option = RetrieveOption::Parallelism(requirements.streams);
        let command = Command::Opts(OptsCommand::Retr(vec![option]));
        Some(PlanStep::Set(
            command,
            RefusalEffect::Warn(PARALLELISM_REFUSED),
        ))
    }

    /// `OPTS RETR Checksum` or `OPTS STOR Checksum`, only for servers that announce it.
    fn checksum_step(&self, requirements: &TransferRequirements) -> Option<PlanStep> {
        let wanted = requirements.passing_checksum;
        let (is_supported, in_force, option) = match requirements.direction {
            TransferDirection::Send => (
                self.features.retrieve_checksum,
                self.retrieve_checksum,
                OptsCommand::Retr(vec![RetrieveOption::Checksum(wanted)]),
            ),
            TransferDirection::Receive => (
                self.features.store_checksum,
                self.store_checksum,
                OptsCommand::StoreChecksum(wanted),
            ),
        };
        (is_supported && in_force != wanted)
            .then(|| PlanStep::Set(Command::Opts(option), RefusalEffect::Ignore))
    }

    /// Records a setting that the server has accepted.
    pub fn on_accepted(&mut self, command: &Command) {
        match command {
            Command::Type(type_) => self.type_ = Some(*type_),
            Command::Mode(mode) => {
                // Addresses and connections cannot be used in another mode.
                if self.mode != *mode {
                    self.data_address = ServerDataAddress::None;
                }
                self.mode = *mode;
            }
            // The server applies buffer sizes when it opens a socket, so an address from before the
            // change cannot be used.
            Command::Sbuf(size) => {
                self.send_buffer = Some(*size);
                self.receive_buffer = Some(*size);
                self.data_address = ServerDataAddress::None;
            }
            Command::Site(SiteCommand::Buffer(direction, size)) => {
                if *direction != BufferDirection::Receive {
                    self.send_buffer = Some(*size);
                }
                if *direction != BufferDirection::Send {
                    self.receive_buffer = Some(*size);
                }
                self.data_address = ServerDataAddress::None;
            }
            Command::Opts(OptsCommand::Retr(options)) => {
                for option in options {
                    match option {
                        RetrieveOption::Parallelism(n) => {
                            self.parallelism = Some(*n);
                            self.data_address = ServerDataAddress::None;
                        }
                        RetrieveOption::Checksum(algorithm) => self.retrieve_checksum = *algorithm,
                        _ => {}
                    }
                }
            }
            Command::Opts(OptsCommand::CongestionControl(name)) => {
                self.congestion = Some(name.clone());
                self.data_address = ServerDataAddress::None;
            }
            Command::Opts(OptsCommand::StoreChecksum(algorithm)) => {
                self.store_checksum = *algorithm;
            }
            Command::Opts(OptsCommand::BufferSizing(sizing)) => self.on_sizing_accepted(*sizing),
            Command::Abuf => self.on_sizing_accepted(BufferSizing::Auto),
            Command::Pbsz(_) => self.protection.on_buffer_size_sent(),
            // The server closes connections with another protection, so the address cannot be used.
            Command::Prot(level) => {
                self.protection.on_level(*level);
                self.data_address = ServerDataAddress::None;
            }
            Command::Dcau(mode) => {
                self.protection.on_authentication(mode);
                self.data_address = ServerDataAddress::None;
            }
            Command::Dcsc(credential) => {
                self.protection.on_credential(credential);
                self.data_address = ServerDataAddress::None;
            }
            Command::Trev(..) => self.markers_requested = true,
            _ => {}
        }
    }

    /// Records a setting that the server has refused, so that it is not sent again.
    pub fn on_refused(&mut self, command: &Command) {
        match command {
            Command::Mode(TransferMode::Extended) => self.extended_refused = true,
            Command::Sbuf(_) | Command::Site(SiteCommand::Buffer(..)) => self.buffer_refused = true,
            // The refused value is recorded as if it were in force, so that it is not sent again and
            // the user is warned only once.
            Command::Opts(OptsCommand::Retr(options)) => {
                for option in options {
                    match option {
                        RetrieveOption::Parallelism(n) => self.parallelism = Some(*n),
                        RetrieveOption::Checksum(_) => self.features.retrieve_checksum = false,
                        _ => {}
                    }
                }
            }
            Command::Opts(OptsCommand::CongestionControl(name)) => {
                self.congestion = Some(name.clone());
            }
            // Without this option the server computes the checksum on CKSM, which is slower but correct.
            Command::Opts(OptsCommand::StoreChecksum(_)) => self.features.store_checksum = false,
            Command::Opts(OptsCommand::BufferSizing(sizing)) => self.on_sizing_refused(*sizing),
            Command::Abuf => self.features.abuf = false,
            Command::Dpsv => self.on_drs_listening_refused(),
            Command::Dprt(_) => self.on_drs_connecting_refused(),
            Command::Pbsz(_) => self.protection.on_buffer_size_sent(),
            Command::Trev(..) => self.markers_requested = true,
            _ => {}
        }
    }

    /// Records that the server has a data address for this transfer.
    pub fn on_address_given(&mut self, requirements: &TransferRequirements) {
        self.data_address = ServerDataAddress::Given(
            requirements.direction,
            requirements.mode,
            requirements.streams,
        );
    }

    /// Records the successful end of a transfer. A MODE S address cannot be used again.
    pub fn on_transferred(&mut self) {
        if matches!(
            self.data_address,
            ServerDataAddress::Given(_, TransferMode::Stream, _)
        ) {
            self.data_address = ServerDataAddress::None;
        }
    }

    /// Records that the data connections are closed.
    pub fn on_channel_lost(&mut self) {
        self.data_address = ServerDataAddress::None;
    }
}

#[cfg(test)]
mod tests;
