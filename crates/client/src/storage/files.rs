//! Local files as a storage.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::durability::SyncPolicy;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;
use tokio::sync::mpsc;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::{OpenSource, Storage};
use super::local_calls::{
    make_directories, make_directory, make_symlink, open_source, path_failure, read_directory,
    set_file_time, set_kept, stat_path,
};
use super::local_copy;
use crate::answers::{
    ListingVisitor, MetadataChange, RenameFailure, SymlinkCheckScope, SymlinkCheckedEntry,
};
use crate::partial::{WriteTarget, local_failure};
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::verify::checksum_local;
use crate::{CopyFailure, Exit};

/// Most range checksums that are computed for one comparison.
const MAX_RANGE_CHECKSUMS: usize = 128;

/// Capabilities of local files and pipes.
pub(super) const LOCAL_CAPABILITIES: Capabilities = Capabilities {
    ranges: true,
    several_sessions: false,
    connects_here: true,
    partial_writes: true,
    resumes_uploads: true,
    replaces_whole: false,
    takes_any_name: true,
    parallel: true,
    stores_any_order: true,
    sends_markers: true,
    adapts_streams: true,
    checksums_while_storing: false,
    sets_time: true,
    third_party: None,
    bundles: false,
    series: false,
    max_queries: MAX_RANGE_CHECKSUMS,
    is_local: true,
    rtt: Duration::ZERO,
};

/// Storage for the files of this machine.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    policy: SyncPolicy,
}

impl LocalFiles {
    /// `policy` says how names that this storage creates get to disk.
    pub(crate) fn new(policy: SyncPolicy) -> Self {
        Self { policy }
    }
}

fn to_path(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}

