//! Facts of one path.

use std::ops::ControlFlow;

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::list::STREAMING_LIMITS;
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path, mlst_command};
use crate::answers::SymlinkCheckedEntry;
use crate::{CopyFailure, Exit};

/// Facts of a path by CWD, SIZE and MDTM.
enum PlainFacts {
    Known(ListedEntry),
    /// The server has neither SIZE nor MDTM, and it refused CWD with this.
    Unknown(Reply),
}

impl ClientSession {
    /// Facts of a path by MLST, or by CWD, SIZE and MDTM on plain servers. The entry's name is the
    /// last component of `path`. A symbolic link has the facts of its target, where the server
    /// shows them; [`EntryKind::SymLink`] is a dangling link.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; otherwise the refusal by its class.
    pub async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        match self.own_facts(path).await? {
            Some(link) if link.kind == EntryKind::SymLink => self.resolve_symlink(path, link).await,
            Some(entry) => Ok(entry),
            None => self.stat_without_mlst(path).await,
        }
    }

    /// Facts of a path by MLST, of a symbolic link itself where the server shows it. `None`: the server has no MLST, or does
    /// not say what the path is.
    ///
    /// # Errors
    /// As [`ClientSession::stat`].
    pub(super) async fn own_facts(
        &mut self,
        path: &[u8],
    ) -> Result<Option<ListedEntry>, CopyFailure> {
        self.check_path(path)?;
        if !self.features().mlst {
            return Ok(None);
        }
        let reply = self.control.call(&mlst_command(path)).await?;
        if reply.is_success() {
            return Ok(parse_mlst_reply(path, &reply));
        }
        match replies::is_unsupported(&reply) {
            true => Ok(None),
            false => Err(self.stat_failure(path, &reply)),
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

    /// Facts of a name that a directory lists. Where the server has neither MLST nor SIZE nor MDTM, what cannot be entered
    /// is a file.
    ///
    /// # Errors
    /// As [`ClientSession::stat`].
    pub(super) async fn facts_of_listed_name(
        &mut self,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        if self.features().mlst {
            return self.stat(path).await;
        }
        match self.plain_facts(path).await? {
            PlainFacts::Known(entry) => Ok(entry),
            PlainFacts::Unknown(refused) if refusal_cause(&refused) == RefusalCause::Denied => {
                Err(self.stat_failure(path, &refused))
            }
            PlainFacts::Unknown(_) => Ok(listed_entry(path, EntryKind::File, None, None)),
        }
    }

    /// Facts of a path without MLST.
    pub(super) async fn stat_without_mlst(
        &mut self,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        match self.plain_facts(path).await? {
            PlainFacts::Known(entry) => Ok(entry),
            PlainFacts::Unknown(_) => self.stat_by_parent_listing(path).await,
        }
    }

    /// Facts of a path by CWD, SIZE and MDTM. CWD comes first, since some servers report a SIZE for directories too.
    async fn plain_facts(&mut self, path: &[u8]) -> Result<PlainFacts, CopyFailure> {
        let Some(refused) = self.change_directory(path).await? else {
            let modified = self.modification_time(path).await?;
            let entry = listed_entry(path, EntryKind::Dir, None, modified);
            return Ok(PlainFacts::Known(entry));
        };
        let reply = self.control.call(&Command::Size(path.to_vec())).await?;
        if reply.is_success() {
            let size = reply.text().trim().parse().ok();
            let modified = self.modification_time(path).await?;
            let entry = listed_entry(path, EntryKind::File, size, modified);
            return Ok(PlainFacts::Known(entry));
        }
        if !replies::is_unsupported(&reply) {
            return Err(self.stat_failure(path, &reply));
        }
        // CWD failed above, so a reply to MDTM shows that the path is a file (RFC 3659 §3).
        let modified = self.modification_time(path).await?;
        Ok(match modified {
            Some(_) => PlainFacts::Known(listed_entry(path, EntryKind::File, None, modified)),
            None => PlainFacts::Unknown(refused),
        })
    }

    /// Last resort on servers without MLST, SIZE and MDTM: the listing of the parent directory.
    async fn stat_by_parent_listing(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let name = file_name(path);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(0) | None => &b"/"[..],
            Some(at) => &path[..at],
        };
        let mut found = None;
        let mut find = |checked: SymlinkCheckedEntry| {
            if checked.entry.name == name {
                found = Some(checked.entry);
            }
            // To the end: a session whose listing is broken off may be lost.
            ControlFlow::Continue(())
        };
        // Boxed: listing by names calls stat.
        let listed = Box::pin(self.list_entries(parent, STREAMING_LIMITS, &mut find)).await;
        match (found, listed) {
            (Some(entry), _) => Ok(entry),
            (None, Err(failure)) => Err(failure),
            (None, Ok(())) => {
                let (server, path) = (self.name(), display_path(path));
                let message = format!(
                    "{server} has no {path}: its directory does not list it; check the path"
                );
                Err(CopyFailure::new(Exit::NotFound, message))
            }
        }
    }

    /// The failure for refused facts of a path (MLST, or SIZE of something that is no directory).
    /// Without another reason, the file does not exist.
    fn stat_failure(&self, path: &[u8], reply: &Reply) -> CopyFailure {
        // 550 without a reason on MLST or SIZE most often means a missing file.
        let unexplained = reply.code == 550 && refusal_cause(reply) == RefusalCause::Other;
        if unexplained || refusal_cause(reply) == RefusalCause::Missing {
            return replies::not_found_failure(self.name(), &display_path(path), reply);
        }
        replies::refusal_failure(
            self.name(),
            &format!("read the facts of {}", display_path(path)),
            reply,
        )
    }

    /// Sends CWD; returns the refusal, if any. All other commands use absolute paths, so the
    /// current directory does not affect them.
    pub(super) async fn change_directory(
        &mut self,
        path: &[u8],
    ) -> Result<Option<Reply>, CopyFailure> {
        let reply = self.control.call(&Command::Cwd(path.to_vec())).await?;
        if reply.code == 421 {
            let operation = format!("enter {}", display_path(path));
            return Err(replies::refusal_failure(self.name(), &operation, &reply));
        }
        Ok((!reply.is_success()).then_some(reply))
    }

    /// Whether `path` is a directory that the user may enter.
    pub(super) async fn is_directory(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        Ok(self.change_directory(path).await?.is_none())
    }
}

fn parse_mlst_reply(path: &[u8], reply: &Reply) -> Option<ListedEntry> {
    // RFC 3659 §7.2: the facts are on the second line of the reply, after a blank.
    let mut inner = reply.lines.iter().skip(1);
    let mut entry = inner.find_map(|line| parse_mlsx(line))?;
    entry.name = file_name(path);
    if matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir) {
        entry.kind = EntryKind::Dir;
    }
    Some(entry)
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
