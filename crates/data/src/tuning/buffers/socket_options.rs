//! Applies the decisions of a buffer tuner to sockets, and reads the result.

use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use tune::sizing::{BufferDecision, BufferSetting};

use crate::os::sockopt::{self, SocketBuffer};
use crate::stream::DataStream;
use crate::tuning_notices::TuningNotices;

/// A window clamp larger than any buffer.
const NO_CLAMP: i32 = 1 << 30;

/// How far a buffer may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferLimit {
    /// Up to `net.core.wmem_max` and `rmem_max`, as for every process.
    Allowed,
    /// Beyond these, if it is needed and this process is permitted to.
    Forced,
}

/// Applies a decision and records it, with the granted size if that is smaller. Returns the
/// buffer's size as reported afterwards, if the decision changed it.
pub(super) fn apply_decision(
    notices: &TuningNotices,
    stream: &DataStream,
    mut decision: BufferDecision,
    reach: BufferLimit,
) -> Option<u64> {
    let reported = match decision.setting.map(|change| apply(stream, change, reach)) {
        None => None,
        Some(Ok(reported)) => reported,
        Some(Err(error)) => {
            // The connection may have ended meanwhile; its transfer reports that.
            let _ = write!(decision.reason, "; refused: {error}");
            None
        }
    };
    if let (
        Some(BufferSetting::SendBuffer(wanted) | BufferSetting::ReceiveBuffer(wanted)),
        Some(reported),
    ) = (decision.setting, reported)
        && reported / 2 < wanted
    {
        let _ = write!(decision.reason, "; granted {} bytes", reported / 2);
    }
    tracing::debug!(stream = decision.stream, change = ?decision.setting, reason = %decision.reason,
        "buffer");
    notices.push_decision(decision);
    reported
}

/// Reverts a setting that a finished policy left on a stream.
pub(super) fn revert_change(stream: &DataStream, change: BufferSetting) {
    let undone = apply(stream, change, BufferLimit::Forced);
    tracing::debug!(
        stream = stream.id(),
        ?change,
        ?undone,
        "buffer setting reverted"
    );
}

/// Sets the socket options of one setting. Returns the size of a changed buffer as reported
/// afterwards.
fn apply(
    stream: &DataStream,
    change: BufferSetting,
    reach: BufferLimit,
) -> io::Result<Option<u64>> {
    let fd = stream.as_fd();
    match change {
        BufferSetting::SendBuffer(bytes) => {
            resize(stream, SocketBuffer::Send, bytes, reach).map(Some)
        }
        BufferSetting::ReceiveBuffer(bytes) => {
            let before = sockopt::buffer_size(fd, SocketBuffer::Receive)?;
            let after = resize(stream, SocketBuffer::Receive, bytes, reach)?;
            if after > before {
                // Before Linux 7.1 the window of a live connection does not grow without this.
                sockopt::raise_window_clamp(fd, NO_CLAMP)?;
            }
            stream.note_receive_buffer(after);
            Ok(Some(after))
        }
        BufferSetting::WindowClamp(bytes) => {
            let bytes = i32::try_from(bytes).unwrap_or(NO_CLAMP).max(1);
            sockopt::set_window_clamp(fd, bytes).map(|()| None)
        }
        BufferSetting::RestoreAutotuning(window) => {
            match sockopt::unlock_buffer(fd, SocketBuffer::Receive) {
                // Linux before 5.15 has no SO_BUF_LOCK. There the buffer is unlocked unless it was
                // set.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOPROTOOPT) => {}
                unlocked => unlocked?,
            }
            sockopt::grow_receive_buffer(fd, window)?;
            sockopt::raise_window_clamp(fd, NO_CLAMP)?;
            let after = sockopt::buffer_size(fd, SocketBuffer::Receive)?;
            stream.note_receive_buffer(after);
            Ok(Some(after))
        }
    }
}

/// Requests by force first: a plain request above the system's limit would shrink a buffer that was
/// forced before.
fn resize(
    stream: &DataStream,
    buffer: SocketBuffer,
    bytes: u64,
    reach: BufferLimit,
) -> io::Result<u64> {
    let plain = || sockopt::set_buffer(stream.as_fd(), buffer, bytes);
    if reach == BufferLimit::Allowed {
        return plain();
    }
    match sockopt::force_buffer(stream.as_fd(), buffer, bytes) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => plain(),
        forced => forced,
    }
}
