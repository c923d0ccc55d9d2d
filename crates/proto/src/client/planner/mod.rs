//! Settings that a server is known to have.

use super::right_sizing::RightSizingState;
use super::{PlanStep, RefusalEffect, TransferDirection, TransferRequirements};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{
    BufferDirection, Command, DataType, OptsCommand, RestartMarker, RetrieveOption, SiteCommand,
    TransferMode, TriggerEvent,
};
use crate::feature::ServerFeatures;
use crate::streams::ParallelismRange;

/// Message to the user when a server does not take a buffer size.
const BUFFER_SIZE_REFUSED: &str =
    "cannot be told the size of its socket buffers; --buffer applies to this end only";
/// Message to the user when a server does not take a number of streams.
const PARALLELISM_REFUSED: &str = "does not take a number of parallel streams; it chooses itself";

/// Message to the user when a server does not take a congestion control.
pub const CONGESTION_CONTROL_REFUSED: &str =
    "does not run the congestion control that --cc names; it sends with its own";

/// Stores in MODE E of at least this many bytes ask for frequent markers: what a marker has told
/// need not be sent again after a cut, and servers send them only every 5 s by themselves.
const MARKERS_FROM: u64 = 16 << 20;
/// Seconds between markers that are asked for.
const MARKER_SECONDS: u32 = 1;

/// The settings of one control connection.
#[derive(Debug, Clone)]
pub struct CommandPlanner {
    pub(super) features: ServerFeatures,
    pub(super) right_sizing: RightSizingState,
    /// Commands may be sent before the last one is answered.
    pub(super) pipelines: bool,
    type_: Option<DataType>,
    mode: TransferMode,
    parallelism: Option<ParallelismRange>,
    congestion: Option<String>,
    send_buffer: Option<u64>,
    receive_buffer: Option<u64>,
    store_checksum: Option<ChecksumAlgorithm>,
    data_address: ServerDataAddress,
    buffer_refused: bool,
    extended_refused: bool,
    markers_requested: bool,
}

/// The data address that the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerDataAddress {
    /// None, or one that was used up.
    None,
    /// Given for this direction, mode and number of streams.
    Given(TransferDirection, TransferMode, ParallelismRange),
}

impl CommandPlanner {
    /// A fresh login: MODE S, nothing else known (RFC 959 has TYPE A as default, but servers
    /// differ).
    pub fn new(features: ServerFeatures) -> Self {
        Self {
            features,
            right_sizing: RightSizingState::default(),
            pipelines: false,
            type_: None,
            mode: TransferMode::Stream,
            parallelism: None,
            congestion: None,
            send_buffer: None,
            receive_buffer: None,
            store_checksum: None,
            data_address: ServerDataAddress::None,
            buffer_refused: false,
            extended_refused: false,
            markers_requested: false,
        }
    }

    /// Features that the server announced.
    pub fn features(&self) -> &ServerFeatures {
        &self.features
    }

    /// Whether MODE E is worth asking for: announced (by `PARALLEL`) or not knowable, and not yet
    /// refused.
    pub fn may_use_extended_mode(&self) -> bool {
        !self.extended_refused && (self.features.parallel || !self.features.feat_answered)
    }

    /// Whether MODE E was refused.
    pub fn is_extended_mode_refused(&self) -> bool {
        self.extended_refused
    }

    /// The steps that bring the server to `need` and start the transfer: TYPE, MODE, OPTS DRS, buffer,
    /// OPTS, DRS channel, data address, ALLO, REST, verb. Settings that are in force already are left out, and the
    /// data address when open connections can be used again (MODE E, same direction, same number
    /// of streams; GFD.20 §3.4.3).
    pub fn plan(&self, need: &TransferRequirements) -> Vec<PlanStep> {
        let mut steps = self.setting_steps(need);
        steps.extend(self.drs_step(need));
        if !self.reuses_connections(need) {
            steps.push(if need.server_listens {
                PlanStep::Listen
            } else {
                PlanStep::Connect
            });
        }
        if let Some(size) = need.announced_size {
            steps.push(PlanStep::Set(Command::Allo(size), RefusalEffect::Ignore));
        }
        if let Some(restart) = &need.restart {
            let refusal = match (need.mode, restart) {
                (TransferMode::Stream, RestartMarker::Offset(_)) => RefusalEffect::RestartFromZero,
                _ => RefusalEffect::Fatal,
            };
            steps.push(PlanStep::Set(Command::Rest(restart.clone()), refusal));
        }
        steps.push(PlanStep::Transfer(need.command.clone()));
        steps
    }

