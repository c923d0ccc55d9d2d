//! The log records of a session's transfers, with the notes of its client.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data::job::TransferSettings;
use data::security::DataSecurity;
use proto::path::{PARTIAL_HASH_DIGITS, PARTIAL_SUFFIX, VPath};
use proto::server::{FileRequest, SessionAction, TransferError};
use security::gsi::DataHandshakeMode;
use security::x509::DistinguishedName;
use tokio::task::JoinHandle;

use crate::login::Login;
use crate::state::ServerState;
use crate::transfer::TransferSummary;
use crate::transfer_log::{LoggedTransferKind, TransferRecord};

/// Longest note, bytes. It bounds the memory that a client can fill.
const MAX_NOTE: usize = 256;

/// Writes the records, each after the ones before it.
pub(super) struct TransferRecords {
    shared: Arc<ServerState>,
    notes: ClientNotes,
    deferred: Option<Box<DeferredRecord>>,
    /// The task that writes the last record.
    writer: Option<JoinHandle<()>>,
}

/// A client's own description of itself, for the log record.
#[derive(Debug, Default)]
struct ClientNotes {
    /// Argument of SITE TASKID.
    task: Option<Box<str>>,
    /// Argument of SITE CLIENTINFO or CLNT.
    client: Option<Box<str>>,
}

impl ClientNotes {
    /// Sets a note; it replaces an earlier one with the same key.
    fn set(&mut self, key: &'static str, mut value: String) {
        // A cut inside of a character would panic.
        value.truncate(value.floor_char_boundary(MAX_NOTE));
        tracing::debug!(key, value, "note");
        match key {
            "task" => self.task = Some(value.into()),
            "client" => self.client = Some(value.into()),
            _ => {}
        }
    }
}

/// The record of an upload whose partial name is a hash and so does not show the final name. It is
/// kept until the file is renamed, another transfer ends, or the session ends.
struct DeferredRecord {
    record: TransferRecord,
    stored_as: VPath,
    /// Target of a rename in progress.
    to: Option<VPath>,
}

/// The session in which a transfer ran.
pub(super) struct RecordedSession<'s> {
    pub(super) login: &'s Login,
    pub(super) client: SocketAddr,
    pub(super) identity: Option<&'s DistinguishedName>,
    /// Hosts that were expected to connect.
    pub(super) expected_hosts: &'s [IpAddr],
}

/// How the client was told that a transfer has ended.
pub(super) struct RecordedEnd {
    /// Code of the final reply.
    pub(super) code: u16,
    pub(super) error: Option<String>,
}

impl TransferRecords {
    pub(super) fn new(shared: Arc<ServerState>) -> Self {
        Self {
            shared,
            notes: ClientNotes::default(),
            deferred: None,
            writer: None,
        }
    }

    /// Sets a note of the client for the records that follow.
    pub(super) fn set_note(&mut self, key: &'static str, value: String) {
        self.notes.set(key, value);
    }

    /// Records a finished transfer.
    pub(super) fn record(
        &mut self,
        session: &RecordedSession<'_>,
        summary: TransferSummary,
        end: RecordedEnd,
    ) {
        let settings = summary.settings;
        let error = summary.failed_check.or(end.error);
        let protection = protection_name(settings.security.as_deref());
        // Only uploads use partial names; a retrieve of such a file is logged as it is.
        let partial = (summary.direction == LoggedTransferKind::Store)
            .then(|| name_without_suffix(&summary.path))
            .flatten();
        let (path, stored_as) = match partial {
            Some(whole) => (whole.to_vec(), Some(summary.path.as_bytes().to_vec())),
            None => (summary.path.as_bytes().to_vec(), None),
        };
        let is_deferred = stored_as.is_some() && error.is_none() && is_hashed_name(&path);
        let record = TransferRecord {
            start: summary.start,
            elapsed: summary.elapsed,
            direction: summary.direction,
            user: session.login.grant.user.clone(),
            client: session.client,
            data_peers: if summary.peers.is_empty() {
                session.expected_hosts.to_vec()
            } else {
                summary.peers
            },
            path,
            stored_as,
            root: session.login.root_path.clone(),
            mode: settings.mode,
            streams: u32::try_from(settings.streams).unwrap_or(u32::MAX),
            block: settings.options.block,
            sizing: sizing_name(summary.direction, &settings),
            limiter: summary.limiter.name(),
            congestion: summary.limiter.congestion,
            evidence: summary.evidence,
            decision: summary.decision,
            checksum: settings.checksum.zip(summary.digest),
            protection,
            identity: session.identity.map(ToString::to_string),
            code: end.code,
            error,
            task: self.notes.task.as_deref().map(str::to_owned),
            application: self.notes.client.as_deref().map(str::to_owned),
        };
        // A transfer that ends shows that the client will not rename the upload before it any more.
        self.write_deferred();
        if !is_deferred {
            return self.write(record);
        }
        self.deferred = Some(Box::new(DeferredRecord {
            record,
            stored_as: summary.path,
            to: None,
        }));
    }

