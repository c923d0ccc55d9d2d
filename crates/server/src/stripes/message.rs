//! The messages between a front end and a data node: a JSON object a line.
//!
//! ```text
//! front end                      data node
//!                                Hello
//! Listen                         Listening
//! Run                            Opened, Progress ..., WantsRanges, Stored
//! Begin (stores)
//! Alive after each Progress
//! Ranges                         ..., Ended
//! TakeBack                       GivenBack
//! Stop                           Ended
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use data::channel::AllowedPeers;
use proto::ranges::{ByteRange, RangeSet};
use proto::server::{FileError, FileErrorKind, TransferError};
use proto::sizing::{BufferSizing, SocketBuffers};
use serde::{Deserialize, Serialize};

use super::NodeLoad;
use crate::secure::NodeSecurity;

/// Version of these messages. Both ends are of one installation, so another one is refused.
pub(crate) const VERSION: u32 = 4;
/// For so long after a report that the front end has answered a node may write. A front end that has lost a node waits for this time since its last
/// answer, and then nobody but itself changes the file.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Most ranges in one message; what exceeds it comes with a later one.
const MAX_RANGES_SENT: usize = 10_000;

/// Messages of a front end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FrontMessage {
    /// Listen for data connections. Replaces an earlier listener.
    Listen(NodeListen),
    /// Carry out a part of a transfer.
    Run(Box<NodeOrder>),
    /// Send these ranges, too; `last`: there will be no others.
    Ranges { ranges: WireRanges, last: bool },
    /// Do not send up to so many bytes of the ranges that were ordered and not begun. Answers: [`NodeMessage::GivenBack`].
    TakeBack { bytes: u64 },
    /// Every node has opened the file: store what arrives. Answers [`NodeMessage::Opened`].
    Begin(AliveTerms),
    /// The front end goes on with the transfer. Answers a report.
    Alive(AliveTerms),
    /// Stop the running part.
    Stop,
}

/// Messages of a data node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeMessage {
    /// The node serves, and does so much now.
    Hello {
        version: u32,
        #[serde(default)]
        load: NodeLoad,
    },
    /// The address of the listener.
    Listening(Result<SocketAddr, NodeFailure>),
    /// The file is open since `at`; `reused`: data connections of an earlier transfer are used again.
    Opened { reused: bool, at: Duration },
    /// Progress of the running part.
    Progress(PartProgress),
    /// About so many bytes more could be sent soon.
    WantsRanges { bytes: u64 },
    /// These ranges were ordered and will not be sent.
    GivenBack { ranges: WireRanges },
    /// The store has these parts of a shared object ([`JoinedSink::finish`](data::served::JoinedSink::finish)).
    Stored { parts: Vec<String> },
    /// The part has ended.
    Ended(PartReport),
}

/// The rights of a running part from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AliveTerms {
    /// When the report was made that this answers.
    pub(crate) at: Duration,
    /// The node may write up to this file offset: a quota has room for it.
    pub(crate) paid_to: u64,
    /// Its share of a limit of the rate, bytes per second; `None`: there is no limit.
    pub(crate) rate: Option<u64>,
}

/// A report of a running part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PartProgress {
    /// When it was made, by a clock of the node that the front end does not interpret.
    pub(crate) at: Duration,
    /// Bytes moved so far.
    pub(crate) bytes: u64,
    /// Ranges that have become safe since the last report.
    pub(crate) safe: WireRanges,
    /// For how long the node's file system has not answered.
    pub(crate) store_wait: Duration,
    /// The node waits until it may write up to this file offset.
    pub(crate) wants_to: u64,
    /// The load of the node, this part included.
    pub(crate) load: NodeLoad,
}

/// A listener for data connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeListen {
    /// The hosts that may connect.
    pub(crate) accept: NodeAccept,
    /// Buffers of the connections.
    pub(crate) buffers: WireBuffers,
}

/// [`AllowedPeers`] in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeAccept {
    Only(IpAddr),
    Either(IpAddr, IpAddr),
    Among(Vec<IpAddr>),
    Any,
}

impl From<AllowedPeers> for NodeAccept {
    fn from(peers: AllowedPeers) -> Self {
        match peers {
            AllowedPeers::Only(one) => Self::Only(one),
            AllowedPeers::Either(one, other) => Self::Either(one, other),
            AllowedPeers::Among(hosts) => Self::Among(hosts.to_vec()),
            AllowedPeers::Any => Self::Any,
        }
    }
}

