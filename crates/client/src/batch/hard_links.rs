//! Makes the hard links of a plan, after the files are written.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use data::store::durability::SyncPolicy;

use super::BatchContext;
use super::disk::run_blocking;
use super::plan::PlannedHardLink;
use crate::location::Location;
use crate::partial::{directory_of, local_failure, partial_name};
use crate::{CopyFailure, Exit};

/// Result of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkOutcome {
    /// The name was made, or replaced.
    Made,
    /// Both were names of one file already.
    InPlace,
}

/// Whether both are names of one file already.
pub(super) fn is_in_place(link: &PlannedHardLink) -> bool {
    let identity = |at: &Location| match at {
        Location::Local(path) => fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino())),
        Location::StandardStreams | Location::Remote { .. } => None,
    };
    let (first, other) = (identity(&link.first), identity(&link.file.destination));
    first.is_some() && first == other
}

/// Gives a file that has been copied its further name, in place of what has that name.
///
/// # Errors
/// `Local`: the file was not copied, or the file system takes no link; then nothing has changed.
pub(super) async fn make(
    ctx: &BatchContext,
    link: &PlannedHardLink,
) -> Result<LinkOutcome, CopyFailure> {
    if is_in_place(link) {
        return Ok(LinkOutcome::InPlace);
    }
    let (Location::Local(first), Location::Local(path)) = (&link.first, &link.file.destination)
    else {
        return Err(CopyFailure::new(
            Exit::Local,
            "hard links are for local files",
        ));
    };
    let (first, path) = (first.clone(), path.clone());
    let (size, policy) = (link.file.facts.size, ctx.options.sync_policy);
    run_blocking(move || {
        let there = fs::symlink_metadata(&first).map_err(|e| local_failure(&first, e))?;
        // Its copy may have failed, and left an older file.
        if !there.is_file() || Some(there.len()) != size {
            return Err(local_failure(
                &first,
                "is not the copy that gets a further name",
            ));
        }
        replace_by_link(&first, &path, policy).map_err(|e| local_failure(&path, e))
    })
    .await
    .map(|()| LinkOutcome::Made)
}

/// The name never disappears: the link has another one first.
fn replace_by_link(first: &Path, path: &Path, policy: SyncPolicy) -> io::Result<()> {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let name = partial_name(&[b"link-", name].concat());
    let temporary: PathBuf = path.with_file_name(std::ffi::OsString::from_vec(name));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::hard_link(first, &temporary)?,
    }
    if let Err(error) = fs::rename(&temporary, path) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    policy.sync_directory(directory_of(path))
}
