//! Facts of one path.

use std::ops::ControlFlow;

use proto::command::Command;
use proto::listing::{EntryKind, ListedEntry, parse_mlsx};
use proto::reply::Reply;
use proto::timestamp::Timestamp;

use super::directories::CwdMeaning;
use super::listing_limits::STREAMING_LIMITS;
use super::path_names::split_path;
use super::replies::{self, RefusalCause, refusal_cause};
use super::{ClientSession, display_path, mlst_command};
use crate::answers::SymlinkCheckedEntry;
use crate::failure::{Operation, Sentence};
use crate::{Failure, FailureKind};

/// Facts of a path by CWD, SIZE and MDTM.
enum PlainFacts {
    Known(Box<ListedEntry>),
    /// None of them tells. This is the refusal of SIZE.
    Unknown(Reply),
}

impl ClientSession {
    /// Facts of a path by MLST, or by CWD, SIZE and MDTM on plain servers. The entry's name is the
    /// last component of `path`. A symbolic link has the facts of its target, where the server
    /// shows them; [`EntryKind::SymLink`] is a dangling link.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; otherwise the refusal by its class.
    pub async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
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
    pub(super) async fn own_facts(&mut self, path: &[u8]) -> Result<Option<ListedEntry>, Failure> {
        self.check_path(path)?;
        if !self.features().mlst {
            return Ok(None);
        }
        let reply = self
            .call_about(path, |path| Command::Mlst(Some(path)))
            .await?;
        if reply.is_success() {
            return Ok(parse_mlst_reply(path, &reply));
        }
        self.stat_failure(path, &reply).map_or(Ok(None), Err)
    }

    /// As [`ClientSession::stat`], of a path that is to be read. Where the server tells nothing about it, it is taken for
    /// a file of unknown size: only the attempt to read it shows whether there is one.
    ///
    /// # Errors
    /// `NotFound` when nothing is there; `Usage` for a path that FTP cannot express; a lost session.
    pub async fn stat_to_read(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        self.check_path(path)?;
        match self.stat(path).await {
            Err(failure)
                if !failure.may_retry()
                    && !failure.is_missing()
                    && !self.planner.takes_commands_ahead() =>
            {
                Ok(listed_entry(path, EntryKind::File, None, None))
            }
            told => told,
        }
    }

    /// The commands that [`ClientSession::stat`] will send for `path`, for sending them ahead.
    /// Empty where it needs several.
    pub fn stat_commands(&self, path: &[u8]) -> Vec<Command> {
        match self.features().mlst {
            true => vec![mlst_command(path)],
            false => Vec::new(),
        }
    }

