//! Bytes and files of a tree.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use proto::path::VPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::directory_names::DirectoryNames;
use super::list::BATCH_SIZE_BELOW;
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError};

/// Bytes and files of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeUsage {
    /// Sizes of all regular files. A file with several names counts once.
    pub bytes: u64,
    /// Names below the root: files, directories, links.
    pub files: u64,
}

impl Root {
    /// Counts what the tree holds. `size_of` gets device and inode number of each regular file with its present size,
    /// and returns the size that counts. What other processes change meanwhile is counted or not.
    ///
    /// # Errors
    /// A directory cannot be read, or there are more than [`MAX_DEPTH`] levels.
    pub fn usage(&self, size_of: impl Fn((u64, u64), u64) -> u64) -> Result<TreeUsage, StoreError> {
        let root = VPath::root();
        self.resolve(&root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .and_then(|top| count(top, size_of))
            .map_err(|errno| StoreError::new("count", &root, errno))
    }

    /// Device and inode number of the file that has this name, which is not followed if it is a link, and what the
    /// tree holds less when the name is removed; `None` without such a name.
    pub fn usage_of(&self, path: &VPath) -> Option<((u64, u64), TreeUsage)> {
        let parent = self.parent_of(path).ok()?;
        let stat = rustix::fs::statat(parent, path.name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let bytes = if is_file && stat.st_nlink < 2 {
            size
        } else {
            0
        };
        Some(((stat.st_dev, stat.st_ino), TreeUsage { bytes, files: 1 }))
    }
}

fn count(top: OwnedFd, size_of: impl Fn((u64, u64), u64) -> u64) -> Result<TreeUsage, Errno> {
    let mut usage = TreeUsage::default();
    // Files with several names, each counted at its first one.
    let mut seen = HashSet::new();
    let names = DirectoryNames::read(&top, BATCH_SIZE_BELOW)?;
    let mut levels = vec![(top, names)];
    loop {
        let depth = levels.len();
        let Some((directory, names)) = levels.last_mut() else {
            return Ok(usage);
        };
        let Some(name) = names.next().transpose()? else {
            levels.pop();
            continue;
        };
        let stat = match rustix::fs::statat(&*directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        usage.files += 1;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let inode = (stat.st_dev, stat.st_ino);
                if stat.st_nlink < 2 || seen.insert(inode) {
                    let size = u64::try_from(stat.st_size).unwrap_or(0);
                    usage.bytes = usage.bytes.saturating_add(size_of(inode, size));
                }
            }
            FileType::Directory => {
                if depth >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                let below = subdirectory(&*directory, &name);
                if let Some(level) = opened(below)? {
                    levels.push(level);
                }
            }
            _ => {}
        }
    }
}

/// The names of a subdirectory; `None` if it was removed or replaced meanwhile.
fn opened(below: Result<OwnedFd, Errno>) -> Result<Option<(OwnedFd, DirectoryNames)>, Errno> {
    match below {
        Ok(directory) => {
            let names = DirectoryNames::read(&directory, BATCH_SIZE_BELOW)?;
            Ok(Some((directory, names)))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_directories_and_links_are_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/one"), "12345").unwrap();
        fs::write(path("a/b/two"), "1234567").unwrap();
        fs::hard_link(path("a/one"), path("a/b/again")).unwrap();
        symlink("/etc", path("a/link")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let usage = root.usage(|_, size| size).unwrap();
        assert_eq!((usage.bytes, usage.files), (12, 6));
        let usage_of = |name: &str| {
            let path = VPath::root().join(name.as_bytes()).unwrap();
            root.usage_of(&path)
                .map(|(_, usage)| (usage.bytes, usage.files))
        };
        assert_eq!((usage_of("a"), usage_of("missing")), (Some((0, 1)), None));
        let doubled = root.usage(|_, size| 2 * size).unwrap();
        assert_eq!(doubled.bytes, 24);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let deep = ["d"; MAX_DEPTH].join("/");
        fs::create_dir_all(dir.path().join(&deep)).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let error = root.usage(|_, size| size).unwrap_err();
        assert_eq!(error.errno, Errno::NAMETOOLONG);
    }
}
