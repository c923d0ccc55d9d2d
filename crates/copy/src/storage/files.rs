//! Local files as a storage.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::durability::SyncPolicy;
use data::store::file::FileSink;
use data::store::root::remove_tree_in;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::{FactsUse, FilePart, RemovedKind, Storage};
use super::local_calls::{
    make_directories, make_directory, make_symlink, path_failure, read_directory, set_file_time,
    set_kept, stat_name,
};
use super::local_copy;
use super::local_source::{checksum_of, open_source};
use super::open_source::OpenSource;
use super::optional::{LocalAccess, ManyPaths, OptionalContracts, SymbolicLinks};
use crate::local::local_name::LocalName;
use crate::local::local_trees::LocalTrees;
use crate::local::partial::{WriteTarget, local_failure, missing_directory};
use ftp::answers::{
    ListingVisitor, MetadataChange, RenameFailure, SymlinkCheckScope, SymlinkCheckedEntry,
};
use ftp::transfer::{TransferAttempt, TransferSpec};
use ftp::{Failure, FailureKind};

/// Most range checksums that are computed for one comparison.
const MAX_RANGE_CHECKSUMS: usize = 128;

/// Capabilities of local files and pipes.
pub(super) const LOCAL_CAPABILITIES: Capabilities = Capabilities {
    ranges: true,
    several_sessions: false,
    connects_here: true,
    partial_writes: true,
    resumes_uploads: true,
    stores_whole: false,
    takes_any_name: true,
    parallel: true,
    stores_any_order: true,
    sends_markers: true,
    adapts_streams: true,
    is_carried: false,
    checksums_while_storing: false,
    checksums_while_sending: false,
    sets_time: true,
    third_party: None,
    bundles: false,
    small_files: None,
    max_queries: MAX_RANGE_CHECKSUMS,
    is_local: true,
    length_shows_content: true,
    rtt: Duration::ZERO,
};

/// Storage for the files of this machine.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    policy: SyncPolicy,
    trees: Arc<LocalTrees>,
}

impl LocalFiles {
    /// `policy` says how names that this storage creates get to disk, `trees` where links are followed.
    pub(crate) fn new(policy: SyncPolicy, trees: Arc<LocalTrees>) -> Self {
        Self { policy, trees }
    }

    /// Runs blocking `work` on the name to which a path leads.
    async fn with_name<T: Send + 'static>(
        &self,
        path: &[u8],
        work: impl FnOnce(&LocalName) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (path, trees) = (to_path(path), Arc::clone(&self.trees));
        run_blocking(move || work(&locate(&trees, &path)?)).await
    }
}

fn locate(trees: &LocalTrees, path: &Path) -> Result<LocalName, Failure> {
    trees.name(path).map_err(|e| path_failure(path, &e))
}

fn to_path(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}

/// Runs blocking `work` on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(Failure::local(e.to_string())))
}

fn failed(name: &LocalName, errno: Errno) -> Failure {
    path_failure(name.path(), &errno.into())
}

/// Batches of entries queued between a directory and the visitor.
const QUEUED_BATCHES: usize = 4;

#[async_trait]
impl Storage for LocalFiles {
    fn name(&self) -> &str {
        "this machine"
    }

    fn capabilities(&self) -> Capabilities {
        LOCAL_CAPABILITIES
    }

    async fn facts(&mut self, path: &[u8], _purpose: FactsUse) -> Result<ListedEntry, Failure> {
        self.with_name(path, stat_name).await
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        let (path, trees) = (to_path(path), Arc::clone(&self.trees));
        // A bounded queue: a slow visitor slows the reading down.
        let (sender, mut batches) = mpsc::channel(QUEUED_BATCHES);
        let reading = run_blocking(move || {
            let directory = trees.open_directory(&path);
            let directory = directory.map_err(|e| path_failure(&path, &e))?;
            read_directory(&directory, &path, |entries| {
                match sender.blocking_send(entries) {
                    Ok(()) => ControlFlow::Continue(()),
                    // The visitor has stopped.
                    Err(_) => ControlFlow::Break(()),
                }
            })
        });
        let visiting = async {
            while let Some(entries) = batches.recv().await {
                let mut entries = entries.into_iter().map(SymlinkCheckedEntry::certain);
                if entries.try_for_each(&mut *visit).is_break() {
                    batches.close();
                    return;
                }
            }
        };
        let (read, ()) = tokio::join!(reading, visiting);
        read
    }

