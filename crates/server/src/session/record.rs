//! The log's record of a transfer that ended.

use std::sync::Arc;

use data::job::Settings;
use proto::server::{Action, TransferError};
use tune::limiter::Limiter;

use super::{Driver, Who};
use crate::transfer::Summary;
use crate::transfer_log::{Direction, TransferRecord};

impl Driver {
    /// Writes the record, on a blocking thread: the disk may be slow.
    pub(super) fn record(&mut self, summary: Summary, code: u16, error: Option<String>) {
        let (user, root) = match &self.who {
            Who::User(login) => (login.grant.user.clone(), login.root_path.clone()),
            Who::Stranger { .. } => return, // no transfer begins without a login
        };
        let settings = summary.settings;
        let record = TransferRecord {
            start: summary.start,
            elapsed: summary.elapsed,
            bytes: summary.bytes,
            direction: summary.direction,
            user,
            client: self.ends.peer,
            data_peers: if summary.peers.is_empty() {
                self.data_peers.clone()
            } else {
                summary.peers
            },
            path: summary.path.as_bytes().to_vec(),
            root,
            mode: settings.mode,
            streams: u32::try_from(settings.streams).unwrap_or(u32::MAX),
            block: settings.block,
            sizing: sizing_name(summary.direction, &settings),
            limiter: summary.limits.limiter.map(limiter_name),
            congestion: summary.limits.congestion,
            wire: summary.wire,
            decision: summary.decision,
            checksum: settings.sum.zip(summary.digest),
            code,
            error,
            task: self.notes.task.as_deref().map(str::to_owned),
            application: self.notes.client.as_deref().map(str::to_owned),
        };
        let shared = Arc::clone(&self.shared);
        self.recording = Some(tokio::task::spawn_blocking(move || {
            shared.log.record(&record);
        }));
    }
}

/// A limiter's name where the other end is no server.
fn limiter_name(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::ServerCap => "client or path",
        other => other.name(),
    }
}

/// Who sized the buffers that the transfer depended on at this end.
fn sizing_name(direction: Direction, settings: &Settings) -> &'static str {
    let pinned = match direction {
        Direction::Store => settings.receive_buffer,
        Direction::Retrieve | Direction::List => settings.send_buffer,
    };
    match pinned {
        Some(_) => "pinned",
        None => settings.sizing.name(),
    }
}

/// Code of the transfer's final reply: the first that is not preliminary.
pub(super) fn final_code(actions: &[Action]) -> u16 {
    actions
        .iter()
        .find_map(|action| match action {
            Action::Reply(reply) if !reply.is_preliminary() => Some(reply.code),
            _ => None,
        })
        .unwrap_or(0)
}

/// What went wrong, for people.
pub(super) fn describe(error: &TransferError) -> String {
    match error {
        TransferError::File(error) => error.text.clone(),
        TransferError::NoConnection(text) | TransferError::Broken(text) => text.clone(),
        TransferError::Aborted => "aborted by the client".to_owned(),
        TransferError::TakenOver => "another upload took this file over".to_owned(),
        TransferError::Checksum { computed, expected } => {
            format!("checksum {computed} where {expected} was announced")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_waits_does_not_blame_a_server() {
        assert_eq!(limiter_name(Limiter::ServerCap), "client or path");
        assert_eq!(limiter_name(Limiter::StoreWrite), "store write");
    }
}
