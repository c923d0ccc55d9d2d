//! Files without a data connection: the current directory (CWD, CDUP, PWD), names, sizes, times and checksums
//! (MKD, RMD, DELE, RNFR, RNTO, SIZE, MDTM, MFMT, CKSM, SCKS; RFC 959, RFC 3659, GFD.47). The session decides
//! what is asked; the driver answers a [`FileRequest`] with a [`FileResponse`], which becomes the reply.

use super::logged_in::{LoggedInSession, PendingTask};
use super::replies::{self, CommandFailure, CommandResult, CommandTarget};
use super::transfer::PendingAborts;
use super::{FileError, FileErrorKind, SessionAction};
use crate::bundle::{BundleOutcome, BundleProof};
use crate::checksum::ChecksumAlgorithm;
use crate::listing::{DirectoryEntry, EntryKind, FactSet, format_mlsx};
use crate::path::{PathError, VPath};
use crate::reply::Reply;
use crate::timestamp::Timestamp;

/// File operation that needs no data channel. Paths are inside the session's root.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named for the command's arguments")]
pub enum FileRequest {
    /// Answered by [`FileResponse::Entry`], whose `name` is the last component of the path.
    Stat(VPath),
    /// Check that the directory exists and may be entered. Answered by [`FileResponse::Done`].
    ChangeDir(VPath),
    MakeDir(VPath),
    RemoveDir(VPath),
    Delete(VPath),
    /// Recursive delete.
    RemoveTree(VPath),
    Rename {
        from: VPath,
        to: VPath,
    },
    /// Answered by [`FileResponse::Modified`].
    SetModified(VPath, Timestamp),
    Chmod(VPath, u32),
    Chgrp(VPath, String),
    /// `target` is stored in the link unchanged.
    Symlink {
        target: Vec<u8>,
        link: VPath,
    },
    /// As `Symlink`, of the one pair of target and link whose target exists and whose link does not: nothing else tells where
    /// the first of two names with spaces ends.
    SymlinkAmong(Vec<(Vec<u8>, VPath)>),
    Truncate(VPath, u64),
    /// MLSC and `STAT path`. Answered by [`FileResponse::Lines`].
    List(ListRequest),
    /// SITE BUNDLE END: ends the bundle of the last transfer. The files of one that was stored get their names, if the
    /// proof is right. Answered by [`FileResponse::Bundle`].
    EndBundle(Option<BundleProof>),
    /// CKSM. Answered by [`FileResponse::Checksum`]. While it runs, the driver reports
    /// `DriverEvent::ChecksumProgress` every `marker_seconds`, unless that is 0.
    Checksum {
        algorithm: ChecksumAlgorithm,
        path: VPath,
        offset: u64,
        /// Bytes; `None` means to the end of the file.
        length: Option<u64>,
        marker_seconds: u32,
    },
}

/// Entries to list and their format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Directory or file.
    pub path: VPath,
    /// [`GlobPattern`](crate::pattern::GlobPattern) for the names (LIST, NLST and STAT); `path` is then the directory.
    pub pattern: Option<Vec<u8>>,
    /// Text before each name that the pattern matches, or the name of a file (NLST): its directory, as the client sent
    /// it. Clients use such lines as paths.
    pub prefix: Vec<u8>,
    /// Format of each entry.
    pub format: ListFormat,
    /// List the whole tree below `path` (MLSR).
    pub recursive: bool,
    /// Compress the text (RFC 1950).
    pub deflate: bool,
}

/// Format of listed entries: one line each, ended by CR LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// MLSD, MLSC, MLSR.
    Facts(FactSet),
    /// LIST, STAT.
    LsLong,
    /// NLST.
    Names,
}

