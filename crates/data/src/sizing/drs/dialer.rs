//! The connecting end: out to the address, once it is known to be the data peer's.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proto::address::is_same_host;
use proto::drs::{DrsAddress, DrsChannel, DrsRole};
use rustix::event::PollFlags;
use socket2::Socket;

use super::connection::DrsConnection;
use crate::connect::{is_connect_decided, start_connect};
use crate::drs::BUFFER;
use crate::handshake::pin_buffers;

/// Connections made before the end gives up. More than one, since the other end closes those that
/// come before it has seen this host's data connection among others'.
const MAX_ATTEMPTS: u32 = 5;

/// Pause before the second attempt; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How the connecting end gets its connection.
#[derive(Debug)]
pub(super) struct DrsDialer {
    address: DrsAddress,
    local: Option<IpAddr>,
    end: DrsRole,
    /// Attempts made.
    attempts: u32,
    /// No attempt before this.
    not_before: Duration,
    under_way: Option<Socket>,
}

impl DrsDialer {
    pub(super) fn new(address: DrsAddress, local: Option<IpAddr>, end: DrsRole) -> Self {
        Self {
            address,
            local,
            end,
            attempts: 0,
            not_before: Duration::ZERO,
            under_way: None,
        }
    }

    /// Descriptor to wait for.
    pub(super) fn poll_fds(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let socket = self.under_way.as_ref()?;
        Some((socket.as_fd(), PollFlags::OUT))
    }

    /// Goes on as far as it gets without waiting; `peers`: hosts of the data connections. The
    /// connection is new, and its greeting unsent.
    ///
    /// # Errors
    /// Why the last attempt failed.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        peers: &[IpAddr],
    ) -> Result<Option<DrsConnection>, io::Error> {
        if self.under_way.is_none() {
            let known = peers
                .iter()
                .any(|ip| is_same_host(*ip, self.address.socket.ip()));
            if !known || now < self.not_before {
                return Ok(None);
            }
            let pin = |socket: &Socket| pin_buffers(socket, Some(BUFFER), Some(BUFFER));
            let socket =
                start_connect(self.address.socket, self.local, pin).map_err(io::Error::other)?;
            self.under_way = Some(socket);
        }
        let settled = |socket: &mut Socket| is_connect_decided(socket);
        let Some(socket) = self.under_way.take_if(settled) else {
            return Ok(None);
        };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let channel = DrsChannel::connecting(self.end, self.address.nonce);
        DrsConnection::new(socket, channel).map(Some)
    }

    /// The attempt came to nothing; `false`: it was the last.
    pub(super) fn schedule_retry(&mut self, now: Duration) -> bool {
        self.under_way = None;
        self.not_before = now + FIRST_PAUSE * (1 << self.attempts.min(MAX_ATTEMPTS));
        self.attempts += 1;
        self.attempts < MAX_ATTEMPTS
    }
}
