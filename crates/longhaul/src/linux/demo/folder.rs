//! The directory of a demo.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, OFlags, flock};

/// Beginning of the name of each.
const NAME: &str = "longhaul-demo-";
/// Most names that are looked at for abandoned directories.
const MAX_LOOKED_AT: usize = 10_000;
/// Tries to remove a directory in which a process of the demo, which is ending, has made a file.
const REMOVALS: u32 = 50;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(20);

/// The demo's directory, removed on drop.
pub(super) struct DemoFolder {
    pub(super) root: PathBuf,
    /// The lock says that the demo runs.
    _lock: File,
}

impl DemoFolder {
    /// Creates the directory below `parent`, and removes those of demos that were killed.
    pub(super) fn create(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        remove_abandoned(&parent);
        let root = parent.join(format!("{NAME}{}", std::process::id()));
        let create = || -> std::io::Result<(PathBuf, File)> {
            // Its server lets anybody write.
            DirBuilder::new().mode(0o700).create(&root)?;
            let lock = File::open(&root)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            // Absolute, so that the processes of the demo do not depend on their working directory.
            Ok((root.canonicalize()?, lock))
        };
        let (root, lock) =
            create().with_context(|| format!("cannot create {}; try --dir DIR", root.display()))?;
        Ok(Self { root, _lock: lock })
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if std::fs::remove_dir_all(&self.root).is_ok() || !self.root.exists() {
                return;
            }
            std::thread::sleep(BETWEEN_REMOVALS);
        }
    }
}

/// Removes directories of this user's demos that do not run any more: SIGKILL leaves nobody who could.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    let is_folder = |name: &OsStr| {
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    for entry in entries.take(MAX_LOOKED_AT).flatten() {
        if is_folder(&entry.file_name()) && is_abandoned(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a directory belongs to this user, and nobody holds its lock.
fn is_abandoned(path: &Path) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let opened = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let Ok(folder) = opened else { return false };
    let own = rustix::process::geteuid().as_raw();
    folder.metadata().is_ok_and(|found| found.uid() == own)
        && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_demos_that_were_killed_are_removed_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["longhaul-demo-1", "longhaul-demo-x", "other"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink("other", at("longhaul-demo-2")).unwrap();
        let running = at("longhaul-demo-3");
        std::fs::create_dir(&running).unwrap();
        let held = File::open(&running).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let folder = DemoFolder::create(Some(parent.path())).unwrap();
        assert!(!at("longhaul-demo-1").exists());
        for kept in [
            "longhaul-demo-x/file",
            "other/file",
            "longhaul-demo-2/file",
            "longhaul-demo-3",
        ] {
            assert!(at(kept).exists(), "{kept}");
        }
        let root = folder.root.clone();
        assert_eq!(std::fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!root.exists());
    }
}
