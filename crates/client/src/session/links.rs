//! Symbolic links: which entries of a directory are some, also where a server does not say so by
//! itself, and making them.

use std::collections::HashMap;

use proto::command::{Command, Site};
use proto::listing::{Kind, RemoteEntry};
use proto::reply::Reply;

use super::replies::{self, Cause, cause};
use super::{Session, shown};
use crate::storage::contract::Marked;
use crate::{Exit, Failure};

/// How much is asked to find links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scrutiny {
    /// Links to directories, to copy: where a directory has any.
    Directories,
    /// Everything, to delete: also links that lead nowhere and are in no listing of facts.
    Everything,
}

/// The answer to an attempt to delete a path as a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unlinked {
    /// It was a file or a link, and is gone.
    Gone,
    /// A directory of its own: the server says so.
    Directory,
    /// Refused for another reason.
    Unclear,
}

impl Session {
    /// Whether the server's facts tell links: FEAT has a starred `UNIX.slink`. Where they do not, a link
    /// to a directory may look like one (pyftpdlib).
    pub(crate) fn tells_links(&self) -> bool {
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
    /// As [`Session::list`].
    pub(crate) async fn list_marked(
        &mut self,
        path: &[u8],
        scrutiny: Scrutiny,
    ) -> Result<Vec<Marked>, Failure> {
        let entries = self.list(path).await?;
        if self.tells_links() {
            return Ok(entries.into_iter().map(Marked::told).collect());
        }
        if !self.features().mlst {
            return Ok(entries.into_iter().map(Marked::long).collect());
        }
        let all = scrutiny == Scrutiny::Everything;
        if !all && !entries.iter().any(|entry| entry.kind == Kind::Dir) {
            return Ok(entries.into_iter().map(Marked::told).collect());
        }
        let long = match self.list_long(path).await {
            Err(failure) if failure.transient => return Err(failure),
            long => long.unwrap_or_default(),
        };
        Ok(merged(entries, long, all))
    }

    /// DELE of what may be a link: it removes a link and never a directory.
    ///
    /// # Errors
    /// When the session is lost.
    pub(crate) async fn unlink(&mut self, path: &[u8]) -> Result<Unlinked, Failure> {
        self.check_path(path)?;
        let reply = self.control.call(&Command::Dele(path.to_vec())).await?;
        if reply.is_success() {
            return Ok(Unlinked::Gone);
        }
        let doing = format!("delete {}", shown(path));
        let failure = replies::refusal(self.name(), &doing, &reply);
        match cause(&reply) {
            _ if failure.transient => Err(failure),
            Cause::Directory => Ok(Unlinked::Directory),
            _ => Ok(Unlinked::Unclear),
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
    ) -> Result<bool, Failure> {
        self.check_path(target)?;
        self.check_path(link)?;
        let mut refused = self.try_link(target, absolute, link).await?;
        if let Some(reply) = &refused
            && !replies::is_unsupported(reply)
            && self.stat(link).await.is_ok_and(|entry| entry.is_link())
        {
            self.delete(link).await?;
            refused = self.try_link(target, absolute, link).await?;
        }
        match refused {
            None => Ok(true),
            Some(reply) if replies::is_unsupported(&reply) => Ok(false),
            Some(reply) => {
                let doing = format!("make the link {}", shown(link));
                Err(replies::refusal(self.name(), &doing, &reply))
            }
        }
    }

    /// The refusal, if there was one.
    async fn try_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<Option<Reply>, Failure> {
        // The command has one space between both names.
        if !target.contains(&b' ') {
            let command = Site::Symlink(target.to_vec(), link.to_vec());
            let reply = self.control.call(&Command::Site(command)).await?;
            if !replies::is_unsupported(&reply) {
                return Ok(Some(reply).filter(|reply| !reply.is_success()));
            }
        }
        let from = Command::Site(Site::SymlinkFrom(absolute.to_vec()));
        let reply = self.control.call(&from).await?;
        if !reply.is_intermediate() {
            return Ok(Some(reply));
        }
        let to = Command::Site(Site::SymlinkTo(link.to_vec()));
        let reply = self.control.call(&to).await?;
        Ok(Some(reply).filter(|reply| !reply.is_success()))
    }

    /// A link that the server shows itself: what it leads to, if it leads anywhere.
    pub(super) async fn followed(
        &mut self,
        path: &[u8],
        link: RemoteEntry,
    ) -> Result<RemoteEntry, Failure> {
        let target = link.link_target.clone().unwrap_or_default();
        match self.stat_plain(path).await {
            Ok(there) if there.kind != Kind::SymLink => Ok(RemoteEntry {
                link_target: Some(target),
                ..there
            }),
            Err(failure) if failure.transient => Err(failure),
            Ok(_) | Err(_) => Ok(link),
        }
    }
}

/// The failure for what may be a link to a directory elsewhere.
pub(crate) fn in_doubt(server: &str, path: &[u8]) -> Failure {
    Failure::new(
        Exit::Refused,
        format!(
            "{server} does not tell whether {0} is a directory or a link to one elsewhere, and refuses \
             to delete it as a link: nothing in it was deleted; look at it there and remove it by hand",
            shown(path)
        ),
    )
}

impl Marked {
    /// The facts tell links.
    fn told(entry: RemoteEntry) -> Self {
        Self {
            entry,
            certain: true,
        }
    }

    /// From LIST, where a line that begins with a mode has links under a letter of their own.
    fn long(entry: RemoteEntry) -> Self {
        let certain = entry.kind != Kind::Dir || entry.mode.is_some();
        Self { entry, certain }
    }
}

/// Entries of MLSD with what LIST says of links; `all`: and what LIST alone shows.
fn merged(entries: Vec<RemoteEntry>, long: Vec<RemoteEntry>, all: bool) -> Vec<Marked> {
    let mut long: HashMap<Vec<u8>, RemoteEntry> = long
        .into_iter()
        .map(|entry| (entry.name.clone(), entry))
        .collect();
    let mut found = Vec::with_capacity(entries.len());
    for mut entry in entries {
        let line = long.remove(&entry.name);
        let is_dir = line
            .as_ref()
            .is_some_and(|line| line.kind == Kind::Dir && line.mode.is_some());
        if let Some(line) = line.filter(|line| line.kind == Kind::SymLink) {
            entry.link_target = Some(line.link_target.unwrap_or_default());
        }
        let certain = entry.kind != Kind::Dir || entry.is_link() || is_dir;
        found.push(Marked { entry, certain });
    }
    if all {
        let mut alone: Vec<RemoteEntry> = long.into_values().collect();
        alone.sort_by(|a, b| a.name.cmp(&b.name));
        found.extend(alone.into_iter().map(Marked::long));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind, mode: Option<u32>) -> RemoteEntry {
        RemoteEntry {
            mode,
            ..RemoteEntry::new(name.as_bytes(), kind)
        }
    }

    #[test]
    fn a_link_that_facts_hide_is_seen_in_the_long_listing() {
        let facts = vec![
            entry("real", Kind::Dir, None),
            entry("out", Kind::Dir, None),
            entry("unlisted", Kind::Dir, None),
            entry("f", Kind::File, None),
        ];
        let link = RemoteEntry {
            link_target: Some(b"../keep".to_vec()),
            ..entry("out", Kind::SymLink, Some(0o777))
        };
        let long = vec![
            entry("real", Kind::Dir, Some(0o755)),
            link,
            entry("dangling", Kind::SymLink, Some(0o777)),
        ];
        let marked = merged(facts.clone(), long.clone(), true);
        let told: Vec<(&[u8], bool, bool)> = marked
            .iter()
            .map(|m| (m.entry.name.as_slice(), m.entry.is_link(), m.certain))
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
        assert_eq!(merged(facts, long, false).len(), 4);
    }

    #[test]
    fn only_a_clear_word_makes_a_directory_of_what_cannot_be_deleted() {
        let reply = |text: &str| Reply::new(550, text);
        assert_eq!(cause(&reply("/d: Is a directory")), Cause::Directory);
        assert_eq!(cause(&reply("/d: not a plain file")), Cause::Directory);
        assert_eq!(cause(&reply("Delete operation failed.")), Cause::Other);
        assert_eq!(cause(&reply("No such file or directory")), Cause::Missing);
    }
}
