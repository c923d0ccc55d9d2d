//! Directories: entries one by one, and trees; the entry that a path leads to, as a listing shows it.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use proto::listing::{DirectoryEntry, EntryKind, EntryPermissions};
use proto::path::VPath;
use proto::pattern::GlobPattern;
use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::directory_names::{self, DirectoryNames};
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError, id_names};
use crate::os::lookup::LOCATE;
use crate::os::stat;

/// Memory for names of the listed directory, bytes: about 20 000 names are sorted.
const BATCH_SIZE: usize = 1 << 20;

/// The same for each directory below it in a walk, and for each directory that is removed.
pub(super) const BATCH_SIZE_BELOW: usize = BATCH_SIZE / 4;

impl Root {
    /// Opens the root itself, to read its names.
    ///
    /// # Errors
    /// It may not be read.
    pub fn open_top(&self) -> Result<OwnedFd, StoreError> {
        let top = VPath::root();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(&top, flags, Mode::empty())
            .map_err(|errno| StoreError::new("list", &top, errno))
    }

    /// Checks that the directory may be entered.
    pub fn enter(&self, path: &VPath) -> Result<(), StoreError> {
        // For the final `.` the kernel checks search permission on the directory itself.
        let flags = LOCATE | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty())
            .and_then(|dir| require_search(&dir))
            .map_err(|errno| StoreError::new("enter", path, errno))
    }

    /// Calls `visit` for every entry of a directory except `.` and `..`, sorted by name (a large
    /// directory in sorted batches, which bounds memory). If `path` is not a directory, calls it
    /// once (with a pattern: ENOTDIR). Symbolic links are followed; those without a target are
    /// reported themselves. Stops early when `visit` breaks.
    pub fn list(
        &self,
        path: &VPath,
        pattern: Option<&GlobPattern>,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let failed = |errno| StoreError::new("list", path, errno);
        let Some(dir) = self.directory(path).map_err(failed)? else {
            if pattern.is_some() {
                return Err(failed(Errno::NOTDIR));
            }
            let _ = visit(self.stat(path).map_err(|error| failed(error.errno))?);
            return Ok(());
        };
        let viewer = ProcessCredentials::current();
        for name in DirectoryNames::read(&dir, BATCH_SIZE).map_err(failed)? {
            let name = name.map_err(failed)?;
            if pattern.is_some_and(|pattern| !pattern.matches(&name)) {
                continue;
            }
            match self.entry_at(&dir, path, &name, &viewer) {
                Ok(entry) => {
                    if visit(entry).is_break() {
                        break;
                    }
                }
                Err(errno) if is_skipped(errno) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// Number of entries in a directory, including `.` and `..` (the `X.count` fact).
    pub fn count(&self, path: &VPath) -> Result<u64, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty())
            .and_then(|dir| Ok(directory_names::count(&dir)? + 2))
            .map_err(|errno| StoreError::new("list", path, errno))
    }

    /// Whether the directory can be listed now: the kernel's answer, which access control lists and
    /// the file system decide, beside the permission bits.
    pub fn may_list(&self, path: &VPath) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty())
            .and_then(|dir| require_search(&dir))
            .is_ok()
    }

    /// Calls `visit` for the directory itself (as `.`) and everything below it, a directory before
    /// its content, with names relative to `path` (MLSR). Symbolic links to directories are
    /// reported but not entered, so there are no loops. A directory that cannot be listed is
    /// reported without its content and without the right to read it; all others have that right,
    /// whatever their permission bits say. More than [`MAX_DEPTH`] levels: ENAMETOOLONG.
    pub fn walk(
        &self,
        path: &VPath,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let failed = |errno| StoreError::new("list", path, errno);
        let mut top = self.stat(path)?;
        if top.kind != EntryKind::Dir {
            let _ = visit(top);
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.resolve(path, flags, Mode::empty()).map_err(failed)?;
        let level = WalkLevel::new(dir, path.clone(), Vec::new(), BATCH_SIZE).map_err(failed)?;
        top.name = b".".to_vec();
        top.kind = EntryKind::CurrentDir;
        set_listable(&mut top, true);
        if visit(top).is_break() {
            return Ok(());
        }
        let walk = DirectoryWalk {
            root: self,
            viewer: ProcessCredentials::current(),
            levels: vec![level],
        };
        walk.run(visit).map_err(failed)
    }

    /// Opens the directory at `path` for reading; `None` if it is not a directory.
    fn directory(&self, path: &VPath) -> Result<Option<OwnedFd>, Errno> {
        let target = match self.locate(path) {
            Ok(target) => target,
            // A link without a target exists itself; `stat` distinguishes it from a missing entry.
            Err(_) => return Ok(None),
        };
        // Checked before opening: opening a device or a pipe could block.
        let stat = rustix::fs::fstat(target)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty()).map(Some)
    }

    /// The entry that `path` leads to. Symbolic links are followed inside the root and reported in
    /// `link_target`. A link whose target is missing, outside or unreachable is reported itself, as
    /// a symbolic link. The entry's name is the last component.
    pub fn stat(&self, path: &VPath) -> Result<DirectoryEntry, StoreError> {
        let viewer = ProcessCredentials::current();
        let result = if path.is_root() {
            rustix::fs::fstat(&self.dir).map(|stat| viewer.entry(b"", &stat, None))
        } else {
            self.parent_of(path)
                .and_then(|parent| self.entry_at(&parent, &path.parent(), path.name(), &viewer))
        };
        result.map_err(|errno| StoreError::new("look at", path, errno))
    }

    /// The entry `name` of the open directory `dir`, which is at `path`.
    pub(super) fn entry_at(
        &self,
        dir: impl AsFd,
        path: &VPath,
        name: &[u8],
        viewer: &ProcessCredentials,
    ) -> Result<DirectoryEntry, Errno> {
        let dir = dir.as_fd();
        let own = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(own.st_mode) != FileType::Symlink {
            return Ok(viewer.entry(name, &own, None));
        }
        let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
        // The link is resolved from the root, not from `dir`: below `dir` an absolute target or
        // `..` would have another meaning.
        let target_of = |link: VPath| self.locate(&link);
        let link = path.join(name).map_err(|_| Errno::NAMETOOLONG);
        let stat = match link.and_then(target_of) {
            Ok(target) => rustix::fs::fstat(target)?,
            Err(errno) if leads_nowhere(errno) => own,
            Err(errno) => return Err(errno),
        };
        Ok(viewer.entry(name, &stat, Some(target)))
    }
}

