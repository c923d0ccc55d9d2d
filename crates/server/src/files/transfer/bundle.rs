//! Bundles of small files ([`proto::bundle`]): opening one to send or to store it.

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
use parking_lot::Mutex;
use proto::bundle::{BundleFile, partial_name};
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{FileError, FileErrorKind};

use crate::files::passed_bundle::{LastBundle, PassedBundle, PassedFiles};
use crate::files::quota::member::MemberCharge;
use crate::files::server_account::told_as_the_servers;
use crate::files::{Access, DirectoryFiles, PathRights, SessionQuota};

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

impl DirectoryFiles {
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
            plan: SendPlan::new(whole(files), 0),
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
}

impl OpenedBundleSource {
    /// All bytes were sent; they have this checksum.
    pub(crate) fn sent(self, checksum: Option<String>) {
        let files = PassedFiles::Sent(self.source);
        self.last.keep(PassedBundle::new(files, checksum));
    }
}

impl OpenedBundleStore {
    /// All bytes have arrived; they have this checksum.
    pub(crate) fn received(self, checksum: Option<String>) {
        let files = PassedFiles::Stored(self.sink);
        self.last.keep(PassedBundle::new(files, checksum));
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
        let file = created.map_err(|error| refused(told_as_the_servers(error.into())))?;
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
                    let error = StoreError::from_io("rename", path, &errno.into());
                    refused(told_as_the_servers(error.into()))
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
