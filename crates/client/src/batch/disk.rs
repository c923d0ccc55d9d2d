//! Waiting for this machine's disk, off the runtime.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use data::store::durability::SyncPolicy;
use data::store::file::FileSink;
use proto::ranges::RangeSet;
use proto::timestamp::Timestamp;

use crate::journal::{self, CopyIdentity, Journal, JournalLocation, StoredRanges};
use crate::partial::{PartialFile, WriteTarget, directory_of, local_failure};
use crate::{CopyFailure, Exit};

/// Runs `work`, which blocks.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyFailure> + Send + 'static,
) -> Result<T, CopyFailure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(CopyFailure::new(Exit::Local, e.to_string())))
}

/// Forces a whole and verified file to disk, with its time and permissions: see [`PartialFile::sync_with_metadata`].
pub(super) async fn settle(
    target: &WriteTarget,
    sink: &Arc<FileSink>,
    modified: Option<Timestamp>,
) -> Result<(), CopyFailure> {
    let WriteTarget::File(partial) = target else {
        return Ok(());
    };
    let (partial, sink) = (partial.clone(), Arc::clone(sink));
    blocking(move || partial.sync_with_metadata(&sink, modified)).await
}

/// Why a file, read again, is not what was written to it: pages that the disk refused may have left
/// memory since, and then it is the disk's failure, not a `mismatch`.
pub(super) async fn refused_or(
    mismatch: CopyFailure,
    target: &WriteTarget,
    sink: &Arc<FileSink>,
) -> CopyFailure {
    let WriteTarget::File(partial) = target else {
        return mismatch;
    };
    let (path, sink) = (partial.path.clone(), Arc::clone(sink));
    let synced = blocking(move || sink.sync().map_err(|e| local_failure(&path, e))).await;
    synced.err().unwrap_or(mismatch)
}

/// Gives it its name.
pub(super) async fn put_in_place(
    target: &WriteTarget,
    sink: &Arc<FileSink>,
) -> Result<(), CopyFailure> {
    let WriteTarget::File(partial) = target else {
        return Ok(());
    };
    let (partial, sink) = (partial.clone(), Arc::clone(sink));
    blocking(move || partial.put_in_place(&sink)).await
}

/// Forces to disk a file that has its name already: the run that put it there may have ended before it
/// did so itself.
pub(super) async fn settle_in_place(path: &Path, policy: SyncPolicy) -> Result<(), CopyFailure> {
    if policy == SyncPolicy::None {
        return Ok(());
    }
    let path = path.to_owned();
    blocking(move || {
        let directory = directory_of(&path);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced
            .and_then(|()| policy.sync_directory(directory))
            .map_err(|e| local_failure(&path, e))
    })
    .await
}

/// The journal of a copy that goes on from `have`, which is on disk when this returns (if the sink
/// forces bytes to disk). What an earlier run handed to the kernel may have been lost since on a disk
/// that is full or broken: then nothing is left to go on from.
pub(super) async fn take_up(
    partial: &PartialFile,
    sink: &Arc<FileSink>,
    identity: CopyIdentity,
    have: &RangeSet,
) -> Result<(Journal, StoredRanges), CopyFailure> {
    let (path, partial, sink) = (partial.journal.clone(), partial.clone(), Arc::clone(sink));
    let mut state = StoredRanges::safe_only(have.clone());
    blocking(move || {
        if let Err(error) = sink.sync() {
            journal::remove_file_and_temporary(&path);
            // What this run has read of it may have been memory alone; the next one reads the disk.
            if let Err(error) = sink.forget_unsynced(true) {
                tracing::debug!("partial file: {error}");
            }
            return Err(local_failure(&partial.path, error));
        }
        if sink.is_durable() {
            state.synced = state.safe.clone();
        }
        let journal = Journal::continue_from(path.clone(), identity, JournalLocation::Here, &state);
        journal
            .map(|journal| (journal, state))
            .map_err(|e| local_failure(&path, e))
    })
    .await
}

/// The journal of a copy that starts over.
pub(super) async fn start_over(
    path: &Path,
    identity: CopyIdentity,
) -> Result<Journal, CopyFailure> {
    let path = path.to_owned();
    blocking(move || {
        Journal::fresh(path.clone(), identity, JournalLocation::Here)
            .map_err(|e| local_failure(&path, e))
    })
    .await
}

