//! A transfer in progress: its replies from 127 or 150 to 226, and ABOR and STAT while it runs.

use super::markers::MarkerSchedule;
use super::passive_reply::PassiveReplyForm;
use super::replies::{self, CommandTarget};
use super::{SessionAction, TransferKind, TransferRequest};
use crate::command::TransferMode;
use crate::path::VPath;
use crate::remark::CompletionRemarks;
use crate::reply::Reply;
use crate::sizing::{BufferSizing, buffer_size_reply, clamp_announced_size};

/// Most ABORs accepted during one transfer or checksum. A client that sends more is disconnected.
const MAX_ABORTS: u32 = 16;

/// A transfer that the driver runs.
#[derive(Debug)]
pub(super) struct RunningTransfer {
    pub(super) target: CommandTarget,
    pub(super) mode: TransferMode,
    is_listing: bool,
    phase: TransferPhase,
    /// Reply form of the address, in delayed passive mode.
    pub(super) delayed: Option<PassiveReplyForm>,
    pub(super) markers: MarkerSchedule,
    /// Exchange of buffer sizes on the control channel (drs1).
    size_exchange: Option<BufferSizeExchange>,
    /// ABORs to be answered when the transfer ends.
    pub(super) aborts: PendingAborts,
}

/// Phase of a transfer.
#[derive(Debug)]
enum TransferPhase {
    /// Before 150: the driver opens the file and the data connections.
    Opening,
    /// After 150: data moves. Holds the unique name of STOU.
    Started(Option<VPath>),
}

impl RunningTransfer {
    /// A transfer that has just been passed to the driver.
    pub(super) fn new(
        target: CommandTarget,
        request: &TransferRequest,
        delayed: Option<PassiveReplyForm>,
    ) -> Self {
        Self {
            target,
            mode: request.mode,
            is_listing: matches!(request.kind, TransferKind::List(_)),
            phase: TransferPhase::Opening,
            delayed,
            markers: MarkerSchedule::new(request),
            size_exchange: BufferSizeExchange::new(request),
            aborts: PendingAborts::default(),
        }
    }

    /// Reply to STAT during the transfer (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<SessionAction> {
        let phase = match self.phase {
            TransferPhase::Opening => "waiting for the data connection",
            TransferPhase::Started(_) => "in progress",
        };
        let mut text = format!("Status: {} ", self.target.verb).into_bytes();
        text.extend_from_slice(self.target.path.as_bytes());
        text.extend_from_slice(
            format!(" {phase}, {} bytes moved.", self.markers.bytes()).as_bytes(),
        );
        replies::reply(213, text)
    }

    /// Handles SBUF during the transfer. It has no reply (2003 paper §4.2).
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
        // RFC 959 §4.2: 125 means that the data connection is already open.
        let code = if reused { 125 } else { 150 };
        let reply = match &unique_name {
            // RFC 1123 §4.1.2.9 prescribes this form for STOU.
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

    /// The 226 after so many bytes; `remarks` only for clients that read them. After STOU it holds the file name, which
    /// runs to the end of the line and leaves no room for them.
    pub(super) fn completion_reply(&self, bytes: u64, remarks: Option<CompletionRemarks>) -> Reply {
        if let TransferPhase::Started(Some(name)) = &self.phase {
            let text = [b"Transfer Complete. FILE: ".as_slice(), name.as_bytes()].concat();
            return Reply::new(226, text);
        }
        let remarks = remarks.map(|remarks| CompletionRemarks {
            listing_bytes: self.is_listing.then_some(bytes),
            ..remarks
        });
        Reply::new(226, remarks.unwrap_or_default().completion_text())
    }
}

/// Exchange of buffer sizes during a transfer with [`BufferSizing::Drs1`].
#[derive(Debug)]
struct BufferSizeExchange {
    /// This server receives and announces its sizes; otherwise it sends and applies the client's.
    receives: bool,
    /// Size last announced to the client, bytes.
    last_reported: Option<u64>,
}

impl BufferSizeExchange {
    /// `None` for a transfer without drs1.
    fn new(request: &TransferRequest) -> Option<Self> {
        (request.buffers.sizing == BufferSizing::Drs1).then_some(Self {
            receives: request.kind.is_store(),
            last_reported: None,
        })
    }

    /// Size to apply after the client, which receives, has announced one. A repeated size is applied
    /// again: the first announcement may have arrived before the data connections existed.
    fn size_to_apply(&self, bytes: u64) -> Option<u64> {
        clamp_announced_size(bytes).filter(|_| !self.receives)
    }

    /// The 126 after this server's receive buffers have grown.
    fn report_size(&mut self, bytes: u64) -> Option<Reply> {
        // Streams resize one by one, so the driver may report the same size several times.
        let size = clamp_announced_size(bytes)
            .filter(|size| self.receives && self.last_reported != Some(*size))?;
        self.last_reported = Some(size);
        Some(buffer_size_reply(size))
    }
}

/// ABORs received during a transfer or checksum. Each is answered with 226 after the reply to the
/// aborted command (RFC 959 §4.1.3).
#[derive(Debug, Default)]
pub(super) struct PendingAborts(u32);

impl PendingAborts {
    /// Handles one ABOR. The first one aborts; too many close the connection.
    pub(super) fn on_abor(&mut self) -> Vec<SessionAction> {
        self.0 += 1;
        match self.0 {
            1 => vec![SessionAction::Abort],
            // The first ABOR stops the transfer; each of them gets its 226 at the end.
            2..=MAX_ABORTS => Vec::new(),
            _ => {
                let mut actions = replies::reply(421, "Too many ABORs; closing.");
                actions.push(SessionAction::Close);
                actions
            }
        }
    }

    /// The replies to all ABORs, sent after the aborted command has ended.
    pub(super) fn replies(&self) -> Vec<SessionAction> {
        (0..self.0)
            .flat_map(|_| replies::reply(226, "Abort successful"))
            .collect()
    }
}
