//! Changes of the users file, for `longhaul user`.

use std::io;
use std::path::Path;

use super::file::{UsersError, UsersFileChange, read_users_file};
use super::line::{UserRecord, is_record_of, parse_records};
use super::{UserAccount, hash_password};

/// Adds an account, or replaces the account of that name; returns whether it replaced one. A missing
/// file is created with mode 0600. Other lines stay as they are.
pub fn add(path: &Path, account: &UserAccount, password: &[u8]) -> Result<bool, UsersError> {
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
    let mut text = Vec::with_capacity(old.len() + line.len() + 1);
    let mut replaced = false;
    for kept in old.lines() {
        if is_record_of(kept, &account.name) {
            replaced = true;
            continue;
        }
        text.extend_from_slice(kept.as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(&line);
    text.push(b'\n');
    change.commit(&text)?;
    Ok(replaced)
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
    let mut text = kept.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    change.commit(text.as_bytes())?;
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
