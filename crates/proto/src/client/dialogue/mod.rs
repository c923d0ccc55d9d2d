//! Settings that a server is known to have.

use super::right_sizing::RightSizing;
use super::{Direction, Need, Refusal, Step};
use crate::checksum::Algorithm;
use crate::command::{BufferSide, Command, Mode, Opts, Restart, RetrOption, Site, TrevEvent, Type};
use crate::feature::Features;
use crate::streams::StreamRange;

/// Message to the user when a server does not take a buffer size.
const NO_BUFFER: &str =
    "cannot be told the size of its socket buffers; --buffer applies to this end only";
/// Message to the user when a server does not take a number of streams.
const NO_PARALLELISM: &str = "does not take a number of parallel streams; it chooses itself";

/// Message to the user when a server does not take a congestion control.
pub const NO_CONGESTION: &str =
    "does not run the congestion control that --cc names; it sends with its own";

/// Stores in MODE E of at least this many bytes ask for frequent markers: what a marker has told
/// need not be sent again after a cut, and servers send them only every 5 s by themselves.
const MARKERS_FROM: u64 = 16 << 20;
/// Seconds between markers that are asked for.
const MARKER_SECONDS: u32 = 1;

/// The settings of one control connection.
#[derive(Debug, Clone)]
pub struct Dialogue {
    pub(super) features: Features,
    pub(super) right_sizing: RightSizing,
    /// Commands may be sent before the last one is answered.
    pub(super) takes_ahead: bool,
    type_: Option<Type>,
    mode: Mode,
    parallelism: Option<StreamRange>,
    congestion: Option<String>,
    send_buffer: Option<u64>,
    receive_buffer: Option<u64>,
    store_sum: Option<Algorithm>,
    channel: Address,
    buffer_refused: bool,
    extended_refused: bool,
    markers_asked: bool,
}

/// The data address that the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address {
    /// None, or one that was used up.
    None,
    /// Given for this direction, mode and number of streams.
    Given(Direction, Mode, StreamRange),
}

impl Dialogue {
    /// A fresh login: MODE S, nothing else known (RFC 959 has TYPE A as default, but servers
    /// differ).
    pub fn new(features: Features) -> Self {
        Self {
            features,
            right_sizing: RightSizing::default(),
            takes_ahead: false,
            type_: None,
            mode: Mode::Stream,
            parallelism: None,
            congestion: None,
            send_buffer: None,
            receive_buffer: None,
            store_sum: None,
            channel: Address::None,
            buffer_refused: false,
            extended_refused: false,
            markers_asked: false,
        }
    }

    /// Features that the server announced.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether MODE E is worth asking for: announced (by `PARALLEL`) or not knowable, and not yet
    /// refused.
    pub fn may_extend(&self) -> bool {
        !self.extended_refused && (self.features.parallel || !self.features.known)
    }

    /// Whether MODE E was refused.
    pub fn extended_refused(&self) -> bool {
        self.extended_refused
    }

    /// The steps that bring the server to `need` and start the transfer: TYPE, MODE, OPTS DRS, buffer,
    /// OPTS, DRS channel, data address, ALLO, REST, verb. Settings that are in force already are left out, and the
    /// data address when open connections can be used again (MODE E, same direction, same number
    /// of streams; GFD.20 §3.4.3).
    pub fn plan(&self, need: &Need) -> Vec<Step> {
        let mut steps = self.settings(need);
        steps.extend(self.drs_step(need));
        if !self.reuses(need) {
            steps.push(if need.server_listens {
                Step::Listen
            } else {
                Step::Connect
            });
        }
        if let Some(size) = need.allocate {
            steps.push(Step::Set(Command::Allo(size), Refusal::Harmless));
        }
        if let Some(restart) = &need.restart {
            let refusal = match (need.mode, restart) {
                (Mode::Stream, Restart::Offset(_)) => Refusal::StartOver,
                _ => Refusal::Fatal,
            };
            steps.push(Step::Set(Command::Rest(restart.clone()), refusal));
        }
        steps.push(Step::Transfer(need.verb.clone()));
        steps
    }

    /// Whether the transfer would go over the data connections of the last one: they must have been
    /// opened for it, with the buffers and the congestion control that it is to have.
    pub fn reuses(&self, need: &Need) -> bool {
        need.reusable
            && need.mode == Mode::Extended
            && self.mode == Mode::Extended
            && self.channel == Address::Given(need.direction, Mode::Extended, need.streams)
            && self.sizing_step(need).is_none()
            && self.buffer_step(need).is_none()
            && self.congestion_step(need).is_none()
    }

