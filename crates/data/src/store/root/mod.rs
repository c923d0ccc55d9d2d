//! A directory tree to which a session is confined.
//!
//! The kernel resolves every path below the root's descriptor (openat2(2) with RESOLVE_IN_ROOT |
//! RESOLVE_NO_MAGICLINKS): `..` and symbolic links cannot leave it, even if they change meanwhile.
//! Operations on names use the descriptor of the parent directory and a last component, which is
//! never followed.
//!
//! A client's own trees are roots, too ([`Root::open_tree`]): what others who may write in a tree put there meanwhile leads
//! nowhere else.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::os::lookup::{LOCATE, ResolveFlags, openat2};
use crate::os::stat;

mod change;
mod creation;
mod directory_names;
mod error;
mod id_names;
mod identity;
mod list;
mod open;
mod remove;
mod resolve;
mod usage;

#[cfg(test)]
mod tests;

pub use creation::CreationRules;
pub use error::StoreError;
pub use identity::{FileChange, FileIdentity, FileTime, file_clock};
pub use open::WritableFile;
pub use remove::remove_tree_in;
pub use usage::{EntryUsage, TreeUsage};

/// Levels of directories that a recursive operation enters. Each level holds a descriptor.
pub const MAX_DEPTH: usize = 256;

/// A directory tree. It is cheap to share between all sessions that have this root.
#[derive(Debug)]
pub struct Root {
    /// Shared by the roots that differ in their rules only.
    dir: Arc<OwnedFd>,
    path: PathBuf,
    follows_links: bool,
    /// `false`: links are not followed, and paths are opened component by component.
    has_openat2: bool,
    creation: CreationRules,
}

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It cannot be opened.
    #[error("cannot use {} as a root: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A component of its path is a symbolic link, which anybody who may write above could have put
    /// there.
    #[error(
        "cannot use {} as a root: a component of it is a symbolic link; name the directory without \
         links (realpath(1) prints its path)",
        path.display()
    )]
    Link {
        /// The directory.
        path: PathBuf,
    },
    /// openat2(2) is unavailable (Linux before 5.6, or a sandbox that hides it). No fallback is
    /// safe against links that change meanwhile.
    #[error(
        "cannot confine sessions to {}: this kernel lacks openat2 (Linux 5.6 or newer is needed)",
        path.display()
    )]
    NoOpenat2 {
        /// The directory.
        path: PathBuf,
    },
}

impl Root {
    /// Opens the directory `path` of the host as a root.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let failed = |errno: Errno| RootError::Open {
            path: path.to_owned(),
            source: errno.into(),
        };
        let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        // A test call: openat2(2) is needed for every later operation.
        match openat2(&dir, c".", flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // A seccomp filter of an older container runtime returns EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(RootError::NoOpenat2 {
                path: path.to_owned(),
            }),
            Err(errno) => Err(failed(errno)),
            Ok(_) => Ok(Self {
                dir: Arc::new(dir),
                path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
                follows_links: true,
                has_openat2: true,
                creation: CreationRules::default(),
            }),
        }
    }

    /// Opens the directory `path` as the root of a tree in which no symbolic link is followed. Links in `path` itself are.
    /// Also for kernels without openat2(2).
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn open_tree(path: &Path) -> io::Result<Self> {
        let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self::of_tree(dir, path))
    }

    /// The same for a directory that is open.
    pub fn of_tree(dir: OwnedFd, path: &Path) -> Self {
        let flags = LOCATE | OFlags::CLOEXEC;
        let tried = openat2(&dir, c".", flags, Mode::empty(), ResolveFlags::BENEATH);
        Self {
            dir: Arc::new(dir),
            path: path.to_owned(),
            follows_links: false,
            // A seccomp filter of an older container runtime returns EPERM.
            has_openat2: !matches!(tried, Err(Errno::NOSYS | Errno::PERM)),
            creation: CreationRules::default(),
        }
    }

    /// Opens the directory `path` of the host, absolute, as a root. No component of it may be a
    /// symbolic link.
    pub fn open_without_links(path: &Path) -> Result<Self, RootError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, c"/", flags, Mode::empty());
        let top = top.map_err(|errno| RootError::Open {
            path: path.to_owned(),
            source: errno.into(),
        })?;
        Self::at(&top, below, path)
    }

    /// Opens the directory `below` this root as a separate root, without following symbolic links
    /// and without `..` above this root.
    pub fn open_below(&self, below: &Path) -> Result<Self, RootError> {
        Self::at(&self.dir, below, &self.path.join(below))
    }

    fn at(top: &OwnedFd, below: &Path, path: &Path) -> Result<Self, RootError> {
        let below = match below.as_os_str().is_empty() {
            true => Path::new("."),
            false => below,
        };
        let flags = LOCATE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve_flags =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = path.to_owned();
        match resolve::retry_lookup(|| openat2(top, below, flags, Mode::empty(), resolve_flags)) {
            Ok(dir) => Ok(Self {
                dir: Arc::new(dir),
                path,
                follows_links: true,
                has_openat2: true,
                creation: CreationRules::default(),
            }),
            Err(Errno::LOOP) => Err(RootError::Link { path }),
            // A seccomp filter of an older container runtime returns EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(RootError::NoOpenat2 { path }),
            Err(errno) => Err(RootError::Open {
                path,
                source: errno.into(),
            }),
        }
    }

    /// The same root for sessions whose rights depend on the path: no symbolic link in it is followed, so
    /// that a path means one place only. An operation through a link fails with ELOOP; a link itself can
    /// be listed, renamed and removed.
    ///
    /// # Errors
    /// No file descriptor is free.
    pub fn without_links(&self) -> io::Result<Self> {
        Ok(Self {
            dir: Arc::new(self.dir.try_clone()?),
            path: self.path.clone(),
            follows_links: false,
            has_openat2: self.has_openat2,
            creation: self.creation,
        })
    }

    /// The same root, whose new files and directories follow `rules`.
    #[must_use]
    pub fn with_creation_rules(&self, rules: CreationRules) -> Self {
        Self {
            dir: Arc::clone(&self.dir),
            path: self.path.clone(),
            follows_links: self.follows_links,
            has_openat2: self.has_openat2,
            creation: rules,
        }
    }

    /// Device and inode number of the directory, which identify it under every name.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn inode(&self) -> io::Result<(u64, u64)> {
        Ok(stat::inode(&rustix::fs::fstat(&self.dir)?))
    }

    /// The directory itself (O_PATH).
    pub fn top(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.dir)
    }

    /// Whether the directory still has a name.
    pub fn exists(&self) -> bool {
        rustix::fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// The absolute path of the directory on the host when it was opened, for logs.
    pub fn host_path(&self) -> &Path {
        &self.path
    }
}
