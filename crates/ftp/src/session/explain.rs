//! Finds the reason of a refusal that the server does not explain, by looking at the path and its
//! directory.

use proto::listing::EntryKind;
use proto::reply::Reply;

use super::path_names::split_path;
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::failure::Operation;
use crate::{Failure, FailureKind};

impl ClientSession {
    /// The failure for a refused attempt to create `path`. Where the server says no more than
    /// "failed" or "no such file", the parent directory is checked.
    pub async fn explain_create_refusal(
        &mut self,
        path: &[u8],
        operation: &Operation,
        reply: &Reply,
    ) -> Failure {
        let unexplained = replies::refusal_failure(self.name(), operation, reply);
        let has_no_reason = replies::gives_no_reason(reply);
        // An explicit reason needs no search; a lost session cannot be asked.
        if !has_no_reason && refusal_cause(reply) != RefusalCause::Missing
            || !self.control.is_usable()
        {
            return unexplained;
        }
        let (directory, _) = split_path(path);
        match self.is_directory(directory).await {
            Ok(false) => {
                let advice = format!(
                    "there is no directory {} that this user can enter: make it first (`longhaul mkdir -p`)",
                    display_path(directory)
                );
                replies::refused(FailureKind::NotFound, self.name(), operation, reply)
                    .advise(advice)
            }
            // The directory exists, so permission is the only common cause left.
            Ok(true) if has_no_reason => self.permission_failure(operation, reply),
            Err(lost) if lost.may_retry() => lost,
            _ => unexplained,
        }
    }

    /// The failure for a refused attempt to read or remove `path`. If the path exists, the user
    /// most likely lacks permission.
    pub async fn explain_access_refusal(
        &mut self,
        path: &[u8],
        operation: &Operation,
        reply: &Reply,
    ) -> Failure {
        let unexplained = replies::refusal_failure(self.name(), operation, reply);
        // vsftpd uses one text for a missing file and for missing permission.
        let has_no_reason = replies::gives_no_reason(reply) || replies::hides_existence(reply);
        if !has_no_reason || !self.control.is_usable() {
            return unexplained;
        }
        match self.stat(path).await {
            Err(missing) if missing.is_missing() => {
                replies::not_found_failure(self.name(), &display_path(path), reply)
            }
            Ok(entry) if entry.kind == EntryKind::File => self.permission_failure(operation, reply),
            Err(lost) if lost.may_retry() => lost,
            _ => unexplained,
        }
    }

    fn permission_failure(&self, operation: &Operation, reply: &Reply) -> Failure {
        let advice = "it gives no reason, so most likely the user lacks permission: log in as another user, or \
                   ask the server's administrator";
        replies::refused(FailureKind::Refused, self.name(), operation, reply).advise(advice)
    }
}
