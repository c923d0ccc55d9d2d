//! Names of unfinished files, and the local file that a get writes until it is complete.
//!
//! An unfinished file is called `NAME.longhaul-partial`, its journal `NAME.longhaul-journal`, both
//! in the directory of the destination. If a name would become too long for a file system, `NAME`
//! is replaced by a hash of itself. The writer of a destination holds the lock of the partial file
//! ([`PartialFile::lock`]) until the rename; the journal belongs to the same writer.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use data::checksum::ChecksumHasher;
use data::store::Sink;
use data::store::durability::SyncPolicy;
use data::store::file::FileSink;
use data::store::naming::{NamingError, mode_over};
use proto::checksum::ChecksumAlgorithm;
use proto::path::{MAX_NAME, PARTIAL_HASH_DIGITS, PARTIAL_SUFFIX};
use proto::timestamp::Timestamp;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::local::local_name::{LocalName, directory_of, is_file, is_link, own_user};
use crate::local::lock_file;
use crate::local::lock_file::{LockFile, LockedOpen};
use ftp::answers::KeptMetadata;
use ftp::failure::{Operation, Sentence};
use ftp::{Failure, FailureKind};

const JOURNAL_SUFFIX: &[u8] = b".longhaul-journal";
/// Suffix of the temporary file that replaces a journal.
pub(crate) const JOURNAL_TEMP_SUFFIX: &[u8] = b"~";

/// Partial name for the last component `name`.
pub(crate) fn partial_name(name: &[u8]) -> Vec<u8> {
    with_suffix(name, PARTIAL_SUFFIX)
}

/// Partial path for the remote path `path`.
pub(crate) fn partial_path(path: &[u8]) -> Vec<u8> {
    let start = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    let mut partial = path[..start].to_vec();
    partial.extend(partial_name(&path[start..]));
    partial
}

/// The other names that a copy to `name` uses in the same directory: the partial file, its journal,
/// and the journal's temporary file.
pub(crate) fn companion_names(name: &[u8]) -> [Vec<u8>; 3] {
    let journal = with_suffix(name, JOURNAL_SUFFIX);
    let temporary = [journal.as_slice(), JOURNAL_TEMP_SUFFIX].concat();
    [partial_name(name), journal, temporary]
}

/// The partial path for `path`, if it is hashed, so that its name does not show which file it
/// belongs to.
pub(crate) fn hashed_partial_path(path: &[u8]) -> Option<Vec<u8>> {
    let partial = partial_path(path);
    let readable = [path, PARTIAL_SUFFIX].concat();
    (partial != readable).then_some(partial)
}

/// Whether the last component `name` is that of a partial file or of a journal. A file that was
/// moved out of the way (`NAME.longhaul-partial.old`) is neither: it is complete and may be the
/// only copy of its data.
pub(crate) fn is_unfinished(name: &[u8]) -> bool {
    let name = name.strip_suffix(JOURNAL_TEMP_SUFFIX).unwrap_or(name);
    let ends_with = |suffix: &[u8]| name.len() > suffix.len() && name.ends_with(suffix);
    ends_with(PARTIAL_SUFFIX) || ends_with(JOURNAL_SUFFIX)
}

fn with_suffix(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    // One byte stays free for the suffix of the journal's temporary file.
    let mut out = if name.len() + suffix.len() >= MAX_NAME {
        name_hash(name).into_bytes()
    } else {
        name.to_vec()
    };
    out.extend_from_slice(suffix);
    out
}

/// Hex digits that represent `bytes` in a file name.
pub(crate) fn name_hash(bytes: &[u8]) -> String {
    let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Blake3);
    hasher.update(bytes);
    let mut hex = hasher.finish();
    hex.truncate(PARTIAL_HASH_DIGITS);
    hex
}

/// Directory for records of copies: `$XDG_STATE_HOME/longhaul`, or `~/.local/state/longhaul`. It may not exist.
pub(crate) fn state_path() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The XDG base directory specification requires ignoring relative paths.
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    Some(state.join("longhaul"))
}

