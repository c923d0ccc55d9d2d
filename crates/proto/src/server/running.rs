//! A transfer in progress: its replies from 127 or 150 to 226, ABOR and STAT meanwhile.

use super::markers::Markers;
use super::passive_form::PassiveForm;
use super::replies::{self, Subject};
use super::{Action, TransferKind, TransferRequest};
use crate::command::Mode;
use crate::path::VPath;
use crate::remark::Said;
use crate::reply::Reply;
use crate::sizing::{Sizing, buffer_reply, told};

/// Most ABORs that wait for one end; a client that sends more is flooding.
const MAX_ABORTS: u32 = 16;

/// A transfer that the driver runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) subject: Subject,
    pub(super) mode: Mode,
    stage: Stage,
    /// Delayed passive: how the address is to be told.
    pub(super) delayed: Option<PassiveForm>,
    pub(super) markers: Markers,
    /// Buffer sizes on the control channel (drs1).
    told: Option<Told>,
    /// ABORs to be answered at the end.
    pub(super) aborts: Aborts,
}

/// How far a transfer is.
#[derive(Debug)]
enum Stage {
    /// No 150 yet: file and data connections are being opened.
    Opening,
    /// Data moves; the unique name of STOU.
    Open(Option<VPath>),
}

impl Running {
    /// A transfer that was just handed to the driver.
    pub(super) fn new(
        subject: Subject,
        request: &TransferRequest,
        delayed: Option<PassiveForm>,
    ) -> Self {
        Self {
            subject,
            mode: request.mode,
            stage: Stage::Opening,
            delayed,
            markers: Markers::new(request),
            told: Told::new(request),
            aborts: Aborts::default(),
        }
    }

    /// STAT during a transfer (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<Action> {
        let stage = match self.stage {
            Stage::Opening => "waiting for the data connection",
            Stage::Open(_) => "in progress",
        };
        let mut text = format!("Status: {} ", self.subject.verb).into_bytes();
        text.extend_from_slice(self.subject.path.as_bytes());
        text.extend_from_slice(
            format!(" {stage}, {} bytes moved.", self.markers.bytes()).as_bytes(),
        );
        replies::reply(213, text)
    }

    /// SBUF during a transfer: no reply, whatever becomes of it (2003 paper §4.2).
    pub(super) fn follow(&self, bytes: u64) -> Vec<Action> {
        let size = self.told.as_ref().and_then(|told| told.follow(bytes));
        size.map(Action::FollowBuffer).into_iter().collect()
    }

    pub(super) fn resized(&mut self, bytes: u64) -> Vec<Action> {
        let reply = self.told.as_mut().and_then(|told| told.tell(bytes));
        reply.map(Action::Reply).into_iter().collect()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    pub(super) fn opened(&mut self, reused: bool, unique_name: Option<VPath>) -> Reply {
        let code = if reused { 125 } else { 150 };
        let reply = match &unique_name {
            // RFC 1123 §4.1.2.9
            Some(name) => Reply::new(code, [b"FILE: ".as_slice(), name.as_bytes()].concat()),
            None if reused => Reply::new(
                code,
                "Beginning transfer; reusing existing data connection.",
            ),
            None => Reply::new(code, "Beginning transfer."),
        };
        self.stage = Stage::Open(unique_name);
        reply
    }

    /// The name of a unique store runs to the end of the line, so there is no room for a remark.
    pub(super) fn complete_reply(&self, said: &Said) -> Reply {
        match &self.stage {
            Stage::Open(Some(name)) => {
                let text = [b"Transfer Complete. FILE: ".as_slice(), name.as_bytes()].concat();
                Reply::new(226, text)
            }
            _ => Reply::new(226, said.complete_text()),
        }
    }
}

/// Sizes told during a transfer with [`Sizing::Drs1`].
#[derive(Debug)]
struct Told {
    /// This server receives and tells; otherwise it sends and follows.
    receives: bool,
    /// The last size that was told to the client, bytes.
    last: Option<u64>,
}

impl Told {
    /// `None` for a transfer in which no sizes travel on the control channel.
    fn new(request: &TransferRequest) -> Option<Self> {
        (request.buffers.sizing == Sizing::Drs1).then_some(Self {
            receives: matches!(request.what, TransferKind::Store { .. }),
            last: None,
        })
    }

    /// The size to follow when the client, which receives, has told one. Also the same size again:
    /// the first may have come before there was anything to size.
    fn follow(&self, bytes: u64) -> Option<u64> {
        told(bytes).filter(|_| !self.receives)
    }

    /// The 126 when this server's buffers have grown.
    fn tell(&mut self, bytes: u64) -> Option<Reply> {
        let size = told(bytes).filter(|size| self.receives && self.last != Some(*size))?;
        self.last = Some(size);
        Some(buffer_reply(size))
    }
}

/// ABORs that wait for the end of what they stop: each is answered with 226 after the reply of the
/// command that was stopped (RFC 959 §4.1.3).
#[derive(Debug, Default)]
pub(super) struct Aborts(u32);

impl Aborts {
    /// Takes one; the first stops the work.
    pub(super) fn take(&mut self) -> Vec<Action> {
        self.0 += 1;
        match self.0 {
            1 => vec![Action::Abort],
            2..=MAX_ABORTS => Vec::new(),
            _ => {
                let mut actions = replies::reply(421, "Too many ABORs; closing.");
                actions.push(Action::Close);
                actions
            }
        }
    }

    /// Their replies, once the work has ended.
    pub(super) fn replies(&self) -> Vec<Action> {
        (0..self.0)
            .flat_map(|_| replies::reply(226, "Abort successful"))
            .collect()
    }
}
