//! Socket buffers at the TCP handshake, which fixes the window scale of a connection (RFC 7323
//! §2.2).
//!
//! The 2003 paper (§4.3) sets the largest buffer, connects, and returns to the initial size. Since
//! Linux 6.10 this fails: a socket with a large SO_RCVBUF advertises all of it in its first
//! acknowledgement. With 64 KB of real buffer the receiver then drops what does not fit, and the
//! sender retransmits it after a timeout.
//!
//! Linux derives a small window scale from a small buffer only while the buffer is locked by
//! SO_RCVBUF. A buffer that has the initial size and is unlocked advertises 64 KB, and is scaled
//! for the larger of `net.core.rmem_max` and the third value of `tcp_rmem`. The established
//! connection then gets the initial size once more, which locks it.

use std::io;
use std::os::fd::AsFd;

use socket2::Socket;
use tune::sizing::BufferBounds;

use crate::error::DataError;
use crate::os::sockopt::{self, SocketBuffer};
use proto::sizing::SocketBuffers;

/// Sets the pinned buffers and, for a [scheme of the
/// papers](proto::sizing::BufferSizing::needs_peer_support), a receive buffer whose window can grow
/// later. Call it before connect(2) or listen(2).
pub(crate) fn before(socket: &Socket, buffers: SocketBuffers) -> Result<(), DataError> {
    pin_buffers(socket, buffers.send, buffers.receive)?;
    if !buffers.sizing.needs_peer_support() || buffers.receive.is_some() {
        return Ok(());
    }
    // A pinned receive buffer already fixes the requested scale.
    let bounds = BufferBounds::default();
    pin_buffers(socket, None, Some(bounds.initial))?;
    if sockopt::unlock_buffer(socket.as_fd(), SocketBuffer::Receive).is_ok() {
        return Ok(());
    }
    // Linux before 5.15 cannot unlock a buffer. The method of the papers works there.
    pin_buffers(socket, None, Some(bounds.largest))
}

/// Sets the buffers of a new connection to the initial size of the papers. The direction of the
/// transfer is not known yet and makes no difference.
pub(crate) fn after(socket: &Socket, buffers: SocketBuffers) -> io::Result<()> {
    if !buffers.sizing.needs_peer_support() {
        return Ok(());
    }
    let initial = BufferBounds::default().initial;
    for (buffer, pinned) in [
        (SocketBuffer::Send, buffers.send),
        (SocketBuffer::Receive, buffers.receive),
    ] {
        if pinned.is_none() {
            sockopt::set_buffer(socket.as_fd(), buffer, initial)?;
        }
    }
    Ok(())
}

/// Pins socket buffers, bytes. The kernel reduces them to its limits without an error (socket(7)).
pub(crate) fn pin_buffers(
    socket: &Socket,
    send: Option<u64>,
    receive: Option<u64>,
) -> Result<(), DataError> {
    if let Some(bytes) = send {
        sockopt::set_buffer(socket.as_fd(), SocketBuffer::Send, bytes)
            .map_err(|e| DataError::setup("send buffer", e))?;
    }
    if let Some(bytes) = receive {
        sockopt::set_buffer(socket.as_fd(), SocketBuffer::Receive, bytes)
            .map_err(|e| DataError::setup("receive buffer", e))?;
    }
    Ok(())
}
