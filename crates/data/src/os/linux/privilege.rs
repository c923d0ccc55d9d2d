//! Accounts of this machine, and the change to one of them.

use std::ffi::CString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Uid, User, getuid, initgroups, setgid, setgroups, setuid};

/// The reason why the server could not become the account of `run_as`.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The account does not exist.
    #[error("there is no account {0}; create it or name another in run-as")]
    Unknown(String),
    /// The account database could not be read.
    #[error("cannot look up account {name}: {source}")]
    Lookup {
        /// The account.
        name: String,
        /// The system's reason.
        source: Errno,
    },
    /// The server was not started as root.
    #[error("run-as needs the server to be started as root")]
    NotRoot,
    /// A directory of the account could not be made.
    #[error("cannot make the directory {} for {name}: {source}", path.display())]
    Directory {
        /// The account.
        name: String,
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot become {name}: {call}: {source}")]
    Refused {
        /// The account.
        name: String,
        /// The name of the call.
        call: &'static str,
        /// The system's reason.
        source: Errno,
    },
}

/// Changes supplementary groups, group and user of the process to those of the account `name`,
/// irrevocably. The C library's calls change all threads (nptl(7)). Does nothing if the process runs
/// as that account already.
///
/// # Errors
/// See [`PrivilegeError`].
pub fn become_account(name: &str) -> Result<(), PrivilegeError> {
    let account = account(name)?;
    if getuid() == account.uid && !account.uid.is_root() {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        return Err(PrivilegeError::NotRoot);
    }
    let refused = |call| {
        move |source| PrivilegeError::Refused {
            name: name.to_owned(),
            call,
            source,
        }
    };
    // Groups first: after setuid the process may no longer change them.
    match CString::new(account.name.as_str()) {
        Ok(c_name) => initgroups(&c_name, account.gid).map_err(refused("initgroups"))?,
        Err(_) => setgroups(&[account.gid]).map_err(refused("setgroups"))?,
    }
    setgid(account.gid).map_err(refused("setgid"))?;
    setuid(account.uid).map_err(refused("setuid"))
}

/// Makes a directory that belongs to the account `name`, and those above it, which belong to this one. A directory
/// that exists stays as it is.
///
/// # Errors
/// [`PrivilegeError::Unknown`], [`PrivilegeError::Lookup`], [`PrivilegeError::Directory`]
pub fn make_directory_of(name: &str, path: &Path) -> Result<(), PrivilegeError> {
    let owner = account(name)?;
    let made = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            // Not through a link: nothing but what was made here changes its owner.
            Ok(()) => lchown(path, Some(owner.uid.as_raw()), Some(owner.gid.as_raw())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    made().map_err(|source| PrivilegeError::Directory {
        name: name.to_owned(),
        path: path.to_owned(),
        source,
    })
}

/// Looks an account up.
pub fn account(name: &str) -> Result<User, PrivilegeError> {
    User::from_name(name)
        .map_err(|source| PrivilegeError::Lookup {
            name: name.to_owned(),
            source,
        })?
        .ok_or_else(|| PrivilegeError::Unknown(name.to_owned()))
}

/// Whether the process accesses files with the rights of root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_an_unknown_account() {
        let error = become_account("no-such-account-here").unwrap_err();
        assert!(matches!(&error, PrivilegeError::Unknown(_)), "{error}");
        assert!(error.to_string().contains("no-such-account-here"));
    }
}
