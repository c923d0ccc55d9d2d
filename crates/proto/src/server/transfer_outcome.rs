//! The driver's reports of a transfer: the replies that they become, and the data channel afterwards.

use super::replies::{self, Failure};
use super::running::Running;
use super::state::{Channel, LoggedIn, Pending};
use super::{Action, Outcome, TransferDone, TransferError};
use crate::command::Mode;
use crate::remark::Said;
use crate::reply::Reply;

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
            Outcome::Listening(Ok(addresses)) => match running.delayed {
                Some(form) => vec![Action::Reply(form.reply(&addresses, true))],
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
            | Outcome::ChecksumProgress { .. }
            | Outcome::Security(_) => Vec::new(),
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
