//! Rights that depend on the path: those of a bearer token. Every operation of a session is decided here,
//! beside the rights of its account.
//!
//! - **Read** (`storage.read`, `read`): content, listings and checksums.
//! - **Create** (`storage.create`): new files and directories, and new names for files where nothing has
//!   that name. Existing content is neither changed nor removed, so an upload cannot be resumed.
//!   A new name gives no right that the old one did not give, but for the session's own upload.
//! - **Modify** (`storage.modify`, `write`): all changes.
//!
//! Facts of a file are shown with any of these rights. Directories above a scope can be entered and
//! listed, and show only what leads to it. So that no client takes this for the whole, the `Perm` fact of such a directory
//! lacks the right to list it (`l`), also in its own line (`cdir`) of the listing. The root of such a session follows no symbolic link
//! ([`data::store::root::Root::without_links`]): a link would give a file a second path.

use std::sync::Arc;
use std::time::SystemTime;

use proto::listing::{DirectoryEntry, EntryKind};
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind, FileRequest};
use security::token::PathScopes;

/// The rights of a session on paths. By default nothing is limited.
#[derive(Debug, Clone, Default)]
pub struct PathRights(Option<Arc<TokenRights>>);

#[derive(Debug)]
struct TokenRights {
    scopes: PathScopes,
    expires: SystemTime,
}

/// Access to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Facts of a file; entering a directory.
    Look,
    /// Names in a directory.
    List,
    /// Content, or a checksum of it.
    Read,
    /// A new file or directory.
    Create,
    /// Change or removal of what exists.
    Modify,
}

impl Access {
    /// For messages: `read`.
    fn verb(self) -> &'static str {
        match self {
            Self::Look | Self::List | Self::Read => "read",
            Self::Create => "create",
            Self::Modify => "change",
        }
    }
}

impl PathRights {
    /// The rights of a token, until it expires.
    pub fn of_token(scopes: PathScopes, expires: SystemTime) -> Self {
        Self(Some(Arc::new(TokenRights { scopes, expires })))
    }