    async fn available_checksums(&mut self, _path: &[u8]) -> Result<AvailableChecksums, Failure> {
        Ok(AvailableChecksums::all())
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let mut sums = Vec::with_capacity(parts.len());
        for part in parts {
            let opened = self.with_name(path, open_source).await?;
            sums.push(checksum_of(opened, algorithm, part.offset, part.length).await?);
        }
        Ok(sums)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let opened = self.with_name(path, open_source).await?;
        local_copy::copy_local(opened.source, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let policy = self.policy;
        // Without safe ranges nothing of the old content may remain.
        let truncate = spec.completed_ranges.is_empty();
        let sink = self.with_name(path, move |name| {
            let open = || {
                let file = name.create()?;
                if truncate {
                    file.set_len(0)?;
                }
                FileSink::new(file, name.path().to_string_lossy())
            };
            let sink = open().map_err(|e| path_failure(name.path(), &e))?;
            Ok(Arc::new(sink.with_policy(policy, None)))
        });
        let sink = sink.await?;
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let attempt = local_copy::copy_local(source, shared, spec, control).await?;
        ftp::transfer::control_messages::add_stored_ranges(&spec.stored_ranges, &control.stored());
        run_blocking(move || {
            sink.sync()
                .map_err(|e| Failure::about(FailureKind::of_store(&e), sink.name(), e))
        })
        .await?;
        Ok(attempt)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        let (policy, trees) = (self.policy, Arc::clone(&self.trees));
        self.with_name(path, move |name| {
            let is_new = make_directory(name, policy)?;
            if is_new {
                let kept = trees.made(name.path());
                kept.map_err(|e| local_failure(name.path(), e))?;
            }
            Ok(is_new)
        })
        .await
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        let removed = move |name: &LocalName| match kind {
            RemovedKind::File => name.remove().map_err(|errno| failed(name, errno)),
            RemovedKind::EmptyDirectory => {
                let removed = name.remove_directory();
                removed.map_err(|errno| failed(name, errno))
            }
            RemovedKind::Tree => remove_tree(name),
        };
        self.with_name(path, removed).await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (to, trees) = (to_path(to), Arc::clone(&self.trees));
        let renamed = self.with_name(from, move |from| {
            if let Some(time) = modified {
                // The copy is complete without the time.
                let _ = set_file_time(from, time);
            }
            let to = locate(&trees, &to)?;
            from.rename(&to).map_err(|errno| failed(from, errno))
        });
        Ok(renamed.await?)
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (to_path(change.path), change.kept))
            .collect();
        let trees = Arc::clone(&self.trees);
        run_blocking(move || {
            let set = |at: &Path, kept| {
                let name = trees.name_for_attributes(at);
                name.is_ok_and(|name| set_kept(&name, kept))
            };
            Ok(changes.iter().map(|(at, kept)| set(at, *kept)).collect())
        })
        .await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        let (path, trees) = (to_path(path), Arc::clone(&self.trees));
        run_blocking(move || {
            let name = trees.name_for_attributes(&path);
            set_file_time(&name.map_err(|e| path_failure(&path, &e))?, time)
        })
        .await
    }
}

/// Not followed: a link to a directory is removed as a link.
fn remove_tree(name: &LocalName) -> Result<(), Failure> {
    match remove_tree_in(name.directory(), name.name().as_bytes()) {
        Err(Errno::BUSY) => Err(local_failure(
            name.path(),
            "a file system is mounted here or below, and what is in it was not removed: unmount it first",
        )),
        removed => removed.map_err(|errno| failed(name, errno)),
    }
}