/// Runs blocking `work` on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyFailure> + Send + 'static,
) -> Result<T, CopyFailure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(CopyFailure::new(Exit::Local, e.to_string())))
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

    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        let canonical = fs::canonicalize(to_path(path));
        canonical.map_or_else(
            |_| path.to_vec(),
            |canonical| canonical.as_os_str().as_bytes().to_vec(),
        )
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let path = to_path(path);
        run_blocking(move || stat_path(&path)).await
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        let path = to_path(path);
        // A bounded queue: a slow visitor slows the reading down.
        let (sender, mut batches) = mpsc::channel(QUEUED_BATCHES);
        let reading = run_blocking(move || {
            read_directory(&path, |entries| match sender.blocking_send(entries) {
                Ok(()) => ControlFlow::Continue(()),
                // The visitor has stopped.
                Err(_) => ControlFlow::Break(()),
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

    async fn available_checksums(
        &mut self,
        _path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        Ok(AvailableChecksums::all())
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        let path = to_path(path);
        let file = File::open(&path).map_err(|e| path_failure(&path, &e))?;
        let source =
            FileSource::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))?;
        checksum_local(algorithm, Arc::new(source), offset, length).await
    }

    async fn open(&mut self, path: &[u8]) -> Result<Option<OpenSource>, CopyFailure> {
        let path = to_path(path);
        run_blocking(move || open_source(&path)).await.map(Some)
    }

    fn write_target(&mut self, path: &[u8]) -> Result<Option<WriteTarget>, CopyFailure> {
        WriteTarget::for_path(&to_path(path)).map(Some)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let path = to_path(path);
        let opened = run_blocking(move || {
            let file = File::open(&path).map_err(|e| path_failure(&path, &e))?;
            FileSource::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))
        });
        local_copy::copy_local(Arc::new(opened.await?), sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let (path, policy) = (to_path(path), self.policy);
        // Without safe ranges nothing of the old content may remain.
        let truncate = spec.completed_ranges.is_empty();
        let sink = run_blocking(move || {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .read(true)
                .create(true)
                .truncate(truncate);
            let file = options.open(&path).map_err(|e| path_failure(&path, &e))?;
            let sink =
                FileSink::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))?;
            Ok(Arc::new(sink.with_policy(policy, None)))
        });
        let sink = sink.await?;
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let attempt = local_copy::copy_local(source, shared, spec, control).await?;
        crate::transfer::control_messages::add_stored_ranges(
            &spec.stored_ranges,
            &control.stored(),
        );
        run_blocking(move || {
            sink.sync()
                .map_err(|e| CopyFailure::new(Exit::Local, format!("{}: {e}", sink.name())))
        })
        .await?;
        Ok(attempt)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        let (path, policy) = (to_path(path), self.policy);
        run_blocking(move || make_directory(&path, policy)).await
    }

    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        _may_go_ahead: bool,
    ) -> Result<Vec<bool>, CopyFailure> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| to_path(path)).collect();
        let policy = self.policy;
        run_blocking(move || {
            Ok(make_directories(&paths, |directory| {
                policy.sync_directory(directory)
            }))
        })
        .await
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        _absolute: &[u8],
        at: &[u8],
    ) -> Result<bool, CopyFailure> {
        let (target, path) = (to_path(target), to_path(at));
        run_blocking(move || make_symlink(&target, &path)).await?;
        Ok(true)
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let path = to_path(path);
        run_blocking(move || fs::remove_file(&path).map_err(|e| path_failure(&path, &e))).await
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let path = to_path(path);
        run_blocking(move || {
            // Not followed: a link to a directory is removed as a link.
            let meta = fs::symlink_metadata(&path).map_err(|e| path_failure(&path, &e))?;
            let removed = match meta.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.map_err(|e| path_failure(&path, &e))
        })
        .await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (from, to) = (to_path(from), to_path(to));
        let renamed = run_blocking(move || {
            if let Some(time) = modified {
                // The copy is complete without the time.
                let _ = set_file_time(&from, time);
            }
            fs::rename(&from, &to).map_err(|e| path_failure(&from, &e))
        });
        Ok(renamed.await?)
    }

    async fn set_metadata(
        &mut self,
        changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, CopyFailure> {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (to_path(change.path), change.kept))
            .collect();
        run_blocking(move || {
            Ok(changes
                .iter()
                .map(|(at, kept)| set_kept(at, *kept))
                .collect())
        })
        .await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure> {
        let path = to_path(path);
        run_blocking(move || set_file_time(&path, time)).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proto::listing::EntryKind;

    use super::*;

    #[test]
    fn a_link_replaces_only_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("l");
        make_symlink(Path::new("a"), &at).unwrap();
        make_symlink(Path::new("b"), &at).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("b"));
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        assert!(make_symlink(Path::new("a"), &file).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }

    #[test]
    fn a_file_with_reported_length_zero_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for content in ["", "x"] {
            fs::write(&path, content).unwrap();
            assert!(open_source(&path).unwrap().facts.is_some());
        }
        let opened = open_source(Path::new("/proc/self/status")).unwrap();
        assert_eq!(opened.facts, None);
        assert_eq!(opened.source.len().unwrap(), None);
        let mut name = [0; 5];
        assert_eq!(opened.source.read_at(0, &mut name).unwrap(), 5);
        assert_eq!(&name, b"Name:");
    }

    #[test]
    fn dangling_links_are_listed_and_missing_directories_fail() {
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("dead")).unwrap();
        let mut found = Vec::new();
        let mut visit = |entries: Vec<ListedEntry>| {
            found.extend(entries);
            ControlFlow::Continue(())
        };
        read_directory(dir.path(), &mut visit).unwrap();
        let missing = read_directory(&dir.path().join("none"), &mut visit).unwrap_err();
        assert_eq!(found[0].kind, EntryKind::SymLink);
        assert_eq!(found[0].link_target.as_deref(), Some(&b"nowhere"[..]));
        assert_eq!(missing.exit, Exit::NotFound);
        let dead = stat_path(&dir.path().join("dead")).unwrap();
        assert_eq!(dead.kind, EntryKind::SymLink);
    }
}
