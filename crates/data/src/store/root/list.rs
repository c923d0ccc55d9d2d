//! Directories: entries one by one, and trees.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use proto::listing::{DirectoryEntry, EntryKind};
use proto::path::VPath;
use proto::pattern::GlobPattern;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::directory_names::{self, DirectoryNames};
use super::entry::ProcessCredentials;
use super::resolve::subdirectory;
use super::{MAX_DEPTH, Root, StoreError};

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
        let flags = OFlags::PATH | OFlags::DIRECTORY;
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
    rustix::fs::openat(dir, c".", OFlags::PATH, Mode::empty()).map(drop)
}

/// Whether an entry has vanished since its name was read.
fn is_skipped(errno: Errno) -> bool {
    // EINVAL: a link was replaced by something else before it was read.
    matches!(errno, Errno::NOENT | Errno::INVAL)
}
