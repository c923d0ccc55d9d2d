//! A transfer in progress: its replies from 127 or 150 to 226, ABOR and STAT meanwhile.

use super::markers::MarkerSchedule;
use super::passive_reply::PassiveReplyForm;
use super::replies::{self, CommandTarget};
use super::{SessionAction, TransferKind, TransferRequest};
use crate::command::TransferMode;
use crate::path::VPath;
use crate::remark::CompletionRemarks;
use crate::reply::Reply;
use crate::sizing::{BufferSizing, buffer_size_reply, clamp_announced_size};

/// Most ABORs that wait for one end; a client that sends more is flooding.
const MAX_ABORTS: u32 = 16;

/// A transfer that the driver runs.
#[derive(Debug)]
pub(super) struct RunningTransfer {
    pub(super) target: CommandTarget,
    pub(super) mode: TransferMode,
    phase: TransferPhase,
    /// Delayed passive: how the address is to be told.
    pub(super) delayed: Option<PassiveReplyForm>,
    pub(super) markers: MarkerSchedule,
    /// Buffer sizes on the control channel (drs1).
    size_exchange: Option<BufferSizeExchange>,
    /// ABORs to be answered at the end.
    pub(super) aborts: PendingAborts,
}

/// How far a transfer is.
#[derive(Debug)]
enum TransferPhase {
    /// No 150 yet: file and data connections are being opened.
    Opening,
    /// Data moves; the unique name of STOU.
    Started(Option<VPath>),
}

impl RunningTransfer {
    /// A transfer that was just handed to the driver.
    pub(super) fn new(
        subject: CommandTarget,
        request: &TransferRequest,
        delayed: Option<PassiveReplyForm>,
    ) -> Self {
        Self {
            target: subject,
            mode: request.mode,
            phase: TransferPhase::Opening,
            delayed,
            markers: MarkerSchedule::new(request),
            size_exchange: BufferSizeExchange::new(request),
            aborts: PendingAborts::default(),
        }
    }

    /// STAT during a transfer (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<SessionAction> {
        let stage = match self.phase {
            TransferPhase::Opening => "waiting for the data connection",
            TransferPhase::Started(_) => "in progress",
        };
        let mut text = format!("Status: {} ", self.target.verb).into_bytes();
        text.extend_from_slice(self.target.path.as_bytes());
        text.extend_from_slice(
            format!(" {stage}, {} bytes moved.", self.markers.bytes()).as_bytes(),
        );
        replies::reply(213, text)
    }

    /// SBUF during a transfer: no reply, whatever becomes of it (2003 paper §4.2).
    pub(super) fn on_peer_buffer_size(&self, bytes: u64) -> Vec<SessionAction> {
        let size = self
            .size_exchange
            .as_ref()
            .and_then(|exchange| exchange.size_to_apply(bytes));
        size.map(SessionAction::SetSendBuffer).into_iter().collect()
    }

    pub(super) fn on_buffer_resized(&mut self, bytes: u64) -> Vec<SessionAction> {
        let reply = self
            .size_exchange
            .as_mut()
            .and_then(|exchange| exchange.report_size(bytes));
        reply.map(SessionAction::Reply).into_iter().collect()
    }

    pub(super) fn has_started(&self) -> bool {
        matches!(self.phase, TransferPhase::Started(_))
    }

    pub(super) fn on_opened(&mut self, reused: bool, unique_name: Option<VPath>) -> Reply {
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
        self.phase = TransferPhase::Started(unique_name);
        reply
    }

    /// The name of a unique store runs to the end of the line, so there is no room for a remark.
    pub(super) fn completion_reply(&self, said: &CompletionRemarks) -> Reply {
        match &self.phase {
            TransferPhase::Started(Some(name)) => {
                let text = [b"Transfer Complete. FILE: ".as_slice(), name.as_bytes()].concat();
                Reply::new(226, text)
            }
            _ => Reply::new(226, said.completion_text()),
        }
    }
}

/// Sizes told during a transfer with [`BufferSizing::Drs1`].
#[derive(Debug)]
struct BufferSizeExchange {
    /// This server receives and tells; otherwise it sends and follows.
    receives: bool,
    /// The last size that was told to the client, bytes.
    last_reported: Option<u64>,
}

impl BufferSizeExchange {
    /// `None` for a transfer in which no sizes travel on the control channel.
    fn new(request: &TransferRequest) -> Option<Self> {
        (request.buffers.sizing == BufferSizing::Drs1).then_some(Self {
            receives: matches!(request.kind, TransferKind::Store { .. }),
            last_reported: None,
        })
    }

    /// The size to follow when the client, which receives, has told one. Also the same size again:
    /// the first may have come before there was anything to size.
    fn size_to_apply(&self, bytes: u64) -> Option<u64> {
        clamp_announced_size(bytes).filter(|_| !self.receives)
    }

    /// The 126 when this server's buffers have grown.
    fn report_size(&mut self, bytes: u64) -> Option<Reply> {
        let size = clamp_announced_size(bytes)
            .filter(|size| self.receives && self.last_reported != Some(*size))?;
        self.last_reported = Some(size);
        Some(buffer_size_reply(size))
    }
}

/// ABORs that wait for the end of what they stop: each is answered with 226 after the reply of the
/// command that was stopped (RFC 959 §4.1.3).
#[derive(Debug, Default)]
pub(super) struct PendingAborts(u32);

impl PendingAborts {
    /// Takes one; the first stops the work.
    pub(super) fn on_abor(&mut self) -> Vec<SessionAction> {
        self.0 += 1;
        match self.0 {
            1 => vec![SessionAction::Abort],
            2..=MAX_ABORTS => Vec::new(),
            _ => {
                let mut actions = replies::reply(421, "Too many ABORs; closing.");
                actions.push(SessionAction::Close);
                actions
            }
        }
    }

    /// Their replies, once the work has ended.
    pub(super) fn replies(&self) -> Vec<SessionAction> {
        (0..self.0)
            .flat_map(|_| replies::reply(226, "Abort successful"))
            .collect()
    }
}
