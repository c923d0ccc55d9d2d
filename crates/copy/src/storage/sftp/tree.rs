//! Whole trees: many directories are read at a time.

use std::ops::ControlFlow;

use proto::listing::{EntryKind, ListedEntry};
use proto::path::MAX_PATH;
use proto::sftp::{SftpReply, SftpRequest};

use super::changes::{check_read, close_dirs, read_dirs, read_links};
use super::connection::SftpConnection;
use super::errors::{self, SftpFailed};
use crate::storage::entry_names::{MAX_DEPTH, check_name, join_path};

/// Directories that are read at a time: less than every server is taken to allow.
const MAX_TOGETHER: usize = 32;

/// Most bytes of paths of directories that wait. Others are left to a listing of their own.
const MAX_WAITING: usize = 64 << 20;

/// A directory that is not read.
struct WaitingDirectory {
    depth: usize,
    /// With its path relative to the top.
    entry: ListedEntry,
}

impl WaitingDirectory {
    /// Relative to the top.
    fn path(&self) -> &[u8] {
        match self.depth {
            0 => b"",
            _ => &self.entry.name,
        }
    }
}

/// Lists everything below a directory: `visit` receives the entries with their paths relative to it, a directory before its
/// content. One that cannot be read is marked so.
///
/// # Errors
/// The first failure of a directory; the others were shown.
pub(super) fn list_tree(
    connection: &mut SftpConnection,
    top: &[u8],
    mut visit: impl FnMut(Vec<ListedEntry>) -> ControlFlow<()>,
) -> Result<(), SftpFailed> {
    let mut waiting = vec![WaitingDirectory {
        depth: 0,
        entry: ListedEntry::new(b".", EntryKind::CurrentDir),
    }];
    let mut waiting_bytes = 0;
    let mut first_failure = None;
    while !waiting.is_empty() {
        let most = MAX_TOGETHER.min(connection.limits.handles.max(1) as usize);
        let some = waiting.split_off(waiting.len().saturating_sub(most));
        waiting_bytes -= some.iter().map(|at| at.path().len()).sum::<usize>();
        let (open, flow) = open_some(connection, top, some, &mut visit)?;
        let paths: Vec<_> = open
            .iter()
            .map(|(at, _)| absolute(top, at.path()))
            .collect();
        let handles: Vec<_> = open.iter().map(|(_, handle)| handle.clone()).collect();
        let read = read_dirs(connection, &handles, |connection, at, mut entries| {
            read_links(connection, &paths[at], &mut entries)?;
            let (directory, _) = &open[at];
            let mut others = Vec::with_capacity(entries.len());
            for mut entry in entries {
                // A name that leads elsewhere is refused by whoever visits it.
                let mut may_enter = check_name(&entry.name).is_ok() && directory.depth < MAX_DEPTH;
                if !directory.path().is_empty() {
                    entry.name = join_path(directory.path(), &entry.name);
                }
                let length = entry.name.len();
                may_enter &= length <= MAX_PATH && waiting_bytes + length <= MAX_WAITING;
                match entry.kind {
                    EntryKind::Dir if may_enter => {
                        waiting_bytes += length;
                        waiting.push(WaitingDirectory {
                            depth: directory.depth + 1,
                            entry,
                        });
                    }
                    EntryKind::Dir => others.push(unread(entry)),
                    _ => others.push(entry),
                }
            }
            Ok(visit(others))
        });
        let paths: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
        let read = read.and_then(|(read, flow)| match flow {
            ControlFlow::Continue(()) => check_read(connection, read, &paths).map(|()| flow),
            ControlFlow::Break(()) => Ok(flow),
        });
        close_dirs(connection, &handles)?;
        match read {
            Err(failed) if failed.is_loss() || !connection.is_usable() => return Err(failed),
            Err(failed) => _ = first_failure.get_or_insert(failed),
            Ok(read) if read.is_break() || flow.is_break() => return Ok(()),
            Ok(_) => {}
        }
    }
    first_failure.map_or(Ok(()), Err)
}

/// A directory, and its handle.
type OpenedDirectory = (WaitingDirectory, Vec<u8>);

/// Opens directories, and shows them. Returns those that are open.
fn open_some(
    connection: &mut SftpConnection,
    top: &[u8],
    directories: Vec<WaitingDirectory>,
    visit: &mut impl FnMut(Vec<ListedEntry>) -> ControlFlow<()>,
) -> Result<(Vec<OpenedDirectory>, ControlFlow<()>), SftpFailed> {
    let paths: Vec<_> = directories
        .iter()
        .map(|at| absolute(top, at.path()))
        .collect();
    let requests: Vec<_> = paths
        .iter()
        .map(|path| SftpRequest::OpenDir(path))
        .collect();
    let timeout = connection.timeout();
    let replies = connection.call_all(&requests, timeout)?;
    let mut open = Vec::new();
    let mut shown = Vec::new();
    for (directory, reply) in directories.into_iter().zip(replies) {
        match reply {
            SftpReply::Handle(handle) => {
                shown.push(directory.entry.clone());
                open.push((directory, handle));
            }
            SftpReply::Status(_) if directory.depth > 0 => shown.push(unread(directory.entry)),
            refused => return Err(errors::unexpected(refused)),
        }
    }
    shown.retain(|entry| entry.kind != EntryKind::CurrentDir);
    let flow = visit(shown);
    Ok((open, flow))
}

/// The entry of a directory that a listing of its own shows, or why there is none.
fn unread(entry: ListedEntry) -> ListedEntry {
    ListedEntry {
        may_list: Some(false),
        ..entry
    }
}

fn absolute(top: &[u8], path: &[u8]) -> Vec<u8> {
    match path {
        b"" => top.to_vec(),
        path => join_path(top, path),
    }
}
