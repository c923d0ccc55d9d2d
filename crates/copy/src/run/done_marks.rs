//! Marks of done entries of an earlier run, compared with what is at the destination: one counts only if its file, directory
//! or link is there as the run left it.
//!
//! Directories of a server are listed, several at a time; one or two entries of a directory are asked for by name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::listing::{EntryKind, ListedEntry};
use rustix::fs::{FileType, readlinkat};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::hard_links;
use crate::batch::BatchContext;
use crate::local::disk::run_blocking;
use crate::local::local_trees::LocalTrees;
use crate::options::PreservedTimes;
use crate::plan::{CopyPlan, NextEntry, PlanReader, PlannedEntry, trim_trailing_slashes};
use crate::storage::contract::Storage;
use ftp::Failure;
use ftp::answers::{SourceFacts, SymlinkCheckScope, SymlinkCheckedEntry};
use ftp::location::{Location, StorageId};
use ftp::session::path_names::directory_and_name;

/// Marks of one directory that are compared together.
const MARKS_AT_A_TIME: usize = 64 << 10;
/// Fewer entries of a directory are asked for by name: a listing takes a data connection.
const MIN_LISTED: usize = 3;
/// Sessions that look, unless the user says how many.
const CHECKERS: usize = 8;
/// Directories that wait for them.
const QUEUED_DIRECTORIES: usize = 16;

/// An entry that is marked as done.
#[derive(Debug)]
struct DoneMark {
    entry: u32,
    /// Name in its directory.
    name: Vec<u8>,
    left: LeftEntry,
}

/// An entry that the earlier run has left at a destination.
#[derive(Debug)]
enum LeftEntry {
    Directory,
    /// A copy of a file with these facts.
    File(SourceFacts),
    /// A link with this content.
    Link(Vec<u8>),
}

/// Marks of one directory.
#[derive(Debug)]
struct DirectoryMarks {
    directory: Location,
    marks: Vec<DoneMark>,
}

/// An entry that is there now.
#[derive(Debug)]
enum FoundEntry {
    Directory,
    File(SourceFacts),
    /// A link, with its content if that is known.
    Link(Option<Vec<u8>>),
    Other,
}

/// Entries whose marks do not hold, and how many of them are files.
#[derive(Debug, Default)]
struct VoidMarks {
    entries: Vec<u32>,
    files: u64,
}

impl VoidMarks {
    fn add(&mut self, mark: &DoneMark) {
        self.entries.push(mark.entry);
        self.files += u64::from(matches!(mark.left, LeftEntry::File(_)));
    }
}

/// Takes back the marks that do not hold. Returns the number of files whose marks do.
///
/// # Errors
/// The destination cannot be reached.
pub(crate) async fn check(
    ctx: &Arc<BatchContext>,
    plan: &CopyPlan,
    relist: bool,
) -> Result<u64, Failure> {
    let (sender, receiver) = mpsc::channel(QUEUED_DIRECTORIES);
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let void = Arc::new(Mutex::new(VoidMarks::default()));
    let mut checkers: JoinSet<Result<(), Failure>> = JoinSet::new();
    for _ in 0..ctx.options.concurrency.unwrap_or(CHECKERS) {
        let (ctx, receiver, void) = (Arc::clone(ctx), Arc::clone(&receiver), Arc::clone(&void));
        checkers.spawn(async move {
            loop {
                let next = receiver.lock().await.recv().await;
                let Some(marks) = next else { return Ok(()) };
                compare(&ctx, &Arc::new(marks), &void).await?;
            }
        });
    }
    // The channel closes with the last checker.
    drop(receiver);
    let mut reader = MarkReader::of(plan, relist);
    while let Some(marks) = reader.next(ctx, plan, &void) {
        if sender.send(marks).await.is_err() {
            break;
        }
    }
    drop(sender);
    while let Some(looked) = checkers.join_next().await {
        looked.map_err(|error| Failure::local(error.to_string()))??;
    }
    if reader.is_broken {
        // Where the marks belong is unknown.
        plan.forget_all_done();
        return Ok(0);
    }
    let void = std::mem::take(&mut *void.lock());
    plan.forget_done(&void.entries);
    if void.files > 0 {
        let (files, are) = match void.files {
            1 => ("file", "is"),
            _ => ("files", "are"),
        };
        ctx.warn(format!(
            "{} {files} of an earlier run {are} missing at the destination, or changed there, or nothing shows that they are not: copied again",
            void.files
        ));
    }
    Ok(reader.files.saturating_sub(void.files))
}

/// Reads marks, those of a directory together as far as they follow each other.
struct MarkReader {
    reader: PlanReader,
    /// The first mark of the next directory.
    next: Option<(Location, DoneMark)>,
    files: u64,
    is_broken: bool,
}

impl MarkReader {
    fn of(plan: &CopyPlan, relist: bool) -> Self {
        Self {
            reader: PlanReader::of_marks(plan, relist),
            next: None,
            files: 0,
            is_broken: false,
        }
    }

