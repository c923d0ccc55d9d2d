//! Carrying out what a controller decided, and looking at what came of it.

use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use tune::sizing::{Change, Decision};

use crate::board::Board;
use crate::os::sockopt::{self, Buffer};
use crate::stream::Stream;

/// A window clamp that no buffer reaches.
const NO_CLAMP: i32 = 1 << 30;

/// How far this process goes for a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// As far as `net.core.wmem_max` and `rmem_max` let every process.
    Allowed,
    /// Beyond, where that is needed and this process may.
    Forced,
}

/// Carries a decision out and notes it, with what the system granted where that is less than was
/// wanted. Returns the buffer's size as reported afterwards, if there is one and it could be set.
pub(super) fn carry_out(
    board: &Board,
    stream: &Stream,
    mut decision: Decision,
    reach: Reach,
) -> Option<u64> {
    let reported = match decision.change.map(|change| apply(stream, change, reach)) {
        None => None,
        Some(Ok(reported)) => reported,
        Some(Err(error)) => {
            // The connection may have ended meanwhile, and its transfer tells that.
            let _ = write!(decision.reason, "; refused: {error}");
            None
        }
    };
    if let (Some(Change::SendBuffer(wanted) | Change::ReceiveBuffer(wanted)), Some(reported)) =
        (decision.change, reported)
        && reported / 2 < wanted
    {
        let _ = write!(decision.reason, "; granted {} bytes", reported / 2);
    }
    tracing::debug!(stream = decision.stream, change = ?decision.change, reason = %decision.reason,
        "buffer");
    board.note(decision);
    reported
}

/// Undoes what a policy that is over has left on a stream.
pub(super) fn undo(stream: &Stream, change: Change) {
    let undone = apply(stream, change, Reach::Forced);
    tracing::debug!(stream = stream.id(), ?change, ?undone, "buffer left alone");
}

/// Sets the options of one change; returns a changed buffer's size as reported afterwards.
fn apply(stream: &Stream, change: Change, reach: Reach) -> io::Result<Option<u64>> {
    let fd = stream.as_fd();
    match change {
        Change::SendBuffer(bytes) => resize(stream, Buffer::Send, bytes, reach).map(Some),
        Change::ReceiveBuffer(bytes) => {
            let before = sockopt::buffer_size(fd, Buffer::Receive)?;
            let after = resize(stream, Buffer::Receive, bytes, reach)?;
            if after > before {
                // Before Linux 7.1 the window of a live connection does not follow otherwise.
                sockopt::set_window_clamp(fd, NO_CLAMP)?;
            }
            stream.note_receive_buffer(after);
            Ok(Some(after))
        }
        Change::Window(bytes) => {
            let bytes = i32::try_from(bytes).unwrap_or(NO_CLAMP).max(1);
            sockopt::set_window_clamp(fd, bytes).map(|()| None)
        }
        Change::Regrow(window) => {
            match sockopt::unlock_buffer(fd, Buffer::Receive) {
                // Linux before 5.15 has no lock to ask about; one that nobody set is not locked.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOPROTOOPT) => {}
                unlocked => unlocked?,
            }
            sockopt::grow_receive_buffer(fd, window)?;
            sockopt::set_window_clamp(fd, NO_CLAMP)?;
            let after = sockopt::buffer_size(fd, Buffer::Receive)?;
            stream.note_receive_buffer(after);
            Ok(Some(after))
        }
    }
}

/// By force first: a plain request above the system's limit would shrink what was forced before.
fn resize(stream: &Stream, buffer: Buffer, bytes: u64, reach: Reach) -> io::Result<u64> {
    let plain = || sockopt::set_buffer(stream.as_fd(), buffer, bytes);
    if reach == Reach::Allowed {
        return plain();
    }
    match sockopt::force_buffer(stream.as_fd(), buffer, bytes) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => plain(),
        forced => forced,
    }
}