    /// Whether the transfer would go over the data connections of the last one: they must have been
    /// opened for it, with the buffers and the congestion control that it is to have.
    pub fn reuses_connections(&self, need: &TransferRequirements) -> bool {
        need.connections_reusable
            && need.mode == TransferMode::Extended
            && self.mode == TransferMode::Extended
            && self.data_address
                == ServerDataAddress::Given(need.direction, TransferMode::Extended, need.streams)
            && self.sizing_step(need).is_none()
            && self.buffer_step(need).is_none()
            && self.congestion_step(need).is_none()
    }

    /// The session-long settings alone, for transfers whose other steps are interleaved with
    /// another server's.
    pub fn setting_steps(&self, need: &TransferRequirements) -> Vec<PlanStep> {
        let mut steps = Vec::new();
        if self.type_ != Some(DataType::Image) {
            steps.push(PlanStep::Set(
                Command::Type(DataType::Image),
                RefusalEffect::Fatal,
            ));
        }
        if self.mode != need.mode {
            let refusal = match need.mode {
                TransferMode::Extended => RefusalEffect::FallBackToStreamMode,
                TransferMode::Stream => RefusalEffect::Fatal,
            };
            steps.push(PlanStep::Set(Command::Mode(need.mode), refusal));
        }
        // Before the buffer: with drs1 in force SBUF pins nothing.
        steps.extend(self.sizing_step(need));
        steps.extend(self.buffer_step(need));
        steps.extend(self.option_step(need));
        steps.extend(self.congestion_step(need));
        steps.extend(self.marker_steps(need));
        steps
    }

    /// TREV (GFD.20 §4.4) is not announced; a server that refuses it keeps its own pace.
    fn marker_steps(&self, need: &TransferRequirements) -> Vec<PlanStep> {
        let large = need.announced_size.is_none_or(|size| size >= MARKERS_FROM);
        if need.direction != TransferDirection::Receive
            || need.mode != TransferMode::Extended
            || self.markers_requested
            || !large
        {
            return Vec::new();
        }
        [TriggerEvent::RestartMarker, TriggerEvent::PerformanceMarker]
            .map(|event| PlanStep::Set(Command::Trev(event, MARKER_SECONDS), RefusalEffect::Ignore))
            .into()
    }

    /// GFD.20 §4.1 has SBUF; the globus server announces neither it nor its SITE forms, but has
    /// both.
    fn buffer_step(&self, need: &TransferRequirements) -> Option<PlanStep> {
        let size = need.buffer.filter(|_| !self.buffer_refused)?;
        let (known, side) = match need.direction {
            TransferDirection::Send => (self.send_buffer, BufferDirection::Send),
            TransferDirection::Receive => (self.receive_buffer, BufferDirection::Receive),
        };
        if known == Some(size) {
            return None;
        }
        let command = if self.features.sbuf {
            Command::Sbuf(size)
        } else if self.features.parallel {
            Command::Site(SiteCommand::Buffer(side, size))
        } else {
            return None;
        };
        Some(PlanStep::Set(
            command,
            RefusalEffect::Warn(BUFFER_SIZE_REFUSED),
        ))
    }

    /// Only servers that announce OPTS TUNE are asked, about what they send.
    fn congestion_step(&self, need: &TransferRequirements) -> Option<PlanStep> {
        let name = need.congestion_control.as_ref()?;
        let asked =
            need.direction == TransferDirection::Send && self.features.takes_congestion_control;
        if !asked || self.congestion.as_ref() == Some(name) {
            return None;
        }
        let command = Command::Opts(OptsCommand::CongestionControl(name.clone()));
        Some(PlanStep::Set(
            command,
            RefusalEffect::Warn(CONGESTION_CONTROL_REFUSED),
        ))
    }

