//! A directory tree that a session is confined to.
//!
//! Every path is resolved by the kernel below the root's descriptor (openat2 with
//! RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS): `..` and symbolic links cannot leave it.

use std::os::fd::OwnedFd;
use std::path::Path;

mod error;
pub use error::StoreError;

/// A directory tree. Shared by all sessions that have this root.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
}

impl Root {
    /// Opens the directory `path` (of the host) as a root.
    ///
    /// Fails with ENOSYS where the kernel lacks openat2 (before Linux 5.6): there is no
    /// fallback, because none is safe against links that change meanwhile.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let _ = path;
        todo!()
    }
}