impl From<NodeAccept> for AllowedPeers {
    fn from(accept: NodeAccept) -> Self {
        match accept {
            NodeAccept::Only(one) => Self::Only(one),
            NodeAccept::Either(one, other) => Self::Either(one, other),
            NodeAccept::Among(hosts) => Self::Among(hosts.into()),
            NodeAccept::Any => Self::Any,
        }
    }
}

/// [`SocketBuffers`] in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireBuffers {
    send: Option<u64>,
    receive: Option<u64>,
    sizing: String,
}

impl From<SocketBuffers> for WireBuffers {
    fn from(buffers: SocketBuffers) -> Self {
        Self {
            send: buffers.send,
            receive: buffers.receive,
            sizing: buffers.sizing.name().to_owned(),
        }
    }
}

impl From<WireBuffers> for SocketBuffers {
    fn from(buffers: WireBuffers) -> Self {
        Self {
            send: buffers.send,
            receive: buffers.receive,
            sizing: BufferSizing::parse(&buffers.sizing).unwrap_or_default(),
        }
    }
}

/// A part of a transfer. A node opens the file itself, below its own root, and follows its own settings in all that the
/// order does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeOrder {
    /// The session's root, below that of the server.
    pub(crate) root: Vec<u8>,
    /// The file, below the session's root.
    pub(crate) path: Vec<u8>,
    /// The file that the front end has found there.
    pub(crate) file: NodeFile,
    /// For whom, as the front end names its clients: those of one name share what a store of objects has for one.
    pub(crate) client: String,
    /// The bytes.
    pub(crate) part: NodePart,
    /// First, fewest and most streams.
    pub(crate) streams: [u32; 3],
    /// Buffers of the data connections.
    pub(crate) buffers: WireBuffers,
    /// Congestion control of sent data.
    pub(crate) congestion: String,
    /// First share of a limit of the rate, bytes per second.
    pub(crate) rate: Option<u64>,
    /// Protection of the data connections; `None`: they are in the clear.
    pub(crate) security: Option<NodeSecurity>,
}

/// A file that a front end and its nodes open each for itself. A node that finds another one at the path does not see the same
/// store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeFile {
    /// The inode number of a file.
    Inode(u64),
    /// The version of an object.
    Version(String),
    /// An object that the front end has begun ([`ServedSink::share`](data::served::ServedSink::share)).
    Upload(String),
}

/// The bytes of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodePart {
    /// Connect to `target` and send `ranges`; further ones follow unless `last`.
    Send {
        target: SocketAddr,
        ranges: WireRanges,
        last: bool,
        /// Subtracted from file offsets to get wire offsets.
        origin: u64,
    },
    /// Receive over the listener.
    Receive {
        /// Added to wire offsets to get file offsets.
        origin: u64,
        /// A block beyond this wire offset is refused.
        limit: Option<u64>,
    },
}

/// Ranges in a message: start and end, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireRanges(Vec<(u64, u64)>);

impl WireRanges {
    /// As many of these ranges as a message may have, and the set without them.
    pub(crate) fn take_from(ranges: &mut RangeSet) -> Self {
        let taken: Vec<ByteRange> = ranges.iter().take(MAX_RANGES_SENT).collect();
        for range in &taken {
            ranges.remove(range.start, range.end);
        }
        Self(taken.iter().map(|range| (range.start, range.end)).collect())
    }

    /// The ranges.
    pub(crate) fn to_set(&self) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in &self.0 {
            set.insert(*start, *end);
        }
        set
    }
}

/// How a part has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartReport {
    /// Why it failed.
    pub(crate) failure: Option<NodeFailure>,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Streams, all that there were, and those at the end.
    pub(crate) streams: u64,
    pub(crate) final_streams: u64,
    /// Retransmitted segments.
    pub(crate) retransmits: u64,
    /// Shortest round trip.
    pub(crate) min_rtt: Duration,
    /// Congestion control, if this end sent.
    pub(crate) congestion: Option<String>,
    /// The load of the node without this part.
    pub(crate) load: NodeLoad,
    /// There is no report: the front end has lost the node.
    #[serde(skip)]
    pub(crate) is_lost: bool,
}

