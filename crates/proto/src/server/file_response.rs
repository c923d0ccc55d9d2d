//! Work on files: asked of the driver, and its answer becomes a reply.

use super::file_task::{FileTask, SuccessReply};
use super::replies::{self, CommandFailure, CommandTarget};
use super::running_transfer::PendingAborts;
use super::session_state::{LoggedInSession, PendingTask};
use super::{FileError, FileRequest, FileResponse, SessionAction};
use crate::listing::{DirectoryEntry, EntryKind, format_mlsx};
use crate::path::VPath;
use crate::reply::Reply;

impl LoggedInSession {
    /// Asks the driver for work that changes nothing.
    pub(super) fn start_file_task(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        then: SuccessReply,
    ) -> Vec<SessionAction> {
        let subject = CommandTarget { verb, path };
        self.pending = PendingTask::File(Box::new(FileTask {
            target: subject,
            on_success: then,
            aborts: PendingAborts::default(),
        }));
        vec![SessionAction::File(request)]
    }

    /// Asks the driver for work that changes files, if the account may.
    pub(super) fn start_file_change(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        then: SuccessReply,
    ) -> Vec<SessionAction> {
        if !self.rights.write {
            let subject = CommandTarget { verb, path };
            return replies::refuse(&CommandFailure::File(&subject, &replies::read_only_error()));
        }
        self.start_file_task(verb, path, request, then)
    }

    /// Takes the driver's answer.
    pub(super) fn on_file_response(
        &mut self,
        task: FileTask,
        answer: Result<FileResponse, FileError>,
    ) -> Vec<SessionAction> {
        let FileTask {
            target: subject,
            on_success: then,
            aborts,
        } = task;
        let mut actions = match answer {
            Ok(answer) => vec![SessionAction::Reply(
                self.success_reply(subject, then, answer),
            )],
            Err(error) => replies::refuse(&CommandFailure::File(&subject, &error)),
        };
        actions.extend(aborts.replies());
        actions
    }

    fn success_reply(
        &mut self,
        subject: CommandTarget,
        then: SuccessReply,
        answer: FileResponse,
    ) -> Reply {
        match (then, answer) {
            (SuccessReply::Fixed(reply), _) => reply,
            (SuccessReply::EnterDirectory(path), _) => {
                self.cwd = path;
                Reply::new(250, "CWD command successful.")
            }
            (SuccessReply::RenameFrom, _) => {
                self.rename_from = Some(subject.path);
                Reply::new(350, "OK. Send RNTO with destination name.")
            }
            (SuccessReply::LinkFrom, _) => {
                self.link_from = Some(subject.path);
                Reply::new(350, "OK. Send SITE SYMLINKTO with symlink name.")
            }
            (SuccessReply::Size | SuccessReply::Modified, FileResponse::Entry(entry))
                if entry.kind == EntryKind::SymLink =>
            {
                dangling_link_reply(&subject)
            }
            (SuccessReply::Size, FileResponse::Entry(entry)) => size_reply(&entry),
            (SuccessReply::Modified, FileResponse::Entry(entry)) => {
                Reply::new(213, entry.modified.format())
            }
            (SuccessReply::MlstFacts(shown), FileResponse::Entry(entry)) => {
                self.facts_reply(shown, *entry)
            }
            (SuccessReply::Lines(code, first), FileResponse::Lines(lines)) => {
                reply_with_inner_lines(code, &first, lines)
            }
            (SuccessReply::Digest, FileResponse::Checksum(hex)) => Reply::new(213, hex),
            _ => Reply::new(
                451,
                "Local error: the file system gave an answer of another kind.",
            ),
        }
    }

    fn facts_reply(&self, shown: Vec<u8>, mut entry: DirectoryEntry) -> Reply {
        let first = [b"status of ".as_slice(), &shown].concat();
        entry.name = shown;
        let line = format_mlsx(&entry, self.parameters.facts, None);
        reply_with_inner_lines(250, &first, vec![line])
    }
}

/// SIZE and MDTM are of what a link leads to.
fn dangling_link_reply(subject: &CommandTarget) -> Reply {
    let text = format!(
        "cannot look at {}: No such file or directory (a symbolic link that leads nowhere)",
        subject.path
    );
    Reply::new(550, text)
}

/// RFC 3659 §4: only a file that can be retrieved has a SIZE.
fn size_reply(entry: &DirectoryEntry) -> Reply {
    match entry.kind {
        EntryKind::File => Reply::new(213, entry.size.to_string()),
        _ => Reply::new(550, "Not a plain file: SIZE tells what RETR would send."),
    }
}

/// A data-bearing reply whose first line quotes a path of any encoding.
pub(super) fn reply_with_inner_lines(code: u16, first: &[u8], lines: Vec<Vec<u8>>) -> Reply {
    let mut reply = Reply::with_inner_lines(code, "", lines, "End.");
    if let Some(line) = reply.lines.first_mut() {
        *line = Reply::new(code, first).lines.concat();
    }
    reply
}
