//! Transfers: RETR and ERET; STOR, APPE, STOU and ESTO, with and without REST; bundles of small files (SITE
//! BUNDLE, ERET BUNDLE, ESTO BUNDLE; [`crate::bundle`]). From the checks of the data channel to the replies
//! while a transfer runs and the state of the data channel afterwards.

use super::data_address::PassiveReplyForm;
use super::files::SuccessReply;
use super::logged_in::{
    AnnouncedBundle, DataChannel, LoggedInSession, NextStoreParameters, PendingTask,
};
use super::markers::MarkerSchedule;
use super::replies::{self, CommandFailure, CommandResult, CommandTarget};
use super::{
    CompletedTransfer, DriverEvent, FileRequest, SessionAction, SessionConfig, StoreDisposition,
    TransferError, TransferKind, TransferRequest,
};
use crate::bundle::{BundleEntry, BundleFile, BundleProof, MAX_FILES, MAX_PATH_BYTES};
use crate::checksum::ChecksumAlgorithm;
use crate::command::{DataType, RestartMarker, TransferMode};
use crate::path::VPath;
use crate::ranges::{MAX_FILE_OFFSET, RangeSet};
use crate::remark::CompletionRemarks;
use crate::reply::Reply;
use crate::sizing::{BufferSizing, buffer_size_reply, clamp_announced_size};

/// Base of the unique name for STOU without argument.
const UNIQUE_BASE: &[u8] = b"stou";

/// Most ABORs accepted during one transfer or checksum. A client that sends more is disconnected.
const MAX_ABORTS: u32 = 16;

impl LoggedInSession {
    /// RETR, GET, and ERET P (with the offset and length of the part). REST holds wire offsets: with ERET they count from the start of the part.
    pub(super) fn retr(
        &mut self,
        verb: &'static str,
        partial: Option<(u64, u64)>,
        argument: &[u8],
    ) -> CommandResult {
        // REST is consumed first, so that a refused RETR does not leave it to the next transfer.
        let restart = self.next_transfer.restart.take();
        let path = self.resolve(argument)?;
        let already_received = self.restart_ranges(restart)?.unwrap_or_default();
        // Only if the whole file is sent, without translation of line endings.
        let is_whole_file = partial.is_none()
            && already_received.is_empty()
            && self.parameters.type_ == DataType::Image;
        let checksum_algorithm = self.parameters.retrieve_checksum;
        let kind = TransferKind::Retrieve {
            path: path.clone(),
            partial,
            already_received,
            checksum_algorithm: checksum_algorithm.filter(|_| is_whole_file),
        };
        Ok(self.start_transfer(verb, path, kind))
    }

    /// The ranges that the receiver has according to REST; `None` without REST or after `REST 0`, which
    /// both mean the whole file. File offsets and wire offsets differ in TYPE A, so there any other
    /// marker is refused with 554 by the transfer command, as RFC 3659 §5.4 allows.
    pub(super) fn restart_ranges(
        &self,
        restart: Option<RestartMarker>,
    ) -> Result<Option<RangeSet>, Vec<SessionAction>> {
        let ranges = match restart {
            None | Some(RestartMarker::Offset(0)) => return Ok(None),
            Some(RestartMarker::Ranges(ranges)) => ranges,
            Some(RestartMarker::Offset(offset)) => {
                let mut prefix = RangeSet::new();
                prefix.insert(0, offset);
                prefix
            }
        };
        if self.parameters.type_ == DataType::Ascii && !ranges.is_empty() {
            return Err(replies::reply(554, "REST needs TYPE I."));
        }
        Ok(Some(ranges))
    }

    /// Starts a transfer, or refuses it.
    pub(super) fn start_transfer(
        &mut self,
        verb: &'static str,
        path: VPath,
        kind: TransferKind,
    ) -> Vec<SessionAction> {
        let is_store = kind.is_store();
        let target = CommandTarget { verb, path };
        // The right is checked before the data channel, so that 550 does not depend on it.
        if is_store && !self.rights.write {
            let error = TransferError::File(replies::read_only_error());
            return replies::refuse(&CommandFailure::Transfer(&target, &error));
        }
        if let Some(reason) = self.protection.refusal() {
            return replies::reply(521, format!("Data connection cannot be opened: {reason}"));
        }
        if let Some(reason) = self.channel_refusal(is_store) {
            return replies::reply(425, reason);
        }
        let request = self.transfer_request(kind);
        let delayed = match self.data_channel {
            DataChannel::DelayedPassive(form) => Some(form),
            _ => None,
        };
        self.pending =
            PendingTask::Transfer(Box::new(RunningTransfer::new(target, &request, delayed)));
        vec![SessionAction::Transfer(Box::new(request))]
    }

