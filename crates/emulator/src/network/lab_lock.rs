//! The lock that allows one lab at a time per machine: two would disturb each other's timing.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::LabError;

/// Every user can create this file, and nobody can replace another user's (the directory is sticky). It
/// is never written, so its owner does not matter.
const LOCK_FILE: &str = "/tmp/longhaul-lab.lock";

/// An flock(2), held as long as any process has the file open. The lab and all its processes inherit
/// it, so that the next lab starts only when no process of this one is left.
#[derive(Debug)]
pub(super) struct LabLock {
    file: File,
}

impl LabLock {
    /// Takes the machine's lock. With `wait` it waits for the lock, after calling `wait` with a
    /// description of the holder.
    ///
    /// # Errors
    /// [`LabError::Busy`] names the holder; [`LabError::System`]: the file cannot be opened.
    pub(super) fn acquire(wait: Option<fn(&str)>) -> Result<Self, LabError> {
        Self::acquire_file(Path::new(LOCK_FILE), wait)
    }

    fn acquire_file(path: &Path, wait: Option<fn(&str)>) -> Result<Self, LabError> {
        let mut operation = FlockOperation::NonBlockingLockExclusive;
        loop {
            let file = open(path)?;
            match (flock(&file, operation), wait) {
                (Ok(()), _) => {}
                (Err(Errno::INTR), _) => continue,
                (Err(Errno::WOULDBLOCK), Some(report_wait)) => {
                    // Reported once: the next turn of the loop blocks until the lock is free.
                    report_wait(&holder_of(&file));
                    operation = FlockOperation::LockExclusive;
                    continue;
                }
                (Err(Errno::WOULDBLOCK), None) => return Err(busy(&file)),
                (Err(e), _) => return Err(failed(path, e.into())),
            }
            // A cleanup of /tmp may have removed the file meanwhile; a lock on it would exclude nobody.
            if is_same_file(&file, path) {
                return Ok(Self { file });
            }
        }
    }

    /// Clears close-on-exec, so that processes started from now on hold the lock as well.
    ///
    /// # Errors
    /// The descriptor's flags cannot be changed.
    pub(super) fn let_children_inherit(&self) -> Result<(), LabError> {
        rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())
            .map_err(|e| LabError::system("cannot pass on the lab lock", e))
    }
}

/// Opens or creates the lock file. Symbolic links, which any user could have placed there, are refused
/// (O_NOFOLLOW), and a FIFO in its place does not block (O_NONBLOCK).
fn open(path: &Path) -> Result<File, LabError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    loop {
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) if file.metadata().is_ok_and(|m| m.is_file()) => return Ok(file),
            Ok(_) => {
                return Err(LabError::Refused(format!(
                    "{} is not a regular file: remove it",
                    path.display()
                )));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(LabError::Refused(format!(
                    "{} is a symbolic link: remove it",
                    path.display()
                )));
            }
            Err(e) => return Err(failed(path, e)),
        }
        // fs.protected_regular forbids O_CREAT on another user's file, so creation is a separate step.
        // If another process creates the file first, the loop opens that one.
        let created = OpenOptions::new().write(true).create_new(true).open(path);
        match created.and_then(|file| file.set_permissions(Permissions::from_mode(0o644))) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(path, e)),
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(held), Ok(named)) => held.dev() == named.dev() && held.ino() == named.ino(),
        _ => false,
    }
}

fn failed(path: &Path, error: std::io::Error) -> LabError {
    LabError::system(format!("cannot take the lock {}", path.display()), error)
}

fn busy(file: &File) -> LabError {
    LabError::Busy(format!(
        "another lab is running ({}), and two would disturb each other; use --wait to wait for it",
        holder_of(file)
    ))
}

/// Describes the process that holds the lock, for messages.
fn holder_of(file: &File) -> String {
    let holder = std::fs::read_to_string("/proc/locks")
        .ok()
        .and_then(|table| holder(&table, file.metadata().ok()?.ino()))
        .and_then(|pid| Some((pid, command_line(pid)?)));
    match holder {
        Some((pid, command)) => format!("process {pid}, `{command}`"),
        // It is in another PID namespace, or was killed while its lab is still ending.
        None => "its process is not visible".to_owned(),
    }
}

/// Finds the holder's PID in `/proc/locks`: `1: FLOCK ADVISORY WRITE 1234 00:1f:5678 0 EOF`, with the
/// file as major:minor:inode. Some file systems report another device in stat(2), so only the inode is
/// compared.
fn holder(table: &str, inode: u64) -> Option<u32> {
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else {
            return None;
        };
        let same = file.rsplit(':').next()?.parse() == Ok(inode);
        same.then(|| pid.parse().ok())?
    })
}

fn command_line(pid: u32) -> Option<String> {
    let raw = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = raw
        .split(|b| *b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).escape_debug().to_string())
        .collect();
    let line = words.join(" ");
    // A command line may be megabytes long; the message must stay one readable line.
    let short: String = line.chars().take(120).collect();
    (!line.is_empty()).then_some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_path() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        (dir, path)
    }

    #[test]
    fn the_error_for_a_second_lab_names_the_first_process() {
        let (_dir, path) = lock_path();
        let first = LabLock::acquire_file(&path, None).unwrap();
        let message = match LabLock::acquire_file(&path, None) {
            Err(LabError::Busy(message)) => message,
            other => panic!("{other:?}"),
        };
        let me = format!("process {},", std::process::id());
        assert!(message.contains(&me), "{message}");
        drop(first);
        LabLock::acquire_file(&path, None).unwrap();
    }

    #[test]
    fn a_waiting_lab_gets_the_lock_when_it_is_released() {
        let (_dir, path) = lock_path();
        let first = LabLock::acquire_file(&path, None).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| LabLock::acquire_file(&path, Some(|_| ())).map(drop));
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn the_lock_file_is_readable_by_every_user() {
        let (_dir, path) = lock_path();
        drop(LabLock::acquire_file(&path, None).unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_symbolic_link_and_a_fifo_are_refused() {
        let (dir, path) = lock_path();
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(
            LabLock::acquire_file(&path, None),
            Err(LabError::Refused(_))
        ));
        assert!(!target.exists());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(matches!(
            LabLock::acquire_file(&path, None),
            Err(LabError::Refused(_))
        ));
    }

    #[test]
    fn a_lock_on_a_removed_file_excludes_nobody() {
        let (_dir, path) = lock_path();
        let first = LabLock::acquire_file(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!is_same_file(&first.file, &path));
        let second = LabLock::acquire_file(&path, None).unwrap();
        assert!(is_same_file(&second.file, &path));
    }

    #[test]
    fn the_holder_is_found_in_proc_locks_by_inode() {
        let table = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        assert_eq!(holder(table, 77), Some(33));
        assert_eq!(holder(table, 79), None);
    }
}