/// A walk in progress: the open directories from the top to the present one.
struct DirectoryWalk<'a> {
    root: &'a Root,
    viewer: ProcessCredentials,
    levels: Vec<WalkLevel>,
}

struct WalkLevel {
    dir: OwnedFd,
    path: VPath,
    /// For example `""`, `deep/`, `deep/er/`.
    prefix: Vec<u8>,
    names: DirectoryNames,
}

impl WalkLevel {
    fn new(dir: OwnedFd, path: VPath, prefix: Vec<u8>, batch: usize) -> Result<Self, Errno> {
        require_search(&dir)?;
        let names = DirectoryNames::read(&dir, batch)?;
        Ok(Self {
            dir,
            path,
            prefix,
            names,
        })
    }
}

/// Content below an entry of a walk.
enum BelowEntry {
    /// A directory, which is open.
    Opened(WalkLevel),
    /// A directory that cannot be listed.
    Closed,
    /// Nothing: it is no directory.
    Nothing,
}

impl DirectoryWalk<'_> {
    fn run(
        mut self,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            let found = match self.look_at(&name?) {
                Ok(found) => found,
                // A vanished entry is no error of the listing.
                Err(errno) if is_skipped(errno) => continue,
                Err(errno) => return Err(errno),
            };
            let (entry, below) = found;
            if visit(entry).is_break() {
                return Ok(());
            }
            if let BelowEntry::Opened(level) = below {
                self.levels.push(level);
            }
        }
        Ok(())
    }

    /// The entry of a name, and what is below it.
    fn look_at(&self, name: &[u8]) -> Result<(DirectoryEntry, BelowEntry), Errno> {
        let level = self.levels.last().ok_or(Errno::NOENT)?;
        let entry = || {
            self.root
                .entry_at(&level.dir, &level.path, name, &self.viewer)
        };
        let mut found = entry()?;
        let mut below = self.below(level, name, &found)?;
        if matches!(below, BelowEntry::Closed) {
            // Something else may have taken the name meanwhile.
            found = entry()?;
            if !is_directory(&found) {
                below = BelowEntry::Nothing;
            }
        }
        match below {
            BelowEntry::Opened(_) => set_listable(&mut found, true),
            BelowEntry::Closed => set_listable(&mut found, false),
            BelowEntry::Nothing => {}
        }
        found.name = [&level.prefix, name].concat();
        Ok((found, below))
    }

    fn below(
        &self,
        level: &WalkLevel,
        name: &[u8],
        entry: &DirectoryEntry,
    ) -> Result<BelowEntry, Errno> {
        if !is_directory(entry) {
            return Ok(BelowEntry::Nothing);
        }
        // Each level holds a descriptor, and a peer may have made the tree.
        if self.levels.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let path = level.path.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        let prefix = [&level.prefix, name, b"/"].concat();
        let opened = subdirectory(&level.dir, name)
            .and_then(|dir| WalkLevel::new(dir, path, prefix, BATCH_SIZE_BELOW));
        match opened {
            Ok(level) => Ok(BelowEntry::Opened(level)),
            // These are no property of the directory.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOENT)) => Err(errno),
            Err(_) => Ok(BelowEntry::Closed),
        }
    }
}

