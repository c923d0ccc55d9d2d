//! Changes of the users file, for `longhaul user`.

use std::io;
use std::path::{Path, PathBuf};

use proto::path::VPath;

use super::file::{UsersError, UsersFileChange, read_users_file};
use super::line::{LineError, UserRecord, is_record_of, parse_records};
use super::{UserAccount, hash_password, is_anonymous_name};

/// A change of an account; `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct AccountChange {
    /// The new password.
    pub password: Option<Vec<u8>>,
    /// The new root directory; `Some(None)`: the server's root.
    pub root: Option<Option<PathBuf>>,
    /// Whether the account may write.
    pub write: Option<bool>,
    /// Whether data may go to or come from hosts other than the client's.
    pub third_party: Option<bool>,
    /// The new current directory after login, inside the root.
    pub home: Option<VPath>,
}

/// Adds an account. A missing file is created with mode 0600. Other lines stay as they are.
///
/// # Errors
/// There is an account of that name, no account can have it, or the file cannot be read or replaced.
pub fn add(path: &Path, account: &UserAccount, password: &[u8]) -> Result<(), UsersError> {
    refuse_anonymous(&account.name)?;
    let line = UserRecord {
        account: account.clone(),
        hash: hash_password(password)?,
    }
    .format()?;
    // Begun before the file is read, so that no other command can change it in between.
    let change = UsersFileChange::begin(path)?;
    let old = match read_users_file(path) {
        Err(UsersError::Read { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            String::new()
        }
        other => other?.0,
    };
    if record_of(&old, &account.name).is_some() {
        return Err(UsersError::Taken {
            path: path.to_owned(),
            name: account.name.clone(),
        });
    }
    change.commit(&joined_lines(
        old.lines().map(str::as_bytes).chain([&line[..]]),
    ))
}

/// Checks that an account of this name can be added: nobody has to think of a password for one that cannot.
///
/// # Errors
/// As those of [`add`] before it changes the file.
pub fn check_new(path: &Path, name: &str) -> Result<(), UsersError> {
    refuse_anonymous(name)?;
    match has_account(path, name)? {
        true => Err(UsersError::Taken {
            path: path.to_owned(),
            name: name.to_owned(),
        }),
        false => Ok(()),
    }
}

/// No account can have a name by which clients log in anonymously.
fn refuse_anonymous(name: &str) -> Result<(), UsersError> {
    match is_anonymous_name(name) {
        true => Err(UsersError::Anonymous {
            name: name.to_owned(),
        }),
        false => Ok(()),
    }
}

/// Changes an account in its line of the file; returns whether there is such an account.
///
/// # Errors
/// The account's line is malformed, or the file cannot be read or replaced.
pub fn change(path: &Path, name: &str, new: &AccountChange) -> Result<bool, UsersError> {
    let change = UsersFileChange::begin(path)?;
    let (old, _) = read_users_file(path)?;
    let Some((line, record)) = record_of(&old, name) else {
        return Ok(false);
    };
    let mut record = record.map_err(|reason| UsersError::Line {
        path: path.to_owned(),
        line,
        reason,
    })?;
    let account = &mut record.account;
    if let Some(root) = &new.root {
        account.root.clone_from(root);
    }
    if let Some(home) = &new.home {
        account.home = home.clone();
    }
    account.rights.write = new.write.unwrap_or(account.rights.write);
    account.rights.third_party = new.third_party.unwrap_or(account.rights.third_party);
    if let Some(password) = &new.password {
        record.hash = hash_password(password)?;
    }
    let changed = record.format()?;
    let lines = (1..).zip(old.lines()).map(|(number, kept)| match number {
        _ if number == line => &changed[..],
        _ => kept.as_bytes(),
    });
    change.commit(&joined_lines(lines))?;
    Ok(true)
}

/// Whether the file has an account of this name; a missing file has none.
///
/// # Errors
/// The file cannot be read.
pub fn has_account(path: &Path, name: &str) -> Result<bool, UsersError> {
    match read_users_file(path) {
        Ok((text, _)) => Ok(record_of(&text, name).is_some()),
        Err(UsersError::Read { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes an account; returns whether it existed.
pub fn remove(path: &Path, name: &str) -> Result<bool, UsersError> {
    let change = UsersFileChange::begin(path)?;
    let (old, _) = read_users_file(path)?;
    let kept: Vec<&str> = old
        .lines()
        .filter(|line| !is_record_of(line, name))
        .collect();
    if kept.len() == old.lines().count() {
        return Ok(false);
    }
    change.commit(&joined_lines(kept.into_iter().map(str::as_bytes)))?;
    Ok(true)
}

/// The accounts, in the order of the file.
pub fn list(path: &Path) -> Result<Vec<UserAccount>, UsersError> {
    let (text, _) = read_users_file(path)?;
    parse_records(&text)
        .map(|(line, record)| {
            record
                .map(|record| record.account)
                .map_err(|reason| UsersError::Line {
                    path: path.to_owned(),
                    line,
                    reason,
                })
        })
        .collect()
}

/// The first line of the account `name`, with its number from 1.
fn record_of(text: &str, name: &str) -> Option<(usize, Result<UserRecord, LineError>)> {
    let (number, line) = (1..)
        .zip(text.lines())
        .find(|(_, line)| is_record_of(line, name))?;
    Some((number, UserRecord::parse(line)))
}

/// The text of a file with these lines.
fn joined_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}
