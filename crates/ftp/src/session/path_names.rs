//! How paths are named to a server: in full, or by their last component after CWD into their directory, which some
//! servers want.

use proto::command::Command;
use proto::reply::Reply;

use super::ClientSession;
use super::directories::CwdMeaning;
use super::replies::{self, RefusalCause, refusal_cause};
use crate::Failure;
use crate::failure::Operation;

/// The directory of a path, if it names one, and the name there.
pub fn directory_and_name(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (None, path),
        Some(0) => (Some(b"/"), &path[1..]),
        Some(at) => (Some(&path[..at]), &path[at + 1..]),
    }
}

/// The directory of a path at a server, where a session begins in `/`, and the name there.
pub(super) fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    let (directory, name) = directory_and_name(path);
    (directory.unwrap_or(b"/"), name)
}

impl ClientSession {
    /// The path as the next command has to name it.
    ///
    /// # Errors
    /// Its directory cannot be entered.
    pub async fn spell(&mut self, path: &[u8]) -> Result<Vec<u8>, Failure> {
        let (directory, name) = split_path(path);
        if !self.habits.names_only || name.is_empty() {
            return Ok(path.to_vec());
        }
        if self.current_directory.as_deref() != Some(directory)
            && let Some(reply) = self.change_directory(directory).await?
        {
            let operation = Operation::on_path("enter", directory);
            return Err(replies::refusal_failure(self.name(), &operation, &reply));
        }
        Ok(name.to_vec())
    }

    /// Sends a command about `path`; returns its final reply. If the path is refused in full, its name alone is tried
    /// after CWD. Where that tells more, all later commands name paths so.
    ///
    /// # Errors
    /// The session is lost, or the path's directory cannot be entered.
    pub(super) async fn call_about(
        &mut self,
        path: &[u8],
        command: impl Fn(Vec<u8>) -> Command,
    ) -> Result<Reply, Failure> {
        let full = command(self.spell(path).await?);
        let reply = self.control.call(&full).await?;
        if self.habits.names_only
            || self.planner.takes_commands_ahead()
            || !is_denied(&reply)
            // Once for each command: a user who lacks permission gets the same answer twice.
            || !self.refused_in_full.insert(full.verb())
        {
            return Ok(reply);
        }
        let (directory, name) = split_path(path);
        // Where consent means nothing, the name could be that of a file elsewhere.
        if name.is_empty() || self.enter(directory).await? != Some(CwdMeaning::Directory) {
            return Ok(reply);
        }
        let second = self.control.call(&command(name.to_vec())).await?;
        self.habits.names_only = !is_denied(&second);
        Ok(match self.habits.names_only {
            true => second,
            false => reply,
        })
    }
}

fn is_denied(reply: &Reply) -> bool {
    let is_refused = !reply.is_success() && !reply.is_intermediate();
    is_refused && refusal_cause(reply) == RefusalCause::Denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_before_its_name() {
        assert_eq!(split_path(b"/a/b"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split_path(b"/b"), (&b"/"[..], &b"b"[..]));
        assert_eq!(split_path(b"b"), (&b"/"[..], &b"b"[..]));
        assert_eq!(split_path(b"/"), (&b"/"[..], &b""[..]));
    }
}
