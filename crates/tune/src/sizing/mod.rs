//! How large a stream's socket buffers should be while it moves data.
//!
//! Three controllers over the same [`TcpSample`](crate::look::Look)s: [`drs1`] and [`drs`] are the papers' loops, [`auto`] is
//! longhaul's own. Whoever drives them (the data room with sockets, the simulator with flows)
//! looks at every stream now and then and carries out what they answer.
//!
//! Sizes are those given to setsockopt(2). Linux keeps and reports twice as much (socket(7)) and
//! offers between half and two thirds of that as window.

pub mod advice;
mod arrivals;
pub mod auto;
pub mod drs;
pub mod drs1;
pub mod host_limits;

use std::time::Duration;

use crate::limiter::Limiter;
use crate::sample::StreamId;

/// Something to do to a stream's socket. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferSetting {
    /// SO_SNDBUF, by force where allowed and needed.
    SendBuffer(u64),
    /// SO_RCVBUF likewise, and the window clamp lifted so that the window follows.
    ReceiveBuffer(u64),
    /// TCP_WINDOW_CLAMP: the window shall not be larger. Does not lock the buffer.
    WindowClamp(u64),
    /// Give the receive buffer back to autotuning with room for this window (SO_BUF_LOCK 0,
    /// SO_RCVLOWAT, window clamp lifted): repairs one that the kernel made too small.
    RestoreAutotuning(u64),
}

/// Decision of a controller, and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferDecision {
    /// About which stream.
    pub stream: StreamId,
    /// Since the transfer began.
    pub at: Duration,
    /// The change to make; `None`: none, on purpose.
    pub setting: Option<BufferSetting>,
    /// Limiter of the stream.
    pub limiter: Limiter,
    /// In plain words.
    pub reason: String,
}

/// Sizes that a right-sizing loop stays between, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBounds {
    /// To begin with.
    pub initial: u64,
    /// Never more.
    pub largest: u64,
}

impl Default for BufferBounds {
    /// The papers' 64 KB and 16 MB.
    fn default() -> Self {
        Self {
            initial: 64 << 10,
            largest: 16 << 20,
        }
    }
}
