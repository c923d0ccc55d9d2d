//! The current directory of a session, and whether a path is a directory.

use proto::command::Command;
use proto::listing::EntryKind;
use proto::reply::Reply;

use super::{ClientSession, replies};
use crate::Failure;
use crate::failure::Operation;

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
    pub(super) async fn change_directory(&mut self, path: &[u8]) -> Result<Option<Reply>, Failure> {
        self.current_directory = None;
        let reply = self.control.call(&Command::Cwd(path.to_vec())).await?;
        if reply.code == 421 {
            let operation = Operation::on_path("enter", path);
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

    /// Enters a directory; `None`: it is refused. Otherwise the meaning of consent at this server, which is asked for a
    /// directory that does not exist if nothing is known of it.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn enter(&mut self, path: &[u8]) -> Result<Option<CwdMeaning>, Failure> {
        if self.change_directory(path).await?.is_some() {
            return Ok(None);
        }
        if self.cwd_meaning == CwdMeaning::Unknown {
            let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
            let below = [path, slash, NO_SUCH_NAME].concat();
            self.cwd_meaning = match self.change_directory(&below).await? {
                Some(_) => {
                    self.current_directory = Some(path.to_vec());
                    CwdMeaning::Directory
                }
                None => CwdMeaning::Nothing,
            };
        }
        Ok(Some(self.cwd_meaning))
    }

    /// Whether `path` is a directory that the user may enter. A server that accepts CWD to any path is asked for the
    /// listing of the parent instead.
    ///
    /// # Errors
    /// The session is lost.
    pub(super) async fn is_directory(&mut self, path: &[u8]) -> Result<bool, Failure> {
        if path.iter().all(|byte| *byte == b'/') {
            return Ok(self.change_directory(path).await?.is_none());
        }
        match self.enter(path).await? {
            None => Ok(false),
            Some(CwdMeaning::Nothing) => match self.find_in_parent(path).await {
                Ok(entry) => Ok(entry.kind == EntryKind::Dir),
                Err(lost) if lost.may_retry() => Err(lost),
                Err(_) => Ok(false),
            },
            Some(_) => Ok(true),
        }
    }
}