    /// The next marks. Those of hard links, which are of this machine, are compared at once.
    fn next(
        &mut self,
        ctx: &BatchContext,
        plan: &CopyPlan,
        void: &Mutex<VoidMarks>,
    ) -> Option<DirectoryMarks> {
        let (directory, first) = match self.next.take() {
            Some(next) => next,
            None => self.read(ctx, plan, void)?,
        };
        let mut marks = vec![first];
        while marks.len() < MARKS_AT_A_TIME {
            match self.read(ctx, plan, void) {
                Some((other, mark)) if other == directory => marks.push(mark),
                next => {
                    self.next = next;
                    break;
                }
            }
        }
        Some(DirectoryMarks { directory, marks })
    }

    fn read(
        &mut self,
        ctx: &BatchContext,
        plan: &CopyPlan,
        void: &Mutex<VoidMarks>,
    ) -> Option<(Location, DoneMark)> {
        loop {
            let next = match self.reader.next(plan) {
                Ok(NextEntry::Entry(entry)) => entry,
                Ok(NextEntry::Pending | NextEntry::End) => return None,
                Err(error) => {
                    tracing::debug!(%error, "marks of an earlier run");
                    self.is_broken = true;
                    return None;
                }
            };
            let (at, entry, left) = match next {
                PlannedEntry::Directory { at, entry, .. } => (at, entry, LeftEntry::Directory),
                PlannedEntry::File(file) => {
                    (file.destination, file.entry, LeftEntry::File(file.facts))
                }
                PlannedEntry::Link(link) => (link.path, link.entry, LeftEntry::Link(link.target)),
                PlannedEntry::HardLink(link) => {
                    if plan.is_done(link.file.entry) && !hard_links::is_in_place(ctx, &link) {
                        void.lock().entries.push(link.file.entry);
                    }
                    continue;
                }
                PlannedEntry::Unlisted { .. } => continue,
            };
            if !plan.is_done(entry) {
                continue;
            }
            self.files += u64::from(matches!(left, LeftEntry::File(_)));
            let path = trim_trailing_slashes(at.path());
            let (directory, name) = directory_and_name(path);
            let directory = at.with_path(directory.unwrap_or(b".").to_vec());
            let name = name.to_vec();
            return Some((directory, DoneMark { entry, name, left }));
        }
    }
}

/// Adds the marks of a directory that do not hold.
async fn compare(
    ctx: &BatchContext,
    marks: &Arc<DirectoryMarks>,
    void: &Mutex<VoidMarks>,
) -> Result<(), Failure> {
    let (found, keeps_times) = match marks.directory.storage_id() {
        StorageId::LocalFiles => {
            let (trees, marks) = (Arc::clone(&ctx.trees), Arc::clone(marks));
            let look = move || Ok(look_here(&trees, &marks));
            (run_blocking(look).await?, true)
        }
        id => look_at_server(ctx, &id, marks).await?,
    };
    let options = &ctx.options;
    let keeps_times = keeps_times && options.file.preserve.times != PreservedTimes::None;
    let mut void = void.lock();
    for mark in &marks.marks {
        let holds = match (found.get(mark.name.as_slice()), &mark.left) {
            (Some(FoundEntry::Directory), LeftEntry::Directory) => true,
            // Whatever it is was left alone.
            (Some(_), LeftEntry::File(_)) if options.file.keep_existing => true,
            (Some(FoundEntry::File(there)), LeftEntry::File(left)) => {
                let has_size = left.size.is_none() || left.size == there.size;
                let has_time = may_be_copy(*left, *there, keeps_times);
                has_size && has_time.unwrap_or(options.file.resume)
            }
            (Some(FoundEntry::Link(there)), LeftEntry::Link(left)) => {
                there.as_ref().is_none_or(|there| there == left)
            }
            _ => false,
        };
        if !holds {
            void.add(mark);
        }
    }
    Ok(())
}

/// Whether a file may be the copy of another one of its size, by its time. `keeps_times`: the copy has got the time of the
/// source, which may be rounded down: FAT keeps even seconds, some servers minutes. Otherwise it has a later one. One whose
/// source told no time may be. `None`: its own time is unknown.
fn may_be_copy(source: SourceFacts, there: SourceFacts, keeps_times: bool) -> Option<bool> {
    let Some(source) = source.modified else {
        return Some(true);
    };
    let Some(exact) = there.modified else {
        let (earliest, latest) = there.modified_between()?;
        return Some(source <= latest && (!keeps_times || earliest <= source));
    };
    Some(match source.0.checked_sub(exact.0) {
        Some(0) => true,
        Some(1) if keeps_times => exact.0 % 2 == 0,
        Some(2..60) if keeps_times => exact.0 % 60 == 0,
        Some(ahead) => ahead < 0 && !keeps_times,
        None => false,
    })
}

/// The entries by their names.
type FoundEntries = HashMap<Vec<u8>, FoundEntry>;

