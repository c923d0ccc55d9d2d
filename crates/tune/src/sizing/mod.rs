//! Sizes of a stream's socket buffers while it moves data.
//!
//! Three controllers use the same [`TcpSample`](crate::sample::TcpSample)s: [`drs1`] and [`drs`] are the loops of two
//! papers, [`auto`] is longhaul's own. The caller (crate `data` with sockets, the simulator with flows)
//! samples every stream from time to time and applies the returned settings.
//!
//! Sizes in settings are the values given to setsockopt(2). Linux allocates and reports twice as much
//! (socket(7)) and offers between half and two thirds of that as window.

pub mod advice;
mod arrivals;
pub mod auto;
pub mod drs;
pub mod drs1;
pub mod host_limits;

use std::time::Duration;

use crate::limiter::Limiter;
use crate::sample::StreamId;

/// A socket setting of one stream, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferSetting {
    /// SO_SNDBUF, or SO_SNDBUFFORCE where needed and permitted.
    SendBuffer(u64),
    /// SO_RCVBUF or SO_RCVBUFFORCE, with the window clamp lifted so that the window follows.
    ReceiveBuffer(u64),
    /// TCP_WINDOW_CLAMP: upper bound of the window. It does not lock the buffer.
    WindowClamp(u64),
    /// Returns the receive buffer to autotuning with space for this window (SO_BUF_LOCK 0, SO_RCVLOWAT,
    /// window clamp lifted). It repairs a buffer that the kernel made too small.
    RestoreAutotuning(u64),
}

/// A decision of a controller and its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferDecision {
    /// The stream.
    pub stream: StreamId,
    /// Time since the transfer began.
    pub at: Duration,
    /// The setting to apply; `None` if the decision is to change nothing.
    pub setting: Option<BufferSetting>,
    /// Limiter of the stream at that time.
    pub limiter: Limiter,
    /// Explanation for people.
    pub reason: String,
    /// Measurements on which a decision of [`drs`] rests, if it follows an echo.
    pub measured: Option<DrsMeasurement>,
}

/// Measurements of one stream by a loop of [`drs`] when an echo has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrsMeasurement {
    /// Time between the message and its echo.
    pub echo: Duration,
    /// Round trip with which the buffer is sized.
    pub round_trip: Duration,
    /// Bandwidth with which the buffer is sized, bits per second.
    pub bandwidth: u64,
}

/// Bounds of the buffer sizes in a right-sizing loop, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBounds {
    /// Initial and smallest size.
    pub initial: u64,
    /// Largest size.
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
