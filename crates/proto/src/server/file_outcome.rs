//! Work on files: asked of the driver, and its answer becomes a reply.

use super::file_task::{FileTask, Then};
use super::replies::{self, Failure, Subject};
use super::running::Aborts;
use super::state::{LoggedIn, Pending};
use super::{Action, FileAnswer, FileError, FileRequest};
use crate::listing::{Entry, Kind, format_mlsx};
use crate::path::VPath;
use crate::reply::Reply;

impl LoggedIn {
    /// Asks the driver for work that changes nothing.
    pub(super) fn inspect(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        then: Then,
    ) -> Vec<Action> {
        let subject = Subject { verb, path };
        self.pending = Pending::File(Box::new(FileTask {
            subject,
            then,
            aborts: Aborts::default(),
        }));
        vec![Action::File(request)]
    }

    /// Asks the driver for work that changes files, if the account may.
    pub(super) fn change(
        &mut self,
        verb: &'static str,
        path: VPath,
        request: FileRequest,
        then: Then,
    ) -> Vec<Action> {
        if !self.rights.write {
            let subject = Subject { verb, path };
            return replies::refuse(&Failure::File(&subject, &replies::read_only()));
        }
        self.inspect(verb, path, request, then)
    }

    /// Takes the driver's answer.
    pub(super) fn on_file(
        &mut self,
        task: FileTask,
        answer: Result<FileAnswer, FileError>,
    ) -> Vec<Action> {
        let FileTask {
            subject,
            then,
            aborts,
        } = task;
        let mut actions = match answer {
            Ok(answer) => vec![Action::Reply(self.on_success(subject, then, answer))],
            Err(error) => replies::refuse(&Failure::File(&subject, &error)),
        };
        actions.extend(aborts.replies());
        actions
    }

    fn on_success(&mut self, subject: Subject, then: Then, answer: FileAnswer) -> Reply {
        match (then, answer) {
            (Then::Reply(reply), _) => reply,
            (Then::Enter(path), _) => {
                self.cwd = path;
                Reply::new(250, "CWD command successful.")
            }
            (Then::RenameFrom, _) => {
                self.rename_from = Some(subject.path);
                Reply::new(350, "OK. Send RNTO with destination name.")
            }
            (Then::LinkFrom, _) => {
                self.link_from = Some(subject.path);
                Reply::new(350, "OK. Send SITE SYMLINKTO with symlink name.")
            }
            (Then::Size | Then::Modified, FileAnswer::Entry(entry))
                if entry.kind == Kind::SymLink =>
            {
                leads_nowhere(&subject)
            }
            (Then::Size, FileAnswer::Entry(entry)) => size_reply(&entry),
            (Then::Modified, FileAnswer::Entry(entry)) => Reply::new(213, entry.modified.format()),
            (Then::Facts(shown), FileAnswer::Entry(entry)) => self.facts_reply(shown, *entry),
            (Then::Lines(code, first), FileAnswer::Lines(lines)) => data_reply(code, &first, lines),
            (Then::Digest, FileAnswer::Digest(hex)) => Reply::new(213, hex),
            _ => Reply::new(
                451,
                "Local error: the file system gave an answer of another kind.",
            ),
        }
    }

    fn facts_reply(&self, shown: Vec<u8>, mut entry: Entry) -> Reply {
        let first = [b"status of ".as_slice(), &shown].concat();
        entry.name = shown;
        let line = format_mlsx(&entry, self.settings.facts, None);
        data_reply(250, &first, vec![line])
    }
}

/// SIZE and MDTM are of what a link leads to.
fn leads_nowhere(subject: &Subject) -> Reply {
    let text = format!(
        "cannot look at {}: No such file or directory (a symbolic link that leads nowhere)",
        subject.path
    );
    Reply::new(550, text)
}

/// RFC 3659 §4: only a file that can be retrieved has a SIZE.
fn size_reply(entry: &Entry) -> Reply {
    match entry.kind {
        Kind::File => Reply::new(213, entry.size.to_string()),
        _ => Reply::new(550, "Not a plain file: SIZE tells what RETR would send."),
    }
}

/// A data-bearing reply whose first line quotes a path of any encoding.
pub(super) fn data_reply(code: u16, first: &[u8], lines: Vec<Vec<u8>>) -> Reply {
    let mut reply = Reply::data(code, "", lines, "End.");
    if let Some(line) = reply.lines.first_mut() {
        *line = Reply::new(code, first).lines.concat();
    }
    reply
}
