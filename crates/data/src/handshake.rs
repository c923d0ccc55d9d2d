//! Buffers at the handshake, where the window scale is fixed for life (RFC 7323 §2.2).
//!
//! The papers asked for the largest buffer, connected, and went back to the first size (2003, §4.3).
//! Since Linux 6.10 that no longer does what they meant: a socket with a large SO_RCVBUF promises all of
//! it with its first acknowledgement. The receiver then holds 64 KB and owes megabytes; what does
//! not fit is dropped, and sent again after a timeout. But Linux takes a small buffer for a small
//! scale only while the buffer is locked. One that has the first size and is unlocked promises
//! 64 KB, and is scaled for the larger of `net.core.rmem_max` and `tcp_rmem`'s third value, which is all
//! that could be asked for. The connection is then given the first size once more, which locks it.

use std::io;
use std::os::fd::AsFd;

use socket2::Socket;
use tune::sizing::BufferBounds;

use crate::error::DataError;
use crate::os::sockopt::{self, SocketBuffer};
use proto::sizing::SocketBuffers;

/// Sets what was pinned, and for a [scheme of the papers](proto::sizing::Sizing::needs_peer) what lets the
/// window grow later, before connecting or listening.
pub(crate) fn before(socket: &Socket, buffers: SocketBuffers) -> Result<(), DataError> {
    pin_buffers(socket, buffers.send, buffers.receive)?;
    if !buffers.sizing.needs_peer_support() || buffers.receive.is_some() {
        return Ok(());
    }
    let bounds = BufferBounds::default();
    pin_buffers(socket, None, Some(bounds.initial))?;
    if sockopt::unlock_buffer(socket.as_fd(), SocketBuffer::Receive).is_ok() {
        return Ok(());
    }
    // Linux before 5.15: the papers' way, which was sound there.
    pin_buffers(socket, None, Some(bounds.largest))
}

/// Sets a fresh connection's buffers to the first size of the papers. Which end
/// will send is not known yet, nor does it matter.
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

/// Pins socket buffers, bytes; the kernel cuts them to its limits without a word.
pub(crate) fn pin_buffers(
    socket: &Socket,
    send: Option<u64>,
    receive: Option<u64>,
) -> Result<(), DataError> {
    // The option takes a C int.
    let size = |bytes: u64| i32::try_from(bytes).map_or(i32::MAX as usize, |n| n.max(0) as usize);
    if let Some(bytes) = send {
        socket
            .set_send_buffer_size(size(bytes))
            .map_err(|e| DataError::setup("send buffer", e))?;
    }
    if let Some(bytes) = receive {
        socket
            .set_recv_buffer_size(size(bytes))
            .map_err(|e| DataError::setup("receive buffer", e))?;
    }
    Ok(())
}
