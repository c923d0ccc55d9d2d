//! Reasons that servers do not give, found by looking at the path and its directory.

use proto::listing::EntryKind;
use proto::reply::Reply;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::{CopyFailure, Exit};

impl ClientSession {
    /// The failure for a refusal to make or write something new at `path`: the directory that it
    /// should be in is looked at where the server says no more than "failed" or "no such file".
    pub(crate) async fn explain_create_refusal(
        &mut self,
        path: &[u8],
        doing: &str,
        reply: &Reply,
    ) -> CopyFailure {
        let plain = replies::refusal_failure(self.name(), doing, reply);
        let silent = replies::gives_no_reason(reply);
        if !silent && refusal_cause(reply) != RefusalCause::Missing || !self.control.is_usable() {
            return plain;
        }
        let directory = parent_directory(path);
        match self.is_directory(directory).await {
            Ok(false) => self.failure_with_reason(
                Exit::NotFound,
                doing,
                reply,
                &format!(
                    "there is no directory {} that this user can enter: make it first \
                     (`longhaul mkdir -p`)",
                    display_path(directory)
                ),
            ),
            Ok(true) if silent => self.permission_failure(doing, reply),
            Err(lost) if lost.transient => lost,
            _ => plain,
        }
    }

    /// The failure for a refusal to read or remove a `path`: of one that is there, most likely this
    /// user may not.
    pub(crate) async fn explain_access_refusal(
        &mut self,
        path: &[u8],
        doing: &str,
        reply: &Reply,
    ) -> CopyFailure {
        let plain = replies::refusal_failure(self.name(), doing, reply);
        let silent = replies::gives_no_reason(reply) || replies::hides_existence(reply);
        if !silent || !self.control.is_usable() {
            return plain;
        }
        match self.stat(path).await {
            Err(missing) if missing.exit == Exit::NotFound => {
                replies::not_found_failure(self.name(), &display_path(path), reply)
            }
            Ok(entry) if entry.kind == EntryKind::File => self.permission_failure(doing, reply),
            Err(lost) if lost.transient => lost,
            _ => plain,
        }
    }

    fn permission_failure(&self, doing: &str, reply: &Reply) -> CopyFailure {
        let why = "it gives no reason, so most likely this user may not: log in as one who may, or \
                   ask the server's administrator";
        self.failure_with_reason(Exit::Refused, doing, reply, why)
    }

    fn failure_with_reason(
        &self,
        exit: Exit,
        doing: &str,
        reply: &Reply,
        why: &str,
    ) -> CopyFailure {
        let (server, said) = (self.name(), replies::display_reply(reply));
        CopyFailure::new(exit, format!("{server} refused to {doing}: {said}; {why}"))
    }
}

/// The path without its last component; the root's is the root.
fn parent_directory(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}
