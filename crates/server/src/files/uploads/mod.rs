//! The uploads in progress: which session stores which file, what happens to a second upload of the
//! same file, and which upload a session finished last.
//!
//! One upload at a time owns a file, or an object of a store; stores of ranges (ESTO) share a file. The lock
//! on the open file (`data::store::write_lock`) excludes other processes; this registry knows the owners
//! within the server. A client that reconnects after a broken connection must not be locked out by its own dead
//! session. So an owner is stopped for a second upload if its client has disconnected, or if it belongs
//! to the same account and receives nothing while it is watched. Any other owner goes on, and the
//! second upload is refused.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::job::TransferControl;
use data::os::tcp_info::tcp_info;
use data::os::wake::has_hung_up;
use data::served::{ServedBytes, ServedClient};
use data::store::root::{FileIdentity, StoreError};
use data::store::write_lock::{WriteLockKind, WriteLockStatus, take_write_lock};
use parking_lot::{Condvar, Mutex, MutexGuard};
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind};
use tune::admission::ClientKey;

mod content;

use content::StoredContents;
pub(super) use content::{KeptContent, LastUpload, StoredPlace};

/// Interval at which a second upload checks the owner.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time in which bytes that had arrived in this host's socket buffers are stored. Only bytes after
/// that show that the owner's client is alive.
const SETTLING_TIME: Duration = Duration::from_millis(250);

/// An owner of the same account that receives nothing for this time is stopped.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait of a second upload for the file, even if its owner changes.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Device and inode number, which identify a file under all of its names.
pub(super) type Inode = (u64, u64);

/// The target of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum UploadedPlace {
    /// A file.
    File(Inode),
    /// An object of the store that is served, which has one name.
    Object(VPath),
}

impl From<Inode> for UploadedPlace {
    fn from(inode: Inode) -> Self {
        Self::File(inode)
    }
}

impl From<&VPath> for UploadedPlace {
    fn from(path: &VPath) -> Self {
        Self::Object(path.clone())
    }
}

/// The account that an upload belongs to. Two uploads of one account may come from the same client,
/// before and after its connection broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uploader {
    /// A user who logged in by name.
    User(String),
    /// The anonymous sessions of one client.
    Anonymous(ClientKey),
}

/// A second handle on the socket of a control connection, to check whether its client is still
/// connected.
#[derive(Debug)]
pub struct ControlSocket(OwnedFd);

impl ControlSocket {
    /// Duplicates the descriptor of a connected socket.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        socket.try_clone_to_owned().map(Self)
    }

    /// Smallest round trip of the connection; zero if unknown.
    pub fn min_rtt(&self) -> Duration {
        tcp_info(self.0.as_fd()).map_or(Duration::ZERO, |sample| sample.min_rtt)
    }

    /// Whether the client closed its side or the connection failed.
    pub fn peer_has_closed(&self) -> bool {
        has_hung_up(self.0.as_fd())
    }
}

/// The client of an upload, with the means to watch and stop the upload.
#[derive(Debug, Clone)]
pub struct UploadClient {
    /// The account that the upload belongs to.
    pub uploader: Uploader,
    /// The client's control connection.
    pub control_socket: Arc<ControlSocket>,
    /// Progress and cancellation of the transfer.
    pub control: Arc<TransferControl>,
    /// The bytes that this process moves.
    pub bytes: ServedBytes,
}

impl UploadClient {
    /// The same for a store of objects.
    pub(crate) fn served(&self) -> ServedClient {
        ServedClient {
            // Only compared.
            name: format!("{:?}", self.uploader),
            control: Arc::clone(&self.control),
            may_wait: true,
            bytes: self.bytes,
        }
    }

    /// Fails if the upload was cancelled or its client has disconnected.
    pub(super) fn check_wanted(&self) -> Result<(), FileError> {
        if self.control.is_cancelled() || self.control_socket.peer_has_closed() {
            return Err(aborted_error());
        }
        Ok(())
    }
}

/// An upload that owns its file, or shares it with other stores of ranges.
#[derive(Debug)]
pub struct ActiveUpload {
    /// `None`: not an upload, but a short change of the file.
    client: Option<UploadClient>,
    claim: WriteLockKind,
    /// All bytes have been received; only work of the server remains.
    ending: AtomicBool,
    taken_over: AtomicBool,
    /// Another upload had the file open at the same time.
    shared: AtomicBool,
    /// The upload is removing from the file what it stored; no other may begin to store.
    withdrawing: AtomicBool,
}

