//! The current directory and path arguments: CWD, CDUP, PWD.

use super::file_task::SuccessReply;
use super::replies::{self, CommandFailure, CommandResult};
use super::session_state::LoggedInSession;
use super::{FileRequest, SessionAction};
use crate::path::{PathError, VPath};

impl LoggedInSession {
    /// The path that an argument means: relative to the current directory, `~` and `~/` to the
    /// login's first directory.
    pub(super) fn resolve(&self, argument: &[u8]) -> Result<VPath, Vec<SessionAction>> {
        let resolved = match argument {
            b"" => Err(PathError::Empty),
            b"~" => Ok(self.home.clone()),
            [b'~', b'/'] => Ok(self.home.clone()),
            [b'~', b'/', below @ ..] => {
                // `~//etc` is below the home as well.
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

    /// Like [`Self::resolve`]; without argument the current directory is meant.
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

    /// CDUP; at the root it stays there.
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

/// A path between quotes, the quotes inside it doubled (RFC 959 appendix II).
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
