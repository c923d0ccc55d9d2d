//! The log's record of a transfer that ended, with what its client said of itself.

use std::sync::Arc;

use data::job::Settings;
use proto::path::{PARTIAL_HASH_DIGITS, PARTIAL_SUFFIX, VPath};
use proto::server::{Action, FileRequest, TransferError};
use tune::limiter::Limiter;

use super::{Driver, Who};
use crate::transfer::Summary;
use crate::transfer_log::{Direction, TransferRecord};

/// Longest note kept, bytes: a session's memory is not the client's to fill.
const LONGEST: usize = 256;

/// Notes of a client about itself, for the record.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// SITE TASKID.
    pub(super) task: Option<Box<str>>,
    /// SITE CLIENTINFO or CLNT.
    pub(super) client: Option<Box<str>>,
}

impl Notes {
    /// Keeps a note; a later one under the same key replaces it.
    pub(super) fn set(&mut self, key: &'static str, mut value: String) {
        value.truncate(value.floor_char_boundary(LONGEST));
        tracing::debug!(key, value, "note");
        match key {
            "task" => self.task = Some(value.into()),
            "client" => self.client = Some(value.into()),
            _ => {}
        }
    }
}

/// The record of an upload under a partial name that does not tell the whole file's, kept until
/// the file is renamed, another transfer ends, or the session does.
pub(super) struct Unnamed {
    record: TransferRecord,
    stored_as: VPath,
    /// Where the file is being renamed to.
    to: Option<VPath>,
}

impl Driver {
    /// Records a transfer that ended.
    pub(super) fn record(&mut self, summary: Summary, code: u16, error: Option<String>) {
        let (user, root) = match &self.who {
            Who::User(login) => (login.grant.user.clone(), login.root_path.clone()),
            Who::Stranger { .. } => return, // no transfer begins without a login
        };
        let settings = summary.settings;
        let partial = (summary.direction == Direction::Store)
            .then(|| whole_name(&summary.path))
            .flatten();
        let (path, stored_as) = match partial {
            Some(whole) => (whole.to_vec(), Some(summary.path.as_bytes().to_vec())),
            None => (summary.path.as_bytes().to_vec(), None),
        };
        let unnamed = stored_as.is_some() && error.is_none() && may_be_hash(&path);
        let record = TransferRecord {
            start: summary.start,
            elapsed: summary.elapsed,
            direction: summary.direction,
            user,
            client: self.ends.peer,
            data_peers: if summary.peers.is_empty() {
                self.data_peers.clone()
            } else {
                summary.peers
            },
            path,
            stored_as,
            root,
            mode: settings.mode,
            streams: u32::try_from(settings.streams).unwrap_or(u32::MAX),
            block: settings.options.block,
            sizing: sizing_name(summary.direction, &settings),
            limiter: summary.limits.limiter.map(limiter_name),
            congestion: summary.limits.congestion,
            evidence: summary.evidence,
            decision: summary.decision,
            checksum: settings.sum.zip(summary.digest),
            code,
            error,
            task: self.notes.task.as_deref().map(str::to_owned),
            application: self.notes.client.as_deref().map(str::to_owned),
        };
        self.write_unnamed();
        if !unnamed {
            return self.write(record);
        }
        self.unnamed = Some(Box::new(Unnamed {
            record,
            stored_as: summary.path,
            to: None,
        }));
    }

    /// A request to the files: it may tell the name of the last upload.
    pub(super) fn note_rename(&mut self, request: &FileRequest) {
        if let (Some(unnamed), FileRequest::Rename { from, to }) = (&mut self.unnamed, request)
            && unnamed.stored_as == *from
        {
            unnamed.to = Some(to.clone());
        }
    }

    /// The answer of the files to the last request.
    pub(super) fn on_renamed(&mut self, done: bool) {
        let Some(unnamed) = &mut self.unnamed else {
            return;
        };
        if let Some(to) = unnamed.to.take().filter(|_| done) {
            unnamed.record.path = to.as_bytes().to_vec();
            self.write_unnamed();
        }
    }

    /// Writes the record that waits for a name as it is.
    pub(super) fn write_unnamed(&mut self) {
        if let Some(unnamed) = self.unnamed.take() {
            self.write(unnamed.record);
        }
    }

    /// Writes a record after those before it, on a blocking thread: the disk may be slow.
    fn write(&mut self, record: TransferRecord) {
        let shared = Arc::clone(&self.shared);
        let earlier = self.recording.take();
        self.recording = Some(tokio::spawn(async move {
            // Both fail only if the log panicked; the hook has told it.
            if let Some(earlier) = earlier {
                let _ = earlier.await;
            }
            let _ = tokio::task::spawn_blocking(move || shared.log.record(&record)).await;
        }));
    }
}

/// The path of the whole file, if `path` is a partial name.
fn whole_name(path: &VPath) -> Option<&[u8]> {
    let is_suffix_only = path.name() == PARTIAL_SUFFIX;
    let whole = path.as_bytes().strip_suffix(PARTIAL_SUFFIX);
    whole.filter(|_| !is_suffix_only)
}

/// Whether a name may stand for a longer one.
fn may_be_hash(path: &[u8]) -> bool {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let name = &path[start..];
    name.len() == PARTIAL_HASH_DIGITS && name.iter().all(u8::is_ascii_hexdigit)
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
        Direction::Store => settings.options.buffers.receive,
        Direction::Retrieve | Direction::List => settings.options.buffers.send,
    };
    match pinned {
        Some(_) => "pinned",
        None => settings.options.buffers.sizing.name(),
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

/// The failure, for people.
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
    fn partial_names_tell_the_whole_files_name() {
        let whole = |path: &str| {
            let path = VPath::root().resolve(path.as_bytes()).unwrap();
            whole_name(&path).map(|whole| String::from_utf8(whole.to_vec()).unwrap())
        };
        assert_eq!(whole("d/f.longhaul-partial").as_deref(), Some("/d/f"));
        assert_eq!(whole("d/f"), None);
        assert_eq!(whole("d/.longhaul-partial"), None);
        assert!(may_be_hash(b"/d/0123456789abcdef0123456789abcdef"));
        assert!(!may_be_hash(b"/d/0123456789abcdef0123456789abcde"));
        assert!(!may_be_hash(b"/0123456789abcdef0123456789abcdef/f"));
    }

    #[test]
    fn a_server_that_waits_does_not_blame_a_server() {
        assert_eq!(limiter_name(Limiter::ServerCap), "client or path");
        assert_eq!(limiter_name(Limiter::StoreWrite), "store write");
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let mut notes = Notes::default();
        notes.set("client", "é".repeat(LONGEST));
        assert_eq!(
            notes.client.as_deref(),
            Some("é".repeat(LONGEST / 2).as_str())
        );
        assert!(notes.task.is_none());
    }
}