/// Result of a successful [`FileRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileResponse {
    /// The operation succeeded and returns no data.
    Done,
    /// Result of [`FileRequest::SetModified`]: the time that the file system keeps, within 2 s of the one asked for.
    Modified(Timestamp),
    /// Result of [`FileRequest::Stat`].
    Entry(Box<DirectoryEntry>),
    /// Result of [`FileRequest::List`]: formatted lines without line endings.
    Lines(Vec<Vec<u8>>),
    /// Result of [`FileRequest::Checksum`], lower-case hexadecimal.
    Checksum(String),
    /// Result of [`FileRequest::EndBundle`].
    Bundle(Box<BundleOutcome>),
}

/// A file operation that the driver performs.
#[derive(Debug)]
pub(super) struct FileTask {
    /// Command and path, for error replies.
    pub(super) target: CommandTarget,
    /// Reply and state change on success.
    pub(super) on_success: SuccessReply,
    /// ABORs to be answered when the operation ends.
    pub(super) aborts: PendingAborts,
}

impl FileTask {
    /// Whether ABOR stops the operation. All operations but a checksum end too soon for that.
    pub(super) fn is_abortable(&self) -> bool {
        matches!(self.on_success, SuccessReply::Digest)
    }

    /// Reply to STAT while the operation runs (RFC 959 §4.1.3).
    pub(super) fn status(&self) -> Vec<SessionAction> {
        let mut text = format!("Status: {} ", self.target.verb).into_bytes();
        text.extend_from_slice(self.target.path.as_bytes());
        text.extend_from_slice(b" in progress.");
        replies::reply(213, text)
    }
}

/// Reply to a successful file operation, and the change of session state with it.
#[derive(Debug)]
pub(super) enum SuccessReply {
    /// A fixed reply.
    Fixed(Reply),
    /// CWD: make this the current directory.
    EnterDirectory(VPath),
    /// RNFR: remember the path for RNTO.
    RenameFrom,
    /// SITE SYMLINKFROM: remember the path for SITE SYMLINKTO.
    LinkFrom,
    /// SIZE: the size of the entry.
    Size,
    /// MDTM: the modification time of the entry.
    Modified,
    /// MFMT: the time that the file has, under the name that the client sent.
    TimeKept(Vec<u8>),
    /// MLST: the facts of the entry, under the name that the client sent.
    MlstFacts(Vec<u8>),
    /// A multi-line reply with this code and first line.
    Lines(u16, Vec<u8>),
    /// CKSM: the checksum.
    Digest,
    /// SITE BUNDLE END: the outcome.
    Bundle,
}

impl LoggedInSession {
    /// Resolves a path argument: relative paths against the current directory, `~` and `~/` against
    /// the home directory of the login, and in a carried session `~user/` against that of the user.
    pub(super) fn resolve(&self, argument: &[u8]) -> Result<VPath, Vec<SessionAction>> {
        // The paths of scp(1): ssh://host/~/file.
        let below_root = argument.strip_prefix(b"/").filter(|_| self.is_carried());
        let resolved = match self.home_in(below_root.unwrap_or(argument)) {
            Some((home, b"")) => home,
            Some((home, below)) => home.and_then(|home| home.resolve(below)),
            // An empty argument must not stand for the current directory, or `RMD ` could delete it.
            None if argument.is_empty() => Err(PathError::Empty),
            None => self.cwd.resolve(argument),
        };
        resolved.map_err(|error| replies::refuse(&CommandFailure::Path(error)))
    }

