//! Facts of one path.

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path, mlst_command};
use crate::{CopyFailure, Exit};

impl ClientSession {
    /// Facts of a path: MLST, or SIZE + MDTM (+ CWD to tell a directory) on plain servers.
    /// The entry's name is the last component of `path`. A symbolic link has the facts of what it
    /// leads to, where the server lets it be seen; [`EntryKind::SymLink`] leads nowhere.
    ///
    /// # Errors
    /// `NotFound` when there is nothing; otherwise the refusal by its class.
    pub async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.check_path(path)?;
        if self.features().mlst {
            let reply = self.control.call(&mlst_command(path)).await?;
            if reply.is_success() {
                let entry = self.parse_mlst_reply(path, &reply)?;
                return match entry.kind {
                    EntryKind::SymLink => self.resolve_symlink(path, entry).await,
                    _ => Ok(entry),
                };
            }
            if !replies::is_unsupported(&reply) {
                return Err(self.stat_failure(path, &reply));
            }
        }
        self.stat_without_mlst(path).await
    }

    /// Questions that [`ClientSession::stat`] will ask of `path`, to be asked ahead; none where it takes several
    /// questions.
    pub(crate) fn stat_commands(&self, path: &[u8]) -> Vec<Command> {
        match self.features().mlst {
            true => vec![mlst_command(path)],
            false => Vec::new(),
        }
    }

    fn parse_mlst_reply(&self, path: &[u8], reply: &Reply) -> Result<ListedEntry, CopyFailure> {
        let inner = reply.lines.iter().skip(1);
        let entry = inner.filter_map(|line| parse_mlsx(line)).next();
        let mut entry = entry.ok_or_else(|| CopyFailure {
            exit: Exit::Protocol,
            message: format!(
                "{} told nothing readable about {}: {}; report this to its administrator",
                self.name(),
                display_path(path),
                replies::display_reply(reply)
            ),
            transient: false,
        })?;
        entry.name = file_name(path);
        if matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir) {
            entry.kind = EntryKind::Dir;
        }
        Ok(entry)
    }

    /// A directory is what CWD enters; it is asked first, since some servers tell a SIZE for
    /// directories too.
    pub(super) async fn stat_without_mlst(
        &mut self,
        path: &[u8],
    ) -> Result<ListedEntry, CopyFailure> {
        if self.change_directory(path).await?.is_none() {
            return Ok(listed_entry(
                path,
                EntryKind::Dir,
                None,
                self.modification_time(path).await?,
            ));
        }
        let reply = self.control.call(&Command::Size(path.to_vec())).await?;
        if reply.is_success() {
            let size = reply.text().trim().parse().ok();
            return Ok(listed_entry(
                path,
                EntryKind::File,
                size,
                self.modification_time(path).await?,
            ));
        }
        if !replies::is_unsupported(&reply) {
            return Err(self.stat_failure(path, &reply));
        }
        let modified = self.modification_time(path).await?;
        if modified.is_some() {
            return Ok(listed_entry(path, EntryKind::File, None, modified));
        }
        self.stat_by_parent_listing(path).await
    }

    /// The last resort of servers without MLST, SIZE and MDTM: the parent's listing.
    async fn stat_by_parent_listing(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let name = file_name(path);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(0) | None => &b"/"[..],
            Some(at) => &path[..at],
        };
        let entries = Box::pin(self.list(parent)).await?;
        entries
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
            })
    }

    /// A refusal to tell the facts of a path (MLST, or SIZE of what is no directory): without any
    /// other reason given, there is no such file.
    fn stat_failure(&self, path: &[u8], reply: &Reply) -> CopyFailure {
        let unexplained = reply.code == 550 && refusal_cause(reply) == RefusalCause::Other;
        if unexplained || refusal_cause(reply) == RefusalCause::Missing {
            return replies::not_found_failure(self.name(), &display_path(path), reply);
        }
        replies::refusal_failure(
            self.name(),
            &format!("look at {}", display_path(path)),
            reply,
        )
    }

    async fn modification_time(&mut self, path: &[u8]) -> Result<Option<Timestamp>, CopyFailure> {
        let features = self.features();
        if features.feat_answered && !features.mdtm {
            return Ok(None);
        }
        let reply = self.control.call(&Command::Mdtm(path.to_vec())).await?;
        Ok(reply
            .is_success()
            .then(|| Timestamp::parse(reply.text().trim()))
            .flatten())
    }

    /// CWD; the refusal, if it was one. All other commands name absolute paths, so that the
    /// current directory does not matter to them.
    pub(super) async fn change_directory(
        &mut self,
        path: &[u8],
    ) -> Result<Option<Reply>, CopyFailure> {
        let reply = self.control.call(&Command::Cwd(path.to_vec())).await?;
        if reply.code == 421 {
            let doing = format!("enter {}", display_path(path));
            return Err(replies::refusal_failure(self.name(), &doing, &reply));
        }
        Ok((!reply.is_success()).then_some(reply))
    }

    /// Whether `path` is a directory that can be entered.
    pub(super) async fn is_directory(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        Ok(self.change_directory(path).await?.is_none())
    }
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

/// The name in a path; `/` for the root.
fn file_name(path: &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/')
        .rfind(|part| !part.is_empty())
        .unwrap_or(b"/")
        .to_vec()
}
