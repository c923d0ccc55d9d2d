//! Removing a tree, by descriptors from the top down: a directory that is replaced by a symbolic
//! link meanwhile is not followed.

use std::os::fd::OwnedFd;

use proto::path::VPath;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::list::names_in;
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError};

impl Root {
    /// Removes a file, a symbolic link, or a directory with everything below it. Stops at the
    /// first thing that cannot be removed; more than [`MAX_DEPTH`] levels: ENAMETOOLONG.
    pub fn remove_tree(&self, path: &VPath) -> Result<(), StoreError> {
        self.at_parent("remove", path, |parent, name| {
            match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => remove_directory(parent, name),
                result => result,
            }
        })
    }
}

/// A directory that is being emptied.
struct Level {
    dir: OwnedFd,
    /// Its name in the directory above.
    name: Box<[u8]>,
    left: std::vec::IntoIter<Box<[u8]>>,
}

impl Level {
    fn open(parent: &OwnedFd, name: &[u8]) -> Result<Self, Errno> {
        let dir = subdirectory(parent, name)?;
        let left = names_in(&dir)?.into_iter();
        Ok(Self {
            dir,
            name: name.into(),
            left,
        })
    }
}

fn remove_directory(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let mut levels = vec![Level::open(parent, name)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.left.next() else {
            let name = std::mem::take(&mut level.name);
            levels.pop();
            let above = levels.last().map_or(parent, |level| &level.dir);
            gone(rustix::fs::unlinkat(above, &*name, AtFlags::REMOVEDIR))?;
            continue;
        };
        match rustix::fs::unlinkat(&level.dir, &*name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let next = Level::open(&level.dir, &name)?;
                if levels.len() >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                levels.push(next);
            }
            result => gone(result)?,
        }
    }
    Ok(())
}

/// What somebody else removed first is removed.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
