//! Opening the file or listing of a transfer, and completing a store: which ranges of a file are sent, and where
//! received bytes go.

use std::sync::Arc;

use data::job::TransferReport;
use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::served::ServedSink;
use data::store::durability::SyncPolicy;
use data::store::file::{FileSink, FileSource};
use data::store::root::{FileIdentity, StoreError, WritableFile};
use data::store::write_lock::WriteLockKind;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::command::{DataType, TransferMode};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{
    FileError, FileErrorKind, ListRequest, StoreDisposition, TransferError, TransferKind,
    TransferRequest,
};

use super::listing::ListingSource;
use super::quota::FileCharge;
use super::server_account::told_as_the_servers;
use super::uploads::{ActiveUpload, OwnerWait, UploadClient, UploadLease, in_use_error, lock};
use super::{Access, DirectoryFiles, PassingChecksum};

mod bundle;
mod completion;
mod sink;

pub use bundle::{OpenedBundleSource, OpenedBundleStore};
use completion::StoreCompletion;
pub(crate) use completion::require_announced_size;
use sink::{StoreSink, TargetFile};

/// How often a file is opened again because its path led to another file when it was locked.
const OPEN_ATTEMPTS: u32 = 64;

/// The open file or listing of a transfer.
#[derive(Debug)]
pub enum OpenedTransfer {
    /// RETR, ERET and listings: the server sends.
    Send(OpenedSource),
    /// STOR, APPE, STOU, ESTO: the server receives.
    Receive(OpenedStore),
    /// ERET BUNDLE
    SendBundle(OpenedBundleSource),
    /// ESTO BUNDLE
    ReceiveBundle(OpenedBundleStore),
}

/// An open source of bytes to send. A listing already has CR LF line ends, in every TYPE.
#[derive(Debug)]
pub struct OpenedSource {
    /// The source of the bytes.
    pub source: Arc<dyn Source>,
    /// The ranges to send.
    pub plan: SendPlan,
    /// The file or directory.
    pub path: VPath,
    /// The version of an object, and the bytes of which each is read at a time.
    pub object: Option<(String, u64)>,
    /// The checksum to compute of the bytes.
    pub checksum: Option<PassingChecksum>,
}

/// A file that is open for a store.
#[derive(Debug)]
pub struct OpenedStore {
    /// The sink of the bytes.
    pub sink: Arc<dyn Sink>,
    /// The offsets at which received bytes are stored.
    pub plan: ReceivePlan,
    /// The path of the file; for STOU the unique name.
    pub path: VPath,
    /// The server chose the name (STOU).
    pub has_unique_name: bool,
    /// Algorithm of the checksum of received bytes
    /// ([`data::job::TransferSettings::checksum`]).
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
    /// The object that other servers can write parts of.
    pub(crate) shared: Option<Arc<dyn ServedSink>>,
    pub(crate) end: Box<dyn StoreEnd>,
}

/// The end of a store.
pub(crate) trait StoreEnd: Send + Sync + std::fmt::Debug {
    /// See [`OpenedStore::finish`].
    fn finish(
        self: Box<Self>,
        plan: &ReceivePlan,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError>;

    /// See [`OpenedStore::abandon`].
    fn abandon(self: Box<Self>);

    /// The upload's entry in the registry.
    fn upload(&self) -> &Arc<ActiveUpload>;

    /// Simulates a write error of the disk.
    #[cfg(test)]
    fn fail_disk(&self) {}
}

/// A file that is open and locked for a store.
struct OwnedFile {
    /// The fields drop in order: the file is closed, and so unlocked, before the lease ends.
    file: std::fs::File,
    created: bool,
    path: VPath,
    lease: UploadLease,
}

/// The fields of [`TransferKind::Store`] that decide how the file is opened.
struct StoreTarget<'a> {
    path: &'a VPath,
    disposition: &'a StoreDisposition,
    allocate: Option<u64>,
}

