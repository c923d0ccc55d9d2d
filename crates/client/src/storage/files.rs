//! The files of this machine as a storage.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
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
use crate::answers::{RenameFailure, SourceFacts, SymlinkCheckedEntry};
use crate::partial::{WriteTarget, local_failure, modified};
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::verify::checksum_local;
use crate::{CopyFailure, Exit};

/// Sums of ranges that are worth computing for one question.
const CONCURRENCY: usize = 128;

/// Of this process's own bytes.
pub(super) const HERE: Capabilities = Capabilities {
    ranges: true,
    partial_writes: true,
    resumes_uploads: true,
    parallel: true,
    any_order: true,
    markers: true,
    adapts_streams: true,
    checksums_while_storing: false,
    sets_time: true,
    third_party: None,
    concurrency: CONCURRENCY,
    is_here: true,
    rtt: Duration::ZERO,
};

/// This machine's files.
#[derive(Debug)]
pub(crate) struct LocalFiles {
    policy: SyncPolicy,
}

impl LocalFiles {
    /// Names that it makes get to disk as `policy` says.
    pub(crate) fn new(policy: SyncPolicy) -> Self {
        Self { policy }
    }
}

fn path_of(path: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(path)).to_owned()
}

/// A failure about a path: [`Exit::NotFound`] where there is nothing.
fn failed(path: &Path, error: &io::Error) -> CopyFailure {
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Local,
    };
    CopyFailure::new(exit, format!("{}: {error}", path.display()))
}

/// Runs `work`, which may wait for the disk, off the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyFailure> + Send + 'static,
) -> Result<T, CopyFailure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(CopyFailure::new(Exit::Local, e.to_string())))
}

/// An entry of what [`fs::Metadata`] tells.
fn entry(name: &[u8], meta: &fs::Metadata) -> ListedEntry {
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
        modified: modified(meta),
        mode: Some(meta.mode() & 0o7777),
        unique: Some(format!("{}-{}", meta.dev(), meta.ino())),
        ..ListedEntry::new(name, kind)
    }
}

/// Facts of a path, links followed; a link that leads nowhere is told as one.
fn look(path: &Path) -> Result<ListedEntry, CopyFailure> {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    match fs::metadata(path) {
        Ok(meta) => Ok(entry(name, &meta)),
        Err(error) => match fs::symlink_metadata(path) {
            Ok(link) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
                Ok(entry(name, &link))
            }
            _ => Err(failed(path, &error)),
        },
    }
}

/// The entries of a directory, links told as such.
fn read_directory(path: &Path) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
    let mut entries = Vec::new();
    for listed in fs::read_dir(path).map_err(|e| failed(path, &e))? {
        let listed = listed.map_err(|e| failed(path, &e))?;
        let name = listed.file_name();
        let meta = match fs::symlink_metadata(listed.path()) {
            Ok(meta) => meta,
            // Removed since it was listed.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(failed(&listed.path(), &e)),
        };
        let mut entry = entry(name.as_bytes(), &meta);
        if meta.is_symlink() {
            let target = fs::read_link(listed.path());
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

/// Opens a file to read it; facts only of regular ones, which can be read again. A file that says it is
/// empty and is not (proc(5)) is read to its end like a pipe.
fn open(path: &Path) -> Result<OpenSource, CopyFailure> {
    let failed = |e| local_failure(path, e);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let sized = meta.is_file() && (meta.len() > 0 || is_empty(&file).map_err(failed)?);
    let name = path.to_string_lossy();
    let source = match sized {
        true => FileSource::new(file, name).map_err(failed)?,
        false => FileSource::sequential(file, name),
    };
    Ok(OpenSource {
        source: Arc::new(source),
        facts: sized.then(|| SourceFacts::from_local_metadata(&meta)),
    })
}

/// Whether there is nothing at the beginning of a file.
fn is_empty(file: &File) -> io::Result<bool> {
    file.read_at(&mut [0], 0).map(|n| n == 0)
}

/// Makes a directory whose name is on disk when this returns, or a file in it could be lost with it;
/// `false` when it exists already.
fn make_directory(path: &Path, policy: SyncPolicy) -> Result<bool, CopyFailure> {
    match fs::create_dir(path) {
        Ok(()) => {
            let above = crate::partial::directory_of(path);
            policy
                .sync_directory(above)
                .map_err(|e| local_failure(path, e))?;
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(e) => Err(failed(path, &e)),
    }
}

fn link(target: &Path, path: &Path) -> Result<(), CopyFailure> {
    let made = match symlink(target, path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
            if !is_link {
                let message = format!("{}: exists, and is no link", path.display());
                return Err(CopyFailure::new(Exit::Local, message));
            }
            fs::remove_file(path).and_then(|()| symlink(target, path))
        }
        made => made,
    };
    made.map_err(|e| local_failure(path, e))
}

fn date(path: &Path, time: Timestamp) -> Result<bool, CopyFailure> {
    let since = u64::try_from(time.0).ok().map(Duration::from_secs);
    let Some(time) = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)) else {
        return Ok(false);
    };
    let dated = File::open(path).and_then(|file| file.set_modified(time));
    dated.map(|()| true).map_err(|e| failed(path, &e))
}

