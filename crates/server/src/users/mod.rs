//! The users file: one account per line,
//!
//! ```text
//! NAME:HASH:RIGHTS:HOME:ROOT
//! ann:$argon2id$v=19$m=19456,t=2,p=1$...:wt:/:
//! bob:$argon2id$v=19$m=19456,t=2,p=1$...::/inbox:/srv/bob
//! ```
//!
//! - NAME: 1 to 64 of `A-Z a-z 0-9 . _ - @ +`, not starting with `-` or `.`.
//! - HASH: Argon2id in PHC form.
//! - RIGHTS: any of `w` (create, change, delete) and `t` (data connections with third hosts);
//!   every account may read.
//! - HOME: where sessions start, inside the root; empty is `/`.
//! - ROOT: the directory that the user is confined to; empty is the server's root. It extends to the
//!   end of the line.
//!
//! Empty lines and lines that start with `#` are kept. The file must not be readable by group or
//! others (mode 0600).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use parking_lot::Mutex;
use proto::path::VPath;
use proto::server::AccountRights;

mod edit;
mod file;
mod line;

pub use edit::{AccountChange, add, change, check_new, has_account, list, remove};
pub use file::UsersError;

use file::{UsersFileVersion, read_users_file};
use line::{UserRecord, parse_records};

/// The name of anonymous sessions.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// Whether a user name means an anonymous session (RFC 1635). Clients of the globus library send
/// `:globus-mapping:` to leave the choice of the account to the server.
pub(crate) fn is_anonymous_name(name: &str) -> bool {
    let names = [ANONYMOUS, "ftp", ":globus-mapping:"];
    names.iter().any(|meant| name.eq_ignore_ascii_case(meant))
}

/// An account of the users file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAccount {
    /// The user name.
    pub name: String,
    /// Root directory; `None`: the server's root.
    pub root: Option<PathBuf>,
    /// Access rights.
    pub rights: AccountRights,
    /// Current directory after login, inside the root.
    pub home: VPath,
}

/// The accounts of a users file, read again when the file changes.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    state: Mutex<LoadedUsers>,
    /// A hash that no password has. The password of an unknown user is checked against it, so that the
    /// response time does not tell which users exist.
    unknown_user_hash: String,
}

#[derive(Debug)]
struct LoadedUsers {
    /// The version of the file that was read, or that could not be read and was reported.
    version: Option<UsersFileVersion>,
    accounts: Arc<HashMap<String, UserRecord>>,
}

impl Users {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let (text, version) = read_users_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(LoadedUsers {
                version: Some(version),
                accounts: Arc::new(parse_accounts(&text, path)?),
            }),
            unknown_user_hash: random_password_hash()?,
        })
    }

    /// Whether this process may not read the file. A server that gave up root may not, if the file is root's.
    pub fn is_denied(&self) -> bool {
        read_users_file(&self.path).is_err_and(|error| error.is_denied())
    }

    /// Number of accounts, as the file has them now.
    pub fn count(&self) -> usize {
        self.current().len()
    }

    /// The accounts' own roots, as the file names them now.
    pub fn roots(&self) -> HashSet<PathBuf> {
        let accounts = self.current();
        let roots = accounts.values().filter_map(|r| r.account.root.clone());
        roots.collect()
    }

    /// The accounts by name, as the file has them now.
    pub(crate) fn accounts(&self) -> Vec<UserAccount> {
        let records = self.current();
        let mut accounts: Vec<_> = records.values().map(|r| r.account.clone()).collect();
        accounts.sort_by(|a, b| a.name.cmp(&b.name));
        accounts
    }

    /// Whether there is an account of this name. For the log only: a client must not learn it.
    pub(crate) fn has_user(&self, user: &str) -> bool {
        self.current().contains_key(user)
    }

    /// An account, without a check: the caller has another proof of the client's identity.
    pub(crate) fn account(&self, user: &str) -> Option<UserAccount> {
        let accounts = self.current();
        accounts.get(user).map(|record| record.account.clone())
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// The file cannot be used: the accounts read before stay.
    pub(crate) fn refresh(&self) -> Result<(), UsersError> {
        self.read_again(&mut self.state.lock())
    }

    /// Checks a password. This takes about 20 ms of processor time and 19 MiB of memory, the same
    /// whether the user exists or not. The caller bounds the number of concurrent checks.
    pub fn verify(&self, user: &str, password: &[u8]) -> Option<UserAccount> {
        let accounts = self.current();
        let record = accounts.get(user);
        let hash = record.map_or(self.unknown_user_hash.as_str(), |record| {
            record.hash.as_str()
        });
        // The hash is computed for unknown users, too; see `unknown_user_hash`.
        let matches = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        record
            .filter(|_| matches)
            .map(|record| record.account.clone())
    }

    /// The accounts as the file has them now. If a changed file cannot be used (a line is wrong, or the
    /// file is root's and the server gave up root), the accounts read before stay, and one message is
    /// logged.
    fn current(&self) -> Arc<HashMap<String, UserRecord>> {
        let mut state = self.state.lock();
        // Comparing the version is one stat(2); the file is parsed only when the version differs.
        let version = UsersFileVersion::of(&self.path).ok();
        if version != state.version
            && let Err(error) = self.read_again(&mut state)
        {
            tracing::error!(%error, "users file changed but cannot be used; keeping the accounts read before");
        }
        Arc::clone(&state.accounts)
    }

    /// Reads the file again. The version counts as seen even if it cannot be used, so that this is reported once.
    fn read_again(&self, state: &mut LoadedUsers) -> Result<(), UsersError> {
        state.version = UsersFileVersion::of(&self.path).ok();
        let (text, version) = read_users_file(&self.path)?;
        state.accounts = Arc::new(parse_accounts(&text, &self.path)?);
        state.version = Some(version);
        Ok(())
    }
}

fn parse_accounts(text: &str, path: &Path) -> Result<HashMap<String, UserRecord>, UsersError> {
    let mut accounts = HashMap::new();
    for (number, record) in parse_records(text) {
        let record = record.map_err(|reason| UsersError::Line {
            path: path.to_owned(),
            line: number,
            reason,
        })?;
        let name = record.account.name.clone();
        if accounts.insert(name, record).is_some() {
            return Err(UsersError::Line {
                path: path.to_owned(),
                line: number,
                reason: line::LineError::DuplicateName,
            });
        }
    }
    Ok(accounts)
}

/// Hashes a password with Argon2id (RFC 9106), a random salt and the library's default parameters: 19
/// MiB and 2 passes, as OWASP recommends.
fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    let hash = Argon2::default().hash_password(password);
    Ok(hash.map_err(UsersError::Hash)?.to_string())
}

/// A hash of a random password that nobody knows. Checking it takes as long as any other hash.
fn random_password_hash() -> Result<String, UsersError> {
    // The hash of the empty password contains a random salt, so it serves as a random password.
    let random = hash_password(b"")?;
    hash_password(random.as_bytes())
}

#[cfg(test)]
mod tests;