    /// Notes a rename request, which may show the final name of the last upload.
    pub(super) fn note_rename(&mut self, request: &FileRequest) {
        if let (Some(deferred), FileRequest::Rename { from, to }) = (&mut self.deferred, request)
            && deferred.stored_as == *from
        {
            deferred.to = Some(to.clone());
        }
    }

    /// Takes the result of the last file request: after a successful rename the record is complete.
    pub(super) fn on_file_answer(&mut self, done: bool) {
        let Some(deferred) = &mut self.deferred else {
            return;
        };
        if let Some(to) = deferred.to.take().filter(|_| done) {
            deferred.record.path = to.as_bytes().to_vec();
            self.write_deferred();
        }
    }

    /// Writes the deferred record, whether or not the final name is known, and waits until all are
    /// written.
    pub(super) async fn finish(&mut self) {
        self.write_deferred();
        if let Some(writer) = self.writer.take() {
            // Fails only if the log panicked; the panic hook has logged that.
            let _ = writer.await;
        }
    }

    fn write_deferred(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            self.write(deferred.record);
        }
    }

    /// Writes a record on a blocking thread, because the disk may be slow, and after the records before
    /// it.
    fn write(&mut self, record: TransferRecord) {
        let shared = Arc::clone(&self.shared);
        let earlier = self.writer.take();
        self.writer = Some(tokio::spawn(async move {
            // Both fail only if the log panicked; the panic hook has logged that.
            if let Some(earlier) = earlier {
                let _ = earlier.await;
            }
            let _ = tokio::task::spawn_blocking(move || shared.transfer_log.record(&record)).await;
        }));
    }
}

/// The final path, if `path` is a partial name.
fn name_without_suffix(path: &VPath) -> Option<&[u8]> {
    let is_suffix_only = path.name() == PARTIAL_SUFFIX;
    let whole = path.as_bytes().strip_suffix(PARTIAL_SUFFIX);
    whole.filter(|_| !is_suffix_only)
}

/// Whether a name may be the hash of a longer one.
fn is_hashed_name(path: &[u8]) -> bool {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let name = &path[start..];
    name.len() == PARTIAL_HASH_DIGITS && name.iter().all(u8::is_ascii_hexdigit)
}

/// Protection of the data connections in the log.
fn protection_name(security: Option<&DataSecurity>) -> &'static str {
    match security.map(|security| security.mode) {
        None => "clear",
        Some(DataHandshakeMode::AuthenticateOnly) => "authenticated",
        Some(DataHandshakeMode::Protected) => "private",
    }
}

/// Policy that sized the buffers of this end, which limit the transfer.
fn sizing_name(direction: LoggedTransferKind, settings: &TransferSettings) -> &'static str {
    let pinned = match direction {
        LoggedTransferKind::Store => settings.options.buffers.receive,
        LoggedTransferKind::Retrieve | LoggedTransferKind::List => settings.options.buffers.send,
    };
    match pinned {
        Some(_) => "pinned",
        None => settings.options.buffers.sizing.name(),
    }
}

/// Code of the transfer's final reply: the first reply that is not preliminary (1yz).
pub(super) fn final_code(actions: &[SessionAction]) -> u16 {
    actions
        .iter()
        .find_map(|action| match action {
            SessionAction::Reply(reply) if !reply.is_preliminary() => Some(reply.code),
            _ => None,
        })
        .unwrap_or(0)
}

/// The failure as text for people.
pub(super) fn describe(error: &TransferError) -> String {
    match error {
        TransferError::File(error) => error.text.clone(),
        TransferError::NoConnection(text) | TransferError::Broken(text) => text.clone(),
        TransferError::Aborted => "aborted by the client".to_owned(),
        TransferError::Superseded => "another upload took this file over".to_owned(),
        TransferError::Checksum { computed, expected } => {
            format!("checksum {computed} where {expected} was announced")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_name_is_derived_from_the_partial_name() {
        let whole = |path: &str| {
            let path = VPath::root().resolve(path.as_bytes()).unwrap();
            name_without_suffix(&path).map(|whole| String::from_utf8(whole.to_vec()).unwrap())
        };
        assert_eq!(whole("d/f.longhaul-partial").as_deref(), Some("/d/f"));
        assert_eq!(whole("d/f"), None);
        assert_eq!(whole("d/.longhaul-partial"), None);
        assert!(is_hashed_name(b"/d/0123456789abcdef0123456789abcdef"));
        assert!(!is_hashed_name(b"/d/0123456789abcdef0123456789abcde"));
        assert!(!is_hashed_name(b"/0123456789abcdef0123456789abcdef/f"));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let mut notes = ClientNotes::default();
        notes.set("client", "é".repeat(MAX_NOTE));
        assert_eq!(
            notes.client.as_deref(),
            Some("é".repeat(MAX_NOTE / 2).as_str())
        );
        assert!(notes.task.is_none());
    }
}