    fn option_step(&self, need: &TransferRequirements) -> Option<PlanStep> {
        match need.direction {
            TransferDirection::Send => {
                if need.mode != TransferMode::Extended || self.parallelism == Some(need.streams) {
                    return None;
                }
                let option = RetrieveOption::Parallelism(need.streams);
                let command = Command::Opts(OptsCommand::Retr(vec![option]));
                Some(PlanStep::Set(
                    command,
                    RefusalEffect::Warn(PARALLELISM_REFUSED),
                ))
            }
            TransferDirection::Receive => {
                if !self.features.store_checksum || self.store_checksum == need.store_checksum {
                    return None;
                }
                let command = Command::Opts(OptsCommand::StoreChecksum(need.store_checksum));
                Some(PlanStep::Set(command, RefusalEffect::Ignore))
            }
        }
    }

    /// Notes a setting that the server accepted.
    pub fn on_accepted(&mut self, command: &Command) {
        match command {
            Command::Type(type_) => self.type_ = Some(*type_),
            Command::Mode(mode) => {
                // An address or connection of the other mode cannot be used any more.
                if self.mode != *mode {
                    self.data_address = ServerDataAddress::None;
                }
                self.mode = *mode;
            }
            Command::Sbuf(size) => {
                self.send_buffer = Some(*size);
                self.receive_buffer = Some(*size);
                self.data_address = ServerDataAddress::None;
            }
            Command::Site(SiteCommand::Buffer(side, size)) => {
                if *side != BufferDirection::Receive {
                    self.send_buffer = Some(*size);
                }
                if *side != BufferDirection::Send {
                    self.receive_buffer = Some(*size);
                }
                self.data_address = ServerDataAddress::None;
            }
            Command::Opts(OptsCommand::Retr(options)) => {
                for option in options {
                    if let RetrieveOption::Parallelism(n) = option {
                        self.parallelism = Some(*n);
                        self.data_address = ServerDataAddress::None;
                    }
                }
            }
            Command::Opts(OptsCommand::CongestionControl(name)) => {
                self.congestion = Some(name.clone());
                self.data_address = ServerDataAddress::None;
            }
            Command::Opts(OptsCommand::StoreChecksum(sum)) => self.store_checksum = *sum,
            Command::Opts(OptsCommand::BufferSizing(sizing)) => self.on_sizing_accepted(*sizing),
            Command::Trev(..) => self.markers_requested = true,
            _ => {}
        }
    }

    /// Notes a setting that the server refused, so that it is not asked again.
    pub fn on_refused(&mut self, command: &Command) {
        match command {
            Command::Mode(TransferMode::Extended) => self.extended_refused = true,
            Command::Sbuf(_) | Command::Site(SiteCommand::Buffer(..)) => self.buffer_refused = true,
            Command::Opts(OptsCommand::Retr(options)) => {
                for option in options {
                    if let RetrieveOption::Parallelism(n) = option {
                        self.parallelism = Some(*n);
                    }
                }
            }
            Command::Opts(OptsCommand::CongestionControl(name)) => {
                self.congestion = Some(name.clone());
            }
            Command::Opts(OptsCommand::StoreChecksum(_)) => self.features.store_checksum = false,
            Command::Opts(OptsCommand::BufferSizing(sizing)) => self.on_sizing_refused(*sizing),
            Command::Dpsv => self.on_drs_listening_refused(),
            Command::Dprt(_) => self.on_drs_connecting_refused(),
            Command::Trev(..) => self.markers_requested = true,
            _ => {}
        }
    }

    /// Notes that the server holds a data address for this transfer.
    pub fn on_address_given(&mut self, need: &TransferRequirements) {
        self.data_address = ServerDataAddress::Given(need.direction, need.mode, need.streams);
    }

    /// Notes that a transfer ended well: a MODE S address is used up.
    pub fn on_transferred(&mut self) {
        if matches!(
            self.data_address,
            ServerDataAddress::Given(_, TransferMode::Stream, _)
        ) {
            self.data_address = ServerDataAddress::None;
        }
    }

    /// Notes that the data connections are gone.
    pub fn on_channel_lost(&mut self) {
        self.data_address = ServerDataAddress::None;
    }
}

#[cfg(test)]
mod tests;
