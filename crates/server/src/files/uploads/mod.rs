//! Who is storing which file, what becomes of a second upload of the same one, and which upload a session
//! ended last.
//!
//! One upload at a time owns a file (stores of ranges, ESTO, share it). The lock on the open file
//! (`data::store::write_lock`) holds against other processes; this register tells who the owner is. A
//! client that lost its connection and comes back must not be locked out by its own dead session,
//! so that an owner whose client is gone, or that belongs to the same account and receives nothing
//! while it is watched, is stopped and gives way. Any other owner goes on, and the second upload is
//! refused.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data::job::TransferControl;
use data::os::wake::has_hung_up;
use data::store::root::FileIdentity;
use data::store::write_lock::WriteLockKind;
use proto::server::{FileError, FileErrorKind};

use super::checksum::aborted_error;

/// How often a second upload looks at the owner.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that had reached this host before a cut are stored within this time; only later ones show
/// that the owner lives.
const SETTLE: Duration = Duration::from_millis(250);

/// An owner of the same account that received nothing for so long gives way.
const WATCH: Duration = Duration::from_secs(5);

/// Longest wait of a second upload for the file, whoever owns it meanwhile.
const LONGEST: Duration = Duration::from_secs(20);

/// Device and inode.
type Inode = (u64, u64);

/// Whose an upload is: two of the same one may be the same client's, before and after a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uploader {
    /// Logged in by name.
    User(String),
    /// Anonymous sessions of one client: an IPv4 address, or a /64 network of IPv6.
    Anonymous(IpAddr),
}

/// A session's control connection, to see whether its client is still there.
#[derive(Debug)]
pub struct ControlSocket(OwnedFd);

impl ControlSocket {
    /// Of a connected socket.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        socket.try_clone_to_owned().map(Self)
    }

    /// The client closed its side, or the connection broke.
    pub fn peer_has_closed(&self) -> bool {
        has_hung_up(self.0.as_fd())
    }
}

/// An upload that wants a file, and how to watch and stop it.
#[derive(Debug, Clone)]
pub struct UploadClient {
    /// Whose upload it is.
    pub uploader: Uploader,
    /// Its client.
    pub control_socket: Arc<ControlSocket>,
    /// To see its progress, and to stop it.
    pub control: Arc<TransferControl>,
}

impl UploadClient {
    /// Fails when nobody waits for this upload any more.
    pub(super) fn check_wanted(&self) -> Result<(), FileError> {
        if self.control.is_cancelled() || self.control_socket.peer_has_closed() {
            return Err(aborted_error());
        }
        Ok(())
    }
}

/// An upload that owns its file or a part of it.
#[derive(Debug)]
pub struct ActiveUpload {
    /// `None`: no upload, but a change of the file that is over soon.
    client: Option<UploadClient>,
    claim: WriteLockKind,
    /// All bytes are there; what is left is this end's work.
    ending: AtomicBool,
    taken_over: AtomicBool,
    /// Another upload has had the file open at the same time.
    shared: AtomicBool,
    /// It takes out of the file what it stored: nobody else may begin to store there.
    withdrawing: AtomicBool,
}

impl ActiveUpload {
    /// Whether it keeps out who wants to store with this claim.
    fn conflicts_with(&self, wanted: WriteLockKind) -> bool {
        let sole = self.claim == WriteLockKind::Exclusive || wanted == WriteLockKind::Exclusive;
        sole || self.withdrawing.load(Ordering::Relaxed)
    }

