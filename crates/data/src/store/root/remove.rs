//! Removes a tree by descriptors from the top down: a directory that is replaced by a symbolic link
//! meanwhile is not followed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use proto::path::VPath;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::directory_names::DirectoryNames;
use super::list::BATCH_SIZE_BELOW;
use super::resolve::subdirectory_of_same_mount;
use super::{MAX_DEPTH, Root, StoreError};
use crate::os::lookup::unlink;

/// Most passes over the names of a directory. A file system may skip some names while others are
/// removed, and other processes may add new ones.
const MAX_PASSES: u32 = 16;

/// Most names that one call removes: a process that keeps adding names must not occupy it without
/// end.
const MAX_NAMES: u64 = 20_000_000;

impl Root {
    /// Removes a file, a symbolic link, or a directory with everything below it. Stops at the first
    /// entry that cannot be removed. What is mounted there is not entered, since it belongs to another tree, and a mount
    /// point cannot be removed: EBUSY. More than [`MAX_DEPTH`] levels: ENAMETOOLONG. Names are read a
    /// bounded number at a time; after 20 million names, which other processes may add meanwhile:
    /// ENOTEMPTY, and another call continues.
    pub fn remove_tree(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("remove", path, |parent, name| remove_tree_in(parent, name))
    }
}

/// As [`Root::remove_tree`], of the name `name` in an open directory.
///
/// # Errors
/// As there.
pub fn remove_tree_in(parent: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let parent = parent.as_fd();
    // That of a directory is EISDIR, so one call distinguishes both kinds.
    match unlink(parent, name) {
        Err(Errno::ISDIR) => remove_directory(parent, name, BATCH_SIZE_BELOW, MAX_NAMES),
        result => result,
    }
}

/// A directory that is being emptied.
struct RemovalLevel {
    dir: OwnedFd,
    /// Its name in the parent directory.
    name: Box<[u8]>,
    names: DirectoryNames,
    /// An entry was removed since the names were last read from the start.
    removed: bool,
    passes: u32,
}

impl RemovalLevel {
    fn open(parent: impl AsFd, name: &[u8], batch: usize) -> Result<Self, Errno> {
        let dir = subdirectory_of_same_mount(parent, name).map_err(|errno| match errno {
            // As rmdir(2) says it.
            Errno::XDEV => Errno::BUSY,
            errno => errno,
        })?;
        let names = DirectoryNames::read(&dir, batch)?;
        Ok(Self {
            dir,
            name: name.into(),
            names,
            removed: false,
            passes: 1,
        })
    }

    /// Reads the names again from the start, if that can help.
    fn restart(&mut self, batch: usize) -> Result<(), Errno> {
        if !self.removed || self.passes >= MAX_PASSES {
            return Err(Errno::NOTEMPTY);
        }
        self.names = DirectoryNames::read(&self.dir, batch)?;
        self.removed = false;
        self.passes += 1;
        Ok(())
    }
}

/// Removes the directory `name` of `parent`. `batch` is the memory for the names of one directory,
/// bytes; `max_names` is the number of names below it to remove.
fn remove_directory(
    parent: BorrowedFd<'_>,
    name: &[u8],
    batch: usize,
    mut max_names: u64,
) -> Result<(), Errno> {
    let mut parents: Vec<RemovalLevel> = Vec::new();
    let mut level = RemovalLevel::open(parent, name, batch)?;
    loop {
        let Some(name) = level.names.next().transpose()? else {
            let holder = parents.last().map_or(parent, |level| level.dir.as_fd());
            match rustix::fs::unlinkat(holder, &*level.name, AtFlags::REMOVEDIR) {
                // Entries were added or skipped; another pass may find them.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    level.restart(batch)?;
                    continue;
                }
                result => ignore_missing(result)?,
            }
            let Some(next) = parents.pop() else {
                return Ok(());
            };
            level = next;
            level.removed = true;
            continue;
        };
        // The limit is shared by all levels.
        max_names = max_names.checked_sub(1).ok_or(Errno::NOTEMPTY)?;
        match unlink(&level.dir, &name) {
            Err(Errno::ISDIR) => {
                let child = RemovalLevel::open(&level.dir, &name, batch)?;
                // Each level holds a descriptor.
                if parents.len() + 1 >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                parents.push(std::mem::replace(&mut level, child));
            }
            result => {
                ignore_missing(result)?;
                level.removed = true;
            }
        }
    }
}

