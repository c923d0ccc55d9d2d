//! A transfer in progress: its replies from 127 or 150 to 226, ABOR and STAT meanwhile.

use super::aborts::Aborts;
use super::data_address::PassiveForm;
use super::markers::Markers;
use super::replies::{self, Failure, Subject};
use super::right_sizing::Told;
use super::state::{Channel, LoggedIn, Pending};
use super::{Action, Outcome, TransferDone, TransferError, TransferRequest};
use crate::command::Mode;
use crate::path::VPath;
use crate::remark::Said;
use crate::reply::Reply;

/// A transfer that the driver runs.
#[derive(Debug)]
pub(super) struct Running {
    subject: Subject,
    mode: Mode,
    stage: Stage,
    /// Delayed passive: how the address is to be told.
    delayed: Option<PassiveForm>,
    markers: Markers,
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

    fn resized(&mut self, bytes: u64) -> Vec<Action> {
        let reply = self.told.as_mut().and_then(|told| told.tell(bytes));
        reply.map(Action::Reply).into_iter().collect()
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    fn opened(&mut self, reused: bool, unique_name: Option<VPath>) -> Reply {
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
    fn complete_reply(&self, said: &Said) -> Reply {
        match &self.stage {
            Stage::Open(Some(name)) => {
                let text = [b"Transfer Complete. FILE: ".as_slice(), name.as_bytes()].concat();
                Reply::new(226, text)
            }
            _ => Reply::new(226, said.complete_text()),
        }
    }
}

impl LoggedIn {
    /// Takes what the driver reports of a transfer.
    pub(super) fn on_running(
        &mut self,
        mut running: Box<Running>,
        outcome: Outcome,
    ) -> Vec<Action> {
        let actions = match outcome {
            Outcome::Transferred(result) => return self.finish(*running, result),
            Outcome::Listening(Err(error)) => {
                let error = TransferError::NoConnection(error.text);
                return self.finish(*running, Err(error));
            }
            Outcome::Listening(Ok(address)) => match running.delayed {
                Some(form) => vec![Action::Reply(form.reply(address, true))],
                None => Vec::new(),
            },
            Outcome::Opened {
                reused,
                unique_name,
            } => vec![Action::Reply(running.opened(reused, unique_name))],
            // No marker may come before 150.
            Outcome::Progress(progress) if running.is_open() => {
                as_actions(running.markers.on_progress(progress))
            }
            Outcome::Resized(bytes) if running.is_open() => running.resized(bytes),
            Outcome::Progress(_)
            | Outcome::Login(_)
            | Outcome::File(_)
            | Outcome::DrsListening(_)
            | Outcome::Resized(_)
            | Outcome::ChecksumProgress { .. } => Vec::new(),
        };
        self.pending = Pending::Transfer(running);
        actions
    }

    fn finish(
        &mut self,
        mut running: Running,
        result: Result<TransferDone, TransferError>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.channel_is_spent(&running, &result) {
            self.channel = Channel::None;
            actions.push(Action::DropChannel);
        } else if result.is_ok() {
            self.keep_connections();
        }
        match result {
            Ok(done) => {
                actions.extend(as_actions(running.markers.on_end(done.progress)));
                // To people that know nothing of it, or to a program that compares texts, it would
                // be a riddle.
                let said = match self.settings.takes_remarks {
                    true => done.said,
                    false => Said::default(),
                };
                let complete = running.complete_reply(&said);
                actions.push(Action::Reply(complete));
            }
            Err(error) => {
                actions.extend(as_actions(running.markers.on_failure()));
                let failure = Failure::Transfer(&running.subject, &error);
                actions.extend(replies::refuse(&failure));
            }
        }
        actions.extend(running.aborts.replies());
        actions
    }

    /// Whether a new PASV or PORT is needed: in MODE S after every transfer that began, in MODE E
    /// after one that broke off, since nobody knows what is left in the connections. A transfer
    /// that was refused for its file leaves the channel as it was.
    fn channel_is_spent(
        &self,
        running: &Running,
        result: &Result<TransferDone, TransferError>,
    ) -> bool {
        let began = running.is_open();
        match result {
            Ok(_) => running.mode == Mode::Stream,
            // The data had all come when the sum was found wrong.
            Err(TransferError::Checksum { .. }) => running.mode == Mode::Stream,
            Err(TransferError::File(_)) => began,
            Err(_) => true,
        }
    }

    /// MODE E connections stay open for the next transfer (GFD.20 §3.4).
    fn keep_connections(&mut self) {
        match &mut self.channel {
            Channel::Passive { used } | Channel::Active { used, .. } => *used = true,
            Channel::Delayed(_) => self.channel = Channel::Passive { used: true },
            Channel::None => {}
        }
    }
}

fn as_actions(replies: Vec<Reply>) -> Vec<Action> {
    replies.into_iter().map(Action::Reply).collect()
}
