//! Lines of the users file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use argon2::password_hash::phc::PasswordHash;
use proto::path::VPath;
use proto::server::AccountRights;

use super::UserAccount;

/// Longest user name, bytes.
const MAX_NAME: usize = 64;

/// An account with the hash of its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserRecord {
    pub(super) account: UserAccount,
    pub(super) hash: String,
}

/// A mistake in a line of the users file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line has fewer than five fields.
    #[error("a line has five fields: NAME:HASH:RIGHTS:HOME:ROOT")]
    Fields,
    /// The name is empty, too long, or has characters that are not allowed.
    #[error("a user name is 1 to 64 of A-Z a-z 0-9 . _ - @ + and starts with no - or .")]
    Name,
    /// The hash is not Argon2id in PHC form.
    #[error("the password hash is not Argon2id")]
    Hash,
    /// The rights are not a combination of `w` and `t`.
    #[error("rights are w (write) and t (third-party transfers)")]
    Rights,
    /// The home is not absolute, or has a colon or line end.
    #[error("a home is an absolute path inside the root, without colon or line end")]
    Home,
    /// The root is not absolute, or has a line end.
    #[error("a root is an absolute path without line end")]
    Root,
    /// Two lines have the same name.
    #[error("the user name appears twice")]
    DuplicateName,
}

/// The accounts in a file's text, with their line numbers from 1.
pub(super) fn parse_records(
    text: &str,
) -> impl Iterator<Item = (usize, Result<UserRecord, LineError>)> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !is_comment(line))
        .map(|(number, line)| (number, UserRecord::parse(line)))
}

/// Whether a line belongs to the account `name`.
pub(super) fn is_record_of(line: &str, name: &str) -> bool {
    !is_comment(line) && line.split(':').next() == Some(name)
}

fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

impl UserRecord {
    pub(super) fn parse(line: &str) -> Result<Self, LineError> {
        // At most five fields: a root may contain colons, so it takes the rest of the line.
        let mut fields = line.splitn(5, ':');
        let mut field = || fields.next().ok_or(LineError::Fields);
        let (name, hash, rights) = (field()?, field()?, field()?);
        let (home, root) = (field()?, field()?);
        let parsed = PasswordHash::new(hash).map_err(|_| LineError::Hash)?;
        // Weaker hashes are refused instead of verified: nobody should believe they protect.
        if parsed.algorithm.as_str() != "argon2id" || parsed.hash.is_none() {
            return Err(LineError::Hash);
        }
        let record = Self {
            account: UserAccount {
                name: name.to_owned(),
                root: (!root.is_empty()).then(|| PathBuf::from(root)),
                rights: parse_rights(rights)?,
                home: parse_home(home)?,
            },
            hash: hash.to_owned(),
        };
        // The same checks as for writing, so that every file that is read can be written again.
        record.check()?;
        Ok(record)
    }

    /// Formats the line without its end; fails if the line would not parse to the same account.
    pub(super) fn format(&self) -> Result<Vec<u8>, LineError> {
        self.check()?;
        let UserAccount {
            name,
            root,
            rights,
            home,
        } = &self.account;
        let write = if rights.write { "w" } else { "" };
        let third_party = if rights.third_party { "t" } else { "" };
        let mut line = format!("{name}:{}:{write}{third_party}:", self.hash).into_bytes();
        line.extend_from_slice(home.as_bytes());
        line.push(b':');
        line.extend_from_slice(
            root.as_deref()
                .map_or(OsStr::new(""), AsRef::as_ref)
                .as_bytes(),
        );
        Ok(line)
    }

    fn check(&self) -> Result<(), LineError> {
        let UserAccount {
            name, root, home, ..
        } = &self.account;
        if !is_valid_name(name) {
            return Err(LineError::Name);
        }
        let home = std::str::from_utf8(home.as_bytes()).map_err(|_| LineError::Home)?;
        if home.contains([':', '\n', '\r']) {
            return Err(LineError::Home);
        }
        match root
            .as_deref()
            .map(|root| (root.is_absolute(), root.to_str()))
        {
            None => Ok(()),
            Some((true, Some(text))) if !text.contains(['\n', '\r']) => Ok(()),
            Some(_) => Err(LineError::Root),
        }
    }
}

/// Whether a name is valid: it has no meaning in a shell, a path or a log line.
fn is_valid_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-@+".contains(&b))
}

fn parse_rights(text: &str) -> Result<AccountRights, LineError> {
    if text.chars().any(|right| !matches!(right, 'w' | 't')) {
        return Err(LineError::Rights);
    }
    Ok(AccountRights {
        write: text.contains('w'),
        third_party: text.contains('t'),
    })
}

fn parse_home(text: &str) -> Result<VPath, LineError> {
    match text {
        "" => Ok(VPath::root()),
        absolute if absolute.starts_with('/') => VPath::root()
            .resolve(absolute.as_bytes())
            .map_err(|_| LineError::Home),
        _ => Err(LineError::Home),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21l$\
                        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn parse(line: &str) -> Result<UserAccount, LineError> {
        UserRecord::parse(line).map(|record| record.account)
    }

    #[test]
    fn a_line_is_parsed_into_its_fields() {
        let account = parse(&format!("a.b@c:{HASH}:wt:/in box:/srv/a:b")).unwrap();
        assert_eq!(account.name, "a.b@c");
        assert_eq!(account.root, Some("/srv/a:b".into()));
        assert!(account.rights.write && account.rights.third_party);
        assert_eq!(account.home.as_bytes(), b"/in box");
        let account = parse(&format!("x:{HASH}:::")).unwrap();
        assert_eq!(account.root, None);
        assert!(!account.rights.write && account.home.is_root());
    }

    #[test]
    fn malformed_lines_are_refused() {
        let cases = [
            ("x:y".to_owned(), LineError::Fields),
            (format!(":{HASH}:::"), LineError::Name),
            (format!("a b:{HASH}:::"), LineError::Name),
            (format!("-x:{HASH}:::"), LineError::Name),
            ("x:plain:::".to_owned(), LineError::Hash),
            (
                "x:$2b$12$abcdefghijklmnopqrstuv:::".to_owned(),
                LineError::Hash,
            ),
            (format!("x:{HASH}:rw::"), LineError::Rights),
            (format!("x:{HASH}::home:"), LineError::Home),
            (format!("x:{HASH}:::srv"), LineError::Root),
        ];
        for (line, error) in cases {
            assert_eq!(parse(&line), Err(error), "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_record_parses_to_the_same_record(
            name in "[a-zA-Z0-9_@+][a-zA-Z0-9._@+-]{0,20}",
            write: bool,
            third_party: bool,
            home in "(/[a-zA-Z ]{1,8}){0,3}",
            root in proptest::option::of("/[a-zA-Z :/#]{0,20}"),
        ) {
            let record = UserRecord {
                account: UserAccount {
                    name,
                    root: root.map(PathBuf::from),
                    rights: AccountRights { write, third_party },
                    home: parse_home(&home).unwrap(),
                },
                hash: HASH.to_owned(),
            };
            let line = String::from_utf8(record.format().unwrap()).unwrap();
            prop_assert_eq!(UserRecord::parse(&line).unwrap(), record);
        }

        #[test]
        fn parsing_any_line_does_not_panic(line in "\\PC{0,80}") {
            let _ = UserRecord::parse(&line);
        }
    }
}
