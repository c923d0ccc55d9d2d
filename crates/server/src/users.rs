//! The password file.

use std::path::{Path, PathBuf};

use proto::path::VPath;
use proto::server::Rights;

/// The accounts of a password file. Reads it again when it changed.
#[derive(Debug)]
pub struct Users {}

/// Whom a password belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// Root directory; `None`: the server's.
    pub root: Option<PathBuf>,
    /// What the account may do.
    pub rights: Rights,
    /// Current directory after login, inside the root.
    pub home: VPath,
}

/// Why a password file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {}

impl Users {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let _ = path;
        todo!()
    }

    /// Checks a password; takes some 20 ms of CPU and 19 MiB of memory, whether the user exists
    /// or not. The caller bounds how many run at once.
    pub fn verify(&self, user: &str, password: &[u8]) -> Option<Account> {
        let _ = (user, password);
        todo!()
    }
}
