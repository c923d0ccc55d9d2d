//! Interface of the verbs for remote files: `ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use proto::checksum::ChecksumAlgorithm;

use crate::{ConnectionSecurity, CopyFailure};

/// Options of the single-file verbs (`ls`, `stat`, `rm`, `mkdir`, `mv`, `cksum`).
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Timeout of replies on the control connection.
    pub timeout: Duration,
    /// Protection of all connections.
    pub security: Arc<ConnectionSecurity>,
}

/// One entry of `ls` and `stat`.
pub type RemoteEntry = proto::listing::ListedEntry;

/// Lists a remote directory or file.
pub async fn list(url: &str, options: &RemoteOptions) -> Result<Vec<RemoteEntry>, CopyFailure> {
    crate::verbs::list(url, options).await
}

/// Like [`list`], for large directories: `visit` receives the entries as they arrive, in the
/// server's order, and returns `Break` to stop. Memory is bounded.
///
/// The last component of the URL may be a pattern (`*`, `?`, `[]`, `{a,b}`), which stands for the entries of that name.
/// With `recursive`, the content of each directory comes after it, under its path; links are not followed.
///
/// # Errors
/// As [`list`]; `NotFound` if nothing matches; `Partial` if directories below could not be listed. Some entries may have
/// been visited before the error.
pub async fn list_each(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    visit: &mut (dyn FnMut(RemoteEntry) -> ControlFlow<()> + Send + '_),
) -> Result<(), CopyFailure> {
    crate::verbs::list_each(url, recursive, options, visit).await
}

/// Facts of one remote path.
pub async fn stat(url: &str, options: &RemoteOptions) -> Result<RemoteEntry, CopyFailure> {
    crate::verbs::stat(url, options).await
}

/// Deletes a remote file, or a directory tree when `recursive`.
pub async fn remove(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    crate::verbs::remove(url, recursive, options).await
}

/// Deletes all that a URL stands for: what it names, or what matches the pattern in its last component. `report`
/// receives the result of each removal; a failure does not keep the others.
///
/// # Errors
/// `NotFound` if nothing matches. The session was lost; then nothing further is deleted.
pub async fn remove_each(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    report: &mut (dyn FnMut(Result<(), CopyFailure>) + Send + '_),
) -> Result<(), CopyFailure> {
    crate::verbs::remove_each(url, recursive, options, report).await
}

/// Shows `visit` what [`remove_each`] would delete, and deletes nothing: each entry has its full path on the server for its
/// name, a directory comes before its content, and links are not followed. `Break` ends the listing.
///
/// # Errors
/// As [`remove`]; with a pattern the first failure, after all that could be shown.
pub async fn preview_removal(
    url: &str,
    recursive: bool,
    options: &RemoteOptions,
    visit: &mut (dyn FnMut(RemoteEntry) -> ControlFlow<()> + Send + '_),
) -> Result<(), CopyFailure> {
    crate::verbs::preview_removal(url, recursive, options, visit).await
}

/// Creates a remote directory. With `parents`, also creates the missing directories above it and
/// accepts existing ones.
pub async fn make_dir(
    url: &str,
    parents: bool,
    options: &RemoteOptions,
) -> Result<(), CopyFailure> {
    crate::verbs::make_dir(url, parents, options).await
}

/// Renames on one server. `to` is a URL of the same server.
pub async fn rename(from: &str, to: &str, options: &RemoteOptions) -> Result<(), CopyFailure> {
    crate::verbs::rename(from, to, options).await
}

/// Checksum of a remote or local file, or of a part of it, in lower-case hex.
pub async fn checksum(
    url: &str,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    options: &RemoteOptions,
) -> Result<String, CopyFailure> {
    crate::verbs::checksum(url, algorithm, offset, length, options).await
}