/// Whether a walk enters it.
fn is_directory(entry: &DirectoryEntry) -> bool {
    entry.kind == EntryKind::Dir && entry.link_target.is_none()
}

fn set_listable(directory: &mut DirectoryEntry, may_list: bool) {
    directory.permissions.read = may_list;
    directory.permissions.execute |= may_list;
}

/// Fails if the process may not look at the entries of a directory.
fn require_search(dir: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::openat(dir, c".", LOCATE, Mode::empty()).map(drop)
}

/// Whether an entry has vanished since its name was read.
fn is_skipped(errno: Errno) -> bool {
    // EINVAL: a link was replaced by something else before it was read.
    matches!(errno, Errno::NOENT | Errno::INVAL)
}

/// The user and groups for which the kernel checks this process's file accesses.
#[derive(Debug)]
pub(super) struct ProcessCredentials {
    uid: u32,
    groups: Vec<u32>,
}

impl ProcessCredentials {
    /// The present credentials of this process.
    pub(super) fn current() -> Self {
        let mut groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        // The effective group is checked in addition to the supplementary groups (getgroups(2)).
        groups.push(rustix::process::getegid().as_raw());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            groups,
        }
    }

    /// The rights that the permission bits grant. Access control lists are ignored: whether a directory can
    /// be listed, [`Root::may_list`] asks the kernel.
    fn access(&self, stat: &Stat) -> EntryPermissions {
        let mode = stat::mode(stat);
        // Root ignores permission bits, but executing a file needs one execute bit (execve(2)).
        if self.uid == 0 {
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            return EntryPermissions {
                read: true,
                write: true,
                execute: is_dir || mode & 0o111 != 0,
            };
        }
        // The first matching class decides, as in path_resolution(7).
        let bits = if stat.st_uid == self.uid {
            mode >> 6
        } else if self.groups.contains(&stat.st_gid) {
            mode >> 3
        } else {
            mode
        };
        EntryPermissions {
            read: bits & 4 != 0,
            write: bits & 2 != 0,
            execute: bits & 1 != 0,
        }
    }

    fn entry(&self, name: &[u8], stat: &Stat, link_target: Option<Vec<u8>>) -> DirectoryEntry {
        DirectoryEntry {
            name: name.to_vec(),
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Dir,
                FileType::Symlink => EntryKind::SymLink,
                _ => EntryKind::Other,
            },
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: Timestamp(stat.st_mtime),
            mode: stat::mode(stat) & 0o7777,
            link_count: stat::link_count(stat),
            uid: stat.st_uid,
            gid: stat.st_gid,
            owner: id_names::users().name(stat.st_uid),
            group: id_names::groups().name(stat.st_gid),
            device_and_inode: stat::inode(stat),
            link_target,
            permissions: match FileType::from_raw_mode(stat.st_mode) {
                // A link without a target can neither be read nor written.
                FileType::Symlink => EntryPermissions::default(),
                _ => self.access(stat),
            },
        }
    }
}

/// Whether a symbolic link could not be followed because of its target. Other errors (no
/// descriptors or memory) are not caused by the link.
fn leads_nowhere(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::ACCESS
            | Errno::PERM
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(uid: u32, groups: &[u32], mode: u32) -> EntryPermissions {
        let viewer = ProcessCredentials {
            uid,
            groups: groups.to_vec(),
        };
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid, stat.st_mode) = (10, 20, mode);
        viewer.access(&stat)
    }

    #[test]
    fn access_follows_owner_group_and_other_bits() {
        let rwx = |read, write, execute| EntryPermissions {
            read,
            write,
            execute,
        };
        assert_eq!(access(10, &[20], 0o100_467), rwx(true, false, false));
        assert_eq!(access(11, &[5, 20], 0o100_467), rwx(true, true, false));
        assert_eq!(access(11, &[5], 0o100_467), rwx(true, true, true));
        assert_eq!(access(0, &[], 0o100_000), rwx(true, true, false));
        assert_eq!(access(0, &[], 0o040_000), rwx(true, true, true));
    }
}
