//! Buffers at the handshake: the window scale is fixed there (RFC 7323 §2.2), by the buffer that
//! the socket has then.

use std::io;

use socket2::Socket;
use tune::sizing::Bounds;

use crate::error::DataError;
use crate::job::Settings;
use crate::stream::pin_buffers;

/// What is asked for before connecting or listening: what was pinned, and for a policy that
/// [starts small](proto::sizing::Sizing::starts_small) the largest size (2003 paper, §4.3).
pub(crate) fn before(
    socket: &Socket,
    starts_small: bool,
    send: Option<u64>,
    receive: Option<u64>,
) -> Result<(), DataError> {
    let largest = starts_small.then(|| Bounds::default().largest);
    pin_buffers(socket, send.or(largest), receive.or(largest))
}

/// Sets a fresh connection's buffers to their first size where a policy starts small. Which end
/// will send is not known yet, nor does it matter.
pub(crate) fn after(socket: &Socket, settings: &Settings) -> io::Result<()> {
    if !settings.sizing.starts_small() {
        return Ok(());
    }
    let initial = usize::try_from(Bounds::default().initial).unwrap_or(usize::MAX);
    if settings.send_buffer.is_none() {
        socket.set_send_buffer_size(initial)?;
    }
    if settings.receive_buffer.is_none() {
        socket.set_recv_buffer_size(initial)?;
    }
    Ok(())
}
