//! Names of unfinished files, and the local file that a get writes until it is whole.
//!
//! A file in the making is called `NAME.longhaul-partial`, its journal `NAME.longhaul-journal`,
//! both in the directory of the destination; a name that would become too long for a file system
//! is replaced by a hash of itself. Whoever writes the destination holds the lock of the partial file
//! ([`PartialFile::own`]) until it has its name; the journal belongs to the same owner.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::checksum::ChecksumHasher;
use data::store::Sink;
use data::store::durability::SyncPolicy;
use data::store::file::FileSink;
use proto::checksum::ChecksumAlgorithm;
use proto::path::{MAX_NAME, PARTIAL_HASH_DIGITS, PARTIAL_SUFFIX};
use proto::timestamp::Timestamp;

use crate::lock_file::{self, LockFile, LockedOpen};
use crate::{CopyFailure, Exit};

const PARTIAL: &[u8] = PARTIAL_SUFFIX;
const JOURNAL: &[u8] = b".longhaul-journal";
/// End of the name under which a journal's next state is written.
pub(crate) const NEXT: &[u8] = b"~";

/// Name of the last component `name` while it is unfinished.
pub(crate) fn partial_name(name: &[u8]) -> Vec<u8> {
    with_suffix(name, PARTIAL)
}

/// The remote path of the unfinished file for `path`.
pub(crate) fn partial_path(path: &[u8]) -> Vec<u8> {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let mut partial = path[..start].to_vec();
    partial.extend(partial_name(&path[start..]));
    partial
}

/// The other names that a copy to the last component `name` writes in the same directory: the
/// unfinished file, its journal, and the journal's next state.
pub(crate) fn companion_names(name: &[u8]) -> [Vec<u8>; 3] {
    let journal = with_suffix(name, JOURNAL);
    let next = [journal.as_slice(), NEXT].concat();
    [partial_name(name), journal, next]
}

/// The remote path of the unfinished file for `path`, if nobody could tell by its name whose it is.
pub(crate) fn hashed_partial_path(path: &[u8]) -> Option<Vec<u8>> {
    let partial = partial_path(path);
    let named = [path, PARTIAL].concat();
    (partial != named).then_some(partial)
}

/// Whether the last component `name` is that of an unfinished file or of its journal. One that was moved
/// out of the way (`NAME.longhaul-partial.old`) is none: it is whole, and may be the only one of its kind.
pub(crate) fn is_unfinished(name: &[u8]) -> bool {
    let name = name.strip_suffix(NEXT).unwrap_or(name);
    let ends = |suffix: &[u8]| name.len() > suffix.len() && name.ends_with(suffix);
    ends(PARTIAL) || ends(JOURNAL)
}

fn with_suffix(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    // One byte stays free: a journal is replaced by way of a name that is longer by that.
    let mut out = if name.len() + suffix.len() >= MAX_NAME {
        hash(name).into_bytes()
    } else {
        name.to_vec()
    };
    out.extend_from_slice(suffix);
    out
}

/// Hex digits that stand for `bytes` in a file name.
fn hash(bytes: &[u8]) -> String {
    let mut digest = ChecksumHasher::new(ChecksumAlgorithm::Blake3);
    digest.update(bytes);
    let mut hex = digest.finish();
    hex.truncate(PARTIAL_HASH_DIGITS);
    hex
}

/// Where what is known of copies to servers is kept: `$XDG_STATE_HOME/longhaul`, else
/// `~/.local/state/longhaul`. `None` when there is no such place.
fn state_directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    let directory = state.join("longhaul");
    fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// Where the journal of a copy to a server is kept, under a hash of both ends. `None` when there is no
/// place for it.
pub(crate) fn upload_journal_path(source: &str, destination: &str) -> Option<PathBuf> {
    let name = hash(format!("{source}\n{destination}").as_bytes());
    Some(state_directory()?.join(format!("{name}.journal")))
}

/// Makes this process the only one of this account on this machine that writes `destination` on a
/// server, and its journals, until the result is dropped. `None`: there is no place for a lock, or it
/// cannot be had there.
pub(crate) fn lock_remote_destination(
    destination: &str,
    shown: &str,
) -> Result<Option<LockFile>, CopyFailure> {
    let name = hash(destination.as_bytes());
    let Some(path) = state_directory().map(|d| d.join(format!("{name}.lock"))) else {
        return Ok(None);
    };
    match lock_file::open(&path) {
        Ok(LockedOpen::Own(file)) => Ok(Some(LockFile::new(path, file))),
        Ok(LockedOpen::Busy) => Err(occupied(shown)),
        Ok(LockedOpen::Unlocked(_)) | Err(_) => Ok(None),
    }
}