    /// Reason why the data channel does not fit the transfer. In MODE E the data sender must connect
    /// (GFD.20 §3.4); in MODE S either end may.
    fn channel_refusal(&self, is_store: bool) -> Option<&'static str> {
        let extended = self.parameters.mode == TransferMode::Extended;
        match &self.data_channel {
            DataChannel::None => {
                Some("Cannot open data connection: use PASV, EPSV, PORT or EPRT first.")
            }
            DataChannel::Passive { .. } | DataChannel::DelayedPassive(_)
                if extended && !is_store =>
            {
                Some(
                    "Cannot open data connection: in MODE E the sender connects; \
                 use PORT, EPRT or SPOR before this command.",
                )
            }
            DataChannel::Active { .. } if extended && is_store => Some(
                "Cannot open data connection: in MODE E the receiver listens; \
                 use PASV, EPSV or SPAS before this command.",
            ),
            _ => None,
        }
    }

    fn transfer_request(&self, kind: TransferKind) -> TransferRequest {
        let parameters = &self.parameters;
        let buffers = self.transfer_buffers(&kind);
        let (perf, range) = match (parameters.mode, &kind) {
            (TransferMode::Stream, _) | (_, TransferKind::List(_)) => (0, 0),
            (_, kind) if kind.is_retrieve() => (parameters.retrieve_perf_seconds, 0),
            _ => (
                parameters.store_perf_seconds,
                parameters.store_range_seconds,
            ),
        };
        TransferRequest {
            kind,
            mode: parameters.mode,
            type_: parameters.type_,
            streams: parameters.parallelism,
            layout: parameters.layout,
            congestion_control: parameters.congestion_control.clone(),
            delayed_passive: matches!(self.data_channel, DataChannel::DelayedPassive(_))
                .then(|| self.listen_request()),
            buffers,
            perf_marker_seconds: perf,
            range_marker_seconds: range,
            protection: self.protection.channel.clone(),
        }
    }

    /// STOR and PUT: replaces the file, or completes it after REST.
    pub(super) fn stor(&mut self, verb: &'static str, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Truncate,
            Some(already_stored) => StoreDisposition::Resume { already_stored },
        };
        Ok(self.start_store(verb, path, disposition, parameters))
    }

    /// APPE: appends to the file. After REST it acts as STOR (RFC 3659 §5.4).
    pub(super) fn appe(&mut self, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let disposition = match self.stored_ranges(restart)? {
            None => StoreDisposition::Append,
            Some(already_stored) => StoreDisposition::Resume { already_stored },
        };
        Ok(self.start_store("APPE", path, disposition, parameters))
    }

    /// STOU: stores under a unique name. REST is refused, since a new file has nothing to resume
    /// (RFC 3659 §5.4 leaves this open).
    pub(super) fn stou(&mut self, argument: Option<&[u8]>) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument.unwrap_or(UNIQUE_BASE))?;
        if self.stored_ranges(restart)?.is_some() {
            return Ok(replies::reply(554, "REST cannot precede STOU."));
        }
        Ok(self.start_store("STOU", path, StoreDisposition::Unique, parameters))
    }

    /// ESTO A: wire offset 0 is stored at file offset `offset`. REST ranges are wire offsets.
    pub(super) fn esto(&mut self, offset: u64, argument: &[u8]) -> CommandResult {
        let (restart, parameters) = self.take_next_store();
        let path = self.resolve(argument)?;
        let already_stored = self.stored_ranges(restart)?;
        let start = match (self.parameters.mode, already_stored) {
            // In MODE S the first byte on the wire is the first missing one. MODE E blocks carry
            // their own offsets. A client chooses both numbers, so the sum may overflow.
            (TransferMode::Stream, Some(already_stored)) => {
                offset.checked_add(already_stored.prefix_len())
            }
            _ => Some(offset),
        };
        match start.filter(|start| *start <= i64::MAX as u64) {
            Some(start) => {
                Ok(self.start_store("ESTO", path, StoreDisposition::AtOffset(start), parameters))
            }
            None => Ok(replies::reply(554, "ESTO is beyond the end of any file.")),
        }
    }

    /// Consumes REST and the store parameters. Every store does so before any check, since they are
    /// meant for its file only; a refused store must not leave them to the next one.
    fn take_next_store(&mut self) -> (Option<RestartMarker>, NextStoreParameters) {
        let parameters = std::mem::take(&mut self.next_transfer);
        (parameters.restart, parameters.store)
    }

    /// Ranges that are stored already according to REST. MODE S carries no offsets, so there they must
    /// be a single prefix of the file.
    fn stored_ranges(
        &self,
        restart: Option<RestartMarker>,
    ) -> Result<Option<RangeSet>, Vec<SessionAction>> {
        let ranges = self.restart_ranges(restart)?;
        let has_gaps = ranges.as_ref().is_some_and(|r| r.prefix_len() != r.end());
        if self.parameters.mode == TransferMode::Stream && has_gaps {
            let text = "REST with ranges other than 0-n needs MODE E for a store.";
            return Err(replies::reply(554, text));
        }
        Ok(ranges)
    }

    fn start_store(
        &mut self,
        verb: &'static str,
        path: VPath,
        disposition: StoreDisposition,
        parameters: NextStoreParameters,
    ) -> Vec<SessionAction> {
        let kind = TransferKind::Store {
            path: path.clone(),
            checksum_algorithm: self.checksum_while_storing(&disposition),
            disposition,
            announced_size: parameters.announced_size,
            expected_checksum: parameters.expected_checksum,
            modified: parameters.modified,
        };
        self.start_transfer(verb, path, kind)
    }

    /// Checksum to compute while storing. It is possible only if the whole file arrives, without
    /// translation of line endings.
    fn checksum_while_storing(&self, disposition: &StoreDisposition) -> Option<ChecksumAlgorithm> {
        let is_whole_file = matches!(
            disposition,
            StoreDisposition::Truncate | StoreDisposition::Unique
        );
        (is_whole_file && self.parameters.type_ == DataType::Image)
            .then_some(self.parameters.store_checksum)
            .flatten()
    }

    /// SITE BUNDLE ADD. A refused line leaves a number of files that no ERET or ESTO names.
    pub(super) fn announce_bundle(
        &mut self,
        config: &SessionConfig,
        entries: Vec<BundleEntry>,
    ) -> CommandResult {
        for entry in entries {
            let path = self.resolve(&entry.path)?;
            let path_bytes = path.as_bytes().len();
            let announced = &mut self.announced_bundle;
            announced.path_bytes += path_bytes;
            if announced.files.len() >= MAX_FILES || announced.path_bytes > MAX_PATH_BYTES {
                *announced = AnnouncedBundle::default();
                let text = format!(
                    "A bundle has at most {MAX_FILES} files and {MAX_PATH_BYTES} bytes of paths."
                );
                return Ok(replies::reply(552, text));
            }
            let memory = &config.announcement_memory;
            if !announced.memory.add_file(memory, path_bytes) {
                *announced = AnnouncedBundle::default();
                let text = "Too many files are announced at the moment; announce fewer, or try again later.";
                return Ok(replies::reply(450, text));
            }
            announced.files.push(BundleFile {
                path,
                size: entry.size,
                modified: entry.modified,
            });
        }
        Ok(replies::reply(250, "OK."))
    }

    /// ERET BUNDLE
    pub(super) fn retrieve_bundle(&mut self, count: usize, directory: &[u8]) -> CommandResult {
        let files = self.take_bundle(count)?;
        let directory = self.resolve(directory)?;
        let kind = TransferKind::RetrieveBundle {
            directory: directory.clone(),
            files,
        };
        Ok(self.start_transfer("ERET", directory, kind))
    }

    /// ESTO BUNDLE
    pub(super) fn store_bundle(&mut self, count: usize, directory: &[u8]) -> CommandResult {
        let files = self.take_bundle(count)?;
        let directory = self.resolve(directory)?;
        let kind = TransferKind::StoreBundle {
            directory: directory.clone(),
            files,
        };
        Ok(self.start_transfer("ESTO", directory, kind))
    }

    /// SITE BUNDLE END
    pub(super) fn end_bundle(&mut self, proof: Option<BundleProof>) -> Vec<SessionAction> {
        let request = FileRequest::EndBundle(proof);
        let directory = self.cwd.clone();
        self.start_file_task("SITE BUNDLE", directory, request, SuccessReply::Bundle)
    }

    /// The announced files, if there are `count`. They are forgotten in any case, and so are the parameters that other
    /// transfers would have consumed.
    fn take_bundle(&mut self, count: usize) -> Result<Vec<BundleFile>, Vec<SessionAction>> {
        let parameters = std::mem::take(&mut self.next_transfer);
        let announced = std::mem::take(&mut self.announced_bundle);
        self.last_bundle_memory = announced.memory;
        if parameters.restart.is_some() {
            return Err(replies::reply(554, "REST cannot precede a bundle."));
        }
        if self.parameters.type_ == DataType::Ascii {
            return Err(replies::reply(554, "A bundle needs TYPE I."));
        }
        let total = announced
            .files
            .iter()
            .try_fold(0_u64, |total, file| total.checked_add(file.size));
        if total.is_none_or(|total| total > MAX_FILE_OFFSET) {
            return Err(replies::reply(552, "The bundle is too large."));
        }
        if announced.files.is_empty() || announced.files.len() != count {
            let text = format!(
                "{} files were announced with SITE BUNDLE ADD, not {count}.",
                announced.files.len()
            );
            return Err(replies::reply(503, text));
        }
        Ok(announced.files)
    }

    /// Handles a driver event during a transfer.
    pub(super) fn on_transfer_event(
        &mut self,
        mut running: Box<RunningTransfer>,
        event: DriverEvent,
    ) -> Vec<SessionAction> {
        let actions = match event {
            DriverEvent::Transferred(result) => return self.finish_transfer(*running, result),
            DriverEvent::Listening(Err(error)) => {
                let error = TransferError::NoConnection(error.text);
                return self.finish_transfer(*running, Err(error));
            }
            DriverEvent::Listening(Ok(addresses)) => match running.delayed {
                Some(form) => vec![SessionAction::Reply(form.reply(&addresses, true))],
                None => Vec::new(),
            },
            DriverEvent::Opened {
                reused,
                unique_name,
            } => vec![SessionAction::Reply(running.on_opened(reused, unique_name))],
            // Clients accept markers only after the 150.
            DriverEvent::Progress(progress) if running.has_started() => {
                reply_actions(running.markers.on_progress(progress))
            }
            DriverEvent::BufferResized(bytes) if running.has_started() => {
                running.on_buffer_resized(bytes)
            }
            DriverEvent::Progress(_)
            | DriverEvent::Login(_)
            | DriverEvent::File(_)
            | DriverEvent::DrsListening(_)
            | DriverEvent::BufferResized(_)
            | DriverEvent::ChecksumProgress { .. }
            | DriverEvent::DataCredential(_)
            | DriverEvent::Security(_) => Vec::new(),
        };
        self.pending = PendingTask::Transfer(running);
        actions
    }

    fn finish_transfer(
        &mut self,
        mut running: RunningTransfer,
        result: Result<CompletedTransfer, TransferError>,
    ) -> Vec<SessionAction> {
        let mut actions = Vec::new();
        // In MODE S closing the connection marks the end of the file, so it precedes the 226.
        if self.is_channel_spent(&running, &result) {
            self.data_channel = DataChannel::None;
            actions.push(SessionAction::DropChannel);
        } else if result.is_ok() {
            self.cache_connections();
        }
        match result {
            Ok(CompletedTransfer { progress, remarks }) => {
                // Other clients may compare the text of the 226, and their users cannot place the remark.
                let remarks = self.parameters.reads_remarks.then_some(remarks);
                let completion = running.completion_reply(progress.bytes, remarks);
                actions.extend(reply_actions(running.markers.on_complete(progress)));
                actions.push(SessionAction::Reply(completion));
            }
            Err(error) => {
                actions.extend(reply_actions(running.markers.on_failure()));
                let failure = CommandFailure::Transfer(&running.target, &error);
                actions.extend(replies::refuse(&failure));
            }
        }
        // RFC 959 §4.1.3: the 226 for ABOR follows the reply to the aborted command.
        actions.extend(running.aborts.replies());
        actions
    }

    /// Whether the next transfer needs a new PASV or PORT. In MODE S that is so after every transfer
    /// that started; in MODE E after one that failed, since unread data may remain in the connections. A
    /// transfer that failed before it started, because of its file, leaves the channel usable.
    fn is_channel_spent(
        &self,
        running: &RunningTransfer,
        result: &Result<CompletedTransfer, TransferError>,
    ) -> bool {
        let has_started = running.has_started();
        match result {
            Ok(_) => running.mode == TransferMode::Stream,
            // A checksum mismatch is found after all data has arrived, so the connections are clean.
            Err(TransferError::Checksum { .. }) => running.mode == TransferMode::Stream,
            Err(TransferError::File(_)) => has_started,
            Err(_) => true,
        }
    }

    /// MODE E connections stay open for the next transfer (GFD.20 §3.4).
    fn cache_connections(&mut self) {
        match &mut self.data_channel {
            DataChannel::Passive { cached } | DataChannel::Active { cached, .. } => *cached = true,
            // The listener and connections exist now, so the next transfer reuses them as passive.
            DataChannel::DelayedPassive(_) => {
                self.data_channel = DataChannel::Passive { cached: true }
            }
            DataChannel::None => {}
        }
    }
}

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

fn reply_actions(replies: Vec<Reply>) -> Vec<SessionAction> {
    replies.into_iter().map(SessionAction::Reply).collect()
}
