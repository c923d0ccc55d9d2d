//! The files of a bundle as one sink.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use parking_lot::Mutex;
use proto::bundle::BundleFailure;

use super::shared_sync::SharedSync;
use super::sums::{checksum_of, checksum_of_nothing};
use super::{BundleLayout, BundleMember, MemberFailures};
use crate::os::disk;
use crate::store::durability::SyncPolicy;
use crate::store::modification_time::set_modified;
use crate::store::naming::FileNode;
use crate::store::{Sink, Source};

/// From so many files on, one syncfs(2) costs less than an fsync(2) of each.
const SYNC_TOGETHER_FROM: usize = 8;
/// Most files that are open because they lack bytes. A sender has two for each of its streams (at most 256), at the ends of
/// the block that the stream carries. Without a bound, a client that sends one byte of each file holds as many descriptors.
const MAX_HALF_WRITTEN: usize = 512;

/// Where the files of a bundle are written. Files are named by their position.
pub trait BundleTarget: Send + Sync {
    /// Creates a file beside its final name.
    ///
    /// # Errors
    /// Those of the file system; the destination may not be written.
    fn create(&self, index: usize) -> io::Result<File>;

    /// Opens a file that has no name yet, to read it.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self, index: usize) -> io::Result<File>;

    /// Gives the complete file `created` its name, if its present name is still its own.
    ///
    /// # Errors
    /// As [`BundleTarget::create`].
    fn put_in_place(&self, index: usize, created: FileNode) -> io::Result<()>;

    /// Removes a file that gets no name. Errors are ignored: nobody could do more.
    fn remove(&self, index: usize);
}

/// The files of a bundle, to be written. Files that [`BundleSink::finish`] does not put in place are removed when this
/// is dropped.
pub struct BundleSink {
    members: Vec<BundleMember>,
    layout: BundleLayout,
    target: Box<dyn BundleTarget>,
    policy: SyncPolicy,
    /// Files of which a part was written.
    begun: Mutex<HashMap<usize, HalfWritten>>,
    progress: Mutex<Vec<MemberProgress>>,
    failures: MemberFailures,
    /// Those on which files were written, by device.
    file_systems: Mutex<HashMap<u64, Arc<SharedSync>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberProgress {
    /// There is no file.
    Absent,
    /// The file lacks bytes.
    Begun(FileNode),
    /// The file has all bytes.
    Written(FileNode),
    /// The file has its name.
    InPlace,
}

impl MemberProgress {
    /// Whether there is a file that has no name yet.
    fn is_unnamed(self) -> bool {
        matches!(self, Self::Begun(_) | Self::Written(_))
    }
}

#[derive(Debug)]
struct HalfWritten {
    file: Arc<File>,
    /// Bytes not written yet.
    left: u64,
}

impl BundleSink {
    /// The bundle of `members`, written to `target` and forced to disk by `policy`.
    pub fn new(
        members: Vec<BundleMember>,
        target: impl BundleTarget + 'static,
        policy: SyncPolicy,
    ) -> Self {
        Self {
            layout: BundleLayout::new(&members),
            progress: Mutex::new(vec![MemberProgress::Absent; members.len()]),
            members,
            target: Box::new(target),
            policy,
            begun: Mutex::default(),
            failures: MemberFailures::default(),
            file_systems: Mutex::default(),
        }
    }

    /// Bytes of all files.
    pub fn total(&self) -> u64 {
        self.layout.total()
    }

    /// Marks files whose bytes are not to be used.
    pub fn drop_members(&self, failures: &[BundleFailure]) {
        for failure in failures {
            let reason = io::Error::other(failure.reason.clone());
            self.failures.note(failure.index, &reason);
        }
    }

    /// Forgets what was written of a file that is moved again from its first byte.
    pub fn begin_again(&self, index: usize) {
        self.begun.lock().remove(&index);
        if self.progress_of(index).is_unnamed() {
            self.target.remove(index);
            self.set_progress(index, MemberProgress::Absent);
        }
    }

    /// The checksum of each file as it was written ([`proto::bundle::CHECKSUM`]). `None`: it is not complete, or cannot be
    /// read.
    pub fn checksums(&self) -> Vec<Option<String>> {
        let checksum = |index: usize| {
            if self.failures.contains(index) {
                return None;
            }
            if self.members[index].size == 0 {
                return checksum_of_nothing();
            }
            match self.progress_of(index) {
                MemberProgress::Written(_) => checksum_of(self.target.open(index)),
                _ => None,
            }
        };
        (0..self.members.len()).map(checksum).collect()
    }

