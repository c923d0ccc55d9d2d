//! What a transfer is told and what it tells: settings, cancellation, progress, report.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use proto::checksum::Algorithm;
use proto::command::{Mode, Type};
use proto::ranges::RangeSet;

/// How bytes go between file and socket. `Auto` picks the measured winner per case
/// (docs/benchmarks.md); the others pin a method where it applies and fall back to `Copy` where it
/// does not (a pipe, TYPE A, a running checksum).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMethod {
    /// The measured winner.
    #[default]
    Auto,
    /// pread + write; read + pwrite.
    Copy,
    /// sendfile when sending; receiving as `Copy`.
    Sendfile,
    /// splice through a pipe in both directions.
    Splice,
    /// pread + send with MSG_ZEROCOPY; receiving as `Copy`.
    Zerocopy,
}

/// Settings of one transfer, the same for sending and receiving.
#[derive(Debug, Clone)]
pub struct Settings {
    /// MODE.
    pub mode: Mode,
    /// TYPE; Ascii translates line ends and rules out offsets.
    pub type_: Type,
    /// Connections to open when sending in MODE E; ignored in MODE S (1).
    pub streams: usize,
    /// Payload of a MODE E block when sending, and unit of store access, bytes. 64 KiB..=64 MiB.
    pub block: usize,
    /// How bytes move.
    pub io: IoMethod,
    /// Sum the bytes that pass; the result is in the report.
    pub sum: Option<Algorithm>,
    /// Bytes per second over all streams of the transfer.
    pub rate: Option<u64>,
    /// Nothing moved on any stream for this long: [`crate::error::DataError::Stalled`].
    pub stall: Duration,
    /// Longest wait for the first data connection.
    pub connect: Duration,
    /// Send buffer to pin on each socket, bytes; `None` leaves the kernel's autotuning alone.
    pub send_buffer: Option<u64>,
    /// Receive buffer, likewise.
    pub receive_buffer: Option<u64>,
    /// Congestion control by name; `None` leaves the system's.
    pub congestion: Option<String>,
    /// MODE E sending: set CLOSE in the end marks and close the connections after the transfer.
    pub close_after: bool,
}

/// Shared between a running transfer and whoever watches or stops it.
#[derive(Debug, Default)]
pub struct Control {
    /// Set by [`Control::cancel`].
    pub(crate) cancelled: AtomicBool,
    /// Payload bytes moved over the wire so far.
    pub(crate) bytes: AtomicU64,
    /// Ranges safely handed to the store so far, wire offsets (receiving).
    pub(crate) stored: Mutex<RangeSet>,
    /// Open data connections now.
    pub(crate) streams: AtomicU64,
    /// Sockets to shut down on cancel, and TCP_INFO samples of closed ones: see `channel`.
    pub(crate) live: Mutex<Vec<std::sync::Weak<crate::channel::Stream>>>,
}

/// Kernel view of a transfer's streams, summed (TCP_INFO at the end of each stream).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WireStats {
    /// Most streams open at once.
    pub streams: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Smallest RTT seen, microseconds; 0 unknown.
    pub min_rtt_us: u32,
    /// Largest smoothed RTT seen, microseconds.
    pub rtt_us: u32,
    /// Largest send or receive buffer granted by the kernel, bytes (SO_MEMINFO).
    pub buffer_bytes: u64,
    /// Time with data outstanding, microseconds, largest over streams (sender only).
    pub busy_us: u64,
    /// Of that, limited by the peer's window.
    pub rwnd_limited_us: u64,
    /// Of that, limited by the send buffer.
    pub sndbuf_limited_us: u64,
    /// Stream threads' time blocked in reading the store, microseconds, summed.
    pub store_us: u64,
    /// Stream threads' time blocked in the socket, microseconds, summed.
    pub wire_us: u64,
}

/// A finished transfer.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Payload bytes moved.
    pub bytes: u64,
    /// Ranges stored, wire offsets (receiving).
    pub stored: RangeSet,
    /// Lower-case hex digest of what passed, if `sum` was set and everything from 0 on without
    /// gaps passed (or, for algorithms that combine, the bytes in ascending offset order).
    pub digest: Option<String>,
    /// Kernel's view.
    pub wire: WireStats,
    /// Seconds from first connection to last byte.
    pub elapsed: Duration,
}

impl Control {
    /// Nothing moved yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Payload bytes moved so far.
    pub fn bytes(&self) -> u64 {
        todo!()
    }

    /// Ranges stored so far (receiving), wire offsets.
    pub fn stored(&self) -> RangeSet {
        todo!()
    }

    /// Data connections open now.
    pub fn streams(&self) -> u64 {
        todo!()
    }

    /// Stops the transfer: wakes every blocked stream; the transfer returns
    /// [`crate::error::DataError::Aborted`].
    pub fn cancel(&self) {
        todo!()
    }

    /// TCP_INFO of all live streams now, for progress displays and `--trace`.
    pub fn sample(&self) -> Vec<crate::os::TcpInfo> {
        todo!()
    }
}
