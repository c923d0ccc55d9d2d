//! Opening what a transfer reads or writes, and ending a store.

use std::sync::Arc;

use data::job::TransferReport;
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::durability::SyncPolicy;
use data::store::file::{FileSink, FileSource};
use data::store::root::{FileIdentity, StoreError, WritableFile};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{
    FileError, FileErrorKind, ListRequest, StoreDisposition, TransferError, TransferKind,
    TransferRequest,
};

use super::SessionFiles;
use super::listing::ListingSource;
use super::uploads::{ActiveUpload, OwnerWait, UploadClient, UploadLease, in_use_error};

mod completion;
mod sink;

use completion::StoreCompletion;
use sink::StoreSink;

/// How often a file is opened again because its name led elsewhere when it was locked.
const OPEN_ATTEMPTS: u32 = 64;

/// A transfer whose file is open.
#[derive(Debug)]
pub enum OpenedTransfer {
    /// RETR, ERET and listings: the server sends.
    Send(OpenedSource),
    /// STOR, APPE, STOU, ESTO: the server receives.
    Receive(OpenedStore),
}

/// Something to send. A listing has its CR LF already, in every TYPE.
#[derive(Debug)]
pub struct OpenedSource {
    /// The bytes to read.
    pub source: Arc<dyn Source>,
    /// Which bytes of it.
    pub plan: SendPlan,
    /// The file or directory.
    pub path: VPath,
}

/// A file that is open to be stored.
#[derive(Debug)]
pub struct OpenedStore {
    /// Where bytes go.
    pub sink: Arc<dyn Sink>,
    /// Where on it.
    pub plan: ReceivePlan,
    /// The file; for STOU the unique name.
    pub path: VPath,
    /// STOU made the name.
    pub has_unique_name: bool,
    /// Value for [`data::job::TransferSettings::checksum_algorithm`].
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
    completion: StoreCompletion,
}

/// A file that is open to be stored, and locked.
struct OwnedFile {
    /// Closed, and with it unlocked, before the lease ends.
    file: std::fs::File,
    created: bool,
    path: VPath,
    lease: UploadLease,
}

/// The fields of [`TransferKind::StoreTarget`] that decide how the file is opened.
struct StoreTarget<'a> {
    path: &'a VPath,
    disposition: &'a StoreDisposition,
    allocate: Option<u64>,
}

impl SessionFiles {
    /// Opens what a transfer reads or writes. Of a listing the first part is made here, the rest while it
    /// is sent. A store by `by` owns its file until [`OpenedStore`] ends; it waits, bounded, for an owner that
    /// is to give way.
    ///
    /// # Errors
    /// Also [`FileErrorKind::InUse`] when another upload owns the file, and
    /// [`FileErrorKind::Aborted`] when the store's client is gone or has stopped it.
    pub fn open(
        &self,
        request: &TransferRequest,
        by: &UploadClient,
    ) -> Result<OpenedTransfer, FileError> {
        match &request.kind {
            TransferKind::List(list) => self.open_listing(list).map(OpenedTransfer::Send),
            TransferKind::Retrieve {
                path,
                partial: part,
                already_received: have,
            } => self
                .open_retrieve(path, *part, have)
                .map(OpenedTransfer::Send),
            TransferKind::Store { .. } => self.open_store(request, by).map(OpenedTransfer::Receive),
        }
    }

    fn open_listing(&self, request: &ListRequest) -> Result<OpenedSource, FileError> {
        Ok(OpenedSource {
            source: Arc::new(ListingSource::start(self, request)?),
            // It is sent in order, to its end.
            plan: SendPlan {
                ranges: RangeSet::new(),
                origin: 0,
            },
            path: request.path.clone(),
        })
    }

    fn open_retrieve(
        &self,
        path: &VPath,
        part: Option<(u64, u64)>,
        have: &RangeSet,
    ) -> Result<OpenedSource, FileError> {
        let failed = |error: std::io::Error| StoreError::from_io("open", path, &error);
        let file = self.root.open_read(path)?;
        let size = file.metadata().map_err(failed)?.len();
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        Ok(OpenedSource {
            source: Arc::new(source),
            plan: send_plan(size, part, have),
            path: path.clone(),
        })
    }

