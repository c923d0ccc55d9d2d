//! Modes and owner of the files and directories that sessions create.

use std::str::FromStr;

use data::store::root::CreationRules;
use nix::unistd::Group;

use data::os::privilege::{self, PrivilegeError};

/// Permission bits of files, `0` to `777` in octal. Programs that remote users store must not run as the account
/// that serves, so there are no set-user-ID and set-group-ID bits.
const FILE_BITS: u32 = 0o777;

/// Permission bits of directories, with set-group-ID and sticky bits.
const DIRECTORY_BITS: u32 = 0o3777;

/// Permission bits as an octal number: `027`, `0640`, `2775`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct PermissionBits<const LARGEST: u32>(u32);

/// Permission bits of files, and of the umask.
pub type FileBits = PermissionBits<FILE_BITS>;

/// Permission bits of directories.
pub type DirectoryBits = PermissionBits<DIRECTORY_BITS>;

/// A text that is no mode of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not an octal mode from \"0\" to \"{largest:o}\"")]
pub struct ModeError {
    /// The text.
    text: String,
    /// The largest mode.
    largest: u32,
}

impl<const LARGEST: u32> FromStr for PermissionBits<LARGEST> {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        // `from_str_radix` would accept a sign.
        let is_octal = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let bits = u32::from_str_radix(text, 8).ok();
        match bits.filter(|bits| is_octal && bits & !LARGEST == 0) {
            Some(bits) => Ok(Self(bits)),
            None => Err(ModeError {
                text: text.to_owned(),
                largest: LARGEST,
            }),
        }
    }
}

impl<const LARGEST: u32> TryFrom<String> for PermissionBits<LARGEST> {
    type Error = ModeError;

    fn try_from(text: String) -> Result<Self, ModeError> {
        text.parse()
    }
}

/// Modes and owner of what sessions create; `None`: as the system does it for the account that serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreationConfig {
    /// Bits that new files and directories do not get, whatever the umask of the process.
    pub umask: Option<FileBits>,
    /// Mode of new files, instead of 666 less the umask.
    pub file_mode: Option<FileBits>,
    /// Mode of new directories, instead of 777 less the umask.
    pub directory_mode: Option<DirectoryBits>,
    /// `USER` or `USER:GROUP`. Only a server that serves as root can give files away.
    pub upload_owner: Option<String>,
}

/// The reason why uploads cannot get the configured owner.
#[derive(Debug, thiserror::Error)]
pub enum UploadOwnerError {
    /// The server does not serve as root.
    #[error(
        "upload-owner needs a server that serves as root: start it as root and without run-as, or leave upload-owner out"
    )]
    NotRoot,
    /// The user or the group is missing.
    #[error("upload-owner is {0:?}; write USER or USER:GROUP")]
    Incomplete(String),
    /// There is no such account.
    #[error("upload-owner: there is no account {0}")]
    NoAccount(String),
    /// There is no such group.
    #[error("upload-owner: there is no group {0}")]
    NoGroup(String),
    /// The account cannot be looked up.
    #[error("upload-owner: {0}")]
    Account(#[from] PrivilegeError),
}

impl CreationConfig {
    /// The rules for the sessions' roots. `is_root`: the process serves as root.
    ///
    /// # Errors
    /// See [`UploadOwnerError`].
    pub(crate) fn rules(&self, is_root: bool) -> Result<CreationRules, UploadOwnerError> {
        let masked = |mode: u32| self.umask.map(|mask| mode & !mask.0);
        Ok(CreationRules {
            file_mode: self.file_mode.map(|mode| mode.0).or(masked(0o666)),
            directory_mode: self.directory_mode.map(|mode| mode.0).or(masked(0o777)),
            owner: match &self.upload_owner {
                None => None,
                Some(_) if !is_root => return Err(UploadOwnerError::NotRoot),
                Some(owner) => Some(ids_of(owner)?),
            },
        })
    }
}

/// User and group of `USER` (with its own group) or `USER:GROUP`.
fn ids_of(owner: &str) -> Result<(u32, u32), UploadOwnerError> {
    let (user, group) = match owner.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (owner, None),
    };
    if user.is_empty() || group.is_some_and(str::is_empty) {
        return Err(UploadOwnerError::Incomplete(owner.to_owned()));
    }
    let account = privilege::account(user).map_err(|error| match error {
        PrivilegeError::Unknown(account) => UploadOwnerError::NoAccount(account),
        error => error.into(),
    })?;
    let Some(name) = group else {
        return Ok((account.uid.as_raw(), account.gid.as_raw()));
    };
    match Group::from_name(name) {
        Ok(Some(group)) => Ok((account.uid.as_raw(), group.gid.as_raw())),
        _ => Err(UploadOwnerError::NoGroup(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_bounded() {
        assert_eq!("027".parse::<FileBits>().unwrap().0, 0o27);
        assert_eq!("2775".parse::<DirectoryBits>().unwrap().0, 0o2775);
        for text in ["", "8", "+7", "1777", "4755", "rw"] {
            let error = text.parse::<FileBits>().unwrap_err().to_string();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
        assert!("4777".parse::<DirectoryBits>().is_err());
    }

    #[test]
    fn a_mode_wins_over_the_umask() {
        let config = CreationConfig {
            umask: Some(PermissionBits(0o27)),
            directory_mode: Some(PermissionBits(0o2770)),
            ..CreationConfig::default()
        };
        let rules = config.rules(false).unwrap();
        assert_eq!(rules.file_mode, Some(0o640));
        assert_eq!(rules.directory_mode, Some(0o2770));
        let unset = CreationConfig::default().rules(false).unwrap();
        assert_eq!(unset, CreationRules::default());
    }

    #[test]
    fn an_owner_needs_root_and_must_exist() {
        let owned_by = |owner: &str| CreationConfig {
            upload_owner: Some(owner.to_owned()),
            ..CreationConfig::default()
        };
        let root = owned_by("root");
        assert!(matches!(root.rules(false), Err(UploadOwnerError::NotRoot)));
        assert_eq!(root.rules(true).unwrap().owner, Some((0, 0)));
        assert_eq!(
            owned_by("root:root").rules(true).unwrap().owner,
            Some((0, 0))
        );
        let error = owned_by("no-such-account-here").rules(true).unwrap_err();
        assert!(
            error.to_string().contains("no-such-account-here"),
            "{error}"
        );
        for owner in ["", ":root", "root:"] {
            let error = owned_by(owner).rules(true).unwrap_err().to_string();
            assert!(error.contains("USER:GROUP"), "{error}");
        }
        let error = owned_by("root:no-such-group").rules(true).unwrap_err();
        assert!(error.to_string().contains("no-such-group"), "{error}");
    }
}
