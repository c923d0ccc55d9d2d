//! Work on files in progress: what its answer becomes.

use super::SessionAction;
use super::replies::{self, CommandTarget};
use super::running_transfer::PendingAborts;
use crate::path::VPath;
use crate::reply::Reply;

/// Work on files that the driver does, and what its success means.
#[derive(Debug)]
pub(super) struct FileTask {
    /// For the text of a failure.
    pub(super) target: CommandTarget,
    /// Consequence of a success.
    pub(super) on_success: SuccessReply,
    /// ABORs to be answered at the end.
    pub(super) aborts: PendingAborts,
}

impl FileTask {
    /// Whether ABOR stops it: all but a checksum is done too soon for that.
    pub(super) fn is_abortable(&self) -> bool {
        matches!(self.on_success, SuccessReply::Digest)
    }

    /// STAT meanwhile (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<SessionAction> {
        let mut text = format!("Status: {} ", self.target.verb).into_bytes();
        text.extend_from_slice(self.target.path.as_bytes());
        text.extend_from_slice(b" in progress.");
        replies::reply(213, text)
    }
}

/// Consequence of successful work on files.
#[derive(Debug)]
pub(super) enum SuccessReply {
    /// This reply.
    Fixed(Reply),
    /// CWD: this is the current directory now.
    EnterDirectory(VPath),
    /// RNFR: the path may be renamed.
    RenameFrom,
    /// SITE SYMLINKFROM: the path may be linked to.
    LinkFrom,
    /// SIZE of the entry.
    Size,
    /// MDTM of the entry.
    Modified,
    /// MLST: facts of the entry under the name as asked.
    MlstFacts(Vec<u8>),
    /// Lines within a reply: its code and first line.
    Lines(u16, Vec<u8>),
    /// CKSM.
    Digest,
}
