//! Directories that belong to one process, and those whose process was killed.
//!
//! A directory is owned by who holds the lock (flock(2)) on it. The kernel drops the lock with the
//! process, so that a directory that can be locked has no owner. Processes of a run carry the path of
//! its directory in their environment.

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

/// Environment of every process of a run: the directory of its files.
pub(crate) const MARK: &str = "LONGHAUL_LAB_SCRATCH";

/// How the names of directories begin.
const PREFIX: &str = "longhaul-lab.";

/// A file system in memory, so that no disk takes part.
const MEMORY: &str = "/dev/shm";

/// How long leftover processes have between being asked to end and being killed.
const GRACE: Duration = Duration::from_millis(500);

/// Where a run's files are: on a disk, and in memory if there is such a place.
pub(crate) fn locations() -> [PathBuf; 2] {
    let temporary = std::env::temp_dir();
    let memory = Path::new(MEMORY);
    match memory.is_dir() {
        true => [temporary, memory.to_owned()],
        false => [temporary.clone(), temporary],
    }
}

/// A directory of this process; it goes with it.
#[derive(Debug)]
pub(crate) struct OwnedDirectory {
    // Removed while the lock is held: fields are dropped in their order.
    directory: TempDir,
    _lock: File,
}

impl OwnedDirectory {
    /// Makes a directory in `place`.
    ///
    /// # Errors
    /// A full or missing file system.
    pub(crate) fn new_in(place: &Path) -> Result<Self, LabError> {
        let failed =
            |e| LabError::system(format!("cannot make a directory in {}", place.display()), e);
        loop {
            // Servers give up root and must still reach the files.
            let directory = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o755))
                .tempdir_in(place)
                .map_err(failed)?;
            // Another lab may have taken it for a leftover before it was locked.
            if let Some(lock) = lock(directory.path()).map_err(failed)? {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Takes the lock of a directory of this user's, never through a symbolic link. `None`: another process
/// has it, or it is gone.
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
    // Who held the lock before may have removed it.
    let held = directory.metadata()?;
    let still = std::fs::symlink_metadata(path)
        .is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()));
    let own = held.uid() == rustix::process::geteuid().as_raw();
    Ok((still && own).then_some(directory))
}

/// Ends what runs that were killed left running, and removes their directories. Those of living runs,
/// and other users', are not touched.
pub fn remove_leftovers() {
    for place in locations() {
        remove_leftovers_in(&place);
    }
}

/// Returns the directories that are gone.
fn remove_leftovers_in(place: &Path) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        // A directory that cannot be opened is another user's; one that cannot be removed is tried again next time.
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

/// Ends the processes of the run whose directory is `mark`.
pub(crate) fn terminate_marked(mark: &Path) {
    // A network that is asked takes itself down, with the machine's settings.
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

/// The living processes that carry `mark`.
fn find_marked(mark: &Path) -> Vec<OwnedFd> {
    let entry = format!("{MARK}={}", mark.display());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        // Opened before it is looked at: the number may be another process's a moment later.
        let Ok(open) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == entry.as_bytes())
        {
            found.push(open);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_living_runs_directory_is_left_alone_and_a_dead_ones_is_removed() {
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
    fn a_dead_runs_processes_are_ended_also_those_that_do_not_listen() {
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
        assert_eq!(kept.try_wait().unwrap(), None, "of a living run");
        kept.kill().unwrap();
        kept.wait().unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("kept"), "x").unwrap();
        let link = place.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        assert!(remove_leftovers_in(place.path()).is_empty());
        assert!(elsewhere.path().join("kept").exists());
    }
}
