//! The lines between the process that has the plan and a node: a JSON object each. They hold passwords, and are never logged.

use std::path::PathBuf;

use proto::command::Secret;
use proto::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

use crate::batch::BatchContext;
use crate::plan::{PartInPlace, PlannedFile};
use crate::small_files::BatchWork;
use crate::storage::optional::SharedUpload;
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::{Credential, Failure, FailureKind};

/// Longest line, bytes: a bundle of 10 000 files with paths of 1 KiB.
pub(super) const MAX_LINE: usize = 64 << 20;

/// The first order: how the node copies.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeBeginning {
    /// Version of the program that has the plan. Another one may speak otherwise.
    pub version: String,
    /// By which the unfinished files of the node are known.
    pub session: u32,
    /// Directory in which the command runs, if its name is a text.
    pub directory: String,
    /// The words of the command that copies.
    pub words: Vec<String>,
    /// Number of nodes: each has this share of a limit on the rate.
    pub nodes: usize,
}

/// A later order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub(super) enum NodeCommand {
    /// Move these files.
    Move(MoveOrder),
    /// The process that has the plan is there.
    Alive,
    /// Nothing is left to do.
    End,
}

/// Files to move.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MoveOrder {
    pub(super) number: u64,
    pub(super) kind: MoveKind,
    pub(super) files: Vec<OrderedFile>,
    /// The facts of the files are of an earlier run.
    pub(super) has_old_facts: bool,
    /// An earlier run may have left unfinished files.
    pub(super) continues: bool,
}

/// How files move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MoveKind {
    Single,
    Bundle,
    Series,
}

/// One file to move.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OrderedFile {
    from: String,
    to: String,
    size: Option<u64>,
    modified: Option<i64>,
    mode: Option<u32>,
    version: Option<u64>,
    /// Offset and length.
    part: Option<(u64, u64)>,
    upload: Option<SharedUpload>,
    /// A node that was given up may still hold the unfinished file.
    takes_over: bool,
}

/// A reply of a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reply")]
pub(super) enum NodeReply {
    /// It takes orders.
    Ready,
    /// It has a copy of its own.
    Declined,
    /// Files of an order are in place: position and bytes of each.
    Done {
        number: u64,
        files: Vec<(usize, u64)>,
        verified: String,
    },
    /// A destination was left alone.
    Kept {
        number: u64,
        file: usize,
    },
    /// A file failed.
    Failed {
        number: u64,
        file: usize,
        bytes: u64,
        failure: SentFailure,
    },
    /// All files of the order have ended. So many bytes moved for none of them.
    Ended {
        number: u64,
        in_vain: u64,
    },
    /// Its progress, at least every second.
    Moving(NodeProgress),
    Warning {
        text: String,
    },
    /// The last reply: what held the node's transfers back, if it had any.
    Closed {
        why: Option<String>,
    },
}

/// Progress of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeProgress {
    /// Bytes that it has moved so far.
    pub(super) bytes: u64,
    /// Open streams.
    pub(super) streams: u64,
    /// Its largest buffer, bytes.
    pub(super) buffer: u64,
    /// Memory of its sockets, bytes.
    pub(super) memory: u64,
}

/// A failure on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SentFailure {
    kind: FailureKind,
    may_retry: bool,
    text: String,
    cause: String,
}

impl SentFailure {
    pub(super) fn new(failure: &Failure, cause: String) -> Self {
        Self {
            kind: failure.kind(),
            may_retry: failure.may_retry(),
            text: failure.to_string(),
            cause,
        }
    }

    /// The failure, and its cause.
    pub(super) fn into_failure(self) -> (Failure, String) {
        let failure = Failure::new(self.kind, self.text).retried(self.may_retry);
        (failure, self.cause)
    }
}

