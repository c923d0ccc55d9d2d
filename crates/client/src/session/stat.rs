//! Facts of one path.

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::path_names::split_path;
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path, mlst_command};
use crate::{CopyFailure, Exit};

impl ClientSession {
    /// Facts of a path by MLST, or by CWD, SIZE and MDTM on plain servers. The entry's name is the
    /// last component of `path`. A symbolic link has the facts of its target, where the server
    /// shows them; [`EntryKind::SymLink`] is a dangling link.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; otherwise the refusal by its class.
    pub async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.check_path(path)?;
        if self.features().mlst {
            let reply = self
                .call_about(path, |path| Command::Mlst(Some(path)))
                .await?;
            if reply.is_success() {
                let entry = self.parse_mlst_reply(path, &reply)?;
                return match entry.kind {
                    EntryKind::SymLink => self.resolve_symlink(path, entry).await,
                    _ => Ok(entry),
                };
            }
            if let Some(failure) = self.stat_failure(path, &reply) {
                return Err(failure);
            }
        }
        self.stat_without_mlst(path).await
    }

    /// As [`ClientSession::stat`], of a path that is to be read. Where the server tells nothing about it, it is taken for
    /// a file of unknown size: only the attempt to read it shows whether there is one.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; `Usage` for a path that FTP cannot express; a lost session.
    pub(crate) async fn stat_to_read(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.check_path(path)?;
        match self.stat(path).await {
            Err(failure)
                if !failure.transient
                    && failure.exit != Exit::NotFound
                    && !self.planner.takes_commands_ahead() =>
            {
                Ok(listed_entry(path, EntryKind::File, None, None))
            }
            told => told,
        }
    }

    /// The commands that [`ClientSession::stat`] will send for `path`, for sending them ahead.
    /// Empty where it needs several.
    pub(crate) fn stat_commands(&self, path: &[u8]) -> Vec<Command> {
        match self.features().mlst {
            true => vec![mlst_command(path)],
            false => Vec::new(),
        }
    }

    fn parse_mlst_reply(&self, path: &[u8], reply: &Reply) -> Result<ListedEntry, CopyFailure> {
        // RFC 3659 §7.2: the facts are on the second line of the reply, after a blank.
        let inner = reply.lines.iter().skip(1);
        // Some servers send one line only.
        let mut lines = inner.chain(reply.lines.first());
        let entry = lines.find_map(|line| parse_mlsx(line));
        let mut entry = entry.ok_or_else(|| CopyFailure {
            exit: Exit::Protocol,
            message: format!(
                "{} sent no readable facts of {}: {}; report this to its administrator",
                self.name(),
                display_path(path),
                replies::display_reply(reply)
            ),
            transient: false,
            no_room: false,
        })?;
        entry.name = file_name(path);
        if matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir) {
            entry.kind = EntryKind::Dir;
        }
        Ok(entry)
    }

    /// Facts of a path without MLST. CWD comes first, since some servers report a SIZE for
    /// directories too. Where neither decides, the listing of the parent does.
    pub(super) async fn stat_without_mlst(
        &mut self,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        if self.is_directory(path).await? {
            return Ok(listed_entry(
                path,
                EntryKind::Dir,
                None,
                self.modification_time(path).await?,
            ));
        }
        let reply = self.call_about(path, Command::Size).await?;
        if reply.is_success() {
            let size = reply.number();
            return Ok(listed_entry(
                path,
                EntryKind::File,
                size,
                self.modification_time(path).await?,
            ));
        }
        if let Some(failure) = self.stat_failure(path, &reply) {
            return Err(failure);
        }
        // It is no directory, so a reply to MDTM shows that it is a file (RFC 3659 §3). Of what is not a plain file, MDTM
        // tells no kind.
        let may_be_file = refusal_cause(&reply) != RefusalCause::NoFile;
        let modified = match may_be_file {
            true => self.modification_time(path).await?,
            false => None,
        };
        if modified.is_some() {
            return Ok(listed_entry(path, EntryKind::File, None, modified));
        }
        match self.find_in_parent(path).await {
            // Without a listing it is unknown, not missing.
            Err(failure)
                if gives_no_reason(&reply)
                    && !failure.transient
                    && failure.exit != Exit::NotFound =>
            {
                Err(self.facts_refused_failure(path, &reply))
            }
            found => found,
        }
    }

    /// The entry of a path in the listing of its directory.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; `NotFound` when the listing does not have it.
    pub(super) async fn find_in_parent(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let name = file_name(path);
        let (parent, _) = split_path(path);
        // A listing by names asks for the facts of each, which must not lead here again.
        if std::mem::replace(&mut self.looks_in_parent, true) {
            let message = format!(
                "{} tells nothing about {}; name the files one by one",
                self.name(),
                display_path(path)
            );
            return Err(CopyFailure::new(Exit::Protocol, message));
        }
        // Boxed: listing by names calls stat.
        let entries = Box::pin(self.list(parent)).await;
        self.looks_in_parent = false;
        entries?
            .into_iter()
            .find(|e| e.name == name)
            .ok_or_else(|| CopyFailure {
                exit: Exit::NotFound,
                message: format!(
                    "{} has no {}: its directory does not list it; check the path",
                    self.name(),
                    display_path(path)
                ),
                transient: false,
                no_room: false,
            })
    }

    /// The failure for refused facts of a path (MLST, or SIZE of something that is no directory). `None`: the refusal
    /// tells neither that it is missing nor why it is refused, so that another question is due.
    fn stat_failure(&self, path: &[u8], reply: &Reply) -> Option<CopyFailure> {
        match refusal_cause(reply) {
            RefusalCause::Missing => Some(replies::not_found_failure(
                self.name(),
                &display_path(path),
                reply,
            )),
            RefusalCause::Unsupported
            | RefusalCause::NoFile
            | RefusalCause::Directory
            | RefusalCause::Other => None,
            _ => Some(self.facts_refused_failure(path, reply)),
        }
    }

    fn facts_refused_failure(&self, path: &[u8], reply: &Reply) -> CopyFailure {
        let operation = format!("read the facts of {}", display_path(path));
        replies::refusal_failure(self.name(), &operation, reply)
    }

    async fn modification_time(&mut self, path: &[u8]) -> Result<Option<Timestamp>, CopyFailure> {
        let features = self.features();
        // FEAT without MDTM saves a round trip per file.
        if features.feat_answered && !features.mdtm {
            return Ok(None);
        }
        let reply = self.call_about(path, Command::Mdtm).await?;
        let mut lines = reply.lines.iter().map(|line| String::from_utf8_lossy(line));
        Ok(reply
            .is_success()
            .then(|| lines.find_map(|line| Timestamp::parse(line.trim())))
            .flatten())
    }
}

/// Whether a refusal says no more than that the file is not to be had.
fn gives_no_reason(reply: &Reply) -> bool {
    reply.code == 550 && refusal_cause(reply) == RefusalCause::Other
}

fn listed_entry(
    path: &[u8],
    kind: EntryKind,
    size: Option<u64>,
    modified: Option<Timestamp>,
) -> ListedEntry {
    ListedEntry {
        size,
        modified,
        ..ListedEntry::new(&file_name(path), kind)
    }
}

/// The last component of a path; `/` for the root.
fn file_name(path: &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/')
        .rfind(|part| !part.is_empty())
        .unwrap_or(b"/")
        .to_vec()
}