/// Treats an entry that another process removed first as a success.
fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_tree_is_removed_for_any_batch_size() {
        for batch in [1, 1000, BATCH_SIZE_BELOW] {
            let dir = tempfile::tempdir().unwrap();
            let outside = tempfile::tempdir().unwrap();
            File::create(outside.path().join("kept")).unwrap();
            let tree = dir.path().join("tree");
            for directory in 0..30 {
                let path = tree.join(format!("{directory}/deep/er"));
                fs::create_dir_all(&path).unwrap();
                for n in 0..30 {
                    File::create(path.join(format!("{n}"))).unwrap();
                    File::create(tree.join(format!("{directory} {n}"))).unwrap();
                }
                symlink(outside.path(), path.join("link")).unwrap();
            }
            let parent = File::open(dir.path()).unwrap();
            remove_directory(parent.as_fd(), b"tree", batch, MAX_NAMES).unwrap();
            assert!(!tree.exists());
            assert!(
                outside.path().join("kept").exists(),
                "links are not followed"
            );
        }
    }

    #[test]
    fn what_is_mounted_in_a_tree_is_not_entered() {
        let top = File::open("/").unwrap();
        let proc = RemovalLevel::open(&top, b"proc", BATCH_SIZE_BELOW);
        assert_eq!(proc.err(), Some(Errno::BUSY));
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("tree/a/mounted")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("other/precious"), "").unwrap();
        let run = |program: &str, arguments: &[&Path]| {
            let mut command = std::process::Command::new(program);
            let output = command.args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        // A part of the same file system: its device number is the same.
        let bind = [Path::new("--bind"), &at("other"), &at("tree/a/mounted")];
        if !run("mount", &bind) {
            println!("SKIPPED: this user cannot mount");
            return;
        }
        let parent = File::open(dir.path()).unwrap();
        let whole = remove_tree_in(&parent, b"tree");
        let itself = remove_tree_in(File::open(at("tree/a")).unwrap(), b"mounted");
        assert!(run("umount", &[&at("tree/a/mounted")]));
        assert_eq!((whole, itself), (Err(Errno::BUSY), Err(Errno::BUSY)));
        assert!(at("other/precious").exists());
        remove_tree_in(&parent, b"tree").unwrap();
        assert!(!at("tree").exists());
    }

    #[test]
    fn a_call_stops_at_its_limit_and_another_continues() {
        let dir = tempfile::tempdir().unwrap();
        for directory in 0..4 {
            let path = dir.path().join(format!("tree/{directory}"));
            fs::create_dir_all(&path).unwrap();
            for n in 0..4 {
                File::create(path.join(format!("{n}"))).unwrap();
            }
        }
        let parent = File::open(dir.path()).unwrap();
        let remove =
            |max_names| remove_directory(parent.as_fd(), b"tree", BATCH_SIZE_BELOW, max_names);
        assert_eq!(remove(11), Err(Errno::NOTEMPTY));
        assert_eq!(remove(8), Err(Errno::NOTEMPTY));
        remove(20).unwrap();
        assert!(!dir.path().join("tree").exists());
    }

    #[test]
    fn skipped_names_are_found_in_another_pass() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let parent = File::open(dir.path()).unwrap();
        let mut level = RemovalLevel::open(&parent, b"d", 100).unwrap();
        File::create(dir.path().join("d/late")).unwrap();
        assert!(level.names.next().is_none());
        // Nothing was removed, so another pass would find the same names.
        assert_eq!(level.restart(100), Err(Errno::NOTEMPTY));
        level.removed = true;
        level.restart(100).unwrap();
        assert_eq!(level.names.next().unwrap().unwrap().as_ref(), b"late");
        level.removed = true;
        level.passes = MAX_PASSES;
        assert_eq!(level.restart(100), Err(Errno::NOTEMPTY));
    }
}