    /// The session-long settings alone, for transfers whose other steps are interleaved with
    /// another server's.
    pub fn settings(&self, need: &Need) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.type_ != Some(Type::Image) {
            steps.push(Step::Set(Command::Type(Type::Image), Refusal::Fatal));
        }
        if self.mode != need.mode {
            let refusal = match need.mode {
                Mode::Extended => Refusal::StreamMode,
                Mode::Stream => Refusal::Fatal,
            };
            steps.push(Step::Set(Command::Mode(need.mode), refusal));
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
    fn marker_steps(&self, need: &Need) -> Vec<Step> {
        let large = need.allocate.is_none_or(|size| size >= MARKERS_FROM);
        if need.direction != Direction::Receive
            || need.mode != Mode::Extended
            || self.markers_asked
            || !large
        {
            return Vec::new();
        }
        [TrevEvent::Restart, TrevEvent::Perf]
            .map(|event| Step::Set(Command::Trev(event, MARKER_SECONDS), Refusal::Harmless))
            .into()
    }

    /// GFD.20 §4.1 has SBUF; the globus server announces neither it nor its SITE forms, but has
    /// both.
    fn buffer_step(&self, need: &Need) -> Option<Step> {
        let size = need.buffer.filter(|_| !self.buffer_refused)?;
        let (known, side) = match need.direction {
            Direction::Send => (self.send_buffer, BufferSide::Send),
            Direction::Receive => (self.receive_buffer, BufferSide::Receive),
        };
        if known == Some(size) {
            return None;
        }
        let command = if self.features.sbuf {
            Command::Sbuf(size)
        } else if self.features.parallel {
            Command::Site(Site::Buffer(side, size))
        } else {
            return None;
        };
        Some(Step::Set(command, Refusal::Warn(NO_BUFFER)))
    }

    /// Only servers that announce OPTS TUNE are asked, about what they send.
    fn congestion_step(&self, need: &Need) -> Option<Step> {
        let name = need.congestion.as_ref()?;
        let asked = need.direction == Direction::Send && self.features.tune_congestion;
        if !asked || self.congestion.as_ref() == Some(name) {
            return None;
        }
        let command = Command::Opts(Opts::Congestion(name.clone()));
        Some(Step::Set(command, Refusal::Warn(NO_CONGESTION)))
    }

    fn option_step(&self, need: &Need) -> Option<Step> {
        match need.direction {
            Direction::Send => {
                if need.mode != Mode::Extended || self.parallelism == Some(need.streams) {
                    return None;
                }
                let option = RetrOption::Parallelism(need.streams);
                let command = Command::Opts(Opts::Retr(vec![option]));
                Some(Step::Set(command, Refusal::Warn(NO_PARALLELISM)))
            }
            Direction::Receive => {
                if !self.features.stor_checksum || self.store_sum == need.store_sum {
                    return None;
                }
                let command = Command::Opts(Opts::StorChecksum(need.store_sum));
                Some(Step::Set(command, Refusal::Harmless))
            }
        }
    }

    /// Notes a setting that the server accepted.
    pub fn accepted(&mut self, command: &Command) {
        match command {
            Command::Type(type_) => self.type_ = Some(*type_),
            Command::Mode(mode) => {
                // An address or connection of the other mode cannot be used any more.
                if self.mode != *mode {
                    self.channel = Address::None;
                }
                self.mode = *mode;
            }
            Command::Sbuf(size) => {
                self.send_buffer = Some(*size);
                self.receive_buffer = Some(*size);
                self.channel = Address::None;
            }
            Command::Site(Site::Buffer(side, size)) => {
                if *side != BufferSide::Receive {
                    self.send_buffer = Some(*size);
                }
                if *side != BufferSide::Send {
                    self.receive_buffer = Some(*size);
                }
                self.channel = Address::None;
            }
            Command::Opts(Opts::Retr(options)) => {
                for option in options {
                    if let RetrOption::Parallelism(n) = option {
                        self.parallelism = Some(*n);
                        self.channel = Address::None;
                    }
                }
            }
            Command::Opts(Opts::Congestion(name)) => {
                self.congestion = Some(name.clone());
                self.channel = Address::None;
            }
            Command::Opts(Opts::StorChecksum(sum)) => self.store_sum = *sum,
            Command::Opts(Opts::Sizing(sizing)) => self.sizing_accepted(*sizing),
            Command::Trev(..) => self.markers_asked = true,
            _ => {}
        }
    }

    /// Notes a setting that the server refused, so that it is not asked again.
    pub fn refused(&mut self, command: &Command) {
        match command {
            Command::Mode(Mode::Extended) => self.extended_refused = true,
            Command::Sbuf(_) | Command::Site(Site::Buffer(..)) => self.buffer_refused = true,
            Command::Opts(Opts::Retr(options)) => {
                for option in options {
                    if let RetrOption::Parallelism(n) = option {
                        self.parallelism = Some(*n);
                    }
                }
            }
            Command::Opts(Opts::Congestion(name)) => self.congestion = Some(name.clone()),
            Command::Opts(Opts::StorChecksum(_)) => self.features.stor_checksum = false,
            Command::Opts(Opts::Sizing(sizing)) => self.sizing_refused(*sizing),
            Command::Dpsv => self.drs_listening_is_refused(),
            Command::Dprt(_) => self.drs_connecting_is_refused(),
            Command::Trev(..) => self.markers_asked = true,
            _ => {}
        }
    }

    /// Notes that the server holds a data address for this transfer.
    pub fn address_given(&mut self, need: &Need) {
        self.channel = Address::Given(need.direction, need.mode, need.streams);
    }

    /// Notes that a transfer ended well: a MODE S address is used up.
    pub fn transferred(&mut self) {
        if matches!(self.channel, Address::Given(_, Mode::Stream, _)) {
            self.channel = Address::None;
        }
    }

    /// Notes that the data connections are gone.
    pub fn channel_lost(&mut self) {
        self.channel = Address::None;
    }
}

#[cfg(test)]
mod tests;