    /// Forces the files to disk, gives them their names, and forces these to disk. Call it when all bytes have arrived
    /// and are known to be right. Returns the files that failed; all others are in place.
    ///
    /// # Errors
    /// The disk. The files may or may not be in place, and nothing is known of their bytes.
    pub fn finish(&self) -> io::Result<Vec<BundleFailure>> {
        for (index, member) in self.members.iter().enumerate() {
            if member.size == 0 && !self.failures.contains(index) {
                let created = self.create(index);
                self.note(index, created.and_then(|file| self.complete(index, &file)));
            }
        }
        self.sync_file_systems()?;
        for index in 0..self.members.len() {
            if self.failures.contains(index) {
                continue;
            }
            let MemberProgress::Written(created) = self.progress_of(index) else {
                let missing = io::Error::from(io::ErrorKind::UnexpectedEof);
                self.failures.note(index, &missing);
                continue;
            };
            let placed = self.target.put_in_place(index, created);
            if placed.is_ok() {
                self.set_progress(index, MemberProgress::InPlace);
            }
            self.note(index, placed);
        }
        // The names.
        self.sync_file_systems()?;
        Ok(self.failures.list())
    }

    fn create(&self, index: usize) -> io::Result<File> {
        let file = self.target.create(index)?;
        self.set_progress(index, MemberProgress::Begun(FileNode::of(&file)?));
        // Also for few files: their names need it. Before the first byte, so that no error of the disk is missed.
        if self.policy == SyncPolicy::File {
            self.note_file_system(&file)?;
        }
        Ok(file)
    }

    /// All bytes of a file are written.
    fn complete(&self, index: usize, file: &File) -> io::Result<()> {
        if let Some(time) = self.members[index].modified {
            set_modified(file, time)?;
        }
        if self.policy == SyncPolicy::File && self.members.len() < SYNC_TOGETHER_FROM {
            disk::sync_all(file)?;
        }
        self.set_progress(index, MemberProgress::Written(FileNode::of(file)?));
        Ok(())
    }

    fn write_part(&self, index: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = {
            let mut begun = self.begun.lock();
            match begun.get(&index) {
                Some(member) => Arc::clone(&member.file),
                None if begun.len() >= MAX_HALF_WRITTEN => {
                    let reason = "too many files of the bundle lack bytes at the same time";
                    return Err(io::Error::other(reason));
                }
                None => {
                    let file = Arc::new(self.create(index)?);
                    let member = HalfWritten {
                        file: Arc::clone(&file),
                        left: self.members[index].size,
                    };
                    begun.insert(index, member);
                    file
                }
            }
        };
        file.write_all_at(bytes, offset)?;
        let mut begun = self.begun.lock();
        let Some(member) = begun.get_mut(&index) else {
            return Ok(());
        };
        member.left = member.left.saturating_sub(bytes.len() as u64);
        if member.left > 0 {
            return Ok(());
        }
        begun.remove(&index);
        drop(begun);
        self.complete(index, &file)
    }

    fn write_whole(&self, index: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.create(index)?;
        file.write_all_at(bytes, 0)?;
        self.complete(index, &file)
    }

    fn note_file_system(&self, file: &File) -> io::Result<()> {
        let device = file.metadata()?.dev();
        let mut known = self.file_systems.lock();
        if let Entry::Vacant(entry) = known.entry(device) {
            entry.insert(SharedSync::of(file, device)?);
        }
        Ok(())
    }

    /// Forces all that was written on the file systems of the bundle to disk (syncfs(2)).
    fn sync_file_systems(&self) -> io::Result<()> {
        let known: Vec<_> = self.file_systems.lock().values().cloned().collect();
        known.iter().try_for_each(|shared| shared.sync())
    }

    fn note(&self, index: usize, result: io::Result<()>) {
        if let Err(error) = result {
            self.failures.note(index, &error);
        }
    }

    fn progress_of(&self, index: usize) -> MemberProgress {
        self.progress.lock()[index]
    }

    fn set_progress(&self, index: usize, progress: MemberProgress) {
        self.progress.lock()[index] = progress;
    }
}

impl std::fmt::Debug for BundleSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundleSink")
            .field("files", &self.members.len())
            .finish_non_exhaustive()
    }
}

impl Drop for BundleSink {
    fn drop(&mut self) {
        let progress = std::mem::take(&mut *self.progress.lock());
        for (index, progress) in progress.into_iter().enumerate() {
            if progress.is_unnamed() {
                self.target.remove(index);
            }
        }
    }
}

impl Sink for BundleSink {
    fn name(&self) -> String {
        format!("{} files", self.members.len())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.layout.total()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "more bytes than the files of the bundle have",
            ));
        }
        for part in self.layout.parts(offset, buf.len()) {
            if self.failures.contains(part.index) {
                continue;
            }
            let piece = &buf[part.start..part.end];
            self.note(
                part.index,
                match part.is_whole {
                    true => self.write_whole(part.index, piece),
                    false => self.write_part(part.index, part.offset, piece),
                },
            );
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        None
    }
}