    /// The time at which the rights end.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.as_ref().map(|token| token.expires)
    }

    /// Checks access to one path now.
    ///
    /// # Errors
    /// [`FileErrorKind::Denied`]: the token does not give the right, or has expired.
    pub(crate) fn check(&self, access: Access, path: &VPath) -> Result<(), FileError> {
        let Some(token) = &self.0 else {
            return Ok(());
        };
        if SystemTime::now() >= token.expires {
            return Err(denied(
                "Permission denied: the token has expired; log in again with a new one".to_owned(),
            ));
        }
        let rights = token.scopes.rights(path.as_bytes());
        let is_on_the_way = || token.scopes.is_above_a_scope(path.as_bytes());
        let is_allowed = match access {
            Access::Look => rights.is_some() || is_on_the_way(),
            Access::List => rights.read || is_on_the_way(),
            Access::Read => rights.read,
            Access::Create => rights.may_create(),
            Access::Modify => rights.modify,
        };
        if is_allowed {
            return Ok(());
        }
        Err(denied(format!(
            "Permission denied: the token gives no right to {} {path}",
            access.verb()
        )))
    }

    /// Checks a change. `is_own` tells whether a path leads to the file that this session has stored last
    /// and nobody has changed since: who may create a file may also set its time.
    ///
    /// # Errors
    /// See [`Self::check`].
    pub(crate) fn check_change(
        &self,
        request: &FileRequest,
        is_own: impl Fn(&VPath) -> bool,
    ) -> Result<(), FileError> {
        match request {
            FileRequest::MakeDir(path) => self.check(Access::Create, path),
            FileRequest::RemoveDir(path)
            | FileRequest::Delete(path)
            | FileRequest::RemoveTree(path)
            | FileRequest::Chmod(path, _)
            | FileRequest::Chgrp(path, _)
            | FileRequest::Truncate(path, _) => self.check(Access::Modify, path),
            FileRequest::SetModified(path, _) => {
                let access = match is_own(path) {
                    true => Access::Create,
                    false => Access::Modify,
                };
                self.check(access, path)
            }
            FileRequest::Rename { from, to } => {
                self.check(Access::Create, from)?;
                self.check(Access::Create, to)?;
                match is_own(from) {
                    true => Ok(()),
                    false => self.check_gain(from, to),
                }
            }
            FileRequest::Symlink { target, link } => {
                self.check(Access::Create, link)?;
                // Other sessions follow links: this one must not lead them where it may not go itself.
                let target = link.parent().resolve(target);
                let target =
                    target.map_err(|error| denied(format!("Permission denied: {error}")))?;
                self.check(Access::Create, &target)?;
                self.check_gain(&target, link)
            }
            FileRequest::Stat(path) | FileRequest::ChangeDir(path) => {
                self.check(Access::Look, path)
            }
            FileRequest::List(request) => self.check(Access::List, &request.path),
            FileRequest::Checksum { path, .. } => self.check(Access::Read, path),
            // The rights to each of its files are checked as they are read or written; those to a link as to `Symlink`.
            FileRequest::EndBundle(_) | FileRequest::SymlinkAmong(_) => Ok(()),
        }
    }

    /// Refuses the second name `to` for a file or directory at `from`, if it would give a right to it, or
    /// to something in it, that the first name does not give.
    fn check_gain(&self, from: &VPath, to: &VPath) -> Result<(), FileError> {
        let Some(token) = &self.0 else {
            return Ok(());
        };
        let (from_path, to_path) = (path_of(from), path_of(to));
        // Rights grow only at the paths of scopes.
        let below = token.scopes.iter().filter_map(|(scope, _)| {
            let rest = scope.strip_prefix(to_path)?;
            rest.starts_with(b"/").then_some(rest)
        });
        for rest in std::iter::once(&b""[..]).chain(below) {
            let old = token.scopes.rights(&[from_path, rest].concat());
            let new = token.scopes.rights(&[to_path, rest].concat());
            if new.read && !old.read || new.modify && !old.modify || new.create && !old.may_create()
            {
                return Err(denied(format!(
                    "Permission denied: the token gives more rights at {to} than at {from}"
                )));
            }
        }
        Ok(())
    }

    /// Whether existing content at `path` may be overwritten.
    pub(crate) fn may_overwrite(&self, path: &VPath) -> bool {
        self.check(Access::Modify, path).is_ok()
    }

    /// Whether a listing of `directory` shows the entry `name`, which may have several components.
    pub(crate) fn shows(&self, directory: &VPath, name: &[u8]) -> bool {
        let Some(token) = &self.0 else {
            return true;
        };
        if token.scopes.rights(directory.as_bytes()).read {
            return true;
        }
        // `.` names the directory itself, whose listing was allowed.
        name == b"." || self.check(Access::Look, &child(directory, name)).is_ok()
    }

    /// Takes rights that the token does not give from the entry of `path`.
    pub(crate) fn narrow(&self, entry: &mut DirectoryEntry, path: &VPath) {
        if let Some(token) = &self.0 {
            let rights = token.scopes.rights(path.as_bytes());
            let is_directory = matches!(
                entry.kind,
                EntryKind::Dir | EntryKind::CurrentDir | EntryKind::ParentDir
            );
            // Also not for a directory on the way to a scope, which is not shown whole: clients know by that.
            entry.permissions.read &= rights.read;
            entry.permissions.write &= match is_directory {
                true => rights.may_create(),
                false => rights.modify,
            };
        }
    }

    /// [`Self::narrow`] for an entry of a listing.
    pub(crate) fn narrow_child(&self, entry: &mut DirectoryEntry, directory: &VPath) {
        if self.0.is_some() {
            let path = child(directory, &entry.name);
            self.narrow(entry, &path);
        }
    }
}

/// The path of an entry; `.` is the directory. A path that is too long has the rights of its directory.
fn child(directory: &VPath, name: &[u8]) -> VPath {
    directory
        .resolve(name)
        .unwrap_or_else(|_| directory.clone())
}

/// The bytes of a path, of which those of a path below it are a continuation: none for the root.
fn path_of(path: &VPath) -> &[u8] {
    match path.as_bytes() {
        b"/" => b"",
        bytes => bytes,
    }
}

fn denied(text: String) -> FileError {
    FileError::new(FileErrorKind::Denied, text)
}