    fn open_store(
        &self,
        request: &TransferRequest,
        by: &UploadClient,
    ) -> Result<OpenedStore, FileError> {
        let TransferKind::Store {
            path,
            disposition,
            announced_size: allocate,
            checksum_algorithm: sum,
            expected_checksum: expect,
            modified: modify,
        } = &request.kind
        else {
            return Err(not_a_store_error());
        };
        self.require_write()?;
        let store = StoreTarget {
            path,
            disposition,
            allocate: *allocate,
        };
        self.require_space(&store)?;
        let owned = self.open_and_own(&store, by)?;
        let path = owned.path.clone();
        let prepared = self.inspect_before_store(&owned);
        let (before, directory) = prepared.inspect_err(|_| self.remove_created(&owned))?;
        self.checksums.invalidate(&before);
        self.last_upload.forget(before.inode);
        let plan = recv_plan(disposition, request.mode, before.size);
        let ascii = request.type_ == DataType::Ascii;
        let resumed = matches!(disposition, StoreDisposition::Resume { .. });
        let replaces_rest = resumed && request.mode == TransferMode::Stream;
        // What TYPE A stores has another length than what it receives: where it ends is not known
        // afterwards.
        let cut = match disposition {
            StoreDisposition::Truncate => Some(0),
            _ => (replaces_rest && ascii).then_some(plan.stream_start),
        };
        let failed = |error: std::io::Error| StoreError::from_io("open", &path, &error);
        let file = match FileSink::wrap(owned.file, path.to_string()) {
            Ok(file) => file,
            Err((file, error)) => {
                self.remove_created(&OwnedFile { file, ..owned });
                return Err(failed(error).into());
            }
        };
        let sink = Arc::new(StoreSink::new(
            file.with_policy(self.sync, directory),
            Arc::clone(&self.root),
            path.clone(),
            owned.created,
            cut,
            owned.lease,
        ));
        let wanted = expect.as_ref().map(|(algorithm, _)| *algorithm).or(*sum);
        Ok(OpenedStore {
            sink: Arc::clone(&sink) as Arc<dyn Sink>,
            plan,
            path,
            has_unique_name: *disposition == StoreDisposition::Unique,
            // In TYPE A what passes is not what is stored.
            checksum_algorithm: wanted.filter(|_| !ascii),
            completion: StoreCompletion {
                files: self.clone(),
                sink,
                cut: replaces_rest && !ascii,
                algorithm: wanted,
                expect: expect.as_ref().map(|(_, hex)| hex.clone()),
                modify: *modify,
            },
        })
    }

    /// The state of a file that is about to be stored, and its directory.
    fn inspect_before_store(
        &self,
        owned: &OwnedFile,
    ) -> Result<(FileIdentity, Option<std::fs::File>), StoreError> {
        let before = FileIdentity::of(&owned.file)
            .map_err(|error| StoreError::from_io("open", &owned.path, &error))?;
        Ok((before, self.directory_to_sync(&owned.path)?))
    }

    /// A store that does not come about leaves no file that it made.
    fn remove_created(&self, owned: &OwnedFile) {
        if owned.created {
            sink::remove_unused(&self.root, &owned.path, &owned.file, &owned.lease);
        }
    }

    /// The directory of `path`, if the policy forces names to disk.
    fn directory_to_sync(&self, path: &VPath) -> Result<Option<std::fs::File>, StoreError> {
        match self.sync {
            SyncPolicy::None => Ok(None),
            SyncPolicy::File => self.root.directory_of(path),
        }
    }

