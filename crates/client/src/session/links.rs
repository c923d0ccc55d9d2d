//! Symbolic links: which entries of a directory are some, also where a server does not say so by
//! itself, and making them.

use std::collections::HashMap;

use proto::command::{Command, SiteCommand};
use proto::listing::{EntryKind, ListedEntry};
use proto::reply::Reply;

use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::answers::SymlinkCheckedEntry;
use crate::{CopyFailure, Exit};

/// How much is asked to find links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymlinkCheckScope {
    /// Links to directories, to copy: where a directory has any.
    Directories,
    /// Everything, to delete: also links that lead nowhere and are in no listing of facts.
    Everything,
}

/// The answer to an attempt to delete a path as a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnlinkResult {
    /// It was a file or a link, and is gone.
    Removed,
    /// A directory of its own: the server says so.
    IsDirectory,
    /// Refused for another reason.
    Unknown,
}

impl ClientSession {
    /// Whether the server's facts tell links: FEAT has a starred `UNIX.slink`. Where they do not, a link
    /// to a directory may look like one (pyftpdlib).
    pub(crate) fn reports_symlinks(&self) -> bool {
        let starred = |line: &String| {
            let line = line.to_ascii_lowercase();
            line.starts_with("mlst ") && line.contains("unix.slink*")
        };
        self.features().mlst && self.features().lines.iter().any(starred)
    }

    /// Entries of a directory with links marked. Where facts do not tell them, LIST is asked as well,
    /// whose lines begin with `l` for links.
    ///
    /// # Errors
    /// As [`ClientSession::list`].
    pub(crate) async fn list_with_symlinks(
        &mut self,
        path: &[u8],
        scrutiny: SymlinkCheckScope,
    ) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure> {
        let entries = self.list(path).await?;
        if self.reports_symlinks() {
            return Ok(entries
                .into_iter()
                .map(SymlinkCheckedEntry::from_mlsd)
                .collect());
        }
        if !self.features().mlst {
            return Ok(entries
                .into_iter()
                .map(SymlinkCheckedEntry::from_list)
                .collect());
        }
        let all = scrutiny == SymlinkCheckScope::Everything;
        if !all && !entries.iter().any(|entry| entry.kind == EntryKind::Dir) {
            return Ok(entries
                .into_iter()
                .map(SymlinkCheckedEntry::from_mlsd)
                .collect());
        }
        let long = match self.list_by_list_command(path).await {
            Err(failure) if failure.transient => return Err(failure),
            long => long.unwrap_or_default(),
        };
        Ok(merge_listings(entries, long, all))
    }

    /// DELE of what may be a link: it removes a link and never a directory.
    ///
    /// # Errors
    /// When the session is lost.
    pub(crate) async fn unlink(&mut self, path: &[u8]) -> Result<UnlinkResult, CopyFailure> {
        self.check_path(path)?;
        let reply = self.control.call(&Command::Dele(path.to_vec())).await?;
        if reply.is_success() {
            return Ok(UnlinkResult::Removed);
        }
        let doing = format!("delete {}", display_path(path));
        let failure = replies::refusal_failure(self.name(), &doing, &reply);
        match refusal_cause(&reply) {
            _ if failure.transient => Err(failure),
            RefusalCause::Directory => Ok(UnlinkResult::IsDirectory),
            _ => Ok(UnlinkResult::Unknown),
        }
    }

    /// Makes the symbolic link `link` to `target`, which is relative to the link's directory and leads
    /// to `absolute`: SITE SYMLINK, else SITE SYMLINKFROM and SYMLINKTO (globus). A link that is there
    /// already is replaced. `Ok(false)` when the server has neither.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for names that FTP cannot express.
    pub(crate) async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, CopyFailure> {
        self.check_path(target)?;
        self.check_path(link)?;
        let mut refused = self.try_make_link(target, absolute, link).await?;
        if let Some(reply) = &refused
            && !replies::is_unsupported(reply)
            && self.stat(link).await.is_ok_and(|entry| entry.is_symlink())
        {
            self.delete(link).await?;
            refused = self.try_make_link(target, absolute, link).await?;
        }
        match refused {
            None => Ok(true),
            Some(reply) if replies::is_unsupported(&reply) => Ok(false),
            Some(reply) => {
                let doing = format!("make the link {}", display_path(link));
                Err(replies::refusal_failure(self.name(), &doing, &reply))
            }
        }
    }

    /// The refusal, if there was one.
    async fn try_make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<Option<Reply>, CopyFailure> {
        // The command has one space between both names.
        if !target.contains(&b' ') {
            let command = SiteCommand::Symlink(target.to_vec(), link.to_vec());
            let reply = self.control.call(&Command::Site(command)).await?;
            if !replies::is_unsupported(&reply) {
                return Ok(Some(reply).filter(|reply| !reply.is_success()));
            }
        }
        let from = Command::Site(SiteCommand::SymlinkFrom(absolute.to_vec()));
        let reply = self.control.call(&from).await?;
        if !reply.is_intermediate() {
            return Ok(Some(reply));
        }
        let to = Command::Site(SiteCommand::SymlinkTo(link.to_vec()));
        let reply = self.control.call(&to).await?;
        Ok(Some(reply).filter(|reply| !reply.is_success()))
    }

