//! Symbolic links: finding them in listings, also on servers that hide them, and making them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use proto::command::{Command, SiteCommand};
use proto::listing::{EntryKind, ListedEntry};
use proto::reply::Reply;

use super::listing_limits::{IN_MEMORY_LIMITS, STREAMING_LIMITS};
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path};
use crate::Failure;
use crate::answers::{ListingVisitor, SymlinkCheckScope, SymlinkCheckedEntry};
use crate::failure::{Operation, Sentence};

/// Result of an attempt to delete a path as a file.
#[derive(Debug, PartialEq, Eq)]
pub enum UnlinkResult {
    /// It was a file or a link, and is deleted.
    Removed,
    /// The server says that it is a directory.
    IsDirectory,
    /// Refused for another reason.
    Unknown,
}

impl ClientSession {
    /// Whether MLST facts identify links: FEAT lists a starred `UNIX.slink`. Elsewhere a link to a
    /// directory may look like a directory (pyftpdlib).
    pub fn reports_symlinks(&self) -> bool {
        let starred = |line: &String| {
            let line = line.to_ascii_lowercase();
            line.starts_with("mlst ") && line.contains("unix.slink*")
        };
        self.features().mlst && self.features().lines.iter().any(starred)
    }

    /// Visits the entries of a directory, with links identified as `scope` asks. Where MLSD facts do not identify them, LIST
    /// is sent as well: its rows for links begin with `l`.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; entries may have been visited before.
    pub async fn list_checked(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        // A server without MLST is listed by LIST, which shows links.
        let one_listing_suffices = self.reports_symlinks() || !self.features().mlst;
        if one_listing_suffices || scope == SymlinkCheckScope::Nothing {
            return self.list_entries(path, STREAMING_LIMITS, visit).await;
        }
        let mut entries = Vec::new();
        let mut collect = |checked| {
            entries.push(checked);
            ControlFlow::Continue(())
        };
        let listed = self
            .list_entries(path, IN_MEMORY_LIMITS, &mut collect)
            .await;
        if listed.as_ref().is_err_and(Failure::may_retry) {
            return listed;
        }
        let check_all = scope == SymlinkCheckScope::Everything;
        // Without directories no link can lead out of the tree, which saves the LIST.
        if check_all || entries.iter().any(|checked| !checked.is_certain) {
            let list_entries = match self.list_by_list_command(path).await {
                // LIST may be refused although MLSD works; then directories stay uncertain.
                Err(failure) if failure.may_retry() => return Err(failure),
                list_entries => list_entries.unwrap_or_default(),
            };
            entries = merge_listings(entries, list_entries, check_all);
        }
        let _ = entries.into_iter().try_for_each(visit);
        listed
    }

    /// All entries of a directory with links identified.
    ///
    /// # Errors
    /// As [`ClientSession::list`].
    pub async fn list_with_symlinks(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
    ) -> Result<Vec<SymlinkCheckedEntry>, Failure> {
        let mut entries = Vec::new();
        let mut collect = |checked| {
            entries.push(checked);
            ControlFlow::Continue(())
        };
        self.list_checked(path, scope, &mut collect).await?;
        Ok(entries)
    }

    /// Sends DELE for a path that may be a link. DELE removes a link and never a directory.
    ///
    /// # Errors
    /// When the session is lost.
    pub async fn unlink(&mut self, path: &[u8]) -> Result<UnlinkResult, Failure> {
        self.check_path(path)?;
        let reply = self.call_about(path, Command::Dele).await?;
        if reply.is_success() {
            return Ok(UnlinkResult::Removed);
        }
        let operation = Operation::on_path("delete", path);
        let failure = replies::refusal_failure(self.name(), &operation, &reply);
        match refusal_cause(&reply) {
            _ if failure.may_retry() => Err(failure),
            RefusalCause::Directory => Ok(UnlinkResult::IsDirectory),
            _ => Ok(UnlinkResult::Unknown),
        }
    }

    /// Makes the symbolic link `link` to `target`. `target` is relative to the link's directory;
    /// `absolute` is the same path in full. Uses SITE SYMLINK, else SITE SYMLINKFROM and SYMLINKTO
    /// (globus). An existing link is replaced. `Ok(false)` when the server has neither.
    ///
    /// # Errors
    /// The refusal by its class; `Usage` for names that FTP cannot express.
    pub async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure> {
        self.check_path(target)?;
        self.check_path(link)?;
        let mut refusal = self.try_make_link(target, absolute, link).await?;
        // DELE only what is a link: a file or directory of that name stays.
        if let Some(reply) = &refusal
            && !replies::is_unsupported(reply)
            && let Ok(Some(found)) = self.own_facts(link).await
            && found.is_symlink()
        {
            self.delete(link).await?;
            refusal = self.try_make_link(target, absolute, link).await?;
        }
        match refusal {
            None => Ok(true),
            Some(reply) if replies::is_unsupported(&reply) => Ok(false),
            Some(reply) => {
                let operation = Operation::on_path("make the link", link);
                Err(replies::refusal_failure(self.name(), &operation, &reply))
            }
        }
    }

