//! The files of a bundle, and their server.

use data::store::bundle::BundleMember;

use super::super::plan::PlannedFile;
use crate::file::preserve;
use crate::options::Preserve;
use ftp::Failure;
use ftp::location::{Location, StorageId};

/// Which end of a bundle the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerEnd {
    Source,
    Destination,
}

/// The server of a bundle, and which end it is.
///
/// # Errors
/// There are no files.
pub(crate) fn server_of(files: &[PlannedFile]) -> Result<(StorageId, ServerEnd), Failure> {
    let Some(first) = files.first() else {
        return Err(Failure::local("a bundle without files"));
    };
    let (from, to) = (first.source.storage_id(), first.destination.storage_id());
    Ok(match from.is_server() {
        true => (from, ServerEnd::Source),
        false => (to, ServerEnd::Destination),
    })
}

/// Source and destination of a bundle between two servers.
pub(crate) fn server_pair(files: &[PlannedFile]) -> Option<(StorageId, StorageId)> {
    let first = files.first()?;
    let (from, to) = (first.source.storage_id(), first.destination.storage_id());
    (from.is_server() && to.is_server()).then_some((from, to))
}

/// The servers of a bundle.
pub(crate) fn servers(files: &[PlannedFile]) -> Vec<StorageId> {
    let ends = files.first().map(|file| [&file.source, &file.destination]);
    let ids = ends.into_iter().flatten().map(Location::storage_id);
    ids.filter(StorageId::is_server).collect()
}

/// Sizes and times of the files.
pub(crate) fn members(files: &[PlannedFile]) -> Vec<BundleMember> {
    let member = |file: &PlannedFile| BundleMember {
        size: file.facts.size.unwrap_or(0),
        modified: file.facts.modified,
    };
    files.iter().map(member).collect()
}

/// The permissions that the files keep.
pub(crate) fn modes(preserve: Preserve, files: &[PlannedFile]) -> Vec<Option<u32>> {
    let mode = |file: &PlannedFile| preserve::kept_of_file(preserve, file.facts).mode;
    files.iter().map(mode).collect()
}