    /// Opens the file of a store and becomes its owner. Nothing is cut.
    fn open_and_own(
        &self,
        store: &StoreTarget<'_>,
        by: &UploadClient,
    ) -> Result<OwnedFile, FileError> {
        let claim = match store.disposition {
            StoreDisposition::AtOffset(_) => WriteLockKind::Shared,
            _ => WriteLockKind::Exclusive,
        };
        let mut watch = OwnerWait::new(&self.uploads, claim, by);
        for _ in 0..OPEN_ATTEMPTS {
            by.check_wanted()?;
            let (opened, path) = self.open_target(store)?;
            let failed = |error: std::io::Error| StoreError::from_io("open", &path, &error);
            let inode = FileIdentity::of(&opened.file).map_err(failed)?.inode;
            let Some(lease) = self.uploads.register(inode, claim, by) else {
                drop(opened);
                watch.wait_until_free(inode)?;
                continue;
            };
            let owned = OwnedFile {
                file: opened.file,
                created: opened.created,
                path,
                lease,
            };
            let locked = lock(&owned.file, claim, &owned.path);
            locked.inspect_err(|_| self.remove_created(&owned))?;
            // Until the lock was there somebody may have put another file in this one's place.
            match self.root.identity(&owned.path) {
                Ok(there) if there.inode == inode => return Ok(owned),
                Ok(_) => {}
                Err(error) if error.kind() == FileErrorKind::NotFound => {}
                Err(error) => {
                    self.remove_created(&owned);
                    return Err(error.into());
                }
            }
            // Dropped in the order of its fields: unlocked, while the lease still says whose lock it is.
        }
        Err(in_use_error())
    }

    fn open_target(&self, store: &StoreTarget<'_>) -> Result<(WritableFile, VPath), FileError> {
        if *store.disposition == StoreDisposition::Unique {
            let (file, path) = self.root.open_unique(store.path)?;
            let created = true;
            return Ok((WritableFile { file, created }, path));
        }
        Ok((self.root.open_write(store.path)?, store.path.clone()))
    }

    /// A file announced by ALLO that cannot fit is refused before a byte of it, or of the file
    /// that it replaces, is lost.
    fn require_space(&self, store: &StoreTarget<'_>) -> Result<(), FileError> {
        let Some(size) = store.allocate else {
            return Ok(());
        };
        let reused = match store.disposition {
            StoreDisposition::Append | StoreDisposition::Unique => 0,
            StoreDisposition::Truncate
            | StoreDisposition::Resume { .. }
            | StoreDisposition::AtOffset(_) => {
                self.root.identity(store.path).map_or(0, |file| file.size)
            }
        };
        let free = self.root.free_space(store.path)?;
        if size.saturating_sub(reused) <= free {
            return Ok(());
        }
        Err(FileError {
            kind: FileErrorKind::NoSpace,
            errno: None,
            text: format!(
                "No space left on device: {size} bytes announced for {}, {free} free",
                store.path
            ),
        })
    }
}

impl OpenedStore {
    /// Ends a store that arrived whole: cuts the file where that is due, syncs it as the server's
    /// policy says, verifies an announced checksum, sets the announced time, and remembers the sum.
    /// Returns the checksum of the whole file if it is known. A store that failed is just dropped: what
    /// arrived stays for a restart. What the disk says while it is synced is a failure of the store,
    /// and so is a name that leads elsewhere by now.
    /// `progress` as for [`SessionFiles::run`]: a file that did not pass whole is read for its checksum.
    pub fn finish(
        self,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        self.completion.run(&self.plan, report, progress)
    }

    /// Goes on as if the disk had refused something.
    #[cfg(test)]
    pub(in crate::files) fn fail_disk(&self) {
        let refusal = std::io::Error::from_raw_os_error(28); // ENOSPC
        let _ = self.completion.sink.note_error(Err::<(), _>(refusal));
    }

    /// Its entry among the uploads.
    pub(crate) fn upload(&self) -> &Arc<ActiveUpload> {
        self.completion.sink.lease.upload()
    }
}

fn not_a_store_error() -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: "not a store".to_owned(),
    }
}

