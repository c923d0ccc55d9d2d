//! Local files as a storage.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::durability::SyncPolicy;
use data::store::file::{FileSink, FileSource};
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;

use super::contract::{AvailableChecksums, Capabilities, OpenSource, Storage};
use super::local_copy;
use crate::answers::{
    KeptMetadata, MetadataChange, RenameFailure, SourceFacts, SymlinkCheckedEntry,
    modification_time,
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
    partial_writes: true,
    resumes_uploads: true,
    parallel: true,
    stores_any_order: true,
    sends_markers: true,
    adapts_streams: true,
    checksums_while_storing: false,
    sets_time: true,
    third_party: None,
    bundles: false,
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

/// A failure concerning a path: [`Exit::NotFound`] if nothing exists there.
fn path_failure(path: &Path, error: &io::Error) -> CopyFailure {
    let (exit, advice) = match error.kind() {
        ErrorKind::NotFound => (Exit::NotFound, "; check the path"),
        _ => (Exit::Local, ""),
    };
    CopyFailure::new(exit, format!("{}: {error}{advice}", path.display()))
}

/// Runs blocking `work` on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyFailure> + Send + 'static,
) -> Result<T, CopyFailure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(CopyFailure::new(Exit::Local, e.to_string())))
}

/// The entry for a file with this metadata.
fn listed_entry(name: &[u8], meta: &fs::Metadata) -> ListedEntry {
    let kind = if meta.is_symlink() {
        EntryKind::SymLink
    } else if meta.is_dir() {
        EntryKind::Dir
    } else if meta.is_file() {
        EntryKind::File
    } else {
        EntryKind::Other
    };
    ListedEntry {
        size: meta.is_file().then_some(meta.len()),
        modified: modification_time(meta),
        mode: Some(meta.mode() & 0o7777),
        link_count: Some(meta.nlink()),
        unique: Some(format!("{}-{}", meta.dev(), meta.ino())),
        ..ListedEntry::new(name, kind)
    }
}

/// Facts of a path, with links followed. A dangling link is reported as a link.
fn stat_path(path: &Path) -> Result<ListedEntry, CopyFailure> {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    match fs::metadata(path) {
        Ok(meta) => Ok(listed_entry(name, &meta)),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(link) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
                Ok(listed_entry(name, &link))
            }
            _ => Err(path_failure(path, &error)),
        },
    }
}

/// The entries of a directory. Links are not followed.
fn read_directory(path: &Path) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
    let mut entries = Vec::new();
    for dir_entry in fs::read_dir(path).map_err(|e| path_failure(path, &e))? {
        let dir_entry = dir_entry.map_err(|e| path_failure(path, &e))?;
        let name = dir_entry.file_name();
        let meta = match fs::symlink_metadata(dir_entry.path()) {
            Ok(meta) => meta,
            // Removed since the directory was read.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(path_failure(&dir_entry.path(), &e)),
        };
        let mut entry = listed_entry(name.as_bytes(), &meta);
        if meta.is_symlink() {
            let target = fs::read_link(dir_entry.path());
            let target = target.map(|target| target.as_os_str().as_bytes().to_vec());
            entry.link_target = Some(target.unwrap_or_default());
        }
        entries.push(SymlinkCheckedEntry {
            entry,
            is_certain: true,
        });
    }
    Ok(entries)
}

/// Opens a file for reading. Facts are set only for regular files, which can be read again. A file
/// that reports length 0 but has content, as in proc(5), is read to its end like a pipe.
fn open_source(path: &Path) -> Result<OpenSource, CopyFailure> {
    let failure = |e| local_failure(path, e);
    let file = File::open(path).map_err(failure)?;
    let meta = file.metadata().map_err(failure)?;
    let has_length = meta.is_file() && (meta.len() > 0 || is_empty(&file).map_err(failure)?);
    let name = path.to_string_lossy();
    let source = match has_length {
        true => FileSource::new(file, name).map_err(failure)?,
        false => FileSource::sequential(file, name),
    };
    Ok(OpenSource {
        source: Arc::new(source),
        facts: has_length.then(|| SourceFacts::from_local_metadata(&meta)),
    })
}

/// Whether a file has no first byte.
fn is_empty(file: &File) -> io::Result<bool> {
    file.read_at(&mut [0], 0).map(|n| n == 0)
}

/// Creates a directory and syncs its name, because a power cut could otherwise remove it with the
/// files in it. `false` if it exists already.
fn make_directory(path: &Path, policy: SyncPolicy) -> Result<bool, CopyFailure> {
    // The directory entry is durable only after the parent directory is synced (fsync(2)).
    match fs::create_dir(path) {
        Ok(()) => {
            let parent = crate::partial::directory_of(path);
            policy
                .sync_directory(parent)
                .map_err(|e| local_failure(path, e))?;
            Ok(true)
        }
        // is_dir follows links: a link to a directory serves as one.
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(e) => Err(path_failure(path, &e)),
    }
}

fn make_symlink(target: &Path, path: &Path) -> Result<(), CopyFailure> {
    let result = match symlink(target, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
            if !is_link {
                let message = format!("{}: exists and is not a link", path.display());
                return Err(CopyFailure::new(Exit::Local, message));
            }
            // symlink(2) does not replace, so the old link is removed first.
            fs::remove_file(path).and_then(|()| symlink(target, path))
        }
        result => result,
    };
    result.map_err(|e| local_failure(path, e))
}

fn set_file_time(path: &Path, time: Timestamp) -> Result<bool, CopyFailure> {
    let since_epoch = u64::try_from(time.0).ok().map(Duration::from_secs);
    // std panics on times that it cannot represent.
    let Some(time) =
        since_epoch.and_then(|since_epoch| SystemTime::UNIX_EPOCH.checked_add(since_epoch))
    else {
        return Ok(false);
    };
    let result = File::open(path).and_then(|file| file.set_modified(time));
    result.map(|()| true).map_err(|e| path_failure(path, &e))
}

/// Sets time and permissions. Returns whether all of it was set.
fn set_kept(path: &Path, kept: KeptMetadata) -> bool {
    let has_time = kept
        .modified
        .is_none_or(|time| set_file_time(path, time).unwrap_or(false));
    let has_mode = kept
        .mode
        .is_none_or(|mode| fs::set_permissions(path, Permissions::from_mode(mode)).is_ok());
    has_time && has_mode
}

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

    async fn list(&mut self, path: &[u8]) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
        let path = to_path(path);
        run_blocking(move || read_directory(&path)).await
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
        let dir_entry = read_directory(dir.path()).unwrap();
        assert_eq!(dir_entry[0].entry.kind, EntryKind::SymLink);
        assert_eq!(
            dir_entry[0].entry.link_target.as_deref(),
            Some(&b"nowhere"[..])
        );
        let missing = read_directory(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.exit, Exit::NotFound);
        let dead = stat_path(&dir.path().join("dead")).unwrap();
        assert_eq!(dead.kind, EntryKind::SymLink);
    }
}
