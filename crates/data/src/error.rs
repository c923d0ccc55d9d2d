//! Why moving bytes failed: which end, and what was being done to what.

use std::io;
use std::net::SocketAddr;

use crate::ascii::ShrunkTextError;
use crate::store::{Sink, Source};

/// A failed transfer.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The store could not be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The file.
        what: String,
        /// System's reason.
        source: io::Error,
    },
    /// The store could not be written.
    #[error("cannot write {what}: {source}")]
    Write {
        /// The file.
        what: String,
        /// System's reason.
        source: io::Error,
    },
    /// The source ended before the bytes that were announced.
    #[error("{what} became shorter while it was sent: ended at {at} of {expected} bytes")]
    Shrunk {
        /// The file.
        what: String,
        /// Where it ended.
        at: u64,
        /// The size that was announced.
        expected: u64,
    },
    /// No listener could be opened: no permission, or (`AddrInUse`) no free port in the range.
    #[error("cannot listen for data connections on {at}: {source}")]
    Listen {
        /// Local address; port 0 when a range was searched.
        at: SocketAddr,
        /// System's reason.
        source: io::Error,
    },
    /// The system refused a setting or a resource (congestion control, socket buffer, thread).
    #[error("cannot set up {what}: {source}")]
    Setup {
        /// The setting or resource.
        what: String,
        /// System's reason.
        source: io::Error,
    },
    /// A data connection could not be made.
    #[error("cannot open data connection to {to}: {source}")]
    Connect {
        /// Peer.
        to: SocketAddr,
        /// System's reason.
        source: io::Error,
    },
    /// No data connection came in time.
    #[error("no data connection arrived within {seconds} s")]
    NoPeer {
        /// The limit.
        seconds: u64,
    },
    /// Likewise, but from a host that may not connect one came.
    #[error(
        "no data connection arrived within {seconds} s from where it may come; one from {from} was refused"
    )]
    HostNotAllowed {
        /// The host, IPv4-mapped addresses as IPv4; the first of several.
        from: std::net::IpAddr,
        /// The limit.
        seconds: u64,
    },
    /// A data connection broke.
    #[error("data connection with {peer} broke: {source}")]
    Wire {
        /// Peer.
        peer: String,
        /// System's reason.
        source: io::Error,
    },
    /// Nothing moved for the stall time.
    #[error("data connection stalled: nothing moved for {seconds} s")]
    Stalled {
        /// The limit.
        seconds: u64,
    },
    /// The peer's blocks make no sense.
    #[error("bad extended block from {peer}: {source}")]
    Block {
        /// Peer.
        peer: String,
        /// The mistake.
        source: proto::eblock::BlockError,
    },
    /// A block outside the part of the file that this transfer is about.
    #[error("block at {offset} of {count} bytes lies outside the expected {limit} bytes")]
    OutOfRange {
        /// Wire offset.
        offset: u64,
        /// Length.
        count: u64,
        /// The bound.
        limit: u64,
    },
    /// The peer scatters blocks so finely that remembering them would take too much memory.
    #[error("blocks are scattered over more than {limit} separate pieces of the file")]
    Scattered {
        /// Most separate pieces that are remembered.
        limit: usize,
    },
    /// Stopped on request.
    #[error("transfer aborted")]
    Aborted,
    /// The thread or stream bound is reached.
    #[error("too many data streams at once (limit {limit})")]
    TooManyStreams {
        /// The limit.
        limit: usize,
    },
}

impl DataError {
    pub(crate) fn read(source: &dyn Source, error: io::Error) -> Self {
        let what = source.name();
        let inner = error.get_ref();
        match inner.and_then(|e| e.downcast_ref::<ShrunkTextError>()) {
            Some(&ShrunkTextError { at, expected }) => Self::Shrunk { what, at, expected },
            None => Self::Read {
                what,
                source: error,
            },
        }
    }

    pub(crate) fn write(sink: &dyn Sink, error: io::Error) -> Self {
        Self::Write {
            what: sink.name(),
            source: error,
        }
    }

    pub(crate) fn setup(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Setup {
            what: what.into(),
            source: error.into(),
        }
    }
}