    /// The home directory with which a path begins, and what is below it; `None`: it begins with none.
    fn home_in<'a>(&self, path: &'a [u8]) -> Option<(Result<VPath, PathError>, &'a [u8])> {
        let rest = path.strip_prefix(b"~")?;
        let end = rest.iter().position(|byte| *byte == b'/');
        let (user, below) = rest.split_at(end.unwrap_or(rest.len()));
        let home = match (user, self.home_of) {
            (b"", _) => Ok(self.home.clone()),
            (user, Some(home_of)) if self.is_carried() => {
                home_of(user).ok_or(PathError::NoSuchUser)
            }
            _ => return None,
        };
        // Without this, `~//etc` would resolve as the absolute path `/etc`.
        let skip = below.iter().take_while(|byte| **byte == b'/').count();
        Some((home, &below[skip..]))
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

    /// MKD. The quoted path comes first, since clients parse the 257 as RFC 959 appendix II shows it.
    pub(super) fn mkd(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        let mut text = quoted(&path);
        text.extend_from_slice(b" directory created.");
        let on_success = SuccessReply::Fixed(Reply::new(257, text));
        Ok(self.start_file_change("MKD", path.clone(), FileRequest::MakeDir(path), on_success))
    }

    /// RMD
    pub(super) fn rmd(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_change(
            "RMD",
            path.clone(),
            FileRequest::RemoveDir(path),
            ok_reply(),
        ))
    }

    /// DELE
    pub(super) fn dele(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_change("DELE", path.clone(), FileRequest::Delete(path), ok_reply()))
    }

    /// RNFR. The file must exist now, so that the client learns of a wrong name before RNTO.
    pub(super) fn rnfr(&mut self, argument: &[u8]) -> CommandResult {
        // A failed RNFR must not leave the path of an earlier one to RNTO.
        self.rename_from = None;
        let path = self.resolve(argument)?;
        if path.is_root() {
            let target = CommandTarget { verb: "RNFR", path };
            return Err(replies::refuse(&CommandFailure::File(
                &target,
                &root_rename_error(),
            )));
        }
        Ok(self.start_file_change(
            "RNFR",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::RenameFrom,
        ))
    }

    /// RNTO
    pub(super) fn rnto(&mut self, argument: &[u8]) -> CommandResult {
        let Some(from) = self.rename_from.take() else {
            return Ok(replies::reply(
                503,
                "Send RNFR with the present name first.",
            ));
        };
        let to = self.resolve(argument)?;
        let request = FileRequest::Rename {
            from,
            to: to.clone(),
        };
        Ok(self.start_file_change("RNTO", to, request, ok_reply()))
    }

    /// SIZE
    pub(super) fn size(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_task(
            "SIZE",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::Size,
        ))
    }

    /// MDTM
    pub(super) fn mdtm(&mut self, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        Ok(self.start_file_task(
            "MDTM",
            path.clone(),
            FileRequest::Stat(path),
            SuccessReply::Modified,
        ))
    }

    /// MFMT; the reply is that of draft-somers-ftp-mfxx §3.
    pub(super) fn mfmt(&mut self, time: Timestamp, argument: &[u8]) -> CommandResult {
        let path = self.resolve(argument)?;
        // The draft shows the name as the client sent it.
        let on_success = SuccessReply::TimeKept(argument.to_vec());
        let request = FileRequest::SetModified(path.clone(), time);
        Ok(self.start_file_change("MFMT", path, request, on_success))
    }

    /// CKSM: 113 markers while it runs if OPTS CKSM asked for them, then 213 and the checksum.
    pub(super) fn cksm(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        argument: &[u8],
    ) -> CommandResult {
        let path = self.resolve(argument)?;
        let request = FileRequest::Checksum {
            algorithm,
            path: path.clone(),
            offset,
            length,
            marker_seconds: self.parameters.checksum_seconds,
        };
        Ok(self.start_file_task("CKSM", path, request, SuccessReply::Digest))
    }

    /// SCKS: the next store must have this checksum.
    pub(super) fn scks(&mut self, algorithm: ChecksumAlgorithm, hex: String) -> Vec<SessionAction> {
        self.next_transfer.store.expected_checksum = Some((algorithm, hex));
        replies::reply(200, "OK.")
    }

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

/// Reply `250 OK.`
pub(super) fn ok_reply() -> SuccessReply {
    SuccessReply::Fixed(Reply::new(250, "OK."))
}

/// Error for RNFR of the root directory.
fn root_rename_error() -> FileError {
    FileError::new(
        FileErrorKind::Denied,
        "Permission denied: the root cannot be renamed",
    )
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
