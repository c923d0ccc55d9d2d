//! The current directory and path arguments: CWD, CDUP, PWD.

use super::file_task::SuccessReply;
use super::replies::{self, CommandFailure, CommandResult};
use super::session_state::LoggedInSession;
use super::{FileRequest, SessionAction};
use crate::path::{PathError, VPath};

impl LoggedInSession {
    /// Resolves a path argument: relative paths against the current directory, `~` and `~/` against
    /// the home directory of the login.
    pub(super) fn resolve(&self, argument: &[u8]) -> Result<VPath, Vec<SessionAction>> {
        let resolved = match argument {
            // An empty argument must not stand for the current directory, or `RMD ` could delete it.
            b"" => Err(PathError::Empty),
            b"~" => Ok(self.home.clone()),
            [b'~', b'/'] => Ok(self.home.clone()),
            [b'~', b'/', below @ ..] => {
                // Without this, `~//etc` would resolve as the absolute path `/etc`.
                let skip = below.iter().take_while(|b| **b == b'/').count();
                match &below[skip..] {
                    b"" => Ok(self.home.clone()),
                    below => self.home.resolve(below),
                }
            }
            other => self.cwd.resolve(other),
        };
        resolved.map_err(|error| replies::refuse(&CommandFailure::Path(error)))
    }

    /// Like [`Self::resolve`]; without argument, the current directory.
    pub(super) fn resolve_or_cwd(
        &self,
        argument: Option<&[u8]>,
    ) -> Result<VPath, Vec<SessionAction>> {
        match argument {
            None | Some(b"") => Ok(self.cwd.clone()),
            Some(argument) => self.resolve(argument),
        }
    }

    /// CWD
    pub(super) fn cwd(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.enter("CWD", path))
    }

    /// CDUP. The parent of the root is the root.
    pub(super) fn cdup(&mut self) -> Vec<SessionAction> {
        let path = self.cwd.parent();
        self.enter("CDUP", path)
    }

    fn enter(&mut self, verb: &'static str, path: VPath) -> Vec<SessionAction> {
        let request = FileRequest::ChangeDir(path.clone());
        self.start_file_task(
            verb,
            path.clone(),
            request,
            SuccessReply::EnterDirectory(path),
        )
    }

    /// PWD
    pub(super) fn pwd(&self) -> Vec<SessionAction> {
        let mut text = quoted(&self.cwd);
        text.extend_from_slice(b" is current directory.");
        replies::reply(257, text)
    }
}

/// The path in double quotes; quotes inside it are doubled (RFC 959 appendix II).
pub(super) fn quoted(path: &VPath) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in path.as_bytes() {
        if byte == b'"' {
            text.push(b'"');
        }
        text.push(byte);
    }
    text.push(b'"');
    text
}
