//! One lab at a time on a machine: two would disturb each other's clocks.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::LabError;

/// Every user can make it, nobody can replace another's (the directory is sticky), and it is never
/// written, so whose it is does not matter.
const LOCK_FILE: &str = "/tmp/longhaul-lab.lock";

/// Held as long as any process has it open: the lab and all it started inherit it, so that the next
/// lab begins only when nothing of this one is left.
#[derive(Debug)]
pub(super) struct LabLock {
    file: File,
}

impl LabLock {
    /// Takes the machine's lock; with `wait`, when it is free. `wait` hears who holds it.
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
                (Err(Errno::WOULDBLOCK), Some(tell)) => {
                    tell(&holder_of(&file));
                    operation = FlockOperation::LockExclusive;
                    continue;
                }
                (Err(Errno::WOULDBLOCK), None) => return Err(busy(&file)),
                (Err(e), _) => return Err(failed(path, e.into())),
            }
            // Somebody who cleans the directory may have removed the file in the meantime.
            if same_file(&file, path) {
                return Ok(Self { file });
            }
        }
    }

    /// Lets processes that are started from now on hold the lock too.
    ///
    /// # Errors
    /// The descriptor's flags cannot be changed.
    pub(super) fn let_children_inherit(&self) -> Result<(), LabError> {
        rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())
            .map_err(|e| LabError::system("cannot hand on the lock of labs", e))
    }
}

/// Never through a symbolic link, which anyone could have put there; a pipe in its place does not
/// block.
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
        // fs.protected_regular forbids O_CREAT on another user's file, so creating is a step of its
        // own, and it may lose a race.
        let created = OpenOptions::new().write(true).create_new(true).open(path);
        match created.and_then(|file| file.set_permissions(Permissions::from_mode(0o644))) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(path, e)),
        }
    }
}

fn same_file(file: &File, path: &Path) -> bool {
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
        "another lab is running ({}), and two would disturb each other: wait for it with --wait",
        holder_of(file)
    ))
}

/// Who holds the lock, for people.
fn holder_of(file: &File) -> String {
    let holder = std::fs::read_to_string("/proc/locks")
        .ok()
        .and_then(|table| holder(&table, file.metadata().ok()?.ino()))
        .and_then(|pid| Some((pid, command_line(pid)?)));
    match holder {
        Some((pid, command)) => format!("process {pid}, `{command}`"),
        // Of another user's process namespace, or killed a moment ago while its lab still ends.
        None => "its process cannot be seen from here".to_owned(),
    }
}

/// `/proc/locks`: `1: FLOCK ADVISORY WRITE 1234 00:1f:5678 0 EOF`; the file is told as
/// major:minor:inode. A file system may call its device otherwise in stat(2), so only the inode
/// counts here.
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
    let short: String = line.chars().take(120).collect();
    (!line.is_empty()).then_some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        (dir, path)
    }

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let (_dir, path) = place();
        let first = LabLock::acquire_file(&path, None).unwrap();
        let told = match LabLock::acquire_file(&path, None) {
            Err(LabError::Busy(told)) => told,
            other => panic!("{other:?}"),
        };
        let me = format!("process {},", std::process::id());
        assert!(told.contains(&me), "{told}");
        drop(first);
        LabLock::acquire_file(&path, None).unwrap();
    }

    #[test]
    fn waiting_ends_when_the_lock_is_free() {
        let (_dir, path) = place();
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
    fn everybody_can_take_it_later() {
        let (_dir, path) = place();
        drop(LabLock::acquire_file(&path, None).unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_link_is_not_followed_and_a_pipe_does_not_block() {
        let (dir, path) = place();
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
    fn a_file_that_was_removed_holds_nothing() {
        let (_dir, path) = place();
        let first = LabLock::acquire_file(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!same_file(&first.file, &path));
        let second = LabLock::acquire_file(&path, None).unwrap();
        assert!(same_file(&second.file, &path));
    }

    #[test]
    fn the_holder_is_found_by_inode() {
        let table = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        assert_eq!(holder(table, 77), Some(33));
        assert_eq!(holder(table, 79), None);
    }
}