    /// A link that the server shows itself: what it leads to, if it leads anywhere.
    pub(super) async fn resolve_symlink(
        &mut self,
        path: &[u8],
        link: ListedEntry,
    ) -> Result<ListedEntry, CopyFailure> {
        let target = link.link_target.clone().unwrap_or_default();
        match self.stat_without_mlst(path).await {
            Ok(there) if there.kind != EntryKind::SymLink => Ok(ListedEntry {
                link_target: Some(target),
                ..there
            }),
            Err(failure) if failure.transient => Err(failure),
            Ok(_) | Err(_) => Ok(link),
        }
    }
}

/// The failure for what may be a link to a directory elsewhere.
pub(crate) fn ambiguous_link_failure(server: &str, path: &[u8]) -> CopyFailure {
    CopyFailure::new(
        Exit::Refused,
        format!(
            "{server} does not tell whether {0} is a directory or a link to one elsewhere, and refuses \
             to delete it as a link: nothing in it was deleted; look at it there and remove it by hand",
            display_path(path)
        ),
    )
}

impl SymlinkCheckedEntry {
    /// The facts tell links.
    fn from_mlsd(entry: ListedEntry) -> Self {
        Self {
            entry,
            is_certain: true,
        }
    }

    /// From LIST, where a line that begins with a mode has links under a letter of their own.
    fn from_list(entry: ListedEntry) -> Self {
        let certain = entry.kind != EntryKind::Dir || entry.mode.is_some();
        Self {
            entry,
            is_certain: certain,
        }
    }
}

/// Entries of MLSD with what LIST says of links; `all`: and what LIST alone shows.
fn merge_listings(
    entries: Vec<ListedEntry>,
    long: Vec<ListedEntry>,
    all: bool,
) -> Vec<SymlinkCheckedEntry> {
    let mut long: HashMap<Vec<u8>, ListedEntry> = long
        .into_iter()
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let mut found = Vec::with_capacity(entries.len());
    for mut entry in entries {
        let line = long.remove(&entry.name);
        let is_dir = line
            .as_ref()
            .is_some_and(|line| line.kind == EntryKind::Dir && line.mode.is_some());
        if let Some(line) = line.filter(|line| line.kind == EntryKind::SymLink) {
            entry.link_target = Some(line.link_target.unwrap_or_default());
        }
        let certain = entry.kind != EntryKind::Dir || entry.is_symlink() || is_dir;
        found.push(SymlinkCheckedEntry {
            entry,
            is_certain: certain,
        });
    }
    if all {
        let mut alone: Vec<ListedEntry> = long.into_values().collect();
        alone.sort_by(|a, b| a.name.cmp(&b.name));
        found.extend(alone.into_iter().map(SymlinkCheckedEntry::from_list));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind, mode: Option<u32>) -> ListedEntry {
        ListedEntry {
            mode,
            ..ListedEntry::new(name.as_bytes(), kind)
        }
    }

    #[test]
    fn a_link_that_facts_hide_is_seen_in_the_long_listing() {
        let facts = vec![
            entry("real", EntryKind::Dir, None),
            entry("out", EntryKind::Dir, None),
            entry("unlisted", EntryKind::Dir, None),
            entry("f", EntryKind::File, None),
        ];
        let link = ListedEntry {
            link_target: Some(b"../keep".to_vec()),
            ..entry("out", EntryKind::SymLink, Some(0o777))
        };
        let long = vec![
            entry("real", EntryKind::Dir, Some(0o755)),
            link,
            entry("dangling", EntryKind::SymLink, Some(0o777)),
        ];
        let marked = merge_listings(facts.clone(), long.clone(), true);
        let told: Vec<(&[u8], bool, bool)> = marked
            .iter()
            .map(|m| (m.entry.name.as_slice(), m.entry.is_symlink(), m.is_certain))
            .collect();
        assert_eq!(
            told,
            [
                (&b"real"[..], false, true),
                (b"out", true, true),
                (b"unlisted", false, false),
                (b"f", false, true),
                (b"dangling", true, true),
            ]
        );
        assert_eq!(merge_listings(facts, long, false).len(), 4);
    }

    #[test]
    fn only_a_clear_word_makes_a_directory_of_what_cannot_be_deleted() {
        let reply = |text: &str| Reply::new(550, text);
        assert_eq!(
            refusal_cause(&reply("/d: Is a directory")),
            RefusalCause::Directory
        );
        assert_eq!(
            refusal_cause(&reply("/d: not a plain file")),
            RefusalCause::Directory
        );
        assert_eq!(
            refusal_cause(&reply("Delete operation failed.")),
            RefusalCause::Other
        );
        assert_eq!(
            refusal_cause(&reply("No such file or directory")),
            RefusalCause::Missing
        );
    }
}
