//! Driver events of a transfer: the replies to them, and the state of the data channel afterwards.

use super::replies::{self, CommandFailure};
use super::running_transfer::RunningTransfer;
use super::session_state::{DataChannel, LoggedInSession, PendingTask};
use super::{CompletedTransfer, DriverEvent, SessionAction, TransferError};
use crate::command::TransferMode;
use crate::reply::Reply;

impl LoggedInSession {
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

fn reply_actions(replies: Vec<Reply>) -> Vec<SessionAction> {
    replies.into_iter().map(SessionAction::Reply).collect()
}
