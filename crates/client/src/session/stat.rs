//! Facts of one path.

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

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
        let entry = inner.filter_map(|line| parse_mlsx(line)).next();
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
            away: false,
        })?;
        entry.name = file_name(path);
        if matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir) {
            entry.kind = EntryKind::Dir;
        }
        Ok(entry)
    }

    /// Facts of a path without MLST. CWD comes first, since some servers report a SIZE for
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
        // CWD failed above, so a reply to MDTM shows that the path is a file (RFC 3659 §3).
        let modified = self.modification_time(path).await?;
        if modified.is_some() {
            return Ok(listed_entry(path, EntryKind::File, None, modified));
        }
        self.stat_by_parent_listing(path).await
    }

    /// Last resort on servers without MLST, SIZE and MDTM: the listing of the parent directory.
    async fn stat_by_parent_listing(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        let name = file_name(path);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(0) | None => &b"/"[..],
            Some(at) => &path[..at],
        };
        // Boxed: listing by names calls stat.
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
                no_room: false,
                away: false,
            })
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

    async fn modification_time(&mut self, path: &[u8]) -> Result<Option<Timestamp>, CopyFailure> {
        let features = self.features();
        // FEAT without MDTM saves a round trip per file.
        if features.feat_answered && !features.mdtm {
            return Ok(None);
        }
        let reply = self.control.call(&Command::Mdtm(path.to_vec())).await?;
        Ok(reply
            .is_success()
            .then(|| Timestamp::parse(reply.text().trim()))
            .flatten())
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
