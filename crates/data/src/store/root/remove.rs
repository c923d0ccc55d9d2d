//! Removing a tree, by descriptors from the top down: a directory that is replaced by a symbolic
//! link meanwhile is not followed.

use std::os::fd::OwnedFd;

use proto::path::VPath;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::directory_names::DirectoryNames;
use super::list::BATCH_BELOW;
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError};

/// How often the names of a directory are read. A file system may pass over some of them while others
/// are removed, and somebody may add new ones.
const PASSES: u32 = 16;

/// Names that one call removes at most: who keeps adding some must not hold it for ever.
const MOST: u64 = 20_000_000;

impl Root {
    /// Removes a file, a symbolic link, or a directory with everything below it. Stops at the
    /// first thing that cannot be removed; more than [`MAX_DEPTH`] levels: ENAMETOOLONG. Names are read
    /// a bounded number at a time; after 20 million of them, which may come from others meanwhile: ENOTEMPTY,
    /// and another call goes on.
    pub fn remove_tree(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("remove", path, |parent, name| {
            match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => remove_directory(parent, name, BATCH_BELOW, MOST),
                result => result,
            }
        })
    }
}

/// A directory that is being emptied.
struct RemovalLevel {
    dir: OwnedFd,
    /// Its name in the directory above.
    name: Box<[u8]>,
    left: DirectoryNames,
    /// Something was removed since the names were last read from the beginning.
    removed: bool,
    passes: u32,
}

impl RemovalLevel {
    fn open(parent: &OwnedFd, name: &[u8], batch: usize) -> Result<Self, Errno> {
        let dir = subdirectory(parent, name)?;
        let left = DirectoryNames::read(&dir, batch)?;
        Ok(Self {
            dir,
            name: name.into(),
            left,
            removed: false,
            passes: 1,
        })
    }

    /// Begins anew with the names that are there now, if that may help.
    fn look_again(&mut self, batch: usize) -> Result<(), Errno> {
        if !self.removed || self.passes >= PASSES {
            return Err(Errno::NOTEMPTY);
        }
        self.left = DirectoryNames::read(&self.dir, batch)?;
        self.removed = false;
        self.passes += 1;
        Ok(())
    }
}

/// `batch`: memory for the names of one directory, bytes. `most`: names below it to remove.
fn remove_directory(
    parent: &OwnedFd,
    name: &[u8],
    batch: usize,
    mut most: u64,
) -> Result<(), Errno> {
    let mut above: Vec<RemovalLevel> = Vec::new();
    let mut level = RemovalLevel::open(parent, name, batch)?;
    loop {
        let Some(name) = level.left.next().transpose()? else {
            let holder = above.last().map_or(parent, |level| &level.dir);
            match rustix::fs::unlinkat(holder, &*level.name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    level.look_again(batch)?;
                    continue;
                }
                result => gone(result)?,
            }
            let Some(next) = above.pop() else {
                return Ok(());
            };
            level = next;
            level.removed = true;
            continue;
        };
        most = most.checked_sub(1).ok_or(Errno::NOTEMPTY)?;
        match rustix::fs::unlinkat(&level.dir, &*name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let below = RemovalLevel::open(&level.dir, &name, batch)?;
                if above.len() + 1 >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                above.push(std::mem::replace(&mut level, below));
            }
            result => {
                gone(result)?;
                level.removed = true;
            }
        }
    }
}

/// Success also where somebody else removed it first.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_is_removed_whatever_the_number_of_names_read_at_a_time() {
        for batch in [1, 1000, BATCH_BELOW] {
            let place = tempfile::tempdir().unwrap();
            let outside = tempfile::tempdir().unwrap();
            File::create(outside.path().join("kept")).unwrap();
            let tree = place.path().join("tree");
            for directory in 0..30 {
                let path = tree.join(format!("{directory}/deep/er"));
                fs::create_dir_all(&path).unwrap();
                for n in 0..30 {
                    File::create(path.join(format!("{n}"))).unwrap();
                    File::create(tree.join(format!("{directory} {n}"))).unwrap();
                }
                symlink(outside.path(), path.join("link")).unwrap();
            }
            let parent = File::open(place.path()).unwrap().into();
            remove_directory(&parent, b"tree", batch, MOST).unwrap();
            assert!(!tree.exists());
            assert!(
                outside.path().join("kept").exists(),
                "links are not followed"
            );
        }
    }

    #[test]
    fn a_call_ends_after_so_many_names_and_another_goes_on() {
        let place = tempfile::tempdir().unwrap();
        for directory in 0..4 {
            let path = place.path().join(format!("tree/{directory}"));
            fs::create_dir_all(&path).unwrap();
            for n in 0..4 {
                File::create(path.join(format!("{n}"))).unwrap();
            }
        }
        let parent: OwnedFd = File::open(place.path()).unwrap().into();
        let remove = |most| remove_directory(&parent, b"tree", BATCH_BELOW, most);
        assert_eq!(remove(11), Err(Errno::NOTEMPTY));
        assert_eq!(remove(8), Err(Errno::NOTEMPTY));
        remove(20).unwrap();
        assert!(!place.path().join("tree").exists());
    }

    #[test]
    fn names_that_were_passed_over_are_found_in_another_pass() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        let parent = File::open(place.path()).unwrap().into();
        let mut level = RemovalLevel::open(&parent, b"d", 100).unwrap();
        File::create(place.path().join("d/late")).unwrap();
        assert!(level.left.next().is_none());
        // Nothing was removed: another look would find the same.
        assert_eq!(level.look_again(100), Err(Errno::NOTEMPTY));
        level.removed = true;
        level.look_again(100).unwrap();
        assert_eq!(level.left.next().unwrap().unwrap().as_ref(), b"late");
        level.removed = true;
        level.passes = PASSES;
        assert_eq!(level.look_again(100), Err(Errno::NOTEMPTY));
    }
}