#[async_trait]
impl Storage for LocalFiles {
    fn name(&self) -> &str {
        "this machine"
    }

    fn capabilities(&self) -> Capabilities {
        HERE
    }

    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        let real = fs::canonicalize(path_of(path));
        real.map_or_else(
            |_| path.to_vec(),
            |real| real.as_os_str().as_bytes().to_vec(),
        )
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let path = path_of(path);
        blocking(move || look(&path)).await
    }

    async fn list(&mut self, path: &[u8]) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
        let path = path_of(path);
        blocking(move || read_directory(&path)).await
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
        let path = path_of(path);
        let file = File::open(&path).map_err(|e| failed(&path, &e))?;
        let source =
            FileSource::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))?;
        checksum_local(algorithm, Arc::new(source), offset, length).await
    }

    async fn open(&mut self, path: &[u8]) -> Result<Option<OpenSource>, CopyFailure> {
        let path = path_of(path);
        blocking(move || open(&path)).await.map(Some)
    }

    fn write_target(&mut self, path: &[u8]) -> Result<Option<WriteTarget>, CopyFailure> {
        WriteTarget::at(&path_of(path)).map(Some)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let path = path_of(path);
        let opened = blocking(move || {
            let file = File::open(&path).map_err(|e| failed(&path, &e))?;
            FileSource::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))
        });
        local_copy::copy(Arc::new(opened.await?), sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        let (path, policy) = (path_of(path), self.policy);
        let anew = spec.completed_ranges.is_empty();
        let sink = blocking(move || {
            let mut options = OpenOptions::new();
            options.write(true).read(true).create(true).truncate(anew);
            let file = options.open(&path).map_err(|e| failed(&path, &e))?;
            let sink =
                FileSink::new(file, path.to_string_lossy()).map_err(|e| local_failure(&path, e))?;
            Ok(Arc::new(sink.with_policy(policy, None)))
        });
        let sink = sink.await?;
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let attempt = local_copy::copy(source, shared, spec, control).await?;
        crate::transfer::control_messages::add_stored_ranges(
            &spec.stored_ranges,
            &control.stored(),
        );
        blocking(move || {
            sink.sync()
                .map_err(|e| CopyFailure::new(Exit::Local, format!("{}: {e}", sink.name())))
        })
        .await?;
        Ok(attempt)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        let (path, policy) = (path_of(path), self.policy);
        blocking(move || make_directory(&path, policy)).await
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        _absolute: &[u8],
        at: &[u8],
    ) -> Result<bool, CopyFailure> {
        let (target, path) = (path_of(target), path_of(at));
        blocking(move || link(&target, &path)).await?;
        Ok(true)
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let path = path_of(path);
        blocking(move || fs::remove_file(&path).map_err(|e| failed(&path, &e))).await
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        let path = path_of(path);
        blocking(move || {
            let meta = fs::symlink_metadata(&path).map_err(|e| failed(&path, &e))?;
            let removed = match meta.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.map_err(|e| failed(&path, &e))
        })
        .await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (from, to) = (path_of(from), path_of(to));
        let renamed = blocking(move || {
            if let Some(time) = modified {
                // A courtesy.
                let _ = date(&from, time);
            }
            fs::rename(&from, &to).map_err(|e| failed(&from, &e))
        });
        Ok(renamed.await?)
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure> {
        let path = path_of(path);
        blocking(move || date(&path, time)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_replaces_a_link_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("l");
        link(Path::new("a"), &at).unwrap();
        link(Path::new("b"), &at).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("b"));
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        assert!(link(Path::new("a"), &file).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }

    #[test]
    fn a_file_that_says_it_is_empty_and_is_not_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for content in ["", "x"] {
            fs::write(&path, content).unwrap();
            assert!(open(&path).unwrap().facts.is_some());
        }
        let opened = open(Path::new("/proc/self/status")).unwrap();
        assert_eq!(opened.facts, None);
        assert_eq!(opened.source.len().unwrap(), None);
        let mut name = [0; 5];
        assert_eq!(opened.source.read_at(0, &mut name).unwrap(), 5);
        assert_eq!(&name, b"Name:");
    }

    #[test]
    fn a_directory_whose_entries_cannot_be_seen_is_an_error_and_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("dead")).unwrap();
        let listed = read_directory(dir.path()).unwrap();
        assert_eq!(listed[0].entry.kind, EntryKind::SymLink);
        assert_eq!(
            listed[0].entry.link_target.as_deref(),
            Some(&b"nowhere"[..])
        );
        let missing = read_directory(&dir.path().join("none")).unwrap_err();
        assert_eq!(missing.exit, Exit::NotFound);
        let dead = look(&dir.path().join("dead")).unwrap();
        assert_eq!(dead.kind, EntryKind::SymLink);
    }
}