fn occupied(shown: impl std::fmt::Display) -> CopyFailure {
    CopyFailure::occupied(format!(
        "{shown}: another copy is writing this file; let it end, or use --wait"
    ))
}

/// Where a get's bytes go.
#[derive(Debug)]
pub(crate) enum WriteTarget {
    /// Standard output, a device, a pipe: written as the bytes come, nothing to put in place.
    Direct {
        /// The open file.
        sink: Arc<FileSink>,
    },
    /// A regular file, written beside its name and renamed when it is whole.
    File(PartialFile),
}

/// A local file in the making.
#[derive(Debug, Clone)]
pub(crate) struct PartialFile {
    /// The name that it will have.
    pub(crate) destination: PathBuf,
    /// The name that it has until then.
    pub(crate) path: PathBuf,
    /// Its journal's name.
    pub(crate) journal: PathBuf,
}

impl WriteTarget {
    /// Standard output, from where it stands: a redirected file may hold somebody else's output already,
    /// and may get more of it.
    pub(crate) fn stdout() -> Result<Self, CopyFailure> {
        use std::os::fd::AsFd;
        let direct = || -> io::Result<Self> {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            let sink = Arc::new(FileSink::sequential(file, "standard output"));
            Ok(Self::Direct { sink })
        };
        direct().map_err(|e| CopyFailure::new(Exit::Local, format!("standard output: {e}")))
    }

    /// Place that `destination` is to be written through. A symbolic link to a file is followed, so that
    /// the rename replaces the file and not the link.
    pub(crate) fn at(destination: &Path) -> Result<Self, CopyFailure> {
        let destination = fs::canonicalize(destination).unwrap_or_else(|_| destination.to_owned());
        match fs::metadata(&destination) {
            // Better now than when the whole file is there and cannot get its name.
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(local_failure(&destination, e)),
            Ok(meta) if meta.is_dir() => Err(local_failure(&destination, "is a directory")),
            Ok(meta) if !meta.is_file() => {
                let kind = meta.file_type();
                if kind.is_socket() || kind.is_block_device() {
                    return Err(local_failure(&destination, "is a socket or block device"));
                }
                let file = OpenOptions::new().write(true).open(&destination);
                let sink = file
                    .and_then(|file| FileSink::new(file, destination.to_string_lossy()))
                    .map_err(|e| local_failure(&destination, e))?;
                Ok(Self::Direct {
                    sink: Arc::new(sink),
                })
            }
            _ => PartialFile::of(destination).map(Self::File),
        }
    }
}

