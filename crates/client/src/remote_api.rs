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
/// # Errors
/// As [`list`]. Some entries may have been visited before the error.
pub async fn list_each(
    url: &str,
    options: &RemoteOptions,
    visit: &mut (dyn FnMut(RemoteEntry) -> ControlFlow<()> + Send + '_),
) -> Result<(), CopyFailure> {
    crate::verbs::list_each(url, options, visit).await
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

/// Shows `visit` what [`remove`] would delete, and deletes nothing: each entry has its full path on the server for its
/// name, a directory comes before its content, and links are not followed. `Break` ends the listing.
///
/// # Errors
/// As [`remove`]. Some entries may have been visited before the error.
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
