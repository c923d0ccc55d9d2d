//! Facts of one path.

use proto::command::Command;
use proto::listing::{Kind, RemoteEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::replies::{self, Cause, cause};
use super::{Session, facts_of, shown};
use crate::{Exit, Failure};

impl Session {
    /// Facts of a path: MLST, or SIZE + MDTM (+ CWD to tell a directory) on plain servers.
    /// The entry's name is the last component of `path`. A symbolic link has the facts of what it
    /// leads to, where the server lets it be seen; [`Kind::SymLink`] leads nowhere.
    ///
    /// # Errors
    /// `NotFound` when there is nothing; otherwise the refusal by its class.
    pub async fn stat(&mut self, path: &[u8]) -> Result<RemoteEntry, Failure> {
        self.check_path(path)?;
        if self.features().mlst {
            let reply = self.control.call(&facts_of(path)).await?;
            if reply.is_success() {
                let entry = self.read_mlst(path, &reply)?;
                return match entry.kind {
                    Kind::SymLink => self.followed(path, entry).await,
                    _ => Ok(entry),
                };
            }
            if !replies::is_unsupported(&reply) {
                return Err(self.missing(path, &reply));
            }
        }
        self.stat_plain(path).await
    }

    /// Questions that [`Session::stat`] will ask of `path`, to be asked ahead; none where it takes several
    /// questions.
    pub(crate) fn stat_questions(&self, path: &[u8]) -> Vec<Command> {
        match self.features().mlst {
            true => vec![facts_of(path)],
            false => Vec::new(),
        }
    }

    fn read_mlst(&self, path: &[u8], reply: &Reply) -> Result<RemoteEntry, Failure> {
        let inner = reply.lines.iter().skip(1);
        let entry = inner.filter_map(|line| parse_mlsx(line)).next();
        let mut entry = entry.ok_or_else(|| Failure {
            exit: Exit::Protocol,
            message: format!(
                "{} told nothing readable about {}: {}; report this to its administrator",
                self.name(),
                shown(path),
                replies::shown(reply)
            ),
            transient: false,
        })?;
        entry.name = last_component(path);
        if matches!(entry.kind, Kind::CurrentDir | Kind::ParentDir) {
            entry.kind = Kind::Dir;
        }
        Ok(entry)
    }

    /// A directory is what CWD enters; it is asked first, since some servers tell a SIZE for
    /// directories too.
    pub(super) async fn stat_plain(&mut self, path: &[u8]) -> Result<RemoteEntry, Failure> {
        if self.enter(path).await?.is_none() {
            return Ok(entry(path, Kind::Dir, None, self.modified(path).await?));
        }
        let reply = self.control.call(&Command::Size(path.to_vec())).await?;
        if reply.is_success() {
            let size = reply.text().trim().parse().ok();
            return Ok(entry(path, Kind::File, size, self.modified(path).await?));
        }
        if !replies::is_unsupported(&reply) {
            return Err(self.missing(path, &reply));
        }
        let modified = self.modified(path).await?;
        if modified.is_some() {
            return Ok(entry(path, Kind::File, None, modified));
        }
        self.stat_by_listing(path).await
    }

    /// The last resort of servers without MLST, SIZE and MDTM: the parent's listing.
    async fn stat_by_listing(&mut self, path: &[u8]) -> Result<RemoteEntry, Failure> {
        let name = last_component(path);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(0) | None => &b"/"[..],
            Some(at) => &path[..at],
        };
        let entries = Box::pin(self.list(parent)).await?;
        entries
            .into_iter()
            .find(|e| e.name == name)
            .ok_or_else(|| Failure {
                exit: Exit::NotFound,
                message: format!(
                    "{} has no {}: its directory does not list it; check the path",
                    self.name(),
                    shown(path)
                ),
                transient: false,
            })
    }

    /// A refusal to tell the facts of a path (MLST, or SIZE of what is no directory): without any
    /// other reason given, there is no such file.
    fn missing(&self, path: &[u8], reply: &Reply) -> Failure {
        let unexplained = reply.code == 550 && cause(reply) == Cause::Other;
        if unexplained || cause(reply) == Cause::Missing {
            return replies::missing(self.name(), &shown(path), reply);
        }
        replies::refusal(self.name(), &format!("look at {}", shown(path)), reply)
    }

    async fn modified(&mut self, path: &[u8]) -> Result<Option<Timestamp>, Failure> {
        let features = self.features();
        if features.known && !features.mdtm {
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
    pub(super) async fn enter(&mut self, path: &[u8]) -> Result<Option<Reply>, Failure> {
        let reply = self.control.call(&Command::Cwd(path.to_vec())).await?;
        if reply.code == 421 {
            let doing = format!("enter {}", shown(path));
            return Err(replies::refusal(self.name(), &doing, &reply));
        }
        Ok((!reply.is_success()).then_some(reply))
    }

    /// Whether `path` is a directory that can be entered.
    pub(super) async fn is_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        Ok(self.enter(path).await?.is_none())
    }
}

fn entry(path: &[u8], kind: Kind, size: Option<u64>, modified: Option<Timestamp>) -> RemoteEntry {
    RemoteEntry {
        size,
        modified,
        ..RemoteEntry::new(&last_component(path), kind)
    }
}

/// The name in a path; `/` for the root.
fn last_component(path: &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/')
        .rfind(|part| !part.is_empty())
        .unwrap_or(b"/")
        .to_vec()
}
