//! The dialogue of a series: which commands are sent, and what their replies mean.

use std::collections::VecDeque;
use std::sync::Arc;

use data::job::{TransferControl, TransferReport};
use proto::bundle::BundleFailure;
use proto::client::{SeriesBreak, SeriesVerdict, SeriesWindow, judge_reply};
use proto::command::{Command, TransferMode};
use proto::ranges::RangeSet;
use proto::reply::Reply;
use proto::sizing::BufferSizing;
use proto::stripes::StripeAddresses;

use super::ahead::{AheadFile, AheadSender};
use super::exchange::SeriesTransfer;
use super::files::{FileSeries, SeriesEnd, SeriesFile, SeriesReport};
use super::local_end::{file_spec, local_transfer};
use super::{exchange, local_end};
use crate::failure::Operation;
use crate::session::checksum::checksum_in_reply;
use crate::session::{ClientSession, display_path};
use crate::transfer::outcome::FailedTransfer;
use crate::transfer::{TransferAttempt, TransferSpec, negotiation};
use crate::{Failure, FailureKind};

/// A command, and the position of its file in the series.
#[derive(Debug)]
struct SeriesCommand {
    position: usize,
    command: Command,
}

impl SeriesCommand {
    fn is_transfer(&self) -> bool {
        matches!(self.command, Command::Retr(_) | Command::Stor(_))
    }
}

/// State of a file.
#[derive(Debug, Default)]
struct FileProgress {
    /// Checksum of the bytes that passed.
    checksum: Option<String>,
    /// The query that checks it is sent.
    check_sent: bool,
    /// Its bytes were sent before its store command was answered.
    bytes_ahead: bool,
    /// It has failed.
    failed: bool,
}

/// A series in progress.
pub(super) struct SeriesDialogue<'a> {
    session: &'a mut ClientSession,
    series: &'a FileSeries,
    spec: &'a TransferSpec,
    control: &'a Arc<TransferControl>,
    report: &'a mut SeriesReport,
    window: SeriesWindow,
    /// Known once a file has moved.
    mode: Option<TransferMode>,
    files: Vec<FileProgress>,
    /// Position of the first file whose transfer command is not sent.
    next: usize,
    /// Commands without a reply, in the order in which they were sent.
    sent: VecDeque<SeriesCommand>,
    /// Commands that come before the next transfer command.
    waiting: VecDeque<SeriesCommand>,
    /// Addresses to try if those of the prepared data channel do not answer.
    alternative: Option<StripeAddresses>,
    /// Sends bytes ahead. It has the session's data connections as long as it lives.
    ahead: Option<AheadSender>,
    /// Files of earlier attempts to remove at the end.
    stale: &'a [Vec<u8>],
}

impl<'a> SeriesDialogue<'a> {
    pub(super) fn new(
        session: &'a mut ClientSession,
        series: &'a FileSeries,
        spec: &'a TransferSpec,
        control: &'a Arc<TransferControl>,
        report: &'a mut SeriesReport,
    ) -> Self {
        let files = series.files.iter().map(|_| FileProgress::default());
        // The next series of a session goes on where the last one ended.
        let (mode, window) = session.last_series.take().unzip();
        let first_mode = mode.unwrap_or(TransferMode::Stream);
        let window = window.map(|window: SeriesWindow| window.continued(series.lead, first_mode));
        Self {
            window: window.unwrap_or_else(|| SeriesWindow::new(series.lead, first_mode)),
            mode,
            files: files.collect(),
            next: 0,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            alternative: None,
            ahead: None,
            stale: &series.stale,
            session,
            series,
            spec,
            control,
            report,
        }
    }