impl DirectoryFiles {
    /// Opens the file or listing of a transfer. The first part of a listing is read here, the rest while
    /// it is sent. A store owns its file until its [`OpenedStore`] is finished or abandoned; it waits, for
    /// a bounded time, for another owner that must yield.
    ///
    /// # Errors
    /// Also [`FileErrorKind::InUse`] if another upload owns the file, and [`FileErrorKind::Aborted`] if
    /// the store's client has disconnected or aborted.
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
                checksum_algorithm: algorithm,
            } => self
                .open_retrieve(path, *part, have, *algorithm)
                .map(OpenedTransfer::Send),
            TransferKind::Store { .. } => {
                let opened = self.open_store(request, by);
                opened
                    .map(OpenedTransfer::Receive)
                    .map_err(told_as_the_servers)
            }
            TransferKind::RetrieveBundle { files, .. } => {
                Ok(OpenedTransfer::SendBundle(self.open_bundle_source(files)))
            }
            TransferKind::StoreBundle { directory, files } => self
                .open_bundle_store(directory, files)
                .map(OpenedTransfer::ReceiveBundle),
        }
    }

    fn open_listing(&self, request: &ListRequest) -> Result<OpenedSource, FileError> {
        Ok(OpenedSource {
            source: Arc::new(ListingSource::start(self, request)?),
            // A listing is sent in order to its end; its length is not known.
            plan: SendPlan::new(RangeSet::new(), 0),
            path: request.path.clone(),
            object: None,
            checksum: None,
        })
    }

    fn open_retrieve(
        &self,
        path: &VPath,
        part: Option<(u64, u64)>,
        have: &RangeSet,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> Result<OpenedSource, FileError> {
        self.paths.check(Access::Read, path)?;
        let failed = |error: std::io::Error| StoreError::from_io("open", path, &error);
        let file = self.root.open_read(path)?;
        let checksum = match algorithm {
            Some(algorithm) => self.passing_checksum(&file, algorithm).map_err(failed)?,
            None => None,
        };
        let size = file.metadata().map_err(failed)?.len();
        let source = FileSource::new(file, path.to_string()).map_err(failed)?;
        Ok(OpenedSource {
            source: Arc::new(source),
            plan: send_plan(size, part, have),
            path: path.clone(),
            object: None,
            checksum,
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
        match disposition {
            // The name is a new one beside `path`.
            StoreDisposition::Unique => self.paths.check(Access::Create, &path.parent())?,
            _ => self.paths.check(Access::Create, path)?,
        }
        let store = StoreTarget {
            path,
            disposition,
            allocate: *allocate,
        };
        // Rights and space are checked before the file is opened, because opening may create it.
        self.require_space(&store)?;
        let owned = self.open_and_own(&store, by)?;
        let path = owned.path.clone();
        let inspected = self.inspect_before_store(&owned);
        let (before, directory) = inspected.inspect_err(|_| self.remove_created(&owned))?;
        let charge = self.charge(&owned, *allocate);
        let charge = charge.inspect_err(|_| self.remove_created(&owned))?;
        // From here on the content may change, so neither a checksum nor this session's own upload of
        // the file remains valid.
        self.checksums.invalidate(&before);
        self.last_upload.forget(before.inode);
        let plan = recv_plan(disposition, request.mode, before.size);
        let ascii = request.type_ == DataType::Ascii;
        let replaces_rest = matches!(disposition, StoreDisposition::Resume { .. })
            && request.mode == TransferMode::Stream;
        // In TYPE A the stored length differs from the received length (RFC 959 section 3.1.1.1), so
        // the rest must be cut before the first byte instead of afterwards.
        let truncate_to = match disposition {
            StoreDisposition::Truncate => Some(0),
            _ => (replaces_rest && ascii).then_some(plan.stream_start),
        };
        let is_whole = owned.created || truncate_to == Some(0);
        let sink = self.store_sink(owned, directory, truncate_to, charge)?;
        let requested_algorithm = expect.as_ref().map(|(algorithm, _)| *algorithm).or(*sum);
        Ok(OpenedStore {
            sink: Arc::clone(&sink) as Arc<dyn Sink>,
            plan,
            path,
            has_unique_name: *disposition == StoreDisposition::Unique,
            // In TYPE A the received bytes are not the stored ones.
            checksum_algorithm: requested_algorithm.filter(|_| !ascii),
            shared: None,
            end: Box::new(StoreCompletion {
                files: self.clone(),
                sink,
                replaces_rest: replaces_rest && !ascii,
                is_whole,
                announced_end: announced_end(request, disposition, *allocate),
                algorithm: requested_algorithm,
                expect: expect.as_ref().map(|(_, hex)| hex.clone()),
                modify: *modify,
            }),
        })
    }

    /// Makes the sink of a store. `truncate_to`: length to which the file is truncated before its first
    /// byte.
    fn store_sink(
        &self,
        owned: OwnedFile,
        directory: Option<std::fs::File>,
        truncate_to: Option<u64>,
        charge: Option<FileCharge>,
    ) -> Result<Arc<StoreSink>, FileError> {
        let path = owned.path.clone();
        let file = match FileSink::wrap(owned.file, path.to_string()) {
            Ok(file) => file,
            Err((file, error)) => {
                let owned = OwnedFile { file, ..owned };
                self.remove_created(&owned);
                if let Some(charge) = charge {
                    charge.settle(&owned.file);
                }
                return Err(StoreError::from_io("open", &path, &error).into());
            }
        };
        Ok(Arc::new(StoreSink::new(
            file.with_policy(self.sync, directory),
            TargetFile {
                root: Arc::clone(&self.root),
                path,
                created: owned.created,
                truncate_to,
            },
            owned.lease,
            charge,
        )))
    }

    /// Charges the file to the quota, with the size that was announced.
    fn charge(
        &self,
        owned: &OwnedFile,
        announced: Option<u64>,
    ) -> Result<Option<FileCharge>, FileError> {
        let Some(quota) = &self.quota else {
            return Ok(None);
        };
        let failed =
            |error: std::io::Error| StoreError::from_io("open", &owned.path, &error).into();
        let end = announced.unwrap_or(0);
        let charge = quota.open_file(&owned.file, end, owned.created, failed)?;
        Ok(Some(charge))
    }

    /// The state of a file before the store, and its directory if it must be synced.
    fn inspect_before_store(
        &self,
        owned: &OwnedFile,
    ) -> Result<(FileIdentity, Option<std::fs::File>), StoreError> {
        let before = FileIdentity::of(&owned.file)
            .map_err(|error| StoreError::from_io("open", &owned.path, &error))?;
        Ok((before, self.directory_to_sync(&owned.path)?))
    }

    /// Removes the file of a store that failed early, if the store created it.
    fn remove_created(&self, owned: &OwnedFile) {
        if owned.created {
            sink::remove_unused(&self.root, &owned.path, &owned.file, &owned.lease);
        }
    }

    /// The directory of `path`, if the policy says that names must be on disk.
    fn directory_to_sync(&self, path: &VPath) -> Result<Option<std::fs::File>, StoreError> {
        match self.sync {
            SyncPolicy::None => Ok(None),
            SyncPolicy::File => self.root.directory_of(path),
        }
    }

    /// Opens the file of a store and becomes its owner. Nothing is truncated yet.
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
            // Before the lock was taken another process may have replaced the file at this path.
            match self.root.identity(&owned.path) {
                Ok(at_path) if at_path.inode == inode => return Ok(owned),
                Ok(_) => {}
                Err(error) if error.kind() == FileErrorKind::NotFound => {}
                Err(error) => {
                    self.remove_created(&owned);
                    return Err(error.into());
                }
            }
            // The path leads to another file: `owned` is dropped and the loop tries again.
        }
        Err(in_use_error())
    }

    fn open_target(&self, store: &StoreTarget<'_>) -> Result<(WritableFile, VPath), FileError> {
        if *store.disposition == StoreDisposition::Unique {
            let (file, path) = self.root.open_unique(store.path)?;
            let created = true;
            return Ok((WritableFile { file, created }, path));
        }
        let opened = self.root.open_write(store.path)?;
        if !opened.created {
            // Opening has changed nothing yet.
            self.paths.check(Access::Modify, store.path)?;
        }
        Ok((opened, store.path.clone()))
    }

    /// Refuses a file whose size (ALLO) exceeds the free space, before the old file is truncated.
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
        Err(FileError::new(
            FileErrorKind::NoSpace,
            format!(
                "No space left on device: {size} bytes announced for {}, {free} free",
                store.path
            ),
        ))
    }
}