    /// Facts of paths by MLST, so over the control connection, with links as such where the server shows them; many at a time
    /// where that is supported. `None`: the server has no MLST.
    ///
    /// # Errors
    /// As [`ClientSession::stat`], for the first path that has none.
    pub async fn facts_by_mlst(
        &mut self,
        paths: &[&[u8]],
    ) -> Result<Option<Vec<ListedEntry>>, Failure> {
        if !self.features().mlst {
            return Ok(None);
        }
        let mut facts = Vec::with_capacity(paths.len());
        // Each name may need a CWD before it.
        if self.habits.names_only {
            for path in paths {
                match self.own_facts(path).await? {
                    Some(entry) => facts.push(entry),
                    None => return Ok(None),
                }
            }
            return Ok(Some(facts));
        }
        let commands = paths.iter().map(|path| mlst_command(path));
        let mut replies: Vec<Reply> = Vec::with_capacity(paths.len());
        let mut note = |reply: &Reply| {
            replies.push(reply.clone());
            match reply.is_success() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let may_go_ahead = self.planner.takes_commands_ahead();
        self.call_ahead(commands, may_go_ahead, &mut note).await?;
        for (path, reply) in paths.iter().zip(&replies) {
            if replies::is_unsupported(reply) {
                return Ok(None);
            }
            let entry = parse_mlst_reply(path, reply).filter(|_| reply.is_success());
            facts.push(entry.ok_or_else(|| {
                let failure = self.stat_failure(path, reply);
                failure.unwrap_or_else(|| self.facts_refused_failure(path, reply))
            })?);
        }
        Ok(Some(facts))
    }

    /// Facts of a name that a directory lists. Where the server has neither MLST nor SIZE nor MDTM, what cannot be entered
    /// is a file.
    ///
    /// # Errors
    /// As [`ClientSession::stat`].
    pub(super) async fn facts_of_listed_name(
        &mut self,
        path: &[u8],
    ) -> Result<ListedEntry, Failure> {
        if self.features().mlst {
            return self.stat(path).await;
        }
        match self.plain_facts(path).await? {
            PlainFacts::Known(entry) => Ok(*entry),
            PlainFacts::Unknown(refused)
                if replies::is_unsupported(&refused)
                    && self.cwd_meaning == CwdMeaning::Directory =>
            {
                Ok(listed_entry(path, EntryKind::File, None, None))
            }
            PlainFacts::Unknown(refused) => Err(self.facts_refused_failure(path, &refused)),
        }
    }

    /// Facts of a path without MLST. Where neither CWD, SIZE nor MDTM decides, the listing of the parent does.
    pub(super) async fn stat_without_mlst(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        let refused = match self.plain_facts(path).await? {
            PlainFacts::Known(entry) => return Ok(*entry),
            PlainFacts::Unknown(refused) => refused,
        };
        match self.find_in_parent(path).await {
            // Without a listing it is unknown, not missing.
            Err(failure)
                if gives_no_reason(&refused) && !failure.may_retry() && !failure.is_missing() =>
            {
                Err(self.facts_refused_failure(path, &refused))
            }
            found => found,
        }
    }

    /// Facts of a path by CWD, SIZE and MDTM. CWD comes first, since some servers report a SIZE for directories too.
    async fn plain_facts(&mut self, path: &[u8]) -> Result<PlainFacts, Failure> {
        if self.is_directory(path).await? {
            let modified = self.modification_time(path).await?;
            let entry = listed_entry(path, EntryKind::Dir, None, modified);
            return Ok(PlainFacts::Known(Box::new(entry)));
        }
        let reply = self.call_about(path, Command::Size).await?;
        if reply.is_success() {
            let modified = self.modification_time(path).await?;
            let entry = listed_entry(path, EntryKind::File, reply.number(), modified);
            return Ok(PlainFacts::Known(Box::new(entry)));
        }
        if let Some(failure) = self.stat_failure(path, &reply) {
            return Err(failure);
        }
        // It is no directory, so a reply to MDTM shows that it is a file (RFC 3659 §3). Of what is not a plain file, MDTM
        // tells no kind.
        let modified = match refusal_cause(&reply) {
            RefusalCause::NoFile => None,
            _ => self.modification_time(path).await?,
        };
        Ok(match modified {
            Some(_) => {
                let entry = listed_entry(path, EntryKind::File, None, modified);
                PlainFacts::Known(Box::new(entry))
            }
            None => PlainFacts::Unknown(reply),
        })
    }

    /// The entry of a path in the listing of its directory.
    ///
    /// # Errors
    /// As [`ClientSession::list`]; `NotFound` when the listing does not have it.
    pub(super) async fn find_in_parent(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        // A listing by names asks for the facts of each, which must not lead here again.
        if self.asks_for_listed_names {
            let reason = Sentence::from(format!("{} tells nothing about ", self.name()));
            let reason = reason.name(display_path(path));
            return Err(Failure::protocol(reason).advise("name the files one by one"));
        }
        let name = file_name(path);
        let (parent, _) = split_path(path);
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
                let reason = Sentence::from(format!("{} has no ", self.name()))
                    .name(display_path(path))
                    .words(": its directory does not list it");
                Err(Failure::new(FailureKind::NotFound, reason).advise("check the path"))
            }
        }
    }

    /// The failure for refused facts of a path (MLST, or SIZE of something that is no directory). `None`: the refusal
    /// tells neither that it is missing nor why it is refused, so that another question is due.
    fn stat_failure(&self, path: &[u8], reply: &Reply) -> Option<Failure> {
        match refusal_cause(reply) {
            RefusalCause::Missing => Some(replies::not_found_failure(
                self.name(),
                &display_path(path),
                reply,
            )),
            RefusalCause::Unsupported
            | RefusalCause::NoFile
            | RefusalCause::Directory
            // A name that cannot exist is as missing as others, which its directory tells.
            | RefusalCause::NameTooLong
            | RefusalCause::Other => None,
            _ => Some(self.facts_refused_failure(path, reply)),
        }
    }

    fn facts_refused_failure(&self, path: &[u8], reply: &Reply) -> Failure {
        let operation = Operation::on_path("read the facts of", path);
        replies::refusal_failure(self.name(), &operation, reply)
    }
}

fn parse_mlst_reply(path: &[u8], reply: &Reply) -> Option<ListedEntry> {
    // RFC 3659 §7.2: the facts are on the second line of the reply, after a blank. Some servers send one line only.
    let mut lines = reply.lines.iter().skip(1).chain(reply.lines.first());
    let mut entry = lines.find_map(|line| parse_mlsx(line))?;
    entry.name = file_name(path);
    if matches!(entry.kind, EntryKind::CurrentDir | EntryKind::ParentDir) {
        entry.kind = EntryKind::Dir;
    }
    Some(entry)
}

/// Whether a refusal gives no reason.
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
