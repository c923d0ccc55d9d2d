//! Unfinished uploads: parts that copies have left at a server, and that cost storage there.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use ftp::Failure;
use ftp::location::Server;

use super::{open_storage, parse_remote_url};
use crate::options::RemoteOptions;
use crate::storage::contract::Storage;
use crate::storage::optional::{UnfinishedUpload, UnfinishedUploads};

/// Callback that receives an upload, and whether it was removed.
pub type UploadVisitor<'v> = dyn FnMut(&UnfinishedUpload, Result<(), Failure>) + Send + 'v;

/// Which uploads are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadRemoval {
    /// Uploads to which something was added within this time are kept: their copies may run.
    pub idle: Duration,
    /// Nothing is removed.
    pub is_preview: bool,
}

/// Removes the unfinished uploads of the file that a URL names and of all files below it. `visit` receives each that is
/// removed, or would be. Returns how many are kept because something was added to them lately, or nobody knows when.
///
/// # Errors
/// `Usage`: the server has no such uploads. A listing that is refused, or lost: some may have been removed before.
pub async fn remove_unfinished(
    url: &str,
    removal: UploadRemoval,
    options: &RemoteOptions,
    visit: &mut UploadVisitor<'_>,
) -> Result<u64, Failure> {
    let (server, path) = parse_remote_url(url, options)?;
    let mut storage = open_storage(&server, options).await?;
    let result = async {
        let uploads = uploads_of(&mut *storage)?;
        let (mut after, mut kept) = (None, 0);
        loop {
            let (page, next) = uploads.unfinished(&path, after).await?;
            for upload in &page {
                if idle_time(upload).is_none_or(|idle| idle < removal.idle)
                    && !removal.idle.is_zero()
                {
                    kept += 1;
                    continue;
                }
                let removed = match removal.is_preview {
                    true => Ok(()),
                    false => uploads.abort_upload(upload).await,
                };
                if let Err(failure) = &removed
                    && failure.may_retry()
                {
                    return removed.map(|()| kept);
                }
                visit(upload, removed);
            }
            after = next;
            if after.is_none() {
                return Ok(kept);
            }
        }
    }
    .await;
    storage.close().await;
    result
}

/// Shows `visit` the unfinished uploads at a path of a server and below; `Break` ends the listing.
///
/// # Errors
/// As [`remove_unfinished`].
pub async fn visit_unfinished(
    server: &Server,
    path: &[u8],
    timeout: Duration,
    visit: &mut (dyn FnMut(UnfinishedUpload) -> ControlFlow<()> + Send),
) -> Result<(), Failure> {
    let options = RemoteOptions {
        timeout,
        security: std::sync::Arc::clone(&server.security),
    };
    let mut storage = open_storage(server, &options).await?;
    let result = async {
        let uploads = uploads_of(&mut *storage)?;
        let mut after = None;
        loop {
            let (page, next) = uploads.unfinished(path, after).await?;
            let shown = page.into_iter().try_for_each(&mut *visit);
            after = next;
            if shown.is_break() || after.is_none() {
                return Ok(());
            }
        }
    }
    .await;
    storage.close().await;
    result
}

fn uploads_of(storage: &mut dyn Storage) -> Result<&mut dyn UnfinishedUploads, Failure> {
    let reason = "only buckets have unfinished uploads of this kind: give an s3: URL";
    storage
        .unfinished_uploads()
        .ok_or_else(|| Failure::usage(reason))
}

/// How long nothing was added to an upload. `None`: unknown.
pub fn idle_time(upload: &UnfinishedUpload) -> Option<Duration> {
    let last = u64::try_from(upload.last_change?.0).ok()?;
    let last = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(last))?;
    // Of an upload of this second the server may be ahead.
    Some(last.elapsed().unwrap_or_default())
}