impl PartialFile {
    fn of(destination: PathBuf) -> Result<Self, CopyFailure> {
        let name = destination
            .file_name()
            .ok_or_else(|| local_failure(&destination, "names no file"))?;
        let directory = directory_of(&destination);
        if fs::metadata(directory).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            let missing = format!(
                "no such directory; make it first (mkdir -p {})",
                directory.display()
            );
            return Err(local_failure(directory, missing));
        }
        let sibling = |suffix: &[u8]| {
            let name = OsString::from_vec(with_suffix(name.as_bytes(), suffix));
            destination.with_file_name(name)
        };
        Ok(Self {
            path: sibling(PARTIAL),
            journal: sibling(JOURNAL),
            destination,
        })
    }

    /// Makes this process the only one that writes the partial file, the journal, and at the end the
    /// destination: until the file is closed. It keeps what it holds. `false` when this file system
    /// has no locks. `policy` says how what is written gets to disk.
    ///
    /// # Errors
    /// [`CopyFailure::occupied`] when another copy is at it; else what opening it gives.
    pub(crate) fn lock(&self, policy: SyncPolicy) -> Result<(Arc<FileSink>, bool), CopyFailure> {
        let opened = lock_file::open(&self.path).map_err(|e| local_failure(&self.path, e))?;
        let (file, locked) = match opened {
            LockedOpen::Own(file) => (file, true),
            LockedOpen::Unlocked(file) => (file, false),
            LockedOpen::Busy => return Err(occupied(self.destination.display())),
        };
        // One that an earlier version left may be open to more; somebody else's cannot be changed.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
        let sink = FileSink::new(file, self.path.to_string_lossy());
        let sink = sink.map_err(|e| local_failure(&self.path, e))?;
        // A partial file without a name after a power cut is one that nobody resumes.
        Ok((Arc::new(sink.with_policy(policy, None)), locked))
    }

    /// Empties the partial file.
    pub(crate) fn start_over(&self, sink: &FileSink) -> Result<(), CopyFailure> {
        sink.file()
            .set_len(0)
            .map_err(|e| local_failure(&self.path, e))
    }

    /// Removes a partial file that its owner gives up with nothing in it.
    pub(crate) fn remove_if_empty(&self, sink: &FileSink) {
        if sink.file().metadata().is_ok_and(|meta| meta.len() == 0) {
            lock_file::remove(&self.path, sink.file());
        }
    }

    /// Length of what is there from an earlier run.
    pub(crate) fn length(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|meta| meta.len())
    }

    /// Gives the whole and verified file its time (if known) and the permissions of the file it
    /// replaces (if any, else those that the umask grants). Its bytes are on disk when this returns,
    /// unless its policy is [`SyncPolicy::None`]. Blocks while the disk works.
    pub(crate) fn sync_with_metadata(
        &self,
        sink: &FileSink,
        modified: Option<Timestamp>,
    ) -> Result<(), CopyFailure> {
        if let Some(time) = modified.and_then(system_time) {
            // A file system that keeps no such time is no reason to fail.
            let _ = sink.file().set_modified(time);
        }
        let mode = match fs::metadata(&self.destination) {
            // Whoever runs the replaced file under another identity trusts its old content alone.
            Ok(replaced) => replaced.permissions().mode() & 0o777,
            Err(_) => 0o666 & !umask(),
        };
        // Nor one that keeps no permissions.
        let _ = sink.file().set_permissions(Permissions::from_mode(mode));
        sink.sync().map_err(|e| local_failure(&self.path, e))
    }

    /// Gives a settled file its name, if the partial name still belongs to it. The name is on disk when
    /// this returns, unless the policy is [`SyncPolicy::None`]. Blocks while the disk works.
    pub(crate) fn put_in_place(&self, sink: &FileSink) -> Result<(), CopyFailure> {
        // Last of all: the disk may have taken its time.
        if !lock_file::names(&self.path, sink.file()).map_err(|e| local_failure(&self.path, e))? {
            let message = format!(
                "was removed or replaced by somebody else while it was written; {} is as it was",
                self.destination.display()
            );
            return Err(local_failure(&self.path, message));
        }
        fs::rename(&self.path, &self.destination)
            .map_err(|e| local_failure(&self.destination, e))?;
        if !sink.is_durable() {
            return Ok(());
        }
        let directory = directory_of(&self.destination);
        SyncPolicy::File
            .sync_directory(directory)
            .map_err(|e| local_failure(directory, e))
    }
}

/// The permissions that new files of this process do not get (umask(2), which itself cannot be asked
/// without a change; proc(5)). Where it cannot be read: all of others.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok())
        .unwrap_or(0o077)
}

/// The directory that a path's last component is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    }
}

fn system_time(time: Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(time.0).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Seconds since 1970 of a local file's modification.
pub(crate) fn modified(meta: &fs::Metadata) -> Option<Timestamp> {
    let since = meta.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH);
    Some(Timestamp(i64::try_from(since.ok()?.as_secs()).ok()?))
}

/// The last component of a local path as bytes.
pub(crate) fn name_of(path: &Path) -> Option<&[u8]> {
    path.file_name().map(OsStr::as_bytes)
}