    /// Tries both commands; returns the refusal, if any.
    async fn try_make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<Option<Reply>, Failure> {
        // A space separates both names in SITE SYMLINK, so the target must not contain one.
        if !target.contains(&b' ') {
            let command = SiteCommand::Symlink([target, b" ", link].concat());
            let reply = self.control.call(&Command::Site(command)).await?;
            if !replies::is_unsupported(&reply) {
                return Ok(Some(reply).filter(|reply| !reply.is_success()));
            }
        }
        // globus takes the target as a path of the server, not relative to the link.
        let from = Command::Site(SiteCommand::SymlinkFrom(absolute.to_vec()));
        let reply = self.control.call(&from).await?;
        if !reply.is_intermediate() {
            return Ok(Some(reply));
        }
        let to = Command::Site(SiteCommand::SymlinkTo(link.to_vec()));
        let reply = self.control.call(&to).await?;
        Ok(Some(reply).filter(|reply| !reply.is_success()))
    }

    /// Resolves a link that the server shows as a link: the facts of its target, or the link itself
    /// if it is dangling.
    ///
    /// # Errors
    /// The target cannot be examined.
    pub(super) async fn resolve_symlink(
        &mut self,
        path: &[u8],
        link: ListedEntry,
    ) -> Result<ListedEntry, Failure> {
        let target = link.link_target.clone().unwrap_or_default();
        // SymLink here means that the server still shows the link itself.
        match self.stat_without_mlst(path).await {
            Ok(target_facts) if target_facts.kind != EntryKind::SymLink => Ok(ListedEntry {
                link_target: Some(target),
                ..target_facts
            }),
            Err(failure) if !failure.is_missing() => Err(failure),
            Ok(_) | Err(_) => Ok(link),
        }
    }
}

/// The failure for an entry that may be a link to a directory elsewhere.
pub fn ambiguous_link_failure(server: &str, path: &[u8]) -> Failure {
    let reason = Sentence::from(format!("{server} does not show whether "))
        .name(display_path(path))
        .words(
            " is a directory or a link to one elsewhere, and refuses to delete it as a link: nothing in it was \
             deleted",
        );
    Failure::refused(reason).advise("check it on the server and remove it there")
}

/// Entries of MLSD, with links as LIST shows them; with `check_all`, also entries that only LIST
/// shows.
fn merge_listings(
    entries: Vec<SymlinkCheckedEntry>,
    list_entries: Vec<ListedEntry>,
    check_all: bool,
) -> Vec<SymlinkCheckedEntry> {
    let mut list_entries: HashMap<Vec<u8>, ListedEntry> = list_entries
        .into_iter()
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let mut found = Vec::with_capacity(entries.len());
    for checked in entries {
        let (mut entry, is_certain) = (checked.entry, checked.is_certain);
        let list_entry = list_entries.remove(&entry.name);
        let is_dir = list_entry.as_ref().is_some_and(|list_entry| {
            list_entry.kind == EntryKind::Dir && list_entry.mode.is_some()
        });
        if let Some(list_entry) =
            list_entry.filter(|list_entry| list_entry.kind == EntryKind::SymLink)
        {
            entry.link_target = Some(list_entry.link_target.unwrap_or_default());
        }
        let is_certain = is_certain || entry.is_symlink() || is_dir;
        found.push(SymlinkCheckedEntry { entry, is_certain });
    }
    if check_all {
        // The order of a HashMap is random; listings are compared in tests and by users.
        let mut list_only: Vec<ListedEntry> = list_entries.into_values().collect();
        list_only.sort_by(|a, b| a.name.cmp(&b.name));
        found.extend(list_only.into_iter().map(SymlinkCheckedEntry::from_row));
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
    fn links_hidden_by_mlsd_are_found_by_list() {
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
        let list_entries = vec![
            entry("real", EntryKind::Dir, Some(0o755)),
            link,
            entry("dangling", EntryKind::SymLink, Some(0o777)),
        ];
        let facts = || {
            let facts = facts.clone().into_iter();
            let checked = facts.map(|entry| SymlinkCheckedEntry {
                is_certain: entry.kind != EntryKind::Dir,
                entry,
            });
            checked.collect()
        };
        let merged = merge_listings(facts(), list_entries.clone(), true);
        let checked: Vec<(&[u8], bool, bool)> = merged
            .iter()
            .map(|m| (m.entry.name.as_slice(), m.entry.is_symlink(), m.is_certain))
            .collect();
        assert_eq!(
            checked,
            [
                (&b"real"[..], false, true),
                (b"out", true, true),
                (b"unlisted", false, false),
                (b"f", false, true),
                (b"dangling", true, true),
            ]
        );
        assert_eq!(merge_listings(facts(), list_entries, false).len(), 4);
    }
}
