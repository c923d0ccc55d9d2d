//! The file: read whole, replaced whole.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::known_server::KnownServer;
use crate::recorded_evidence::RecordedEvidence;
use crate::session_limit::SessionLimit;

/// Name and version of the format. Another version is not read.
const FORMAT: &str = "longhaul paths 1";
/// Most records. The oldest go first.
pub(crate) const MAX_RECORDS: usize = 256;
/// Largest file that is read, bytes: twice of what the most records take.
const MAX_BYTES: u64 = 256 << 10;
/// Attempts to get the lock, and the pause between them. Its owners hold it for a millisecond. A record is not worth a
/// longer wait.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Most limits of servers, and most hosts without open ports. The oldest go first.
const MAX_SERVERS: usize = 128;

/// The whole file. `L`, `S`, `C`: `RecordedEvidence`, `SessionLimit` and `KnownServer`, or any value when they are read one by one.
#[derive(Debug, Serialize, Deserialize)]
struct FileContent<L, S, C> {
    format: String,
    paths: Vec<L>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    servers: Vec<S>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    closed: Vec<C>,
}

/// Content of the file, newest first.
#[derive(Debug, Default)]
pub(crate) struct KnownPaths {
    pub(crate) records: Vec<RecordedEvidence>,
    pub(crate) limits: Vec<SessionLimit>,
    /// Hosts of which no port could be reached beside that of ssh.
    pub(crate) closed: Vec<KnownServer>,
}

/// By what a replaced file is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Of the file with this name; `None` if there is none.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        file.metadata()
            .ok()
            .map(|metadata| Self::of_metadata(&metadata))
    }

    fn of_metadata(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The records in the file, newest first, and the file's stamp. None from a file that is missing, unreadable, too
/// large, corrupt or of another version. A record that makes no sense is left out.
pub(crate) fn read(file: &Path) -> (Option<FileStamp>, KnownPaths) {
    match read_bytes(file) {
        Ok((stamp, bytes)) => (Some(stamp), parse(&bytes)),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(file = %file.display(), %error, "the records of paths cannot be read");
            }
            (None, KnownPaths::default())
        }
    }
}

fn read_bytes(file: &Path) -> io::Result<(FileStamp, Vec<u8>)> {
    // A pipe in the file's place must not block. The standard library adds O_CLOEXEC.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(file)?;
    let metadata = opened.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok((FileStamp::of_metadata(&metadata), bytes))
}

fn parse(bytes: &[u8]) -> KnownPaths {
    use serde_json::Value;
    type AnyContent = FileContent<Value, Value, Value>;
    let content = serde_json::from_slice::<AnyContent>(bytes).ok();
    let Some(content) = content.filter(|content| content.format == FORMAT) else {
        return KnownPaths::default();
    };
    let (records, limits) = (content.paths.into_iter(), content.servers.into_iter());
    let closed = content.closed.into_iter();
    KnownPaths {
        records: records
            .filter_map(|record| serde_json::from_value(record).ok())
            .filter(RecordedEvidence::is_sound)
            .take(MAX_RECORDS)
            .collect(),
        limits: limits
            .filter_map(|limit| serde_json::from_value(limit).ok())
            .filter(SessionLimit::is_sound)
            .take(MAX_SERVERS)
            .collect(),
        closed: closed
            .filter_map(|host| serde_json::from_value(host).ok())
            .filter(KnownServer::is_sound)
            .take(MAX_SERVERS)
            .collect(),
    }
}

/// Reads the file, changes its content and replaces it, under a lock. At most [`MAX_RECORDS`] records are kept, from
/// the first on.
///
/// # Errors
/// The directory cannot be made, another process holds the lock for too long, or the file cannot be written.
/// The old file then stays.
pub(crate) fn update(file: &Path, change: impl FnOnce(&mut KnownPaths)) -> io::Result<()> {
    let directory = directory_of(file);
    make_directory(&directory)?;
    let _lock = lock(&directory)?;
    let (_, mut known) = read(file);
    change(&mut known);
    known.records.truncate(MAX_RECORDS);
    known.limits.truncate(MAX_SERVERS);
    known.closed.truncate(MAX_SERVERS);
    let content = FileContent {
        format: FORMAT.to_owned(),
        paths: known.records,
        servers: known.limits,
        closed: known.closed,
    };
    let mut text = serde_json::to_vec_pretty(&content)?;
    text.push(b'\n');
    replace(file, &text)
}

/// Whether the file could be replaced. Makes its directory.
pub(crate) fn is_writable(file: &Path) -> bool {
    let directory = directory_of(file);
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    // Without AT_EACCESS the question would be asked for the real user.
    make_directory(&directory).is_ok()
        && rustix::fs::accessat(CWD, &directory, access, AtFlags::EACCESS).is_ok()
}

/// The lock on the directory: the file itself is replaced, so that a lock on it would be on the old one. It
/// ends with the descriptor, however the process ends. `None` where the file system has no locks: two processes at the same
/// moment may then lose a record.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    let opened = File::options()
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits().cast_signed())
        .open(directory)?;
    for attempt in 1..=LOCK_ATTEMPTS {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(opened)),
            Err(rustix::io::Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            Err(_) => return Ok(None),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "another process holds the lock",
    ))
}

/// Replaces the file in one step. There is no fsync: after a power cut the memory may be empty, which costs nothing.
fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    // Left by a process that was killed. The calls by descriptor are those that the server's sandbox permits.
    let _ = rustix::fs::unlinkat(CWD, &new, AtFlags::empty());
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut opened| opened.write_all(text))
        .and_then(|()| Ok(rustix::fs::renameat(CWD, &new, CWD, file)?));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(CWD, &new, AtFlags::empty());
    }
    written
}

/// Makes the directory and those above it, for this user alone.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        make_directory(parent)?;
    }
    match rustix::fs::mkdirat(CWD, directory, Mode::RWXU) {
        // Another process was faster.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
