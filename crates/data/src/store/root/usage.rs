//! Bytes and files of a tree.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use proto::path::VPath;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::directory_names::DirectoryNames;
use super::list::BATCH_SIZE_BELOW;
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError};
use crate::os::stat;

/// Bytes and files of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeUsage {
    /// Sizes of all regular files. A file with several names counts once.
    pub bytes: u64,
    /// Names below the root: files, directories, links.
    pub files: u64,
}

/// A file under one of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryUsage {
    /// Device and inode number.
    pub inode: (u64, u64),
    /// The tree holds so much less when the name is removed.
    pub usage: TreeUsage,
}

impl TreeUsage {
    /// Both together, at most the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }

    /// The rest without `other`, at least zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            files: self.files.saturating_sub(other.files),
        }
    }
}

impl Root {
    /// Counts what the tree holds. `size_of` gets device and inode number of each regular file with its present size,
    /// and returns the size that counts. What other processes change meanwhile is counted or not. A directory of another
    /// account that this one may neither read nor enter (`lost+found`) counts without what is in it: sessions store
    /// nothing there.
    ///
    /// # Errors
    /// A directory cannot be read that is this account's, or that it may enter; its path is that of the error. Or there
    /// are more than [`MAX_DEPTH`] levels.
    pub fn usage(&self, size_of: impl Fn((u64, u64), u64) -> u64) -> Result<TreeUsage, StoreError> {
        let root = VPath::root();
        let opened = self.resolve(&root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let level = opened.and_then(|top| CountedLevel::of(top, Vec::new()));
        let top = level.map_err(|errno| StoreError::new(COUNT, &root, errno))?;
        let mut levels = vec![top];
        count(&mut levels, size_of).map_err(|failed| {
            let names = levels.iter().map(|level| &level.name);
            let names = names.chain([&failed.below]).filter(|name| !name.is_empty());
            let path = names.fold(root, |path, name| path.join(name).unwrap_or(path));
            StoreError::new(COUNT, &path, failed.errno)
        })
    }

    /// The file that has this name, which is not followed if it is a link; `None` without such a name.
    pub fn usage_of(&self, path: &VPath) -> Option<EntryUsage> {
        let parent = self.parent_of(path).ok()?;
        let stat = rustix::fs::statat(parent, path.name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let bytes = if is_file && stat.st_nlink < 2 {
            size
        } else {
            0
        };
        Some(EntryUsage {
            inode: stat::inode(&stat),
            usage: TreeUsage { bytes, files: 1 },
        })
    }
}

/// The operation, for errors.
const COUNT: &str = "count what is in";

/// A directory that is being counted.
#[derive(Debug)]
struct CountedLevel {
    directory: OwnedFd,
    names: DirectoryNames,
    /// Its name in the directory above; empty for the root.
    name: Vec<u8>,
}

impl CountedLevel {
    fn of(directory: OwnedFd, name: Vec<u8>) -> Result<Self, Errno> {
        let names = DirectoryNames::read(&directory, BATCH_SIZE_BELOW)?;
        Ok(Self {
            directory,
            names,
            name,
        })
    }
}

/// The reason why a tree cannot be counted.
#[derive(Debug)]
struct UncountedName {
    errno: Errno,
    /// The name in the directory that was counted; empty for the directory itself.
    below: Vec<u8>,
}

impl From<Errno> for UncountedName {
    fn from(errno: Errno) -> Self {
        let below = Vec::new();
        Self { errno, below }
    }
}

/// Counts the tree below `levels`. After an error, these lead to the directory that was counted.
fn count(
    levels: &mut Vec<CountedLevel>,
    size_of: impl Fn((u64, u64), u64) -> u64,
) -> Result<TreeUsage, UncountedName> {
    let mut usage = TreeUsage::default();
    // Files with several names, each counted at its first one.
    let mut seen = HashSet::new();
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else {
            return Ok(usage);
        };
        let Some(name) = level.names.next().transpose()? else {
            levels.pop();
            continue;
        };
        let stat = match rustix::fs::statat(&level.directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        usage.files += 1;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let inode = stat::inode(&stat);
                if stat.st_nlink < 2 || seen.insert(inode) {
                    let size = u64::try_from(stat.st_size).unwrap_or(0);
                    usage.bytes = usage.bytes.saturating_add(size_of(inode, size));
                }
            }
            FileType::Directory => {
                if depth >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG.into());
                }
                let below = subdirectory(&level.directory, &name);
                match below.and_then(|below| CountedLevel::of(below, name.to_vec())) {
                    Ok(below) => levels.push(below),
                    // Removed or replaced meanwhile.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(Errno::ACCESS) if is_closed(&level.directory, &name, stat.st_uid) => {}
                    Err(errno) => {
                        let below = name.into();
                        return Err(UncountedName { errno, below });
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether this account stores nothing below a directory that it cannot read: it may not enter it, and as it belongs to
/// another one, cannot open it either.
fn is_closed(parent: &OwnedFd, name: &[u8], owner: u32) -> bool {
    let may_enter = rustix::fs::accessat(parent, name, Access::EXEC_OK, AtFlags::empty());
    owner != rustix::process::geteuid().as_raw() && may_enter == Err(Errno::ACCESS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
                .map(|entry| (entry.usage.bytes, entry.usage.files))
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

    #[test]
    fn a_directory_that_cannot_be_read_counts_alone_if_nothing_can_be_stored_there() {
        if rustix::process::geteuid().is_root() {
            println!("SKIPPED: root reads every directory");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("a/own");
        fs::create_dir_all(&own).unwrap();
        let closed = fs::Permissions::from_mode(0o300);
        fs::set_permissions(&own, closed).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let error = root.usage(|_, size| size).unwrap_err();
        assert_eq!(error.errno, Errno::ACCESS);
        assert_eq!(error.path.to_string(), "/a/own");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
