//! File operations without data channel: the request to the driver, and the reply to its response.

use super::file_task::{FileTask, SuccessReply};
use super::replies::{self, CommandFailure, CommandTarget};
use super::running_transfer::PendingAborts;
use super::session_state::{LoggedInSession, PendingTask};
use super::{FileError, FileRequest, FileResponse, SessionAction};
use crate::listing::{DirectoryEntry, EntryKind, format_mlsx};
use crate::path::VPath;
use crate::reply::Reply;

impl LoggedInSession {
    /// Starts a file operation.
    pub(super) fn start_file_task(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        on_success: SuccessReply,
    ) -> Vec<SessionAction> {
        let target = CommandTarget { verb, path };
        self.pending = PendingTask::File(Box::new(FileTask {
            target,
            on_success,
            aborts: PendingAborts::default(),
        }));
        vec![SessionAction::File(request)]
    }

    /// Starts a file operation that needs the right to write.
    pub(super) fn start_file_change(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        on_success: SuccessReply,
    ) -> Vec<SessionAction> {
        if !self.rights.write {
            let target = CommandTarget { verb, path };
            return replies::refuse(&CommandFailure::File(&target, &replies::read_only_error()));
        }
        self.start_file_task(verb, path, request, on_success)
    }

    /// Handles the driver's response.
    pub(super) fn on_file_response(
        &mut self,
        task: FileTask,
        response: Result<FileResponse, FileError>,
    ) -> Vec<SessionAction> {
        let FileTask {
            target,
            on_success,
            aborts,
        } = task;
        let mut actions = match response {
            Ok(response) => vec![SessionAction::Reply(
                self.success_reply(target, on_success, response),
            )],
            Err(error) => replies::refuse(&CommandFailure::File(&target, &error)),
        };
        actions.extend(aborts.replies());
        actions
    }

    fn success_reply(
        &mut self,
        target: CommandTarget,
        on_success: SuccessReply,
        response: FileResponse,
    ) -> Reply {
        match (on_success, response) {
            (SuccessReply::Fixed(reply), _) => reply,
            (SuccessReply::EnterDirectory(path), response) => {
                self.cwd = path;
                let message = match response {
                    FileResponse::Lines(lines) => lines,
                    _ => Vec::new(),
                };
                Reply::with_lines_before(250, message, "CWD command successful.")
            }
            (SuccessReply::RenameFrom, _) => {
                self.rename_from = Some(target.path);
                Reply::new(350, "OK. Send RNTO with destination name.")
            }
            (SuccessReply::LinkFrom, _) => {
                self.link_from = Some(target.path);
                Reply::new(350, "OK. Send SITE SYMLINKTO with symlink name.")
            }
            // The driver follows links, so an entry of kind SymLink is a dangling one.
            (SuccessReply::Size | SuccessReply::Modified, FileResponse::Entry(entry))
                if entry.kind == EntryKind::SymLink =>
            {
                dangling_link_reply(&target)
            }
            (SuccessReply::Size, FileResponse::Entry(entry)) => size_reply(&entry),
            (SuccessReply::Modified, FileResponse::Entry(entry)) => {
                Reply::new(213, entry.modified.format())
            }
            (SuccessReply::TimeKept(shown_path), FileResponse::Modified(time)) => {
                let mut text = format!("Modify={}; ", time.format()).into_bytes();
                text.extend_from_slice(&shown_path);
                Reply::new(213, text)
            }
            (SuccessReply::MlstFacts(shown_path), FileResponse::Entry(entry)) => {
                self.facts_reply(shown_path, *entry)
            }
            (SuccessReply::Lines(code, first), FileResponse::Lines(lines)) => {
                reply_with_inner_lines(code, &first, lines)
            }
            (SuccessReply::Digest, FileResponse::Checksum(hex)) => Reply::new(213, hex),
            (SuccessReply::Bundle, FileResponse::Bundle(outcome)) => outcome.reply(),
            _ => Reply::new(
                451,
                "Local error: the file system returned an unexpected kind of result.",
            ),
        }
    }

    fn facts_reply(&self, shown_path: Vec<u8>, mut entry: DirectoryEntry) -> Reply {
        // RFC 3659 §7.2: MLST shows the name as the client sent it, not as resolved.
        let first = [b"status of ".as_slice(), &shown_path].concat();
        entry.name = shown_path;
        let line = format_mlsx(&entry, self.parameters.facts, None);
        reply_with_inner_lines(250, &first, vec![line])
    }
}

/// SIZE and MDTM follow symbolic links, so a dangling link has neither.
fn dangling_link_reply(target: &CommandTarget) -> Reply {
    let text = format!(
        "cannot look at {}: No such file or directory (a symbolic link that leads nowhere)",
        target.path
    );
    Reply::new(550, text)
}

/// Reply to SIZE. Only a file that can be retrieved has a size (RFC 3659 §4).
fn size_reply(entry: &DirectoryEntry) -> Reply {
    match entry.kind {
        EntryKind::File => Reply::new(213, entry.size.to_string()),
        _ => Reply::new(550, "Not a plain file: SIZE tells what RETR would send."),
    }
}

/// A multi-line reply whose first line may quote a path in any encoding.
pub(super) fn reply_with_inner_lines(code: u16, first: &[u8], lines: Vec<Vec<u8>>) -> Reply {
    let mut reply = Reply::with_inner_lines(code, "", lines, "End.");
    if let Some(line) = reply.lines.first_mut() {
        *line = Reply::new(code, first).lines.concat();
    }
    reply
}