impl OrderedFile {
    pub(super) fn new(file: &PlannedFile) -> Self {
        // The version of a file of this machine counts on this machine only.
        let version = file
            .facts
            .version
            .filter(|_| file.source.storage_id().is_server());
        Self {
            from: whole_url(&file.source),
            to: whole_url(&file.destination),
            size: file.facts.size,
            modified: file.facts.modified.map(|time| time.0),
            mode: file.facts.mode,
            version,
            part: file.part.map(|part| (part.offset, part.length)),
            upload: file.upload.clone(),
            takes_over: file.takes_over,
        }
    }

    /// The file; its entry is its position in the order.
    pub(super) fn planned(
        &self,
        ctx: &BatchContext,
        position: u32,
    ) -> Result<PlannedFile, Failure> {
        let parse = |text: &str| Location::parse_secured(text, &ctx.options.security);
        Ok(PlannedFile {
            source: parse(&self.from)?,
            destination: parse(&self.to)?,
            facts: SourceFacts {
                size: self.size,
                modified: self.modified.map(Timestamp),
                mode: self.mode,
                version: self.version,
                ..SourceFacts::default()
            },
            entry: position,
            part: self
                .part
                .map(|(offset, length)| PartInPlace { offset, length }),
            upload: self.upload.clone(),
            takes_over: self.takes_over,
        })
    }
}

/// A location with everything that another process needs to reach it.
fn whole_url(at: &Location) -> String {
    let at = match at {
        Location::Local(path) => {
            let path: PathBuf = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Location::Local(path)
        }
        other => other.clone(),
    };
    let url = at.identity_key();
    let Some(server) = at.server() else {
        return url;
    };
    let url = match &server.query {
        Some(query) => format!("{}?{query}", url.trim_end_matches("?...")),
        None => url,
    };
    match &server.credential {
        Credential::Password { user, password } if server.credential.user().is_some() => {
            let Secret(password) = password;
            let login = Location::url_name(user.as_bytes());
            let password = Location::url_name(password).replace('/', "%2F");
            let shown = format!("://{login}@");
            url.replacen(&shown, &format!("://{login}:{password}@"), 1)
        }
        _ => url,
    }
}

impl MoveKind {
    /// The kind of a piece of work, and its files.
    pub(super) fn of(work: BatchWork) -> (Self, Vec<PlannedFile>) {
        match work {
            BatchWork::File(file) => (Self::Single, vec![*file]),
            BatchWork::Bundle(files) => (Self::Bundle, files),
            BatchWork::Series(files) => (Self::Series, files),
        }
    }

    /// The work; several pieces for single files.
    pub(super) fn work(self, files: Vec<PlannedFile>) -> Vec<BatchWork> {
        match self {
            _ if files.is_empty() => Vec::new(),
            Self::Single => {
                let alone = |file| BatchWork::File(Box::new(file));
                files.into_iter().map(alone).collect()
            }
            Self::Bundle => vec![BatchWork::Bundle(files)],
            Self::Series => vec![BatchWork::Series(files)],
        }
    }
}

/// A message as a line.
pub(super) fn line_of(message: &impl Serialize) -> Vec<u8> {
    // Of these types, only a map with other keys than texts could fail.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_location_is_reached_by_its_url_with_password_and_query() {
        for url in [
            "ftp://ann:p%2Fw%40%3A@h:2100/a%20b/c",
            "https://h/x?sig=1",
            "ftp://h/plain",
            "file:///a%20b",
        ] {
            let at = Location::parse_secured(url, &Arc::default()).unwrap();
            let again = Location::parse_secured(&whole_url(&at), &Arc::default()).unwrap();
            assert_eq!(again, at, "{url}");
        }
    }

    #[test]
    fn a_failure_keeps_its_kind_and_words() {
        let failure = Failure::transient(FailureKind::ServerDiskFull, "h: full").advise("wait");
        let line = line_of(&SentFailure::new(&failure, "full".to_owned()));
        let sent: SentFailure = serde_json::from_slice(&line).unwrap();
        let (received, cause) = sent.into_failure();
        assert_eq!(received.to_string(), failure.to_string());
        assert_eq!(received.kind(), failure.kind());
        assert!(received.may_retry());
        assert_eq!(cause, "full");
    }
}
