//! A file operation in progress, and the reply to its success.

use super::SessionAction;
use super::replies::{self, CommandTarget};
use super::running_transfer::PendingAborts;
use crate::path::VPath;
use crate::reply::Reply;

/// A file operation that the driver performs.
#[derive(Debug)]
pub(super) struct FileTask {
    /// Command and path, for error replies.
    pub(super) target: CommandTarget,
    /// Reply and state change on success.
    pub(super) on_success: SuccessReply,
    /// ABORs to be answered when the operation ends.
    pub(super) aborts: PendingAborts,
}

impl FileTask {
    /// Whether ABOR stops the operation. All operations but a checksum end too soon for that.
    pub(super) fn is_abortable(&self) -> bool {
        matches!(self.on_success, SuccessReply::Digest)
    }

    /// Reply to STAT while the operation runs (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<SessionAction> {
        let mut text = format!("Status: {} ", self.target.verb).into_bytes();
        text.extend_from_slice(self.target.path.as_bytes());
        text.extend_from_slice(b" in progress.");
        replies::reply(213, text)
    }
}

/// Reply to a successful file operation, and the change of session state with it.
#[derive(Debug)]
pub(super) enum SuccessReply {
    /// A fixed reply.
    Fixed(Reply),
    /// CWD: make this the current directory.
    EnterDirectory(VPath),
    /// RNFR: remember the path for RNTO.
    RenameFrom,
    /// SITE SYMLINKFROM: remember the path for SITE SYMLINKTO.
    LinkFrom,
    /// SIZE: the size of the entry.
    Size,
    /// MDTM: the modification time of the entry.
    Modified,
    /// MFMT: the time that the file has, under the name that the client sent.
    TimeKept(Vec<u8>),
    /// MLST: the facts of the entry, under the name that the client sent.
    MlstFacts(Vec<u8>),
    /// A multi-line reply with this code and first line.
    Lines(u16, Vec<u8>),
    /// CKSM: the checksum.
    Digest,
    /// SITE BUNDLE END: the outcome.
    Bundle,
}