    /// All bytes have come.
    pub(super) fn mark_received(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// It was stopped for another one.
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

/// All uploads under way, shared by all sessions.
#[derive(Debug, Default)]
pub struct UploadRegistry {
    open: Mutex<HashMap<Inode, Vec<Arc<ActiveUpload>>>>,
    /// One has ended.
    freed: Condvar,
}

/// An upload's entry, for as long as it has the file open.
#[derive(Debug)]
pub(super) struct UploadLease {
    uploads: Arc<UploadRegistry>,
    inode: Inode,
    upload: Arc<ActiveUpload>,
}

impl UploadRegistry {
    /// Enters an upload, unless the file's owners exclude it.
    pub(super) fn register(
        self: &Arc<Self>,
        inode: Inode,
        claim: WriteLockKind,
        by: &UploadClient,
    ) -> Option<UploadLease> {
        self.admit(inode, claim, Some(by.clone()))
    }

    /// Keeps uploads away from a file that is changed without one, unless somebody stores into it.
    pub(super) fn exclude_uploads(self: &Arc<Self>, inode: Inode) -> Option<UploadLease> {
        self.admit(inode, WriteLockKind::Exclusive, None)
    }

    fn admit(
        self: &Arc<Self>,
        inode: Inode,
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
        let owners = open.entry(inode).or_default();
        if owners.iter().any(|owner| owner.conflicts_with(claim)) {
            return None;
        }
        upload.shared.store(!owners.is_empty(), Ordering::Relaxed);
        for owner in owners.iter() {
            owner.shared.store(true, Ordering::Relaxed);
        }
        owners.push(Arc::clone(&upload));
        Some(UploadLease {
            uploads: Arc::clone(self),
            inode,
            upload,
        })
    }

    /// Whether somebody stores into the file.
    pub(super) fn is_being_written(&self, inode: Inode) -> bool {
        self.open().contains_key(&inode)
    }

    /// Runs `act` while nobody can begin to store into the file, unless an upload whose client is
    /// there has it.
    pub(super) fn unless_uploading<T>(&self, inode: Inode, act: impl FnOnce() -> T) -> Option<T> {
        let open = self.open();
        let mut owners = open.get(&inode).into_iter().flatten();
        let lives = |owner: &Arc<ActiveUpload>| {
            let by = owner.client.as_ref();
            by.is_some_and(|by| !by.control_socket.peer_has_closed())
        };
        if owners.any(lives) {
            return None;
        }
        Some(act())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Inode, Vec<Arc<ActiveUpload>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadLease {
    pub(super) fn upload(&self) -> &Arc<ActiveUpload> {
        &self.upload
    }

    /// Nobody else may store into the file.
    pub(super) fn is_exclusive(&self) -> bool {
        self.upload.claim == WriteLockKind::Exclusive
    }

    /// Keeps all others out from now on, unless another upload has had the file since this one began:
    /// what both stored is the other's, too, which may have been told that it is on disk.
    pub(super) fn begin_rollback(&self) -> bool {
        let _nobody_enters = self.uploads.open();
        let shared = self.upload.shared.load(Ordering::Relaxed);
        self.upload.withdrawing.store(!shared, Ordering::Relaxed);
        !shared
    }

    /// Fails when nobody waits for this upload any more.
    pub(super) fn check_wanted(&self) -> Result<(), FileError> {
        self.upload
            .client
            .as_ref()
            .map_or(Ok(()), UploadClient::check_wanted)
    }

    /// Runs `act` while nobody else can enter, if nobody else has.
    pub(super) fn if_only_owner(&self, act: impl FnOnce()) {
        let open = self.uploads.open();
        if open
            .get(&self.inode)
            .is_some_and(|owners| owners.len() == 1)
        {
            act();
        }
    }
}

impl Drop for UploadLease {
    fn drop(&mut self) {
        let mut open = self.uploads.open();
        if let Some(owners) = open.get_mut(&self.inode) {
            owners.retain(|owner| !Arc::ptr_eq(owner, &self.upload));
            if owners.is_empty() {
                open.remove(&self.inode);
            }
        }
        drop(open);
        self.uploads.freed.notify_all();
    }
}

/// A second upload's wait for a file.
#[derive(Debug)]
pub(super) struct OwnerWait<'a> {
    uploads: &'a UploadRegistry,
    claim: WriteLockKind,
    by: &'a UploadClient,
    began: Instant,
    /// The owners met so far.
    watched: Vec<WatchedOwner>,
}

/// An owner under watch.
#[derive(Debug)]
struct WatchedOwner {
    upload: Arc<ActiveUpload>,
    since: Instant,
    /// Bytes it had received after [`SETTLE`].
    settled: Option<u64>,
}

/// The decision about an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerVerdict {
    /// It lives: the second upload is refused.
    KeepsFile,
    /// It is stopped.
    MustYield,
    /// That is not known yet, or it is ending already.
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

    /// Returns when nobody who excludes this upload owns the file any more.
    ///
    /// # Errors
    /// [`FileErrorKind::InUse`] when an owner lives, or none has let go in time;
    /// [`FileErrorKind::Aborted`] when this upload is stopped meanwhile.
    pub(super) fn wait_until_free(&mut self, inode: Inode) -> Result<(), FileError> {
        let mut open = self.uploads.open();
        loop {
            self.by.check_wanted()?;
            let owners: Vec<_> = open
                .get(&inode)
                .into_iter()
                .flatten()
                .filter(|owner| owner.conflicts_with(self.claim))
                .map(Arc::clone)
                .collect();
            if owners.is_empty() {
                return Ok(());
            }
            self.judge(&owners, Instant::now())?;
            let wait = self.uploads.freed.wait_timeout(open, LOOK);
            open = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stops the owners that give way, unless one of them stays.
    fn judge(&mut self, owners: &[Arc<ActiveUpload>], now: Instant) -> Result<(), FileError> {
        let verdicts: Vec<_> = owners
            .iter()
            .map(|owner| self.verdict(owner, now))
            .collect();
        if verdicts.contains(&OwnerVerdict::KeepsFile) || now.duration_since(self.began) > LONGEST {
            return Err(in_use_error());
        }
        for (owner, verdict) in owners.iter().zip(verdicts) {
            if verdict == OwnerVerdict::MustYield {
                tracing::info!("a store gives way to a later one of the same file");
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
        if by.uploader != self.by.uploader {
            return OwnerVerdict::KeepsFile;
        }
        if owner.ending.load(Ordering::Relaxed) {
            // It may be this client's own, cut off after its last byte.
            return OwnerVerdict::Undecided;
        }
        let bytes = by.control.bytes();
        let watched = self.watched(owner, now);
        let seen = now.duration_since(watched.since);
        if seen < SETTLE {
            return OwnerVerdict::Undecided;
        }
        match *watched.settled.get_or_insert(bytes) {
            settled if settled != bytes => OwnerVerdict::KeepsFile,
            _ if seen >= WATCH => OwnerVerdict::MustYield,
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

/// The file that a session has stored last, and whether it is still as that upload left it. Shared by all
/// clones of one session's files.
///
/// A client that stores under an unfinished name and then renames takes the file for what it sent. If
/// another session stored to the name in between, the file is another one's.
#[derive(Debug, Clone, Default)]
pub(super) struct LastUpload(Arc<Mutex<Option<FileIdentity>>>);

impl LastUpload {
    /// A store that had the file to itself ended and left it in this state.
    pub(super) fn record(&self, state: FileIdentity) {
        *self.state() = Some(state);
    }

    /// This session is about to change the content of a file.
    pub(super) fn forget(&self, inode: (u64, u64)) {
        let mut state = self.state();
        if state.is_some_and(|state| state.inode == inode) {
            *state = None;
        }
    }

    /// This session changed the name, times or rights of a file.
    pub(super) fn carry_over(&self, before: &FileIdentity, after: FileIdentity) {
        let mut state = self.state();
        if *state == Some(*before) {
            *state = Some(after);
        }
    }

    /// Whether `now` is of the file that was stored, and somebody else has changed it since.
    pub(super) fn was_overwritten(&self, now: &FileIdentity) -> bool {
        self.state()
            .is_some_and(|state| state.inode == now.inode && state != *now)
    }

    fn state(&self) -> MutexGuard<'_, Option<FileIdentity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another upload owns the file.
pub(super) fn in_use_error() -> FileError {
    FileError {
        kind: FileErrorKind::InUse,
        errno: None,
        text: "another upload is writing this file".to_owned(),
    }
}

#[cfg(test)]
mod tests;
