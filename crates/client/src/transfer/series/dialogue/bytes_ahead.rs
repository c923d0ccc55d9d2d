//! Bytes ahead: files whose content is on its way before the server has answered their store commands.
//!
//! A server that refuses such a file leaves its bytes on the data connection, and would read them as those of the next
//! one. Replies come in the order of the commands, so the refusal is known before any reply about the next file. The
//! session is abandoned then, and all files that are not confirmed are moved again, with nothing of them ahead. Only
//! files whose checksum the server computes are sent so: bytes at a wrong place are noticed even if a reply is missing.

use std::sync::Arc;

use data::job::TransferControl;
use proto::client::SeriesBreak;
use proto::command::TransferMode;
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;

use super::super::super::outcome::FailedTransfer;
use super::super::super::{TransferAttempt, negotiation};
use super::super::ahead::{AheadFile, AheadSender};
use super::super::exchange;
use super::super::files::SeriesEnd;
use super::super::local_end::{self, file_spec, local_transfer};
use super::SeriesDialogue;
use crate::failure::Operation;
use crate::{CopyFailure, FailureKind};

impl SeriesDialogue<'_> {
    fn may_send_bytes(&self) -> bool {
        // With the other methods, the two ends exchange sizes during a transfer.
        let sizing = negotiation::agreed_buffers(self.session, self.spec).sizing;
        let no_dialogue = matches!(sizing, BufferSizing::Auto | BufferSizing::Kernel);
        self.window.may_send_bytes()
            && self.mode == Some(TransferMode::Extended)
            && matches!(self.series.end, SeriesEnd::Send(_))
            && self.spec.checksum.is_some()
            && no_dialogue
    }

    /// Sends the bytes of all files whose commands are sent, where that is allowed.
    pub(super) fn send_bytes_ahead(&mut self) -> Result<(), CopyFailure> {
        if !self.may_send_bytes() {
            return Ok(());
        }
        let transfers = self.sent.iter().filter(|sent| sent.is_transfer());
        let positions: Vec<usize> = transfers
            .map(|sent| sent.position)
            .filter(|position| !self.files[*position].bytes_ahead)
            .collect();
        for position in positions {
            let file = self.file(position);
            let spec = file_spec(&self.series.end, file, self.spec);
            let mode = TransferMode::Extended;
            let mut settings =
                negotiation::data_settings(self.session, mode, &spec, &RangeSet::new());
            settings.security = self.session.local_data_security()?;
            let ahead = AheadFile {
                local_end: local_transfer(&self.series.end, file),
                settings,
                control: Arc::new(TransferControl::part_of(self.control, file.start)),
            };
            let Some(sender) = self.ahead_sender()? else {
                return Ok(());
            };
            sender.send(ahead);
            self.files[position].bytes_ahead = true;
            self.window.on_bytes_ahead();
        }
        Ok(())
    }

    /// The sender over the kept connections; `None` if there are none.
    fn ahead_sender(&mut self) -> Result<Option<&mut AheadSender>, CopyFailure> {
        if self.ahead.is_none() {
            let channel = self.session.data_channel.take();
            let (kept, other) = match channel {
                Some(channel) if channel.has_cached(true) => (Some(channel), None),
                other => (None, other),
            };
            self.session.data_channel = other;
            let started = kept.map(AheadSender::start).transpose();
            self.ahead = started.map_err(|error| {
                self.session.control.abandon();
                CopyFailure::transient(
                    FailureKind::Local,
                    format!("cannot start a thread: {error}"),
                )
            })?;
        }
        Ok(self.ahead.as_mut())
    }

    /// Gives the connections back to the session. Nothing may be outstanding.
    pub(super) async fn end_bytes_ahead(&mut self) {
        if let Some(sender) = self.ahead.take() {
            self.session.data_channel = sender.finish().await;
        }
    }

    /// Takes the replies to the store command of a file whose bytes are sent.
    pub(super) async fn take_transfer_ahead(&mut self, position: usize) -> Result<(), CopyFailure> {
        let file = self.file(position);
        let path = local_end::path_of(&self.series.end, file);
        let operation = Operation::on_path("write", path);
        let Some(sender) = &mut self.ahead else {
            return Err(FailedTransfer::no_data_channel(self.session.name(), &operation).into());
        };
        let confirmed = sender
            .confirm(self.session, &self.spec.started, &operation)
            .await;
        let failed = match confirmed {
            Ok(report) if report.evidence.bytes == file.size => {
                let attempt = TransferAttempt {
                    extended_mode: true,
                    streams: report.evidence.streams.max(1),
                    buffers: negotiation::agreed_buffers(self.session, self.spec),
                    report,
                    ..TransferAttempt::default()
                };
                self.bytes_moved(position, attempt);
                return Ok(());
            }
            Ok(report) => {
                let (server, moved) = (self.session.name(), report.evidence.bytes);
                let failure = negotiation::incomplete_failure(server, &operation, moved, file.size);
                return Err(self.break_off(SeriesBreak::Misplaced, failure));
            }
            Err(failed) => failed,
        };
        if exchange::refuses_file(&failed) {
            self.fail_file(position, failed.failure.to_string());
        }
        let how = match failed.refusal {
            Some(_) => SeriesBreak::Misplaced,
            None => SeriesBreak::Lost,
        };
        Err(self.break_off(how, failed.failure))
    }

    /// Abandons the session. What is on its data connections belongs to no file any more.
    pub(super) fn break_off(&mut self, how: SeriesBreak, failure: CopyFailure) -> CopyFailure {
        self.note_break(how);
        self.ahead = None;
        self.session.control.abandon();
        failure.retried(true)
    }
}