    /// Moves all files.
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        loop {
            self.send_ahead().await?;
            match self.sent.pop_front() {
                Some(sent) => self.take_reply(sent).await?,
                None if self.next < self.series.files.len() => self.move_alone().await?,
                None if !self.stale.is_empty() => self.remove_stale(),
                None => break,
            }
        }
        self.end_bytes_ahead().await;
        self.session.last_series = self.mode.map(|mode| (mode, self.window));
        Ok(())
    }

    fn file(&self, position: usize) -> &'a SeriesFile {
        &self.series.files[position]
    }

    fn outstanding_transfers(&self) -> usize {
        self.sent.iter().filter(|sent| sent.is_transfer()).count()
    }

    /// Sends what may be sent now, in one write.
    async fn send_ahead(&mut self) -> Result<(), Failure> {
        let mut batch: Vec<SeriesCommand> = Vec::new();
        let mut outstanding = self.outstanding_transfers();
        if self.window.is_lockstep() {
            let next = self.sent.is_empty().then(|| self.waiting.pop_front());
            batch.extend(next.flatten());
        } else if self.window.may_follow(outstanding) {
            batch.extend(self.waiting.drain(..));
            while self.next < self.series.files.len() && self.window.has_room(outstanding) {
                let Some(commands) = self.commands_ahead(self.next) else {
                    break;
                };
                batch.extend(commands);
                outstanding += 1;
                self.next += 1;
            }
        }
        if !batch.is_empty() {
            let commands: Vec<Command> = batch.iter().map(|sent| sent.command.clone()).collect();
            let transfers = batch.iter().filter(|sent| sent.is_transfer());
            let files = &self.series.files;
            let begun = transfers.map(|sent| files[sent.position].index);
            self.report.begun.extend(begun);
            self.sent.extend(batch);
            let sent = self.session.control.send_behind(&commands).await;
            sent.inspect_err(|_| self.note_break(SeriesBreak::Lost))?;
        }
        self.send_bytes_ahead()
    }

    /// Removes what earlier attempts have left.
    fn remove_stale(&mut self) {
        let remove = |path: &Vec<u8>| SeriesCommand {
            position: 0,
            command: Command::Dele(path.clone()),
        };
        let stale = std::mem::take(&mut self.stale);
        self.waiting.extend(stale.iter().map(remove));
    }

    /// The commands of a file's transfer, with the query that checks it; `None` if they cannot be sent yet.
    fn commands_ahead(&mut self, position: usize) -> Option<Vec<SeriesCommand>> {
        let mode = self.mode?;
        let is_receive = matches!(self.series.end, SeriesEnd::Receive(_));
        let file = self.file(position);
        let kept = self.ahead.is_some();
        let steps = exchange::steps_ahead(self.session, self.spec, file, mode, is_receive, kept)?;
        let mut commands: Vec<Command> = steps;
        if self.window.may_follow(1) {
            let check = self.check_command(position, mode);
            self.files[position].check_sent = check.is_some();
            commands.extend(check);
        }
        let of_file = |command| SeriesCommand { position, command };
        Some(commands.into_iter().map(of_file).collect())
    }

    /// The query that checks a moved file. In MODE E every file has one: it also shows that no reply is missing or
    /// one too many. In MODE S the data address of each file shows that.
    fn check_command(&self, position: usize, mode: TransferMode) -> Option<Command> {
        let file = self.file(position);
        let path = local_end::path_of(&self.series.end, file).to_vec();
        match self.spec.checksum {
            Some(algorithm) => Some(Command::Cksm {
                algorithm,
                offset: 0,
                length: None,
                path,
            }),
            None => {
                local_end::needs_size(&self.series.end, file, mode).then(|| Command::Size(path))
            }
        }
    }

    /// Moves the next file with nothing ahead of it, as a copy of one file does. This brings the settings of the server
    /// to what the others need.
    async fn move_alone(&mut self) -> Result<(), Failure> {
        self.end_bytes_ahead().await;
        let position = self.next;
        self.next += 1;
        self.report.begun.push(self.file(position).index);
        let (spec, control) = (self.spec, self.control);
        let file = self.file(position);
        let moved = exchange::move_alone(self.session, &self.series.end, file, spec, control).await;
        match moved {
            Ok(attempt) => {
                let mode = match attempt.extended_mode {
                    true => TransferMode::Extended,
                    false => TransferMode::Stream,
                };
                if self.mode.replace(mode) != Some(mode) {
                    self.window = SeriesWindow::new(self.series.lead, mode);
                }
                self.bytes_moved(position, attempt);
                Ok(())
            }
            Err(failure) => self.fail_alone(position, failure),
        }
    }

    /// A failure of a file with no commands ahead.
    fn fail_alone(&mut self, position: usize, failure: Failure) -> Result<(), Failure> {
        if failure.may_retry() {
            self.note_break(SeriesBreak::Lost);
            return Err(failure);
        }
        self.fail_file(position, failure.to_string());
        match self.session.is_usable() {
            true => Ok(()),
            // The other files need another session.
            false => Err(failure.retried(true)),
        }
    }

    async fn take_reply(&mut self, sent: SeriesCommand) -> Result<(), Failure> {
        if sent.is_transfer() {
            return self.take_transfer(sent.position).await;
        }
        let reply = self.session.control.final_reply_with_markers().await;
        let reply = reply.inspect_err(|_| self.note_break(SeriesBreak::Lost))?;
        let verdict = judge_reply(&sent.command, &reply);
        if verdict == SeriesVerdict::OutOfStep {
            return Err(self.out_of_step(&sent.command, &reply));
        }
        let position = sent.position;
        let refused = verdict == SeriesVerdict::Refused;
        match &sent.command {
            Command::Pasv | Command::Epsv(_) => self.take_address(&reply)?,
            // A file without its time is still complete.
            Command::Mfmt(..) | Command::Dele(_) => {}
            command if refused => {
                let reason = format!(
                    "{}: {}",
                    command.verb(),
                    crate::failure::display_reply(&reply)
                );
                let is_check = !matches!(command, Command::Rnfr(_) | Command::Rnto(_));
                match is_check {
                    true => self.check_failed(position, reason)?,
                    false => self.fail_file(position, reason),
                }
            }
            Command::Rnto(_) => self.file_confirmed(position),
            Command::Rnfr(_) => {}
            _ => self.take_check(position, &reply)?,
        }
        Ok(())
    }

    fn take_address(&mut self, reply: &Reply) -> Result<(), Failure> {
        let addresses = self.session.parse_passive_reply(reply)?;
        let warnings = &mut self.report.attempt.warnings;
        self.alternative = self.session.prepare_data_connections(&addresses, warnings);
        Ok(())
    }

    /// Compares the checksum or the size in a reply.
    fn take_check(&mut self, position: usize, reply: &Reply) -> Result<(), Failure> {
        if self.files[position].failed {
            return Ok(());
        }
        let file = self.file(position);
        let (expected, found) = match self.spec.checksum {
            Some(algorithm) => (
                self.files[position].checksum.take(),
                checksum_in_reply(algorithm, reply, local_end::path_of(&self.series.end, file)),
            ),
            None => (
                Some(file.size.to_string()),
                reply.number().map(|size| size.to_string()),
            ),
        };
        match (expected, found) {
            (Some(expected), Some(found)) if expected == found => {
                self.check_passed(position);
                Ok(())
            }
            (expected, found) => {
                let reason = format!("expected {expected:?}, the server has {found:?}");
                self.check_failed(position, reason)
            }
        }
    }

    /// The bytes at the server are not those of the file.
    fn check_failed(&mut self, position: usize, reason: String) -> Result<(), Failure> {
        if !self.files[position].bytes_ahead || self.files[position].failed {
            self.fail_file(position, reason);
            return Ok(());
        }
        // Perhaps they are those of another one. It moves again, with nothing ahead.
        let failure = Failure::transient(FailureKind::Integrity, reason);
        Err(self.break_off(SeriesBreak::Misplaced, failure))
    }

    async fn take_transfer(&mut self, position: usize) -> Result<(), Failure> {
        if self.files[position].bytes_ahead {
            return self.take_transfer_ahead(position).await;
        }
        let Some(mode) = self.mode else {
            let operation = Operation::from("go on");
            return Err(FailedTransfer::no_data_channel(self.session.name(), &operation).into());
        };
        let transfer = SeriesTransfer {
            end: &self.series.end,
            file: self.file(position),
            mode,
            alternative: self.alternative.take(),
        };
        match exchange::exchange(self.session, transfer, self.spec, self.control).await {
            Ok(attempt) => {
                self.bytes_moved(position, attempt);
                Ok(())
            }
            Err(failed) => self.transfer_failed(position, mode, failed),
        }
    }

    fn transfer_failed(
        &mut self,
        position: usize,
        mode: TransferMode,
        failed: FailedTransfer,
    ) -> Result<(), Failure> {
        let refuses_file = exchange::refuses_file(&failed);
        if self.sent.is_empty() {
            return self.fail_alone(position, failed.failure);
        }
        if refuses_file {
            self.fail_file(position, failed.failure.to_string());
            // In MODE S the next file has its own address. In MODE E the commands ahead are for data connections that
            // are closed now.
            if mode == TransferMode::Stream && self.session.control.is_intact() {
                return Ok(());
            }
        } else {
            self.note_break(match failed.refusal {
                Some(_) => SeriesBreak::WrongReply,
                None => SeriesBreak::Lost,
            });
        }
        Err(failed.failure.retried(true))
    }

    /// The bytes of a file have moved, and the server has confirmed them.
    fn bytes_moved(&mut self, position: usize, mut attempt: TransferAttempt) {
        let before = std::mem::take(&mut self.report.attempt);
        attempt.warnings.splice(0..0, before.warnings);
        attempt.report.evidence.bytes += before.report.evidence.bytes;
        self.files[position].checksum = attempt.report.checksum.take();
        attempt.report = TransferReport {
            stored: RangeSet::new(),
            ..attempt.report
        };
        let mode = match attempt.extended_mode {
            true => TransferMode::Extended,
            false => TransferMode::Stream,
        };
        self.report.attempt = attempt;
        let index = self.file(position).index;
        if let Some(reason) = local_end::fault(&self.series.end, index) {
            return self.fail_file(position, reason);
        }
        if self.files[position].check_sent {
            return;
        }
        match self.check_command(position, mode) {
            Some(command) => self.waiting.push_back(SeriesCommand { position, command }),
            None => self.check_passed(position),
        }
    }

    /// The bytes at the server are known to be right.
    fn check_passed(&mut self, position: usize) {
        let sets_time = self.session.features().mfmt;
        let naming = local_end::naming_commands(&self.series.end, self.file(position), sets_time);
        if naming.is_empty() {
            return self.file_confirmed(position);
        }
        let of_file = |command| SeriesCommand { position, command };
        self.waiting.extend(naming.into_iter().map(of_file));
    }

    fn file_confirmed(&mut self, position: usize) {
        if self.files[position].failed {
            return;
        }
        self.report.moved.push(self.file(position).index);
        let outstanding = self.outstanding_transfers();
        self.window.on_confirmed(outstanding);
    }

    /// The file is copied by itself later.
    fn fail_file(&mut self, position: usize, reason: String) {
        if std::mem::replace(&mut self.files[position].failed, true) {
            return;
        }
        let file = self.file(position);
        self.report.failed.push(BundleFailure {
            index: file.index,
            reason,
        });
        if let SeriesEnd::Send(_) = self.series.end {
            self.waiting.push_back(SeriesCommand {
                position,
                command: Command::Dele(file.partial.clone()),
            });
        }
    }

    fn note_break(&mut self, how: SeriesBreak) {
        self.report.lead = self.report.lead.min(self.window.lead_after(how));
    }

    /// The reply is not one to this command.
    fn out_of_step(&mut self, command: &Command, reply: &Reply) -> Failure {
        let lost = reply.code == 421 || self.session.control.connection_was_lost();
        self.note_break(match lost {
            true => SeriesBreak::Lost,
            false => SeriesBreak::WrongReply,
        });
        self.session.control.abandon();
        Failure::transient(
            FailureKind::Protocol,
            format!(
                "{} answered {} of {} with {}; try again",
                self.session.name(),
                command.verb(),
                display_path(self.series.files.first().map_or(b"", |file| &file.path)),
                crate::failure::display_reply(reply)
            ),
        )
    }
}

/// Bytes ahead: files whose content is on its way before the server has answered their store commands.
///
/// A server that refuses such a file leaves its bytes on the data connection, and would read them as those of the next
/// one. Replies come in the order of the commands, so the refusal is known before any reply about the next file. The
/// session is abandoned then, and all files that are not confirmed are moved again, with nothing of them ahead. Only
/// files whose checksum the server computes are sent so: bytes at a wrong place are noticed even if a reply is missing.
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
    pub(super) fn send_bytes_ahead(&mut self) -> Result<(), Failure> {
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
    fn ahead_sender(&mut self) -> Result<Option<&mut AheadSender>, Failure> {
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
                Failure::transient(
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
    pub(super) async fn take_transfer_ahead(&mut self, position: usize) -> Result<(), Failure> {
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
    pub(super) fn break_off(&mut self, how: SeriesBreak, failure: Failure) -> Failure {
        self.note_break(how);
        self.ahead = None;
        self.session.control.abandon();
        failure.retried(true)
    }
}
