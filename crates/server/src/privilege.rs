//! Becoming an unprivileged account after the listener is bound.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Uid, User, getuid, initgroups, setgid, setgroups, setuid};

/// Why the server could not become the account of `run_as`.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// No such account.
    #[error("there is no account {0}; create it or name another in run-as")]
    Unknown(String),
    /// The account database could not be read.
    #[error("cannot look up account {name}: {source}")]
    Lookup {
        /// The account.
        name: String,
        /// System's reason.
        source: Errno,
    },
    /// Not started as root.
    #[error("run-as needs the server to be started as root")]
    NotRoot,
    /// A system call failed.
    #[error("cannot become {name}: {call}: {source}")]
    Refused {
        /// The account.
        name: String,
        /// Which call.
        call: &'static str,
        /// System's reason.
        source: Errno,
    },
}

/// Becomes `name` for good: its groups, group and user. Changes all threads of the process, since
/// these are the C library's calls. Does nothing when the process already is that account.
pub(crate) fn become_account(name: &str) -> Result<(), PrivilegeError> {
    let account = User::from_name(name)
        .map_err(|source| PrivilegeError::Lookup {
            name: name.to_owned(),
            source,
        })?
        .ok_or_else(|| PrivilegeError::Unknown(name.to_owned()))?;
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
    // Groups first: once the user is changed, groups no longer can be.
    match CString::new(account.name.as_str()) {
        Ok(c_name) => initgroups(&c_name, account.gid).map_err(refused("initgroups"))?,
        Err(_) => setgroups(&[account.gid]).map_err(refused("setgroups"))?,
    }
    setgid(account.gid).map_err(refused("setgid"))?;
    setuid(account.uid).map_err(refused("setuid"))
}

/// Whether files are reached with the rights of root.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_account_is_named() {
        let error = become_account("no-such-account-here").unwrap_err();
        assert!(matches!(&error, PrivilegeError::Unknown(_)), "{error}");
        assert!(error.to_string().contains("no-such-account-here"));
    }
}