/// The entries of marks in a directory of this machine. Links are not followed.
fn look_here(trees: &LocalTrees, marks: &DirectoryMarks) -> FoundEntries {
    let directory = Path::new(OsStr::from_bytes(marks.directory.path()));
    let look = |mark: &DoneMark| {
        let name = trees.name(&directory.join(OsStr::from_bytes(&mark.name)));
        let name = name.ok()?;
        let found = name.own_stat().ok()?;
        Some(match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => FoundEntry::Directory,
            FileType::RegularFile => FoundEntry::File(SourceFacts::from_stat(&found)),
            FileType::Symlink => {
                let target = readlinkat(name.directory(), name.name(), Vec::new()).ok()?;
                FoundEntry::Link(Some(target.into_bytes()))
            }
            _ => FoundEntry::Other,
        })
    };
    let found = marks.marks.iter();
    found
        .filter_map(|mark| Some((mark.name.clone(), look(mark)?)))
        .collect()
}

/// The entries of marks in a directory of a server, and whether it keeps the times of files. A directory that cannot be listed
/// has none.
async fn look_at_server(
    ctx: &BatchContext,
    id: &StorageId,
    marks: &DirectoryMarks,
) -> Result<(FoundEntries, bool), Failure> {
    let mut request = ctx.request(id);
    loop {
        let mut session = request.session().await?;
        let keeps_times = session.capabilities().sets_time;
        let result = match marks.marks.len() < MIN_LISTED {
            true => ask(&mut *session, marks).await,
            false => list(&mut *session, marks).await,
        };
        match request.end(session, result).await {
            Ok(Some(found)) => return Ok((found, keeps_times)),
            Ok(None) => {}
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(failure) => {
                tracing::debug!(%failure, "marks of an earlier run");
                return Ok((FoundEntries::new(), keeps_times));
            }
        }
    }
}

async fn ask(session: &mut dyn Storage, marks: &DirectoryMarks) -> Result<FoundEntries, Failure> {
    let mut found = FoundEntries::new();
    for mark in &marks.marks {
        let path = crate::storage::entry_names::join_path(marks.directory.path(), &mark.name);
        match session.stat(&path).await {
            Ok(entry) => drop(found.insert(mark.name.clone(), found_entry(&entry))),
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(_) => {}
        }
    }
    Ok(found)
}

async fn list(session: &mut dyn Storage, marks: &DirectoryMarks) -> Result<FoundEntries, Failure> {
    let wanted = marks.marks.iter().map(|mark| mark.name.as_slice());
    let wanted: std::collections::HashSet<&[u8]> = wanted.collect();
    let mut found = FoundEntries::new();
    let mut visit = |checked: SymlinkCheckedEntry| {
        let entry = checked.entry;
        if wanted.contains(entry.name.as_slice()) {
            found.insert(entry.name.clone(), found_entry(&entry));
        }
        ControlFlow::Continue(())
    };
    let scope = SymlinkCheckScope::Directories;
    let listed = session.list(marks.directory.path(), scope, &mut visit);
    match listed.await {
        // Entries of an incomplete listing are there. The rest is copied again.
        Err(failure) if failure.may_retry() || found.is_empty() => Err(failure),
        _ => Ok(found),
    }
}

fn found_entry(entry: &ListedEntry) -> FoundEntry {
    match entry.kind {
        EntryKind::File => FoundEntry::File(SourceFacts::from_entry(entry)),
        EntryKind::Dir => FoundEntry::Directory,
        EntryKind::SymLink => FoundEntry::Link(None),
        _ => FoundEntry::Other,
    }
}

#[cfg(test)]
mod tests {
    use proto::listing::CoarseTime;
    use proto::timestamp::Timestamp;

    use super::*;

    #[test]
    fn a_file_is_the_copy_if_its_time_shows_that_as_far_as_it_is_known() {
        let at = |seconds| SourceFacts {
            modified: Some(Timestamp(seconds)),
            ..SourceFacts::default()
        };
        let within_the_minute_of = |seconds| SourceFacts {
            coarse_time: Some(CoarseTime {
                start: Timestamp(seconds),
                span: 60,
            }),
            ..SourceFacts::default()
        };
        let (unknown, days) = (SourceFacts::default(), 3 * 86_400);
        let source = at(1_000_019);
        for (there, kept, later) in [
            (at(1_000_019), Some(true), Some(true)),
            (at(1_000_018), Some(true), Some(false)),
            (at(999_960), Some(true), Some(false)),
            (at(1_000_017), Some(false), Some(false)),
            (at(1_000_020), Some(false), Some(true)),
            (within_the_minute_of(1_000_000), Some(true), Some(true)),
            (
                within_the_minute_of(1_000_000 - days),
                Some(false),
                Some(false),
            ),
            (
                within_the_minute_of(1_000_000 + days),
                Some(false),
                Some(true),
            ),
            (unknown, None, None),
        ] {
            assert_eq!(may_be_copy(source, there, true), kept, "{there:?}");
            assert_eq!(may_be_copy(source, there, false), later, "{there:?}");
        }
        assert_eq!(may_be_copy(unknown, at(5), true), Some(true));
    }
}
