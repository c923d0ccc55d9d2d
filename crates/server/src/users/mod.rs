//! The password file: one account a line,
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
//!   everybody reads.
//! - HOME: where sessions start, inside the root; empty is `/`.
//! - ROOT: the directory that the user is confined to; empty is the server's. Runs to the end of
//!   the line.
//!
//! Empty lines and lines that start with `#` are kept. The file must not be readable by group or
//! others (mode 0600).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use proto::path::VPath;
use proto::server::AccountRights;

mod edit;
mod file;
mod line;

pub use edit::{add, list, remove};
pub use file::UsersError;

use file::{UsersFileVersion, read_users_file};
use line::{UserRecord, parse_records};

/// Whom a password belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAccount {
    /// Name.
    pub name: String,
    /// Root directory; `None`: the server's.
    pub root: Option<PathBuf>,
    /// Rights of the account.
    pub rights: AccountRights,
    /// Current directory after login, inside the root.
    pub home: VPath,
}

/// The accounts of a password file, read again when the file changes.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    state: Mutex<LoadedUsers>,
    /// Hash that no password has: what unknown users are checked against.
    nobody: String,
}

#[derive(Debug)]
struct LoadedUsers {
    /// The file that was read, or that could not be read and was reported.
    stamp: Option<UsersFileVersion>,
    accounts: Arc<HashMap<String, UserRecord>>,
}

impl Users {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let (text, stamp) = read_users_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(LoadedUsers {
                stamp: Some(stamp),
                accounts: Arc::new(parse_accounts(&text, path)?),
            }),
            nobody: random_password_hash()?,
        })
    }

    /// Whether this process can read the file again when it changes: not after giving up the
    /// rights that it was read with.
    pub fn is_readable(&self) -> bool {
        read_users_file(&self.path).is_ok()
    }

    /// The roots that accounts have of their own, as the file names them now.
    pub fn roots(&self) -> HashSet<PathBuf> {
        let accounts = self.current();
        let roots = accounts.values().filter_map(|r| r.account.root.clone());
        roots.collect()
    }

    /// Whether there is an account of this name. For the log: a client must not learn it.
    pub(crate) fn has_user(&self, user: &str) -> bool {
        self.current().contains_key(user)
    }

    /// Where the accounts are.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a changed file now. One that cannot be used is told, and changes nothing.
    pub(crate) fn refresh(&self) {
        self.current();
    }

    /// Checks a password; takes some 20 ms of processor time and 19 MiB of memory, and the same
    /// whether the user exists or not. The caller bounds how many run at once.
    pub fn verify(&self, user: &str, password: &[u8]) -> Option<UserAccount> {
        let accounts = self.current();
        let record = accounts.get(user);
        let hash = record.map_or(self.nobody.as_str(), |record| record.hash.as_str());
        let matches = PasswordHash::new(hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        record
            .filter(|_| matches)
            .map(|record| record.account.clone())
    }

    /// The accounts as the file has them now. While a changed file cannot be read (a line is
    /// wrong, or it belongs to root alone and the server gave that up) what was read last holds,
    /// and one message says so.
    fn current(&self) -> Arc<HashMap<String, UserRecord>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = UsersFileVersion::of(&self.path).ok();
        if stamp != state.stamp {
            state.stamp = stamp;
            let read = read_users_file(&self.path)
                .and_then(|(text, stamp)| Ok((parse_accounts(&text, &self.path)?, stamp)));
            match read {
                Ok((accounts, stamp)) => {
                    state.accounts = Arc::new(accounts);
                    state.stamp = Some(stamp);
                }
                Err(error) => {
                    tracing::error!(%error, "users file changed but cannot be used; keeping the accounts read before");
                }
            }
        }
        Arc::clone(&state.accounts)
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

/// Argon2id with the library's parameters (OWASP's first choice: 19 MiB, 2 passes) and a random
/// salt.
fn hash_password(password: &[u8]) -> Result<String, UsersError> {
    let hash = Argon2::default().hash_password(password);
    Ok(hash.map_err(UsersError::Hash)?.to_string())
}

/// A hash as long to check as any other. Its password is random and forgotten.
fn random_password_hash() -> Result<String, UsersError> {
    // The salt of a hash is random; as a password it is as good as any.
    let random = hash_password(b"")?;
    hash_password(random.as_bytes())
}

#[cfg(test)]
mod tests;
