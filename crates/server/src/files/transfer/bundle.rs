//! Bundles of small files ([`proto::bundle`]): opening one to send or to store it, and ending it.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use data::recv::ReceivePlan;
use data::send::SendPlan;
use data::store::bundle::{BundleMember, BundleSink, BundleSource, BundleTarget, OpenDirectories};
use data::store::naming::{FileNode, NamingError};
use data::store::root::{EntryUsage, Root, StoreError, TreeUsage};
use parking_lot::{Mutex, MutexGuard};
use proto::bundle::{
    BundleFailure, BundleFile, BundleOutcome, BundleProof, CHECKSUM, partial_name,
};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{FileError, FileErrorKind};

use crate::files::quota::member::MemberCharge;
use crate::files::{Access, PathRights, SessionFiles, SessionQuota};

/// Largest bundle whose files are read again to find those that arrived wrong, bytes.
const MAX_SUMMED_BYTES: u64 = 1 << 30;

/// A bundle that is open to be sent.
#[derive(Debug)]
pub struct OpenedBundleSource {
    /// The bytes.
    pub source: Arc<BundleSource>,
    /// All of them.
    pub plan: SendPlan,
    last: LastBundle,
}

/// A bundle that is open to be stored.
#[derive(Debug)]
pub struct OpenedBundleStore {
    /// Takes the bytes.
    pub sink: Arc<BundleSink>,
    /// All of them.
    pub plan: ReceivePlan,
    last: LastBundle,
}

/// The bundle of a session's last transfer, until it is ended.
#[derive(Debug, Clone, Default)]
pub(in crate::files) struct LastBundle(Arc<Mutex<Option<PassedBundle>>>);

/// A bundle whose bytes have passed.
#[derive(Debug)]
struct PassedBundle {
    checksum: Option<String>,
    files: PassedFiles,
    /// The client has got the checksums of the files.
    summed: bool,
}

#[derive(Debug)]
enum PassedFiles {
    Sent(Arc<BundleSource>),
    /// They have no names yet.
    Stored(Arc<BundleSink>),
}

impl PassedFiles {
    fn checksums(&self) -> Vec<Option<String>> {
        match self {
            Self::Sent(source) => source.checksums(),
            Self::Stored(sink) => sink.checksums(),
        }
    }

    fn total(&self) -> u64 {
        match self {
            Self::Sent(source) => source.total(),
            Self::Stored(sink) => sink.total(),
        }
    }
}

impl SessionFiles {
    /// A bundle to send. Its files are opened one after the other, while it is sent.
    pub(super) fn open_bundle_source(&self, files: &[BundleFile]) -> OpenedBundleSource {
        let _ = self.last_bundle.take();
        let (root, rights) = (Arc::clone(&self.root), self.paths.clone());
        let (paths, directories) = (paths_of(files), OpenDirectories::default());
        let open = move |index: usize| {
            let path: &VPath = &paths[index];
            rights.check(Access::Read, path).map_err(refused)?;
            let directory = directory_of(&directories, &root, path)?;
            root.open_read_in(directory, path)
                .map_err(|error| refused(FileError::from(error)))
        };
        let source = BundleSource::new(members_of(files), open);
        OpenedBundleSource {
            source: Arc::new(source),
            plan: SendPlan {
                ranges: whole(files),
                origin: 0,
            },
            last: self.last_bundle.clone(),
        }
    }

    /// A bundle to store.
    ///
    /// # Errors
    /// The session may only read, or there is not enough space.
    pub(super) fn open_bundle_store(
        &self,
        directory: &VPath,
        files: &[BundleFile],
    ) -> Result<OpenedBundleStore, FileError> {
        let _ = self.last_bundle.take();
        self.require_write()?;
        let total = whole(files).end();
        let free = self.root.free_space(directory)?;
        if total > free {
            return Err(FileError::new(
                FileErrorKind::NoSpace,
                format!(
                    "No space left on device: {total} bytes announced for {directory}, {free} free"
                ),
            ));
        }
        let target = RootedBundle {
            root: Arc::clone(&self.root),
            quota: self.quota.clone(),
            sizes: files.iter().map(|file| file.size).collect(),
            charges: Mutex::default(),
            rights: self.paths.clone(),
            paths: paths_of(files),
            directories: OpenDirectories::default(),
            // Not a secret: O_EXCL decides whose name it is.
            token: RandomState::new().hash_one(directory.as_bytes()),
        };
        if let Some(quota) = &self.quota {
            let more = TreeUsage {
                bytes: total,
                files: files.len() as u64,
            };
            quota.require(more, || target.replaced())?;
        }
        Ok(OpenedBundleStore {
            sink: Arc::new(BundleSink::new(members_of(files), target, self.sync)),
            plan: ReceivePlan {
                origin: 0,
                stream_start: 0,
                limit: Some(total),
            },
            last: self.last_bundle.clone(),
        })
    }