/// The journal of a copy to a server, which goes on `from` what is there, or starts over. `None` where
/// it cannot be written; then an older one, which this copy may make untrue, is gone, too.
pub(super) async fn journal_of_upload(
    path: PathBuf,
    identity: CopyIdentity,
    from: Option<StoredRanges>,
) -> Result<Option<Journal>, CopyFailure> {
    blocking(move || {
        let journal = match &from {
            Some(state) => {
                Journal::continue_from(path.clone(), identity, JournalLocation::Server, state)
            }
            None => Journal::fresh(path.clone(), identity, JournalLocation::Server),
        };
        Ok(journal
            .inspect_err(|_| journal::remove_file_and_temporary(&path))
            .ok())
    })
    .await
}

/// Takes out of a file whose disk refused something what is not on disk, and drops the rest from
/// memory: memory may still show what the disk does not hold, and a checksum would prove what a power
/// cut takes. Gives what is left: less than was synced where the file system can neither make holes nor
/// write.
pub(super) fn forget_unsynced(sink: &FileSink, synced: &RangeSet) -> RangeSet {
    match sink.keep_only(synced) {
        Ok(()) => synced.clone(),
        Err(error) => {
            tracing::debug!("partial file: {error}");
            only_prefix(sink, synced.prefix_len())
        }
    }
}

/// Cuts a file; gives what is left.
fn only_prefix(sink: &FileSink, length: u64) -> RangeSet {
    let mut left = RangeSet::new();
    match sink.file().set_len(length) {
        Ok(()) => drop(left.insert(0, length)),
        Err(error) => tracing::debug!("partial file: {error}"),
    }
    left
}

/// The state of the destination during an attempt that began with `before`.
pub(super) fn state(before: &StoredRanges, control: &TransferControl) -> StoredRanges {
    let mut now = before.clone();
    now.safe.extend(&control.stored());
    let synced = control.synced();
    if !synced.is_empty() {
        // A checkpoint syncs the whole file, with what was there before.
        now.synced = before.safe.clone();
        now.synced.extend(&synced);
    }
    now
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use data::store::durability::SyncPolicy;
    use rustix::fs::fstatfs;
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;

    /// What statfs(2) calls a tmpfs.
    const TMPFS_MAGIC: i64 = 0x0102_1994;

    #[test]
    fn what_is_not_on_disk_when_the_disk_refuses_cannot_be_proved_later() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::at(&dir.path().join("f")) else {
            panic!("a regular file is written aside");
        };
        let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
        sink.write_at(0, &[7; 20_000]).unwrap();
        let mut synced = RangeSet::new();
        synced.insert(0, 4096);
        synced.insert(8192, 12_000);
        let left = forget_unsynced(&sink, &synced);
        let mut bytes = Vec::new();
        let mut file = File::open(&partial.path).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        for (at, byte) in (0_u64..).zip(bytes) {
            assert_eq!(byte == 7, left.contains(at, at + 1), "byte {at}");
        }
        assert!(left.contains(0, 4096) && left.byte_count() <= synced.byte_count());
    }

    #[test]
    fn what_stays_when_the_disk_refuses_is_read_from_the_disk_again() {
        // Not in /tmp, which more often than this is memory alone.
        let here = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(directory_of(&here)).unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::at(&dir.path().join("f")) else {
            panic!("a regular file is written aside");
        };
        let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
        sink.write_at(0, &[7; 40_960]).unwrap();
        sink.sync().unwrap();
        let in_memory = || {
            let mut bytes = [0; 4096];
            let mut slices = [io::IoSliceMut::new(&mut bytes)];
            let now = ReadWriteFlags::NOWAIT;
            preadv2(sink.file(), &mut slices, 0, now)
        };
        let memory_alone = fstatfs(sink.file()).unwrap().f_type == TMPFS_MAGIC;
        // Some file systems cannot be asked.
        if memory_alone || in_memory() != Ok(4096) {
            return;
        }
        let mut synced = RangeSet::new();
        synced.insert(0, 16_384);
        assert_eq!(forget_unsynced(&sink, &synced), synced);
        assert_eq!(in_memory(), Err(Errno::AGAIN));
    }

    #[tokio::test]
    async fn an_upload_whose_journal_cannot_be_written_leaves_no_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let identity = CopyIdentity {
            source: "s".to_owned(),
            destination: "d".to_owned(),
            size: Some(100),
            modified: None,
            part: None,
            in_order: true,
        };
        let mut safe = RangeSet::new();
        safe.insert(0, 50);
        let from = || Some(StoredRanges::safe_only(safe.clone()));
        let written = journal_of_upload(path.clone(), identity.clone(), from()).await;
        assert!(written.unwrap().is_some() && journal::load(&path).is_some());
        // No file can be made there.
        std::fs::create_dir(dir.path().join("j~")).unwrap();
        let refused = journal_of_upload(path.clone(), identity, from()).await;
        assert!(refused.unwrap().is_none());
        assert_eq!(journal::load(&path), None);
    }
}
