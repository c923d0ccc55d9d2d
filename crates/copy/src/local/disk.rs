//! Disk operations of this machine, run outside the async runtime.

use std::path::Path;
use std::sync::Arc;

use data::job::TransferControl;
use data::store::Sink;
use data::store::durability::SyncPolicy;
use data::store::file::FileSink;
use proto::ranges::RangeSet;

use crate::local::journal;
use crate::local::journal::{CopyIdentity, Journal, JournalLocation, StoredRanges};
use crate::local::local_name::LocalName;
use crate::local::partial::{PartialFile, WriteTarget, store_failure};
use ftp::Failure;
use ftp::answers::KeptMetadata;

/// Runs blocking `work` on a thread for blocking calls.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(Failure::local(e.to_string())))
}

/// Writes time, permissions and data of a complete and verified file to disk: see
/// [`PartialFile::sync_with_metadata`].
pub(crate) async fn sync_with_metadata(
    target: &WriteTarget,
    sink: &Arc<FileSink>,
    kept: KeptMetadata,
) -> Result<(), Failure> {
    let sink = Arc::clone(sink);
    let WriteTarget::File(partial) = target else {
        // Pipes and devices are not durable; a part of a file is.
        let name = sink.name();
        return run_blocking(move || {
            sink.sync()
                .map_err(|error| store_failure(Path::new(&name), &error))
        })
        .await;
    };
    let partial = partial.clone();
    run_blocking(move || partial.sync_with_metadata(&sink, kept)).await
}

/// Explains why a file that is read again differs from what was written. If the disk refuses a
/// sync, pages that it could not store may have left the page cache, and the disk failure is the
/// reason. Otherwise returns `mismatch`.
pub(crate) async fn sync_failure_or(
    mismatch: Failure,
    target: &WriteTarget,
    sink: &Arc<FileSink>,
) -> Failure {
    let WriteTarget::File(partial) = target else {
        return mismatch;
    };
    let (name, sink) = (partial.name.clone(), Arc::clone(sink));
    let synced =
        run_blocking(move || sink.sync().map_err(|e| store_failure(name.path(), &e))).await;
    synced.err().unwrap_or(mismatch)
}

/// Renames the partial file to its final name.
pub(crate) async fn put_in_place(
    target: &WriteTarget,
    sink: &Arc<FileSink>,
) -> Result<(), Failure> {
    let WriteTarget::File(partial) = target else {
        return Ok(());
    };
    let (partial, sink) = (partial.clone(), Arc::clone(sink));
    run_blocking(move || partial.put_in_place(&sink)).await
}

/// Syncs a file that has its final name already. The run that renamed it may have ended before its
/// own sync.
pub(crate) async fn sync_in_place(name: &LocalName, policy: SyncPolicy) -> Result<(), Failure> {
    if policy == SyncPolicy::None {
        return Ok(());
    }
    let name = name.clone();
    run_blocking(move || {
        // fsync(2) rather than fdatasync(2), so that the modification time reaches the disk too.
        let synced = name.open_to_read().and_then(|file| file.sync_all());
        synced
            .and_then(|()| name.sync_directory(policy))
            .map_err(|e| store_failure(name.path(), &e))
    })
    .await
}

/// The journal of a copy that resumes from `safe`. Those bytes are on disk when this returns, if
/// the sink syncs at all. On a full or broken disk, bytes that an earlier run handed to the kernel
/// may have been lost since; then there is nothing to resume from.
pub(crate) async fn resume_journal(
    partial: &PartialFile,
    sink: &Arc<FileSink>,
    identity: CopyIdentity,
    safe: &RangeSet,
) -> Result<(Journal, StoredRanges), Failure> {
    let (partial, sink) = (partial.clone(), Arc::clone(sink));
    let mut ranges = StoredRanges::safe_only(safe.clone());
    run_blocking(move || {
        if let Err(error) = sink.sync() {
            journal::remove_file_and_temporary(&partial.journal);
            // The page cache may hold bytes that the disk lost. Dropping them makes the next run
            // read the disk.
            if let Err(error) = sink.forget_unsynced(true) {
                tracing::debug!("partial file: {error}");
            }
            return Err(store_failure(partial.name.path(), &error));
        }
        // With policy `none` the sync above did nothing.
        if sink.is_durable() {
            ranges.synced = ranges.safe.clone();
        }
        let journal = Journal::continue_from(
            partial.journal.clone(),
            identity,
            JournalLocation::ThisMachine,
            &ranges,
        );
        journal
            .map(|journal| (journal, ranges))
            .map_err(|e| store_failure(partial.journal.path(), &e))
    })
    .await
}

/// The journal of a copy that starts over.
pub(crate) async fn new_journal(
    name: &LocalName,
    identity: CopyIdentity,
) -> Result<Journal, Failure> {
    let name = name.clone();
    run_blocking(move || {
        Journal::start_new(name.clone(), identity, JournalLocation::ThisMachine)
            .map_err(|e| store_failure(name.path(), &e))
    })
    .await
}

/// The journal of a copy to a server, which resumes `from` the stored ranges, or starts over.
/// `None` if it cannot be written; an older journal is removed then, because this copy may make it
/// untrue.
pub(crate) async fn upload_journal(
    name: LocalName,
    identity: CopyIdentity,
    from: Option<StoredRanges>,
) -> Result<Option<Journal>, Failure> {
    run_blocking(move || {
        let journal = match &from {
            Some(ranges) => {
                Journal::continue_from(name.clone(), identity, JournalLocation::Server, ranges)
            }
            None => Journal::start_new(name.clone(), identity, JournalLocation::Server),
        };
        Ok(journal
            .inspect_err(|_| journal::remove_file_and_temporary(&name))
            .ok())
    })
    .await
}