    /// Ends the bundle of the last transfer. The files of one that was stored get their names, if the proof is right. If
    /// it is wrong, the outcome has the checksums of the files, and the bundle can be ended once more.
    ///
    /// # Errors
    /// There is no bundle, its bytes have another checksum for the second time, or the disk refuses.
    pub(in crate::files) fn end_bundle(
        &self,
        proof: Option<&BundleProof>,
    ) -> Result<BundleOutcome, FileError> {
        let Some(passed) = self.last_bundle.take() else {
            return Err(other("No bundle has been transferred".to_owned()));
        };
        let checksum = passed.checksum.clone().map(|hex| (CHECKSUM, hex));
        let differs = proof.is_some_and(|proof| {
            checksum.as_ref() != Some(&(proof.algorithm, proof.checksum.clone()))
        });
        if differs {
            let sums = self.sums_of(passed)?;
            return Ok(BundleOutcome {
                checksum,
                failures: Vec::new(),
                sums,
            });
        }
        let failures = match &passed.files {
            PassedFiles::Sent(source) => {
                let failures = source.finish();
                // The client may have received other bytes.
                self.last_bundle.keep(passed);
                failures
            }
            PassedFiles::Stored(sink) => {
                let Some(proof) = proof else {
                    return Err(wrong_checksum());
                };
                let without = proof.without.iter().map(|index| BundleFailure {
                    index: *index,
                    reason: "the client could not read it".to_owned(),
                });
                sink.drop_members(&without.collect::<Vec<_>>());
                sink.finish()
                    .map_err(|error| other(format!("The bundle is not on disk: {error}")))?
            }
        };
        Ok(BundleOutcome {
            checksum,
            failures,
            sums: Vec::new(),
        })
    }

    /// The checksums of the files of a bundle, once. The bundle is kept.
    fn sums_of(&self, passed: PassedBundle) -> Result<Vec<Option<String>>, FileError> {
        if passed.summed || passed.files.total() > MAX_SUMMED_BYTES {
            return Err(wrong_checksum());
        }
        let sums = passed.files.checksums();
        self.last_bundle.keep(PassedBundle {
            summed: true,
            ..passed
        });
        Ok(sums)
    }
}

impl OpenedBundleSource {
    /// All bytes were sent; they have this checksum.
    pub(crate) fn sent(self, checksum: Option<String>) {
        let files = PassedFiles::Sent(self.source);
        *self.last.lock() = Some(PassedBundle {
            checksum,
            files,
            summed: false,
        });
    }
}

impl OpenedBundleStore {
    /// All bytes have arrived; they have this checksum.
    pub(crate) fn received(self, checksum: Option<String>) {
        let files = PassedFiles::Stored(self.sink);
        *self.last.lock() = Some(PassedBundle {
            checksum,
            files,
            summed: false,
        });
    }
}

impl LastBundle {
    /// Forgets the bundle; files without a name are removed.
    fn take(&self) -> Option<PassedBundle> {
        self.lock().take()
    }

    /// Keeps a bundle for a further SITE BUNDLE END.
    fn keep(&self, bundle: PassedBundle) {
        *self.lock() = Some(bundle);
    }

    /// The slot is consistent after every statement, so that a panic of the holder leaves it usable.
    fn lock(&self) -> MutexGuard<'_, Option<PassedBundle>> {
        self.0.lock()
    }
}

/// The files of a bundle below a session's root.
struct RootedBundle {
    root: Arc<Root>,
    rights: PathRights,
    quota: Option<SessionQuota>,
    sizes: Vec<u64>,
    /// Charges to the quota of the files that have no name yet.
    charges: Mutex<HashMap<usize, MemberCharge>>,
    paths: Vec<VPath>,
    directories: OpenDirectories,
    token: u64,
}

impl RootedBundle {
    fn directory(&self, index: usize) -> io::Result<Arc<OwnedFd>> {
        directory_of(&self.directories, &self.root, &self.paths[index])
    }

