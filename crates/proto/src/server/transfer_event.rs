//! The driver's reports of a transfer: the replies that they become, and the data channel afterwards.

use super::replies::{self, CommandFailure};
use super::running_transfer::RunningTransfer;
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{CompletedTransfer, DriverEvent, SessionAction, TransferError};
use crate::command::TransferMode;
use crate::remark::CompletionRemarks;
use crate::reply::Reply;

impl LoggedInSession {
    /// Takes what the driver reports of a transfer.
    pub(super) fn on_transfer_event(
        &mut self,
        mut running: Box<RunningTransfer>,
        outcome: DriverEvent,
    ) -> Vec<SessionAction> {
        let actions = match outcome {
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
            // No marker may come before 150.
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
        if self.is_channel_spent(&running, &result) {
            self.data_channel = DataChannel::None;
            actions.push(SessionAction::DropChannel);
        } else if result.is_ok() {
            self.cache_connections();
        }
        match result {
            Ok(done) => {
                actions.extend(reply_actions(running.markers.on_complete(done.progress)));
                // To people that know nothing of it, or to a program that compares texts, it would
                // be a riddle.
                let said = match self.parameters.reads_remarks {
                    true => done.remarks,
                    false => CompletionRemarks::default(),
                };
                let complete = running.completion_reply(&said);
                actions.push(SessionAction::Reply(complete));
            }
            Err(error) => {
                actions.extend(reply_actions(running.markers.on_failure()));
                let failure = CommandFailure::Transfer(&running.target, &error);
                actions.extend(replies::refuse(&failure));
            }
        }
        actions.extend(running.aborts.replies());
        actions
    }

    /// Whether a new PASV or PORT is needed: in MODE S after every transfer that began, in MODE E
    /// after one that broke off, since nobody knows what is left in the connections. A transfer
    /// that was refused for its file leaves the channel as it was.
    fn is_channel_spent(
        &self,
        running: &RunningTransfer,
        result: &Result<CompletedTransfer, TransferError>,
    ) -> bool {
        let began = running.has_started();
        match result {
            Ok(_) => running.mode == TransferMode::Stream,
            // The data had all come when the sum was found wrong.
            Err(TransferError::Checksum { .. }) => running.mode == TransferMode::Stream,
            Err(TransferError::File(_)) => began,
            Err(_) => true,
        }
    }

    /// MODE E connections stay open for the next transfer (GFD.20 §3.4).
    fn cache_connections(&mut self) {
        match &mut self.data_channel {
            DataChannel::Passive { used } | DataChannel::Active { used, .. } => *used = true,
            DataChannel::DelayedPassive(_) => {
                self.data_channel = DataChannel::Passive { used: true }
            }
            DataChannel::None => {}
        }
    }
}

fn reply_actions(replies: Vec<Reply>) -> Vec<SessionAction> {
    replies.into_iter().map(SessionAction::Reply).collect()
}
