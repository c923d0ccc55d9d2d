//! Errors of a data transfer: which end failed, and at which operation.

use std::io;
use std::net::SocketAddr;

use crate::ascii::ShrunkTextError;
use crate::security::ProtectionError;
pub use crate::security::ProtectionFault;
use crate::store::{Sink, Source};
use crate::tunnel::TunnelFailure;

/// A failed transfer.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The store could not be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The file.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The store could not be written.
    #[error("cannot write {what}: {source}")]
    Write {
        /// The file.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The source ended before its announced length.
    #[error("{what} shrank while it was sent: it ended at {at} of {expected} bytes")]
    Shrunk {
        /// The file.
        what: String,
        /// Offset at which it ended, bytes.
        at: u64,
        /// The announced length, bytes.
        expected: u64,
    },
    /// No listener could be opened: permission denied, or (`AddrInUse`) no free port in the range.
    #[error("cannot listen for data connections on {at}: {source}")]
    Listen {
        /// Local address; port 0 when a range was searched.
        at: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused a setting or a resource (congestion control, socket buffer, thread).
    #[error("cannot set up {what}: {source}")]
    Setup {
        /// The setting or resource.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A data connection could not be established.
    #[error("cannot open data connection to {to}: {source}")]
    Connect {
        /// The peer.
        to: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A proxy opens no data connection.
    #[error("the proxy {proxy} opens no connection to {to}: {source}")]
    Tunnel {
        /// The proxy, without its password.
        proxy: String,
        /// The peer, as the proxy was asked for it.
        to: String,
        /// The reason.
        source: TunnelFailure,
    },
    /// A program carries no data connection.
    #[error("{program} carries no connection to {to}: {source}")]
    Carrier {
        /// The program and its host.
        program: String,
        /// The peer, as the program was asked for it.
        to: String,
        /// The reason.
        source: TunnelFailure,
    },
    /// No data connection arrived in time.
    #[error("no data connection arrived within {seconds} s")]
    NoPeer {
        /// The time limit.
        seconds: u64,
    },
    /// No data connection arrived in time, except from a host that is not allowed.
    #[error(
        "no data connection arrived within {seconds} s from an allowed host; one from {from} was refused"
    )]
    HostNotAllowed {
        /// The first such host; IPv4-mapped addresses as IPv4.
        from: std::net::IpAddr,
        /// The time limit.
        seconds: u64,
    },
    /// A data connection broke.
    #[error("data connection with {peer} broke: {source}")]
    Wire {
        /// The peer.
        peer: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A check of the protection of a data connection failed: its handshake, the peer's certificate, the
    /// resumption of the session, a TLS record, or an end without close_notify.
    #[error("data connection with {peer} failed its protection: {reason}")]
    Security {
        /// The peer.
        peer: String,
        /// The check that failed, with the value; it names no secret.
        reason: String,
        /// The kind of the check.
        fault: ProtectionFault,
    },
    /// Nothing moved for the stall time.
    #[error("data connection stalled: nothing moved for {seconds} s")]
    Stalled {
        /// The time limit.
        seconds: u64,
    },
    /// The peer sent an invalid extended block.
    #[error("bad extended block from {peer}: {source}")]
    Block {
        /// The peer.
        peer: String,
        /// The defect.
        source: proto::eblock::BlockError,
    },
    /// A block outside the part of the file that this transfer covers.
    #[error("block at {offset} of {count} bytes lies outside the expected {limit} bytes")]
    OutOfRange {
        /// Wire offset.
        offset: u64,
        /// Length, bytes.
        count: u64,
        /// End of the expected part, bytes.
        limit: u64,
    },
    /// The blocks are scattered over so many separate ranges that recording them would take too
    /// much memory.
    #[error("blocks are scattered over more than {limit} separate ranges of the file")]
    Scattered {
        /// Most separate ranges that are recorded.
        limit: usize,
    },
    /// Stopped on request.
    #[error("transfer aborted")]
    Aborted,
    /// The limit on threads or streams is reached.
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
        // A translated text reports its own error type through `io::Error`.
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

    /// The error of a broken connection.
    pub(crate) fn wire(peer: SocketAddr, source: io::Error) -> Self {
        let peer = peer.to_string();
        match source
            .get_ref()
            .and_then(|e| e.downcast_ref::<ProtectionError>())
        {
            Some(failed) => Self::Security {
                peer,
                reason: failed.to_string(),
                fault: failed.fault(),
            },
            None => Self::Wire { peer, source },
        }
    }

    pub(crate) fn setup(what: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Setup {
            what: what.into(),
            source: error.into(),
        }
    }
}