    fn partial(&self, index: usize) -> io::Result<VPath> {
        let name = partial_name(self.token, index);
        let path = self.paths[index].parent().join(&name);
        path.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Bytes and files that the root holds less when all files are in place.
    fn replaced(&self) -> TreeUsage {
        let replaced = self.paths.iter().filter_map(|path| self.replaced_by(path));
        replaced.fold(TreeUsage::default(), |sum, entry| sum.plus(entry.usage))
    }

    /// The file whose name a new one takes.
    fn replaced_by(&self, path: &VPath) -> Option<EntryUsage> {
        let there = self.root.usage_of(path);
        there.filter(|_| self.rights.may_overwrite(path))
    }

    /// Charges a new file to the quota.
    fn charge(&self, index: usize, file: &File) -> io::Result<()> {
        let Some(quota) = &self.quota else {
            return Ok(());
        };
        let replaced = self.replaced_by(&self.paths[index]);
        let charge = quota.open_member(file, self.sizes[index], replaced);
        self.charges.lock().insert(index, charge.map_err(refused)?);
        Ok(())
    }
}

impl BundleTarget for RootedBundle {
    fn create(&self, index: usize) -> io::Result<File> {
        let path = &self.paths[index];
        // No command could name such a file again.
        if path.name().iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(io::Error::other(
                "FTP cannot carry a name with a line break",
            ));
        }
        self.rights.check(Access::Create, path).map_err(refused)?;
        let partial = partial_name(self.token, index);
        let directory = self.directory(index)?;
        let created = self.root.open_new_in(directory, path, &partial);
        let file = created.map_err(|error| refused(FileError::from(error)))?;
        match self.charge(index, &file) {
            Ok(()) => Ok(file),
            Err(error) => {
                self.remove(index);
                Err(error)
            }
        }
    }

    fn open(&self, index: usize) -> io::Result<File> {
        let opened = self.root.open_read(&self.partial(index)?);
        opened.map_err(|error| refused(FileError::from(error)))
    }

    fn put_in_place(&self, index: usize, created: FileNode) -> io::Result<()> {
        let (partial, path) = (partial_name(self.token, index), &self.paths[index]);
        // A token may have expired since the file was created.
        self.rights.check(Access::Create, path).map_err(refused)?;
        let replaces = self.rights.may_overwrite(path);
        let directory = self.directory(index)?;
        let rename = || {
            let renamed = created.rename(directory, &partial, path.name(), replaces);
            renamed.map_err(|error| match error {
                NamingError::System(errno) => {
                    refused(StoreError::from_io("rename", path, &errno.into()).into())
                }
                other => other.into(),
            })
        };
        let charge = self.charges.lock().remove(&index);
        let Some(charge) = charge else {
            return rename();
        };
        let placed = charge.put_in_place(&self.root, path, rename);
        if placed.is_err() {
            self.charges.lock().insert(index, charge);
        }
        placed
    }

    fn remove(&self, index: usize) {
        let removed = self
            .partial(index)
            .map(|partial| self.root.delete(&partial));
        if let Some(charge) = self.charges.lock().remove(&index) {
            charge.give_up();
        }
        if let Ok(Err(error)) = removed {
            tracing::debug!(%error, "a file of a bundle stays");
        }
    }
}

/// The directory of `path`, kept open for the files that follow.
fn directory_of(kept: &OpenDirectories, root: &Root, path: &VPath) -> io::Result<Arc<OwnedFd>> {
    let opened = kept.get(path.directory(), || root.open_parent(path));
    opened.map_err(|error| refused(FileError::from(error)))
}

fn paths_of(files: &[BundleFile]) -> Vec<VPath> {
    files.iter().map(|file| file.path.clone()).collect()
}

fn members_of(files: &[BundleFile]) -> Vec<BundleMember> {
    let member = |file: &BundleFile| BundleMember {
        size: file.size,
        modified: file.modified,
    };
    files.iter().map(member).collect()
}

/// The range of all bytes. The session has checked that their number is that of a file.
fn whole(files: &[BundleFile]) -> RangeSet {
    let total = files.iter().map(|file| file.size).sum();
    let mut ranges = RangeSet::new();
    ranges.insert(0, total);
    ranges
}

/// The reason as the client gets it.
fn refused(error: FileError) -> io::Error {
    io::Error::other(error.text)
}

fn wrong_checksum() -> FileError {
    other("The bytes that arrived have another checksum; nothing was stored".to_owned())
}

fn other(text: String) -> FileError {
    FileError::new(FileErrorKind::Other, text)
}
