//! Directories that belong to one process, and the removal of those whose process was killed.
//!
//! The owner of a directory is the process that holds the lock (flock(2)) on it. The kernel releases
//! the lock when the process ends, so that a directory that can be locked has no owner. Every process
//! of a run has the path of the run's directory in its environment ([`MARK`]), by which it is found
//! after its parents have ended.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::LabError;

/// The environment variable of every process of a run: the path of the run's directory.
pub(crate) const MARK: &str = "LONGHAUL_LAB_SCRATCH";

/// The prefix of the directories' names.
const PREFIX: &str = "longhaul-lab.";

/// A file system in memory (tmpfs), so that received files measure no disk.
const MEMORY: &str = "/dev/shm";

/// The time between SIGTERM and SIGKILL for leftover processes.
const GRACE: Duration = Duration::from_millis(500);

/// The time after which a process without an environment is taken for one that was started without.
const LONGEST_EXEC: Duration = Duration::from_millis(50);

/// The parent directories of a run's files: on a disk, and in memory if the system has a tmpfs.
pub(crate) fn locations() -> [PathBuf; 2] {
    let temporary = std::env::temp_dir();
    let memory = Path::new(MEMORY);
    match memory.is_dir() {
        true => [temporary, memory.to_owned()],
        false => [temporary.clone(), temporary],
    }
}

/// A directory that this process owns. It is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct OwnedDirectory {
    // Fields are dropped in their order: the directory is removed while the lock is still held.
    directory: TempDir,
    _lock: File,
}

impl OwnedDirectory {
    /// Creates a directory in `place`.
    ///
    /// # Errors
    /// [`LabError::System`]: the file system is full or does not exist.
    pub(crate) fn new_in(place: &Path) -> Result<Self, LabError> {
        let failed =
            |e| LabError::system(format!("cannot make a directory in {}", place.display()), e);
        loop {
            // Servers that drop root's privileges must still be able to read the files.
            let directory = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o755))
                .tempdir_in(place)
                .map_err(failed)?;
            // Another lab may have removed it as a leftover before it was locked; then a new one is made.
            if let Some(lock) = lock(directory.path()).map_err(failed)? {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Locks a directory of this user, without following a symbolic link. `None`: another process holds the
/// lock, another user owns the directory, or it no longer exists.
fn lock(path: &Path) -> std::io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let directory = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(directory) => directory,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    match directory.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
        Err(std::fs::TryLockError::Error(e)) => return Err(e),
    }
    // The previous owner may have removed the directory between the open and the lock.
    let held = directory.metadata()?;
    let still = std::fs::symlink_metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()));
    let own = held.uid() == rustix::process::geteuid().as_raw();
    Ok((still && own).then_some(directory))
}

/// Ends the processes that killed runs left behind, and removes their directories. Active runs and
/// other users' directories are not touched.
pub fn remove_leftovers() {
    for place in locations() {
        remove_leftovers_in(&place);
    }
}

/// Does the same in one parent directory. Returns the directories that it removed.
fn remove_leftovers_in(place: &Path) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        // A directory that cannot be opened belongs to another user.
        let Ok(Some(_lock)) = lock(&path) else {
            continue;
        };
        terminate_marked(&path);
        match std::fs::remove_dir_all(&path) {
            Ok(()) => gone.push(path),
            Err(error) => tracing::warn!(%error, "cannot remove {}", path.display()),
        }
    }
    gone
}

/// Ends the processes of the run whose directory is `mark`: first by SIGTERM, then by SIGKILL.
pub(crate) fn terminate_marked(mark: &Path) {
    // SIGTERM comes first because `lab net` then removes its network and restores the machine's settings.
    for signal in [Signal::TERM, Signal::KILL] {
        let until = Instant::now() + GRACE;
        let mut left = find_marked(mark);
        for process in &left {
            // It may have ended since.
            let _ = pidfd_send_signal(process, signal);
        }
        while !left.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            left = find_marked(mark);
        }
        if left.is_empty() {
            return;
        }
    }
}

/// Finds the processes that have `mark` in their environment, as pidfds.
fn find_marked(mark: &Path) -> Vec<OwnedFd> {
    let entry = format!("{MARK}={}", mark.display());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        // The pidfd is opened before the environment is read: the kernel may give the number to another process.
        let Ok(open) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        if environment_of(&process.path())
            .split(|byte| *byte == 0)
            .any(|variable| variable == entry.as_bytes())
        {
            found.push(open);
        }
    }
    found
}

/// The environment of a process, by its directory in /proc. While the process executes a program (execve(2)), it has an
/// executable and no environment yet.
fn environment_of(process: &Path) -> Vec<u8> {
    let until = Instant::now() + LONGEST_EXEC;
    loop {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        // A thread of the kernel has no executable, nor has a process that has ended.
        let may_follow = environment.is_empty() && process.join("exe").read_link().is_ok();
        if !may_follow || Instant::now() >= until {
            return environment;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_active_runs_directory_is_kept_and_a_dead_runs_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let living = OwnedDirectory::new_in(place.path()).unwrap();
        let dead = place.path().join(format!("{PREFIX}dead"));
        std::fs::create_dir_all(dead.join("served")).unwrap();
        std::fs::write(dead.join("served/1.dat"), "x").unwrap();
        let others = place.path().join("longhaul-lap.dead");
        std::fs::create_dir(&others).unwrap();
        assert_eq!(
            remove_leftovers_in(place.path()),
            std::slice::from_ref(&dead)
        );
        assert!(!dead.exists() && living.path().exists() && others.exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_runs_processes_are_ended_even_if_they_ignore_sigterm() {
        let place = tempfile::tempdir().unwrap();
        let [dead, living] = ["dead", "living"].map(|end| {
            let path = place.path().join(format!("{PREFIX}{end}"));
            std::fs::create_dir(&path).unwrap();
            path
        });
        let _owner = lock(&living).unwrap().unwrap();
        let start = |mark: &Path| {
            // The mark is there with the environment, which exec sets at once.
            Command::new("sh")
                .args(["-c", "trap '' TERM; exec sleep 60"])
                .env(MARK, mark)
                .spawn()
                .unwrap()
        };
        let (mut left, mut kept) = (start(&dead), start(&living));
        assert_eq!(remove_leftovers_in(place.path()), [dead]);
        left.wait().unwrap();
        assert_eq!(kept.try_wait().unwrap(), None, "the run is active");
        kept.kill().unwrap();
        kept.wait().unwrap();
    }

    #[test]
    fn a_symbolic_link_in_place_of_a_directory_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("kept"), "x").unwrap();
        let link = place.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        assert!(remove_leftovers_in(place.path()).is_empty());
        assert!(elsewhere.path().join("kept").exists());
    }
}