impl OpenedStore {
    /// Completes a store that was received completely: truncates the file if needed, syncs it according
    /// to the policy, verifies an announced checksum, sets an announced modification time, and caches the
    /// checksum. Returns the checksum of the whole file if it is known.
    ///
    /// A failed sync fails the store, and so does a path that leads to another file by now; the store is then
    /// abandoned. `progress` is that
    /// of [`DirectoryFiles::run`]: a file that was not received as a whole is read for its checksum.
    pub fn finish(
        self,
        report: &TransferReport,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, TransferError> {
        self.end.finish(&self.plan, report, progress)
    }

    /// Ends a store that was not received completely. The received bytes stay for a restart, except those
    /// that the disk or the quota refused.
    pub fn abandon(self) {
        self.end.abandon();
    }

    /// Simulates a write error of the disk.
    #[cfg(test)]
    pub(in crate::files) fn fail_disk(&self) {
        self.end.fail_disk();
    }

    /// The upload's entry in the registry.
    pub(crate) fn upload(&self) -> &Arc<ActiveUpload> {
        self.end.upload()
    }
}

/// The offset that a stream must reach after `ALLO size`. With REST and APPE the size may be that of the whole
/// file, so the part that is there counts. There is none in MODE E, which has end marks; in TYPE A, where lines
/// have other lengths on the wire; and for ESTO, where clients announce the part or the whole file.
pub(crate) fn announced_end(
    request: &TransferRequest,
    disposition: &StoreDisposition,
    size: Option<u64>,
) -> Option<u64> {
    let is_comparable = request.mode == TransferMode::Stream
        && request.type_ == DataType::Image
        && !matches!(disposition, StoreDisposition::AtOffset(_));
    size.filter(|_| is_comparable)
}

fn not_a_store_error() -> FileError {
    FileError::new(FileErrorKind::Other, "not a store")
}

/// The file ranges to send: `part` without the ranges that the receiver has. `part` and `have` are
/// wire offsets.
pub(crate) fn send_plan(size: u64, part: Option<(u64, u64)>, have: &RangeSet) -> SendPlan {
    let (origin, length) = part.unwrap_or((0, u64::MAX));
    let mut received = RangeSet::new();
    for range in have.iter() {
        received.insert(
            range.start.saturating_add(origin),
            range.end.saturating_add(origin),
        );
    }
    SendPlan::new(
        received.gaps(origin, size.min(origin.saturating_add(length))),
        origin,
    )
}

/// Where received bytes go in a file of `size` bytes.
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
mod tests;