impl ActiveUpload {
    /// Whether this upload excludes one with the claim `wanted`.
    fn conflicts_with(&self, wanted: WriteLockKind) -> bool {
        let sole = self.claim == WriteLockKind::Exclusive || wanted == WriteLockKind::Exclusive;
        sole || self.withdrawing.load(Ordering::Relaxed)
    }

    /// Records that all bytes have been received.
    pub(crate) fn mark_received(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether this upload was stopped in favour of another one.
    pub(crate) fn was_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    fn take_over(&self) {
        self.taken_over.store(true, Ordering::Relaxed);
        if let Some(by) = &self.client {
            by.control.cancel();
        }
    }
}

/// All uploads in progress, shared by all sessions.
#[derive(Debug, Default)]
pub struct UploadRegistry {
    open: Mutex<HashMap<UploadedPlace, Vec<Arc<ActiveUpload>>>>,
    /// Notified when an upload ends.
    freed: Condvar,
    contents: StoredContents,
}

/// The registration of an upload for as long as it has the file open.
#[derive(Debug)]
pub(crate) struct UploadLease {
    uploads: Arc<UploadRegistry>,
    target: UploadedPlace,
    upload: Arc<ActiveUpload>,
}

impl UploadRegistry {
    /// Registers an upload, unless an owner of the file excludes it.
    pub(super) fn register(
        self: &Arc<Self>,
        target: impl Into<UploadedPlace>,
        claim: WriteLockKind,
        by: &UploadClient,
    ) -> Option<UploadLease> {
        self.admit(target.into(), claim, Some(by.clone()))
    }

    /// Registers an upload of an object, as soon as no other one owns it.
    ///
    /// # Errors
    /// As [`OwnerWait::wait_until_free`].
    pub(crate) fn own_object(
        self: &Arc<Self>,
        path: &VPath,
        by: &UploadClient,
    ) -> Result<UploadLease, FileError> {
        let claim = WriteLockKind::Exclusive;
        let mut watch = OwnerWait::new(self, claim, by);
        loop {
            watch.wait_until_free(path)?;
            if let Some(lease) = self.register(path, claim, by) {
                return Ok(lease);
            }
        }
    }

    /// Excludes uploads while the file is changed by something else, unless an upload stores into it.
    pub(crate) fn exclude_uploads(
        self: &Arc<Self>,
        target: impl Into<UploadedPlace>,
    ) -> Option<UploadLease> {
        self.admit(target.into(), WriteLockKind::Exclusive, None)
    }

    fn admit(
        self: &Arc<Self>,
        target: UploadedPlace,
        claim: WriteLockKind,
        by: Option<UploadClient>,
    ) -> Option<UploadLease> {
        let upload = Arc::new(ActiveUpload {
            client: by,
            claim,
            ending: AtomicBool::new(false),
            taken_over: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            withdrawing: AtomicBool::new(false),
        });
        let mut open = self.open();
        let owners = open.entry(target.clone()).or_default();
        if owners.iter().any(|owner| owner.conflicts_with(claim)) {
            return None;
        }
        // Relaxed is enough: `shared` and `withdrawing` are accessed only under the lock of the registry.
        upload.shared.store(!owners.is_empty(), Ordering::Relaxed);
        for owner in owners.iter() {
            owner.shared.store(true, Ordering::Relaxed);
        }
        owners.push(Arc::clone(&upload));
        Some(UploadLease {
            uploads: Arc::clone(self),
            target,
            upload,
        })
    }

    /// Whether an upload stores into the file.
    pub(super) fn is_being_written(&self, inode: Inode) -> bool {
        self.open().contains_key(&inode.into())
    }

    /// Runs `act` while no upload can begin to store into the file; `None` if an upload with a
    /// connected client owns it.
    pub(super) fn unless_uploading<T>(&self, inode: Inode, act: impl FnOnce() -> T) -> Option<T> {
        let open = self.open();
        let mut owners = open.get(&inode.into()).into_iter().flatten();
        let has_connected_client = |owner: &Arc<ActiveUpload>| {
            let by = owner.client.as_ref();
            by.is_some_and(|by| !by.control_socket.peer_has_closed())
        };
        if owners.any(has_connected_client) {
            return None;
        }
        Some(act())
    }

