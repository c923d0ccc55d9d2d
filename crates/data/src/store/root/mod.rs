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

mod batches;
mod change;
mod entry;
mod error;
mod identity;
mod list;
mod names;
mod open;
mod pattern;
mod remove;
mod resolve;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use identity::Identity;
pub use open::WriteMode;
pub use pattern::Pattern;

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

    /// The directory on the host, absolute, for logs: where it was when it was opened.
    pub fn host_path(&self) -> &Path {
        &self.path
    }
}
