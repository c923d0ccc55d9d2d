//! A directory tree that a session is confined to.
//!
//! Every path is resolved by the kernel below the root's descriptor (openat2 with
//! RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS): `..` and symbolic links cannot leave it, whatever
//! changes meanwhile. What changes the name space works on the descriptor of the parent directory
//! and a last component, which is never followed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

mod change;
mod directory_names;
mod entry;
mod error;
mod id_names;
mod identity;
mod list;
mod open;
mod remove;
mod resolve;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use identity::{FileIdentity, file_clock};
pub use open::WritableFile;

/// Directories below directories that a recursive operation enters. Each level costs a
/// descriptor while it lasts.
pub const MAX_DEPTH: usize = 256;

/// A directory tree. Cheap to share between all sessions that have this root.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
}

/// Why a directory cannot be a root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It cannot be opened.
    #[error("cannot use {} as a root: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// System's reason.
        source: io::Error,
    },
    /// A component of its path is a symbolic link, which anybody who may write above could have put
    /// there.
    #[error(
        "cannot use {} as a root: a component of it is a symbolic link; name the directory without \
         links (realpath tells how)",
        path.display()
    )]
    Link {
        /// The directory.
        path: PathBuf,
    },
    /// No openat2 (Linux before 5.6, or a sandbox that hides it). There is no fallback: none is
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
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        match rustix::fs::openat2(&dir, c".", flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // A seccomp filter of an older container runtime answers EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(RootError::NoOpenat2 {
                path: path.to_owned(),
            }),
            Err(errno) => Err(failed(errno)),
            Ok(_) => Ok(Self {
                dir,
                path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            }),
        }
    }

    /// Opens the directory `path` of the host, absolute, as a root, through no symbolic link anywhere in
    /// it.
    pub fn open_without_links(path: &Path) -> Result<Self, RootError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(CWD, c"/", flags, Mode::empty());
        let top = top.map_err(|errno| RootError::Open {
            path: path.to_owned(),
            source: errno.into(),
        })?;
        Self::at(&top, below, path)
    }

    /// Opens the directory `below` this root as a root of its own, through no symbolic link and not
    /// through `..` above this root.
    pub fn open_below(&self, below: &Path) -> Result<Self, RootError> {
        Self::at(&self.dir, below, &self.path.join(below))
    }

    fn at(top: &OwnedFd, below: &Path, path: &Path) -> Result<Self, RootError> {
        let below = match below.as_os_str().is_empty() {
            true => Path::new("."),
            false => below,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = path.to_owned();
        match resolve::patiently(|| rustix::fs::openat2(top, below, flags, Mode::empty(), how)) {
            Ok(dir) => Ok(Self { dir, path }),
            Err(Errno::LOOP) => Err(RootError::Link { path }),
            // A seccomp filter of an older container runtime answers EPERM.
            Err(Errno::NOSYS | Errno::PERM) => Err(RootError::NoOpenat2 { path }),
            Err(errno) => Err(RootError::Open {
                path,
                source: errno.into(),
            }),
        }
    }

    /// Whether the directory still has a name somewhere.
    pub fn exists(&self) -> bool {
        rustix::fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// The directory on the host, absolute, for logs: where it was when it was opened.
    pub fn host_path(&self) -> &Path {
        &self.path
    }
}