/// A local failure about a path.
pub(crate) fn local_failure(path: &Path, reason: impl std::fmt::Display) -> CopyFailure {
    CopyFailure::new(Exit::Local, format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn names() {
        assert_eq!(partial_name(b"a b"), b"a b.longhaul-partial");
        assert_eq!(partial_path(b"/d/\xff"), b"/d/\xff.longhaul-partial");
        let long = partial_path(&[b"/d/", [b'x'; 250].as_slice()].concat());
        assert!(long.len() < 60 && long.ends_with(PARTIAL));
        assert_ne!(partial_name(&[b'x'; 250]), partial_name(&[b'x'; 251]));
        assert_eq!(hashed_partial_path(b"/d/f"), None);
        assert!(hashed_partial_path(&[b'x'; 250]).is_some());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let failure = WriteTarget::at(&dir.path().join("none/f")).unwrap_err();
        assert_eq!(failure.exit, Exit::Local);
        let named = format!("{}: no such directory", dir.path().join("none").display());
        assert!(failure.message.starts_with(&named), "{failure}");
    }

    #[test]
    fn becomes_whole_with_time_and_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let destination = dir.path().join("f");
        fs::write(&destination, "old").unwrap();
        fs::set_permissions(&destination, Permissions::from_mode(0o600)).unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::at(&destination) else {
            panic!("a regular file is written aside");
        };
        let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
        assert!(
            partial
                .lock(SyncPolicy::default())
                .unwrap_err()
                .is_occupied()
        );
        sink.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&destination).unwrap(), b"old");
        partial
            .sync_with_metadata(&sink, Some(Timestamp(1_000_000_000)))
            .unwrap();
        partial.put_in_place(&sink).unwrap();
        let meta = fs::metadata(&destination).unwrap();
        assert_eq!(fs::read(&destination).unwrap(), b"new");
        assert_eq!(modified(&meta), Some(Timestamp(1_000_000_000)));
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert!(!partial.path.exists());
    }

    fn partial_at(destination: &Path) -> PartialFile {
        match WriteTarget::at(destination) {
            Ok(WriteTarget::File(partial)) => partial,
            other => panic!("{other:?}"),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn unfinished_files_are_private_and_finished_ones_never_setuid() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "old").unwrap();
        fs::set_permissions(&old, Permissions::from_mode(0o6755)).unwrap();
        let usual = dir.path().join("usual");
        fs::write(&usual, "").unwrap();
        for (destination, wanted) in [(&old, 0o755), (&new, mode(&usual))] {
            let partial = partial_at(destination);
            fs::write(&partial.path, "left by an earlier version").unwrap();
            fs::set_permissions(&partial.path, Permissions::from_mode(0o4777)).unwrap();
            let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
            assert_eq!(mode(&partial.path), 0o600);
            partial.sync_with_metadata(&sink, None).unwrap();
            partial.put_in_place(&sink).unwrap();
            assert_eq!(mode(destination), wanted);
        }
    }

    #[test]
    fn what_took_the_partial_name_meanwhile_is_not_put_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let partial = partial_at(&dir.path().join("f"));
        let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
        sink.file().write_all(b"verified").unwrap();
        fs::remove_file(&partial.path).unwrap();
        partial.sync_with_metadata(&sink, None).unwrap();
        assert_eq!(partial.put_in_place(&sink).unwrap_err().exit, Exit::Local);
        fs::write(&partial.path, "somebody else's").unwrap();
        let failure = partial.put_in_place(&sink).unwrap_err();
        assert!(failure.message.contains("replaced"), "{failure}");
        assert!(!partial.destination.exists());
        partial.remove_if_empty(&sink);
        assert!(partial.path.exists());
    }

    #[test]
    fn a_partial_file_that_is_replaced_after_the_sync_leaves_the_destination_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let partial = partial_at(&dir.path().join("f"));
        fs::write(&partial.destination, "old").unwrap();
        let (sink, _) = partial.lock(SyncPolicy::default()).unwrap();
        sink.file().write_all(b"verified").unwrap();
        partial.sync_with_metadata(&sink, None).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "somebody else's").unwrap();
        fs::rename(&other, &partial.path).unwrap();
        let failure = partial.put_in_place(&sink).unwrap_err();
        assert_eq!((failure.exit as u8, failure.transient), (7, false));
        assert_eq!(fs::read(&partial.destination).unwrap(), b"old");
        assert_eq!(fs::read(&partial.path).unwrap(), b"somebody else's");
    }

    #[test]
    fn a_name_that_no_file_can_have_is_refused_before_anything_moves() {
        let dir = tempfile::tempdir().unwrap();
        let failure = WriteTarget::at(&dir.path().join("x".repeat(256))).unwrap_err();
        assert_eq!(failure.exit, Exit::Local);
        assert!(failure.message.contains("too long"), "{failure}");
    }

    #[test]
    fn names_of_unfinished_files_are_known() {
        for name in [&b"a"[..], b"a.longhaul-partial", &[b'x'; 250]] {
            assert!(companion_names(name).iter().all(|name| is_unfinished(name)));
        }
        for name in [
            &b"a"[..],
            b"a~",
            b".longhaul-partial",
            b"~",
            b"a.longhaul-partial.gz",
            b"a.longhaul-partial.old",
        ] {
            assert!(!is_unfinished(name));
        }
    }

    #[test]
    fn links_are_followed_and_devices_written_directly() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let Ok(WriteTarget::File(partial)) = WriteTarget::at(&link) else {
            panic!("a link to a file is a file");
        };
        assert_eq!(partial.destination, fs::canonicalize(&file).unwrap());
        assert!(matches!(
            WriteTarget::at(Path::new("/dev/null")),
            Ok(WriteTarget::Direct { .. })
        ));
        assert_eq!(WriteTarget::at(dir.path()).unwrap_err().exit, Exit::Local);
    }
}
