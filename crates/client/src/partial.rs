//! Names of unfinished files, and the local file that a get writes until it is whole.
//!
//! A file in the making is called `NAME.longhaul-partial`, its journal `NAME.longhaul-journal`,
//! both in the directory of the destination; a name that would become too long for a file system
//! is replaced by a hash of itself.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data::digest::Digest;
use data::store::file::FileSink;
use proto::checksum::Algorithm;
use proto::path::MAX_NAME;
use proto::timestamp::Timestamp;

use crate::{Exit, Failure};

const PARTIAL: &[u8] = b".longhaul-partial";
const JOURNAL: &[u8] = b".longhaul-journal";

/// What the last component `name` is called while it is unfinished.
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

/// 32 hex digits that stand for `bytes` in a file name.
fn hash(bytes: &[u8]) -> String {
    let mut digest = Digest::new(Algorithm::Blake3);
    digest.update(bytes);
    let mut hex = digest.finish();
    hex.truncate(32);
    hex
}

/// Where the journal of a copy to a server is kept: `$XDG_STATE_HOME/longhaul`, else
/// `~/.local/state/longhaul`, under a hash of both ends. `None` when there is no such place.
pub(crate) fn state_journal(source: &str, destination: &str) -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    let directory = state.join("longhaul");
    fs::create_dir_all(&directory).ok()?;
    let name = hash(format!("{source}\n{destination}").as_bytes());
    Some(directory.join(format!("{name}.journal")))
}

/// Where a get's bytes go.
#[derive(Debug)]
pub(crate) enum Target {
    /// Standard output, a device, a pipe: written as the bytes come, nothing to put in place.
    Direct {
        /// The open file.
        sink: Arc<FileSink>,
    },
    /// A regular file, written beside its name and renamed when it is whole.
    File(Partial),
}

/// A local file in the making.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The name that it will have.
    pub(crate) destination: PathBuf,
    /// The name that it has until then.
    pub(crate) path: PathBuf,
    /// Its journal's name.
    pub(crate) journal: PathBuf,
}

impl Target {
    /// Standard output.
    pub(crate) fn stdout() -> Result<Self, Failure> {
        use std::os::fd::AsFd;
        let direct = || -> io::Result<Self> {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            let sink = Arc::new(FileSink::new(file, "standard output")?);
            Ok(Self::Direct { sink })
        };
        direct().map_err(|e| Failure::new(Exit::Local, format!("standard output: {e}")))
    }

    /// What `destination` is to be written through. A symbolic link to a file is followed, so that
    /// the rename replaces the file and not the link.
    pub(crate) fn at(destination: &Path) -> Result<Self, Failure> {
        let destination = fs::canonicalize(destination).unwrap_or_else(|_| destination.to_owned());
        match fs::metadata(&destination) {
            Ok(meta) if meta.is_dir() => Err(local(&destination, "is a directory")),
            Ok(meta) if !meta.is_file() => {
                let kind = meta.file_type();
                if kind.is_socket() || kind.is_block_device() {
                    return Err(local(&destination, "is a socket or block device"));
                }
                let file = OpenOptions::new().write(true).open(&destination);
                let sink = file
                    .and_then(|file| FileSink::new(file, destination.to_string_lossy()))
                    .map_err(|e| local(&destination, e))?;
                Ok(Self::Direct {
                    sink: Arc::new(sink),
                })
            }
            _ => Partial::of(destination).map(Self::File),
        }
    }
}

impl Partial {
    fn of(destination: PathBuf) -> Result<Self, Failure> {
        let name = destination
            .file_name()
            .ok_or_else(|| local(&destination, "names no file"))?;
        let directory = match destination.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        if fs::metadata(directory).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            let missing = format!(
                "no such directory; make it first (mkdir -p {})",
                directory.display()
            );
            return Err(local(directory, missing));
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

    /// Opens the partial file to write (and to read for checks); `truncate` starts over.
    pub(crate) fn open(&self, truncate: bool) -> Result<Arc<FileSink>, Failure> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(truncate)
            .open(&self.path)
            .and_then(|file| FileSink::new(file, self.path.to_string_lossy()))
            .map(Arc::new)
            .map_err(|e| local(&self.path, e))
    }

    /// Length of what is there from an earlier run.
    pub(crate) fn length(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|meta| meta.len())
    }

    /// Gives the whole and verified file its time (if known), the permissions of the file it
    /// replaces (if any), and its name. Does not force it to disk, as cp(1) does not.
    pub(crate) fn finish(
        &self,
        sink: &FileSink,
        modified: Option<Timestamp>,
    ) -> Result<(), Failure> {
        if let Some(time) = modified.and_then(system_time) {
            // A file system that keeps no such time is no reason to fail.
            let _ = sink.file().set_modified(time);
        }
        if let Ok(replaced) = fs::metadata(&self.destination) {
            let _ = sink.file().set_permissions(replaced.permissions());
        }
        fs::rename(&self.path, &self.destination).map_err(|e| local(&self.destination, e))
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
pub(crate) fn local(path: &Path, reason: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Local, format!("{}: {reason}", path.display()))
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
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let failure = Target::at(&dir.path().join("none/f")).unwrap_err();
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
        fs::set_permissions(&destination, fs::Permissions::from_mode(0o600)).unwrap();
        let Ok(Target::File(partial)) = Target::at(&destination) else {
            panic!("a regular file is written aside");
        };
        let sink = partial.open(true).unwrap();
        sink.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&destination).unwrap(), b"old");
        partial
            .finish(&sink, Some(Timestamp(1_000_000_000)))
            .unwrap();
        let meta = fs::metadata(&destination).unwrap();
        assert_eq!(fs::read(&destination).unwrap(), b"new");
        assert_eq!(modified(&meta), Some(Timestamp(1_000_000_000)));
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert!(!partial.path.exists());
    }

    #[test]
    fn links_are_followed_and_devices_written_directly() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "x").unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let Ok(Target::File(partial)) = Target::at(&link) else {
            panic!("a link to a file is a file");
        };
        assert_eq!(partial.destination, fs::canonicalize(&file).unwrap());
        assert!(matches!(
            Target::at(Path::new("/dev/null")),
            Ok(Target::Direct { .. })
        ));
        assert_eq!(Target::at(dir.path()).unwrap_err().exit, Exit::Local);
    }
}
