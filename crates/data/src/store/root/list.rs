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

/// Memory for names of the listed directory, bytes: some 20 000 names come sorted.
const BATCH: usize = 1 << 20;

/// The same for each directory below, of a walk, and for each that is removed.
pub(super) const BATCH_BELOW: usize = BATCH / 4;

impl Root {
    /// May the directory be entered?
    pub fn enter(&self, path: &VPath) -> Result<(), StoreError> {
        // With the final `.` the kernel asks for search permission on the directory itself.
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty())
            .and_then(|dir| rustix::fs::openat(&dir, c".", OFlags::PATH, Mode::empty()))
            .map(drop)
            .map_err(|errno| StoreError::new("enter", path, errno))
    }

    /// Calls `visit` for every entry of a directory, sorted by name (a large one in sorted runs, so that
    /// memory is bounded), without `.` and `..`; or once, if `path` is something else (with a pattern:
    /// ENOTDIR). Symbolic links are followed; those that lead nowhere are told themselves. Stops early
    /// when `visit` breaks.
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
        for name in DirectoryNames::read(&dir, BATCH).map_err(failed)? {
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
                Err(errno) if is_left_out(errno) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// How many entries a directory has, with `.` and `..` (the `X.count` fact).
    pub fn count(&self, path: &VPath) -> Result<u64, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty())
            .and_then(|dir| Ok(directory_names::count(&dir)? + 2))
            .map_err(|errno| StoreError::new("list", path, errno))
    }

    /// Calls `visit` for the directory itself (as `.`) and everything below it, a directory
    /// before its content, names relative to `path` (MLSR). Symbolic links to directories are
    /// told but not entered, so there are no loops. A directory that may not be read is told
    /// without its content. More than [`MAX_DEPTH`] levels: ENAMETOOLONG.
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
        top.name = b".".to_vec();
        top.kind = EntryKind::CurrentDir;
        if visit(top).is_break() {
            return Ok(());
        }
        let walk = DirectoryWalk {
            root: self,
            viewer: ProcessCredentials::current(),
            levels: vec![WalkLevel::new(dir, path.clone(), Vec::new(), BATCH).map_err(failed)?],
        };
        walk.run(visit).map_err(failed)
    }

    /// The directory at `path`, open for reading; `None` if something else is there.
    fn directory(&self, path: &VPath) -> Result<Option<OwnedFd>, Errno> {
        let there = match self.locate(path) {
            Ok(there) => there,
            // A link that leads nowhere is there itself; `stat` tells it from nothing at all.
            Err(_) => return Ok(None),
        };
        let stat = rustix::fs::fstat(there)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve(path, flags, Mode::empty()).map(Some)
    }
}

/// A walk in progress: the open directories from the top to here.
struct DirectoryWalk<'a> {
    root: &'a Root,
    viewer: ProcessCredentials,
    levels: Vec<WalkLevel>,
}

struct WalkLevel {
    dir: OwnedFd,
    path: VPath,
    /// `""`, `deep/`, `deep/er/`
    prefix: Vec<u8>,
    names: DirectoryNames,
}

impl WalkLevel {
    fn new(dir: OwnedFd, path: VPath, prefix: Vec<u8>, batch: usize) -> Result<Self, Errno> {
        let names = DirectoryNames::read(&dir, batch)?;
        Ok(Self {
            dir,
            path,
            prefix,
            names,
        })
    }
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
            let name = name?;
            let entry = self
                .root
                .entry_at(&level.dir, &level.path, &name, &self.viewer);
            let mut entry = match entry {
                Ok(entry) => entry,
                Err(errno) if is_left_out(errno) => continue,
                Err(errno) => return Err(errno),
            };
            let enter = entry.kind == EntryKind::Dir && entry.link_target.is_none();
            entry.name = [&level.prefix, &*name].concat();
            if visit(entry).is_break() {
                return Ok(());
            }
            if enter {
                self.enter(&name)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), Errno> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let Some(level) = self.levels.last() else {
            return Ok(());
        };
        let path = level.path.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        let prefix = [&level.prefix, name, b"/"].concat();
        let opened = subdirectory(&level.dir, name)
            .and_then(|dir| WalkLevel::new(dir, path, prefix, BATCH_BELOW));
        match opened {
            Ok(level) => self.levels.push(level),
            // Not readable, or gone or replaced by a link since it was told.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }
}

/// An entry that vanished since its name was read, or whose path became too long to name.
fn is_left_out(errno: Errno) -> bool {
    // EINVAL: a link was replaced by something else before it was read.
    matches!(errno, Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL)
}