impl PartReport {
    /// In place of the report of a node that is lost.
    pub(crate) fn lost() -> Self {
        Self {
            is_lost: true,
            ..Self::default()
        }
    }
}

/// The reason of a failure at a node: its class and its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeFailure {
    class: FailureClass,
    text: String,
    errno: Option<i32>,
}

/// Classes of failures that have replies of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FailureClass {
    NotFound,
    Denied,
    NoSpace,
    Busy,
    Unsupported,
    File,
    NoConnection,
    Broken,
    Aborted,
}

impl NodeFailure {
    /// A failure of the file.
    pub(crate) fn file(error: FileError) -> Self {
        let class = match error.kind {
            FileErrorKind::NotFound => FailureClass::NotFound,
            FileErrorKind::Denied => FailureClass::Denied,
            FileErrorKind::NoSpace => FailureClass::NoSpace,
            FileErrorKind::Busy => FailureClass::Busy,
            FileErrorKind::Unsupported => FailureClass::Unsupported,
            FileErrorKind::Aborted => FailureClass::Aborted,
            _ => FailureClass::File,
        };
        Self {
            class,
            text: error.text,
            errno: error.errno,
        }
    }

    /// A failure that no class describes.
    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::file(FileError::new(FileErrorKind::Other, text))
    }

    /// The text, with the name of the node before it.
    pub(crate) fn at(self, node: &str) -> Self {
        Self {
            text: format!("data node {node}: {}", self.text),
            ..self
        }
    }

    /// The failure of a listener.
    pub(crate) fn into_file_error(self) -> FileError {
        let kind = match self.class {
            FailureClass::NotFound => FileErrorKind::NotFound,
            FailureClass::Denied => FileErrorKind::Denied,
            FailureClass::NoSpace => FileErrorKind::NoSpace,
            FailureClass::Busy => FileErrorKind::Busy,
            FailureClass::Unsupported => FileErrorKind::Unsupported,
            FailureClass::Aborted => FileErrorKind::Aborted,
            FailureClass::File | FailureClass::NoConnection | FailureClass::Broken => {
                FileErrorKind::Other
            }
        };
        FileError {
            kind,
            errno: self.errno,
            text: self.text,
        }
    }
}

impl From<TransferError> for NodeFailure {
    fn from(error: TransferError) -> Self {
        let of = |class, text| Self {
            class,
            text,
            errno: None,
        };
        match error {
            TransferError::File(error) => Self::file(error),
            TransferError::NoConnection(text) => of(FailureClass::NoConnection, text),
            TransferError::Broken(text) => of(FailureClass::Broken, text),
            TransferError::Aborted => of(FailureClass::Aborted, "it was stopped".to_owned()),
            // No node takes over a store or compares a checksum.
            TransferError::Superseded | TransferError::Checksum { .. } => {
                of(FailureClass::Broken, "the store failed".to_owned())
            }
        }
    }
}

impl From<NodeFailure> for TransferError {
    fn from(failure: NodeFailure) -> Self {
        match failure.class {
            FailureClass::NoConnection => Self::NoConnection(failure.text),
            FailureClass::Broken => Self::Broken(failure.text),
            FailureClass::Aborted => Self::Aborted,
            _ => Self::File(failure.into_file_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sent_in_bounded_messages() {
        let mut ranges = RangeSet::new();
        for n in 0..25_000 {
            ranges.insert(n * 10, n * 10 + 5);
        }
        let (all, mut arrived, mut messages) = (ranges.clone(), RangeSet::new(), 0);
        while !ranges.is_empty() {
            arrived.extend(&WireRanges::take_from(&mut ranges).to_set());
            messages += 1;
        }
        assert_eq!((arrived, messages), (all, 3));
    }

    #[test]
    fn a_failure_arrives_as_what_it_was() {
        let errors = [
            TransferError::File(FileError {
                kind: FileErrorKind::NoSpace,
                errno: Some(28),
                text: "full".to_owned(),
            }),
            TransferError::NoConnection("refused".to_owned()),
            TransferError::Broken("cut".to_owned()),
            TransferError::Aborted,
        ];
        for error in errors {
            let text = serde_json::to_string(&NodeFailure::from(error.clone())).unwrap();
            let arrived: NodeFailure = serde_json::from_str(&text).unwrap();
            assert_eq!(TransferError::from(arrived), error);
        }
    }
}
