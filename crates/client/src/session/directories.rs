//! The current directory of a session, and whether a path is a directory.

use proto::command::Command;
use proto::listing::EntryKind;
use proto::reply::Reply;

use super::{ClientSession, display_path, replies};
use crate::CopyFailure;

/// A name that no file or directory has.
pub(super) const NO_SUCH_NAME: &[u8] = b".longhaul-no-such-name";

/// Meaning of a server's consent to CWD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CwdMeaning {
    /// Nothing has been refused yet.
    #[default]
    Unknown,
    /// It is a directory: other paths are refused.
    Directory,
    /// Nothing: every path is accepted.
    Nothing,
}

impl ClientSession {
    /// Sends CWD; returns the refusal, if any.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn change_directory(
        &mut self,
        path: &[u8],
    ) -> Result<Option<Reply>, CopyFailure> {
        self.current_directory = None;
        let reply = self.control.call(&Command::Cwd(path.to_vec())).await?;
        if reply.code == 421 {
            let operation = format!("enter {}", display_path(path));
            return Err(replies::refusal_failure(self.name(), &operation, &reply));
        }
        if reply.is_success() {
            self.current_directory = Some(path.to_vec());
            return Ok(None);
        }
        if self.cwd_meaning == CwdMeaning::Unknown && !replies::is_unsupported(&reply) {
            self.cwd_meaning = CwdMeaning::Directory;
        }
        Ok(Some(reply))
    }

    /// Whether `path` is a directory that the user may enter. A server that accepts CWD to any path is asked for the
    /// listing of the parent instead.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn is_directory(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        if self.change_directory(path).await?.is_some() {
            return Ok(false);
        }
        if path.iter().all(|byte| *byte == b'/') {
            return Ok(true);
        }
        if self.cwd_meaning == CwdMeaning::Unknown {
            let below = [path, b"/", NO_SUCH_NAME].concat();
            let refused = self.change_directory(&below).await?;
            self.cwd_meaning = match refused {
                Some(_) => CwdMeaning::Directory,
                None => CwdMeaning::Nothing,
            };
        }
        if self.cwd_meaning == CwdMeaning::Directory {
            return Ok(true);
        }
        match self.find_in_parent(path).await {
            Ok(entry) => Ok(entry.kind == EntryKind::Dir),
            Err(lost) if lost.transient => Err(lost),
            Err(_) => Ok(false),
        }
    }
}
