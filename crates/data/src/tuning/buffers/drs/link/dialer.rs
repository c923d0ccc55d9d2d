//! The connecting end of a DRS channel: connects once a data connection to the same host exists.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::address::is_same_host;
use proto::drs::{DrsAddress, DrsChannel, DrsRole};
use rustix::event::PollFlags;
use socket2::Socket;

use super::connection::DrsConnection;
use crate::drs::SOCKET_BUFFER;
use crate::handshake::pin_buffers;
use crate::opening::{is_connect_decided, start_connect};
use crate::security::{ConnectionOpener, DataSecurity};

/// Most connection attempts. Several are needed because the peer closes connections that arrive
/// before it has seen this host's data connection.
const MAX_ATTEMPTS: u32 = 5;

/// Pause before the second attempt. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Makes the connection of the connecting end.
#[derive(Debug)]
pub(super) struct DrsDialer {
    address: DrsAddress,
    local: Option<IpAddr>,
    end: DrsRole,
    security: Option<Arc<DataSecurity>>,
    /// Number of attempts made.
    attempts: u32,
    /// No attempt before this time.
    not_before: Duration,
    under_way: Option<Socket>,
}

impl DrsDialer {
    pub(super) fn new(
        address: DrsAddress,
        local: Option<IpAddr>,
        end: DrsRole,
        security: Option<Arc<DataSecurity>>,
    ) -> Self {
        Self {
            address,
            local,
            end,
            security,
            attempts: 0,
            not_before: Duration::ZERO,
            under_way: None,
        }
    }

    /// The descriptor to wait for.
    pub(super) fn poll_fds(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let socket = self.under_way.as_ref()?;
        Some((socket.as_fd(), PollFlags::OUT))
    }

    /// Continues as far as possible without waiting. `peers` are the hosts of the data connections.
    /// A returned connection is new, and its greeting unsent.
    ///
    /// # Errors
    /// The last attempt failed.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        peers: &[IpAddr],
    ) -> Result<Option<DrsConnection>, io::Error> {
        if self.under_way.is_none() {
            let known = peers
                .iter()
                .any(|ip| is_same_host(*ip, self.address.socket.ip()));
            // The peer named the address; without a data connection it may be any host's.
            if !known || now < self.not_before {
                return Ok(None);
            }
            let pin =
                |socket: &Socket| pin_buffers(socket, Some(SOCKET_BUFFER), Some(SOCKET_BUFFER));
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
        DrsConnection::new(
            socket,
            ConnectionOpener::ThisEnd,
            self.security.as_deref(),
            channel,
        )
        .map(Some)
    }

    /// Schedules another attempt after a failed one. Returns `false` if there is none left.
    pub(super) fn schedule_retry(&mut self, now: Duration) -> bool {
        self.under_way = None;
        // The peer may see this host's data connection later than this end does.
        self.not_before = now + FIRST_PAUSE * (1 << self.attempts.min(MAX_ATTEMPTS));
        self.attempts += 1;
        self.attempts < MAX_ATTEMPTS
    }
}