    /// Follows a change of a file's name, times or rights.
    pub(super) fn carry_over(&self, before: &FileIdentity, after: FileIdentity) {
        self.contents.carry_over(before, after);
    }

    /// Follows a change of the name of a file, by a session.
    pub(super) fn end_rename(&self, from: &StoredPlace, to: &StoredPlace) {
        self.contents.end_rename(from, to);
    }

    /// Whether what is at the place of a session's last upload, or that upload itself, now in this state, has content of
    /// others.
    pub(super) fn has_lost(
        &self,
        upload: &LastUpload,
        place: &StoredPlace,
        now: Option<&FileIdentity>,
    ) -> bool {
        upload.has_lost(&self.contents, place, now)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<UploadedPlace, Vec<Arc<ActiveUpload>>>> {
        self.open.lock()
    }
}

impl UploadLease {
    pub(crate) fn upload(&self) -> &Arc<ActiveUpload> {
        &self.upload
    }

    /// Whether no other upload may store into the file.
    pub(super) fn is_exclusive(&self) -> bool {
        self.upload.claim == WriteLockKind::Exclusive
    }

    /// Takes note that the content of the file, which is `before`, changes from now on.
    pub(super) fn begin_change(&self, before: &FileIdentity, keeps: KeptContent) {
        let by = self.uploader();
        self.uploads.contents.begin_change(before, by, keeps);
    }

    /// Takes note of the state in which a complete upload has left the file, and of its name. `is_whole`: the upload has
    /// kept nothing of an older file.
    pub(super) fn record(
        &self,
        last: &LastUpload,
        place: StoredPlace,
        file: FileIdentity,
        is_whole: bool,
    ) {
        let contents = &self.uploads.contents;
        match self.uploader().filter(|_| self.is_exclusive()) {
            Some(by) => last.record(contents, place, file, by, is_whole),
            None => contents.end_change(&place, file),
        }
    }

    fn uploader(&self) -> Option<&Uploader> {
        self.upload.client.as_ref().map(|client| &client.uploader)
    }

    /// Excludes all other uploads from now on, so that this one can remove what it stored. Returns
    /// `false` if another upload had the file open since this one began: bytes that both stored belong
    /// to the other one, too, whose client may have been told that they are on disk.
    pub(super) fn begin_rollback(&self) -> bool {
        // While the lock is held no other upload can register.
        let _registry = self.uploads.open();
        let shared = self.upload.shared.load(Ordering::Relaxed);
        self.upload.withdrawing.store(!shared, Ordering::Relaxed);
        !shared
    }

    /// Fails if the upload was cancelled or its client has disconnected.
    pub(super) fn check_wanted(&self) -> Result<(), FileError> {
        self.upload
            .client
            .as_ref()
            .map_or(Ok(()), UploadClient::check_wanted)
    }

    /// Runs `act` while no other upload can register, if this upload is the only one.
    pub(super) fn if_only_owner(&self, act: impl FnOnce()) {
        let open = self.uploads.open();
        if open
            .get(&self.target)
            .is_some_and(|owners| owners.len() == 1)
        {
            act();
        }
    }
}

impl Drop for UploadLease {
    fn drop(&mut self) {
        let mut open = self.uploads.open();
        if let Some(owners) = open.get_mut(&self.target) {
            owners.retain(|owner| !Arc::ptr_eq(owner, &self.upload));
            if owners.is_empty() {
                open.remove(&self.target);
            }
        }
        // Unlocked first, so that a woken upload does not block on the lock at once.
        drop(open);
        self.uploads.freed.notify_all();
    }
}

/// The wait of a second upload for a file.
#[derive(Debug)]
pub(super) struct OwnerWait<'a> {
    uploads: &'a UploadRegistry,
    claim: WriteLockKind,
    by: &'a UploadClient,
    began: Instant,
    /// The owners watched so far.
    watched: Vec<WatchedOwner>,
}

/// An owner that is being watched.
#[derive(Debug)]
struct WatchedOwner {
    upload: Arc<ActiveUpload>,
    since: Instant,
    /// Bytes that it had received after [`SETTLING_TIME`].
    settled: Option<u64>,
}

/// The decision about an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerVerdict {
    /// The owner is alive: the second upload is refused.
    KeepsFile,
    /// The owner is stopped.
    MustYield,
    /// It is not known yet whether the owner is alive, or the owner is ending already.
    Undecided,
}