impl OptionalContracts for LocalFiles {
    fn local_access(&mut self) -> Option<&mut dyn LocalAccess> {
        Some(self)
    }

    fn symbolic_links(&mut self) -> Option<&mut dyn SymbolicLinks> {
        Some(self)
    }

    fn many_paths(&mut self) -> Option<&mut dyn ManyPaths> {
        Some(self)
    }
}

#[async_trait]
impl LocalAccess for LocalFiles {
    async fn open(&mut self, path: &[u8]) -> Result<OpenSource, Failure> {
        self.with_name(path, open_source).await
    }

    async fn write_target(&mut self, path: &[u8]) -> Result<WriteTarget, Failure> {
        let (path, trees) = (to_path(path), Arc::clone(&self.trees));
        run_blocking(move || {
            let name = locate(&trees, &path).map_err(|failure| match failure.kind() {
                FailureKind::NotFound => missing_directory(&path),
                _ => failure,
            })?;
            WriteTarget::for_name(&name)
        })
        .await
    }
}

#[async_trait]
impl SymbolicLinks for LocalFiles {
    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        let canonical = fs::canonicalize(to_path(path));
        canonical.map_or_else(
            |_| path.to_vec(),
            |canonical| canonical.as_os_str().as_bytes().to_vec(),
        )
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        _absolute: &[u8],
        at: &[u8],
    ) -> Result<bool, Failure> {
        let (target, trees) = (to_path(target), Arc::clone(&self.trees));
        self.with_name(at, move |name| {
            let holds = trees.holds_target(name.path(), target.as_os_str().as_bytes());
            if !holds.map_err(|e| path_failure(name.path(), &e))? {
                let reason = "this link would lead out of the copied tree; it was not made";
                return Err(local_failure(name.path(), reason));
            }
            make_symlink(&target, name)
        })
        .await?;
        Ok(true)
    }
}

#[async_trait]
impl ManyPaths for LocalFiles {
    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        _may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| to_path(path)).collect();
        let (policy, trees) = (self.policy, Arc::clone(&self.trees));
        run_blocking(move || {
            let locate = |path: &Path| trees.name(path);
            let made = make_directories(&paths, locate, |name| name.sync_directory(policy));
            for (path, _) in paths.iter().zip(&made).filter(|(_, made)| **made) {
                trees.made(path).map_err(|e| local_failure(path, e))?;
            }
            Ok(made)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proto::listing::EntryKind;

    use super::*;

    fn name(path: &Path) -> LocalName {
        LocalName::at(path).unwrap()
    }

    #[test]
    fn a_link_replaces_only_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("l");
        make_symlink(Path::new("a"), &name(&at)).unwrap();
        make_symlink(Path::new("b"), &name(&at)).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("b"));
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        assert!(make_symlink(Path::new("a"), &name(&file)).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }

    #[tokio::test]
    async fn dangling_links_are_listed_and_missing_directories_fail() {
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("dead")).unwrap();
        let mut files: Box<dyn Storage> =
            Box::new(LocalFiles::new(SyncPolicy::None, Arc::default()));
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let mut found = Vec::new();
        let mut visit = |entry| {
            found.push(entry);
            ControlFlow::Continue(())
        };
        let scope = SymlinkCheckScope::Everything;
        let listed = files.list(&bytes(dir.path()), scope, &mut visit).await;
        listed.unwrap();
        let none = bytes(&dir.path().join("none"));
        let missing = files.list(&none, scope, &mut visit).await;
        assert_eq!(found[0].entry.kind, EntryKind::SymLink);
        assert_eq!(found[0].entry.link_target.as_deref(), Some(&b"nowhere"[..]));
        assert_eq!(missing.unwrap_err().kind(), FailureKind::NotFound);
        let dead = files.stat(&bytes(&dir.path().join("dead"))).await.unwrap();
        assert_eq!(dead.kind, EntryKind::SymLink);
    }
}