/// Removes unsynced bytes from a file whose disk refused a write, and drops the rest from the page
/// cache. The cache may still show what the disk does not hold, and a checksum would then prove
/// bytes that a power cut takes away. Returns the remaining ranges: fewer than were synced where
/// the file system can neither punch holes nor write zeros.
pub(crate) fn drop_unsynced(sink: &FileSink, synced: &RangeSet) -> RangeSet {
    match sink.keep_only(synced) {
        Ok(()) => synced.clone(),
        Err(error) => {
            tracing::debug!("partial file: {error}");
            truncate_to(sink, synced.prefix_len())
        }
    }
}

/// Truncates a file and returns the remaining range.
fn truncate_to(sink: &FileSink, length: u64) -> RangeSet {
    let mut remaining = RangeSet::new();
    match sink.file().set_len(length) {
        Ok(()) => drop(remaining.insert(0, length)),
        Err(error) => tracing::debug!("partial file: {error}"),
    }
    remaining
}

/// Ranges stored at the destination during an attempt that began with `before`.
pub(crate) fn stored_ranges_during(
    before: &StoredRanges,
    control: &TransferControl,
) -> StoredRanges {
    let mut now = before.clone();
    now.safe.extend(&control.stored());
    let synced = control.synced();
    if !synced.is_empty() {
        // A checkpoint syncs the whole file, including what was there before the attempt.
        now.synced = before.safe.clone();
        now.synced.extend(&synced);
    }
    now
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Read};

    use data::store::durability::SyncPolicy;
    use rustix::fs::fstatfs;
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;
    use crate::local::local_name::{directory_of, own_user};

    /// `f_type` of a tmpfs (statfs(2)).
    const TMPFS_MAGIC: i64 = 0x0102_1994;

    #[test]
    fn unsynced_bytes_are_removed_after_a_disk_error() {
        let dir = tempfile::tempdir().unwrap();
        let name = LocalName::at(&dir.path().join("f")).unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::for_name(&name) else {
            panic!("a regular file is written under its partial name");
        };
        let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
        sink.write_at(0, &[7; 20_000]).unwrap();
        let mut synced = RangeSet::new();
        synced.insert(0, 4096);
        synced.insert(8192, 12_000);
        let remaining = drop_unsynced(&sink, &synced);
        let mut bytes = Vec::new();
        let mut file = File::open(partial.name.path()).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        for (at, byte) in (0_u64..).zip(bytes) {
            assert_eq!(byte == 7, remaining.contains(at, at + 1), "byte {at}");
        }
        assert!(remaining.contains(0, 4096) && remaining.byte_count() <= synced.byte_count());
    }

    #[test]
    fn synced_bytes_leave_the_page_cache_after_a_disk_error() {
        // Not in /tmp, which is often a tmpfs.
        let test_binary = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(directory_of(&test_binary)).unwrap();
        let name = LocalName::at(&dir.path().join("f")).unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::for_name(&name) else {
            panic!("a regular file is written under its partial name");
        };
        let sink = partial.lock(SyncPolicy::default()).unwrap().sink;
        sink.write_at(0, &[7; 40_960]).unwrap();
        sink.sync().unwrap();
        let in_memory = || {
            let mut bytes = [0; 4096];
            let mut slices = [io::IoSliceMut::new(&mut bytes)];
            let now = ReadWriteFlags::NOWAIT;
            preadv2(sink.file(), &mut slices, 0, now)
        };
        let memory_alone = fstatfs(sink.file()).unwrap().f_type == TMPFS_MAGIC;
        // Some file systems do not support RWF_NOWAIT.
        if memory_alone || in_memory() != Ok(4096) {
            return;
        }
        let mut synced = RangeSet::new();
        synced.insert(0, 16_384);
        assert_eq!(drop_unsynced(&sink, &synced), synced);
        // The kernel keeps a page that another thread holds at this moment (other tests sync the file
        // system). A read that may not wait starts to read ahead, so only the first after each try counts.
        let forgotten = (0..1000).any(|_| {
            let absent = in_memory() == Err(Errno::AGAIN);
            if !absent {
                std::thread::sleep(std::time::Duration::from_millis(10));
                sink.forget_pages();
            }
            absent
        });
        assert!(forgotten);
    }

    #[tokio::test]
    async fn a_journal_that_cannot_be_replaced_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name = LocalName::at(&dir.path().join("j")).unwrap();
        let load = || journal::load(&name, own_user());
        let identity = CopyIdentity {
            source: "s".to_owned(),
            destination: "d".to_owned(),
            size: Some(100),
            modified: None,
            version: None,
            part: None,
            in_order: true,
        };
        let mut safe = RangeSet::new();
        safe.insert(0, 50);
        let from = || Some(StoredRanges::safe_only(safe.clone()));
        let written = upload_journal(name.clone(), identity.clone(), from()).await;
        assert!(written.unwrap().is_some() && load().is_some());
        // A directory in the place of the temporary file makes the journal unwritable.
        std::fs::create_dir(dir.path().join("j~")).unwrap();
        let refused = upload_journal(name.clone(), identity, from()).await;
        assert!(refused.unwrap().is_none());
        assert_eq!(load(), None);
    }
}