/// [`state_path`], created. `None` if it cannot be.
fn state_directory() -> Option<PathBuf> {
    let directory = state_path()?;
    fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

/// The journal of a copy to a server, named after a hash of both ends. `None` if there is no directory for it.
pub(crate) fn upload_journal(source: &str, destination: &str) -> Option<LocalName> {
    let name = name_hash(format!("{source}\n{destination}").as_bytes());
    LocalName::at(&state_directory()?.join(format!("{name}.journal"))).ok()
}

/// The record of an unfinished upload that a server keeps under a name of its own. `None` if there is no directory for it.
pub(crate) fn upload_record(destination: &str) -> Option<PathBuf> {
    let name = name_hash(destination.as_bytes());
    Some(state_directory()?.join(format!("{name}.upload")))
}

/// Takes the lock of `destination` on a server, so that one process of this account on this machine
/// writes it and its journals. The lock lasts until the result is dropped. `None`: locking is not
/// possible there.
pub(crate) fn lock_remote_destination(
    destination: &str,
    display_name: &str,
) -> Result<Option<LockFile>, Failure> {
    let name = name_hash(destination.as_bytes());
    let path = state_directory().map(|d| d.join(format!("{name}.lock")));
    let Some(name) = path.and_then(|path| LocalName::at(&path).ok()) else {
        return Ok(None);
    };
    match lock_file::open_locked(&name) {
        Ok(LockedOpen::Locked(file)) => Ok(Some(LockFile::new(name, file))),
        Ok(LockedOpen::Busy) => Err(destination_busy_failure(display_name)),
        Ok(LockedOpen::Unlocked(_)) | Err(_) => Ok(None),
    }
}

fn destination_busy_failure(display_name: impl std::fmt::Display) -> Failure {
    let reason = Sentence::about(display_name).words(": another copy is writing this file");
    Failure::destination_busy(reason)
}

/// How a local destination is written.
#[derive(Debug)]
pub(crate) enum WriteTarget {
    /// Standard output, a device or a pipe: written directly, without a rename.
    Direct {
        /// The open file.
        sink: Arc<FileSink>,
    },
    /// A regular file: written under its partial name and renamed when complete.
    File(PartialFile),
}

/// A local file that is being written.
#[derive(Debug, Clone)]
pub(crate) struct PartialFile {
    /// Final name.
    pub(crate) destination: LocalName,
    /// Name until the file is complete.
    pub(crate) name: LocalName,
    /// Name of the journal.
    pub(crate) journal: LocalName,
}

/// A partial file that is open and locked.
#[derive(Debug)]
pub(crate) struct LockedPartial {
    pub(crate) sink: Arc<FileSink>,
    /// `false`: the file system has no locks.
    pub(crate) has_lock: bool,
    /// A file that was found was not this user's alone, and is gone.
    pub(crate) was_foreign: bool,
}

impl WriteTarget {
    /// Standard output, from its current offset: a redirected file may already hold another
    /// program's output, and may receive more.
    pub(crate) fn stdout() -> Result<Self, Failure> {
        use std::os::fd::AsFd;
        let open_stdout = || -> io::Result<Self> {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            let sink = Arc::new(FileSink::sequential(file, "standard output"));
            Ok(Self::Direct { sink })
        };
        open_stdout().map_err(|e| Failure::local(format!("standard output: {e}")))
    }

    /// A part of an unfinished file that another process holds, and whose first byte is at `origin`.
    ///
    /// # Errors
    /// `NotFound`, `Local`: there is no such file, or it cannot be written.
    pub(crate) fn part_of(path: &Path, origin: u64, policy: SyncPolicy) -> Result<Self, Failure> {
        let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(no_follow)
            .open(path);
        let sink = file.and_then(|file| FileSink::new(file, path.display().to_string()));
        let sink = sink.map_err(|error| {
            Operation::on("write", path.display()).failed(FailureKind::of_named_file(&error), error)
        })?;
        let sink = sink.with_policy(policy, None).from_origin(origin);
        Ok(Self::Direct {
            sink: Arc::new(sink),
        })
    }

    /// The way to write `destination`. A symbolic link that stands for a file is followed, so that the renaming replaces the
    /// file and not the link; any other one is replaced itself. Blocks, for a pipe until it has a reader.
    ///
    /// # Errors
    /// `Local`: no file can have the name, or take the place of what has it.
    pub(crate) fn for_name(destination: &LocalName) -> Result<Self, Failure> {
        let path = destination.path();
        let there = match destination.stat() {
            // A link to nothing is replaced.
            Err(Errno::NOENT) => return PartialFile::at(destination).map(Self::File),
            // An error now is better than one after the whole file has arrived.
            Err(errno) => return Err(local_failure(path, io::Error::from(errno))),
            Ok(there) => there,
        };
        match FileType::from_raw_mode(there.st_mode) {
            FileType::Directory => Err(local_failure(
                path,
                "is a directory, and the source is a file: remove it, or name another destination",
            )),
            FileType::RegularFile if is_link(&destination.own_stat().unwrap_or(there)) => {
                let resolved = fs::canonicalize(path).and_then(|path| LocalName::at(&path));
                let resolved = resolved.map_err(|e| local_failure(path, e))?;
                PartialFile::at(&resolved).map(Self::File)
            }
            FileType::RegularFile | FileType::Symlink => {
                PartialFile::at(destination).map(Self::File)
            }
            // The user has not named it, and expects a file there.
            _ if !destination.follows() => Err(local_failure(
                path,
                "is a pipe, socket or device: remove it",
            )),
            // A socket cannot be opened, and a write to a block device could destroy a file system.
            FileType::Socket | FileType::BlockDevice => {
                Err(local_failure(path, "is a socket or block device"))
            }
            _ => open_stream(destination).map_err(|e| local_failure(path, e)),
        }
    }
}

/// Longest wait for the reader of a pipe.
const READER_WAIT: Duration = Duration::from_secs(10);

/// Opens a pipe or character device that exists.
fn open_stream(destination: &LocalName) -> io::Result<WriteTarget> {
    let begin = Instant::now();
    let file = loop {
        // No O_TRUNC and no O_CREAT: it exists already. O_NONBLOCK: nobody may ever read a pipe.
        match destination.open_with(OFlags::WRONLY | OFlags::NONBLOCK, 0) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                if begin.elapsed() >= READER_WAIT {
                    let reason = "is a pipe that no program reads: start its reader first";
                    return Err(io::Error::other(reason));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => break opened?,
        }
    };
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    let sink = FileSink::new(file, destination.path().to_string_lossy())?;
    Ok(WriteTarget::Direct {
        sink: Arc::new(sink),
    })
}

/// A failure of a path whose directory does not exist.
pub(crate) fn missing_directory(path: &Path) -> Failure {
    let directory = directory_of(path);
    let missing = format!(
        "no such directory; make it first (mkdir -p {})",
        directory.display()
    );
    local_failure(directory, missing)
}

impl PartialFile {
    /// The names beside a destination.
    ///
    /// # Errors
    /// `Local`: it is no name.
    fn at(destination: &LocalName) -> Result<Self, Failure> {
        let name = destination.name().as_bytes();
        if name == b"." {
            return Err(local_failure(destination.path(), "names no file"));
        }
        Ok(Self {
            name: destination.beside(&with_suffix(name, PARTIAL_SUFFIX)),
            journal: destination.beside(&with_suffix(name, JOURNAL_SUFFIX)),
            destination: destination.beside(name),
        })
    }

    /// Takes the lock on the partial file, the journal and the destination, until the file is
    /// closed. Existing content is kept. `policy` says how written data gets to disk.
    ///
    /// # Errors
    /// [`Failure::destination_busy`] if another copy holds the lock. Otherwise the error of opening
    /// the file.
    pub(crate) fn lock(&self, policy: SyncPolicy) -> Result<LockedPartial, Failure> {
        let failed = |e: io::Error| store_failure(self.name.path(), &e);
        let (opened, was_foreign) = lock_file::open_own_locked(&self.name).map_err(failed)?;
        let (file, has_lock) = match opened {
            LockedOpen::Locked(file) => (file, true),
            // A file system without locks still allows the copy, with a warning.
            LockedOpen::Unlocked(file) => (file, false),
            LockedOpen::Busy => {
                return Err(destination_busy_failure(self.destination.path().display()));
            }
        };
        let sink = FileSink::new(file, self.name.path().to_string_lossy()).map_err(failed)?;
        // `None`: the directory is not synced. A partial file that loses its name in a power cut is
        // merely not resumed.
        Ok(LockedPartial {
            sink: Arc::new(sink.with_policy(policy, None)),
            has_lock,
            was_foreign,
        })
    }

    /// Truncates the partial file to zero bytes.
    pub(crate) fn truncate(&self, sink: &FileSink) -> Result<(), Failure> {
        sink.file()
            .set_len(0)
            .map_err(|e| store_failure(self.name.path(), &e))
    }

    /// Removes the partial file if it is empty.
    pub(crate) fn remove_if_empty(&self, sink: &FileSink) {
        if sink.file().metadata().is_ok_and(|meta| meta.len() == 0) {
            lock_file::remove_if_same(&self.name, sink.file());
        }
    }

    /// Length of the partial file of an earlier run.
    pub(crate) fn existing_length(&self) -> Option<u64> {
        let there = self.name.own_stat().ok().filter(is_file)?;
        u64::try_from(there.st_size).ok()
    }

    /// Gives the complete and verified file its time (if known) and permissions ([`permissions_over`]). The data is on disk when this returns,
    /// unless the policy is [`SyncPolicy::None`]. Blocks while the disk works.
    pub(crate) fn sync_with_metadata(
        &self,
        sink: &FileSink,
        kept: KeptMetadata,
    ) -> Result<(), Failure> {
        if let Some(time) = kept.modified.and_then(system_time) {
            // Some file systems cannot store such a time; the copy is complete without it.
            let _ = sink.file().set_modified(time);
        }
        let replaced = self.destination.own_stat().ok().filter(is_file);
        let owner = rustix::fs::fstat(sink.file()).map_or_else(|_| own_user(), |own| own.st_uid);
        let permissions = permissions_over(kept.mode, owner, replaced.as_ref());
        // Some file systems have no permissions.
        let _ = sink.file().set_permissions(permissions);
        sink.sync().map_err(|e| store_failure(self.name.path(), &e))
    }

    /// Renames the file to its final name, if the partial name still belongs to it. The new name is
    /// on disk when this returns, unless the policy is [`SyncPolicy::None`]. Blocks while the disk
    /// works.
    pub(crate) fn put_in_place(&self, sink: &FileSink) -> Result<(), Failure> {
        let destination = self.destination.path();
        // Checked now, because the sync may have taken long.
        match self.name.rename_open(sink.file(), &self.destination) {
            Ok(()) => {}
            Err(NamingError::Replaced) => {
                let message = format!(
                    "was removed or replaced by another process while it was written; {} is unchanged",
                    destination.display()
                );
                return Err(local_failure(self.name.path(), message));
            }
            Err(error) => return Err(store_failure(destination, &error.into())),
        }
        if !sink.is_durable() {
            return Ok(());
        }
        // rename(2) is durable only after the directory is synced.
        self.destination
            .sync_directory(SyncPolicy::File)
            .map_err(|e| store_failure(directory_of(destination), &e))
    }
}

/// The permissions of a new file of the user `owner`: those that are kept, otherwise those over the file that it replaces
/// ([`mode_over`]), otherwise those that the umask grants.
pub(crate) fn permissions_over(
    kept: Option<u32>,
    owner: u32,
    replaced: Option<&Stat>,
) -> Permissions {
    let usual = 0o666 & !umask();
    let mode = match (kept, replaced) {
        (Some(mode), _) => mode,
        (None, Some(replaced)) => mode_over(owner, usual, replaced),
        (None, None) => usual,
    };
    Permissions::from_mode(mode)
}

/// The permission bits that new files of this process do not get, asked once. If the system does not tell, no permissions for
/// others.
fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| data::os::process::umask().unwrap_or(0o077))
}

fn system_time(time: Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(time.0).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The last component of a local path as bytes.
pub(crate) fn file_name_bytes(path: &Path) -> Option<&[u8]> {
    path.file_name().map(OsStr::as_bytes)
}

/// A failure of the store that holds a path.
pub(crate) fn store_failure(path: &Path, error: &io::Error) -> Failure {
    let kind = FailureKind::of_store(error);
    let failure = Failure::about(kind, path.display(), error);
    match kind.is_disk_full() {
        true => failure.advise("make room there and repeat the command"),
        false => failure,
    }
}

/// A failure of this machine concerning a path.
pub(crate) fn local_failure(path: &Path, reason: impl std::fmt::Display) -> Failure {
    Failure::about(FailureKind::Local, path.display(), reason)
}

#[cfg(test)]
mod tests;