/// Locks the file against other processes.
pub(super) fn lock(
    file: &std::fs::File,
    how: WriteLockKind,
    path: &VPath,
) -> Result<(), FileError> {
    match take_write_lock(file, how) {
        Ok(WriteLockStatus::Held | WriteLockStatus::Unsupported) => Ok(()),
        Ok(WriteLockStatus::Busy) => Err(in_use_error()),
        Err(error) => Err(StoreError::from_io("lock", path, &error).into()),
    }
}

/// Wire offsets (of `part` and `have`) to file offsets, less what the receiver has.
fn send_plan(size: u64, part: Option<(u64, u64)>, have: &RangeSet) -> SendPlan {
    let (origin, length) = part.unwrap_or((0, u64::MAX));
    let mut there = RangeSet::new();
    for range in have.iter() {
        there.insert(
            range.start.saturating_add(origin),
            range.end.saturating_add(origin),
        );
    }
    SendPlan {
        ranges: there.gaps(origin, size.min(origin.saturating_add(length))),
        origin,
    }
}

fn recv_plan(disposition: &StoreDisposition, mode: TransferMode, size: u64) -> ReceivePlan {
    let (origin, stream_start) = match disposition {
        StoreDisposition::Truncate | StoreDisposition::Unique => (0, 0),
        StoreDisposition::Resume {
            already_stored: have,
        } => match mode {
            TransferMode::Stream => (0, have.prefix_len()),
            TransferMode::Extended => (0, 0),
        },
        StoreDisposition::AtOffset(offset) => (*offset, 0),
        StoreDisposition::Append => (size, 0),
    };
    ReceivePlan {
        origin,
        stream_start,
        limit: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    #[test]
    fn sends_what_is_missing_of_the_part() {
        let plan = |part, have| {
            let plan = send_plan(100, part, &have);
            (plan.ranges.to_string(), plan.origin)
        };
        assert_eq!(plan(None, RangeSet::new()), ("0-100".to_owned(), 0));
        assert_eq!(
            plan(None, set("0-10,20-30")),
            ("10-20,30-100".to_owned(), 0)
        );
        assert_eq!(
            plan(Some((40, 20)), RangeSet::new()),
            ("40-60".to_owned(), 40)
        );
        assert_eq!(plan(Some((40, 20)), set("0-5")), ("45-60".to_owned(), 40));
        assert_eq!(
            plan(Some((90, 50)), RangeSet::new()),
            ("90-100".to_owned(), 90)
        );
        assert_eq!(plan(Some((200, 5)), RangeSet::new()), (String::new(), 200));
        assert_eq!(plan(None, set("0-200")), (String::new(), 0));
    }

    proptest! {
        #[test]
        fn no_offset_overflows(size: u64, offset: u64, length: u64, a: u64, b: u64) {
            let mut have = RangeSet::new();
            have.insert(a.min(b), a.max(b));
            let plan = send_plan(size, Some((offset, length)), &have);
            prop_assert!(plan.ranges.end() <= size);
            prop_assert!(plan.ranges.iter().all(|range| range.start >= offset));
        }
    }

    #[test]
    fn stores_begin_where_the_command_says() {
        let plan = |disposition, mode| {
            let plan = recv_plan(&disposition, mode, 70);
            (plan.origin, plan.stream_start)
        };
        let resume = || StoreDisposition::Resume {
            already_stored: set("0-30,40-50"),
        };
        assert_eq!(
            plan(StoreDisposition::Truncate, TransferMode::Stream),
            (0, 0)
        );
        assert_eq!(plan(resume(), TransferMode::Stream), (0, 30));
        assert_eq!(plan(resume(), TransferMode::Extended), (0, 0));
        assert_eq!(
            plan(StoreDisposition::AtOffset(9), TransferMode::Extended),
            (9, 0)
        );
        assert_eq!(
            plan(StoreDisposition::Append, TransferMode::Stream),
            (70, 0)
        );
        assert_eq!(
            plan(StoreDisposition::Unique, TransferMode::Extended),
            (0, 0)
        );
    }
}