impl<'a> OwnerWait<'a> {
    pub(super) fn new(
        uploads: &'a UploadRegistry,
        claim: WriteLockKind,
        by: &'a UploadClient,
    ) -> Self {
        Self {
            uploads,
            claim,
            by,
            began: Instant::now(),
            watched: Vec::new(),
        }
    }

    /// Waits until no owner excludes this upload any more.
    ///
    /// # Errors
    /// [`FileErrorKind::InUse`] if an owner is alive, or does not end in time;
    /// [`FileErrorKind::Aborted`] if this upload is stopped meanwhile.
    pub(super) fn wait_until_free(
        &mut self,
        target: impl Into<UploadedPlace>,
    ) -> Result<(), FileError> {
        let target = target.into();
        let mut open = self.uploads.open();
        loop {
            self.by.check_wanted()?;
            let owners: Vec<_> = open
                .get(&target)
                .into_iter()
                .flatten()
                .filter(|owner| owner.conflicts_with(self.claim))
                .map(Arc::clone)
                .collect();
            if owners.is_empty() {
                return Ok(());
            }
            self.judge(&owners, Instant::now())?;
            // Ends of uploads wake the wait; the timeout is for owners that must be watched.
            self.uploads.freed.wait_for(&mut open, CHECK_INTERVAL);
        }
    }

    /// Stops the owners that must yield, unless one of them keeps the file.
    fn judge(&mut self, owners: &[Arc<ActiveUpload>], now: Instant) -> Result<(), FileError> {
        // All owners are judged before any is stopped: if one keeps the file, stopping others gains
        // nothing.
        let verdicts: Vec<_> = owners
            .iter()
            .map(|owner| self.verdict(owner, now))
            .collect();
        if verdicts.contains(&OwnerVerdict::KeepsFile) || now.duration_since(self.began) > MAX_WAIT
        {
            return Err(in_use_error());
        }
        for (owner, verdict) in owners.iter().zip(verdicts) {
            if verdict == OwnerVerdict::MustYield {
                tracing::info!("an upload is stopped for a later one of the same file");
                owner.take_over();
            }
        }
        Ok(())
    }

    fn verdict(&mut self, owner: &Arc<ActiveUpload>, now: Instant) -> OwnerVerdict {
        let Some(by) = owner
            .client
            .as_ref()
            .filter(|by| !by.control.is_cancelled())
        else {
            return OwnerVerdict::Undecided;
        };
        if owner.withdrawing.load(Ordering::Relaxed) {
            return OwnerVerdict::Undecided;
        }
        if by.control_socket.peer_has_closed() {
            return OwnerVerdict::MustYield;
        }
        // Another account must never be able to stop an upload, however silent it is.
        if by.uploader != self.by.uploader {
            return OwnerVerdict::KeepsFile;
        }
        if owner.ending.load(Ordering::Relaxed) {
            // It may be this client's own upload, disconnected after its last byte. It ends soon.
            return OwnerVerdict::Undecided;
        }
        let bytes = by.control.bytes();
        let watched = self.watched(owner, now);
        let watched_for = now.duration_since(watched.since);
        if watched_for < SETTLING_TIME {
            return OwnerVerdict::Undecided;
        }
        match *watched.settled.get_or_insert(bytes) {
            settled if settled != bytes => OwnerVerdict::KeepsFile,
            _ if watched_for >= SILENCE_LIMIT => OwnerVerdict::MustYield,
            _ => OwnerVerdict::Undecided,
        }
    }

    fn watched(&mut self, owner: &Arc<ActiveUpload>, now: Instant) -> &mut WatchedOwner {
        let known = self
            .watched
            .iter()
            .position(|watched| Arc::ptr_eq(&watched.upload, owner));
        let at = known.unwrap_or_else(|| {
            self.watched.push(WatchedOwner {
                upload: Arc::clone(owner),
                since: now,
                settled: None,
            });
            self.watched.len() - 1
        });
        &mut self.watched[at]
    }
}

/// Locks the file against other processes (flock(2)).
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

/// The error of a request that was stopped.
pub(crate) fn aborted_error() -> FileError {
    FileError::new(FileErrorKind::Aborted, "aborted")
}

/// The error of an upload that another upload excludes.
pub(crate) fn in_use_error() -> FileError {
    FileError::new(FileErrorKind::InUse, "another upload is writing this file")
}

#[cfg(test)]
mod tests;
