//! The listening end: who of those that connect is the peer.
//!
//! Whoever comes from a host without a data connection is closed at once. The others have a short
//! time to say the nonce, and few may take it at once: a newcomer takes the place of who has been
//! waiting longest, so that no stranger on the peer's host can keep the peer out.
//!
//! The newest connection that knew the nonce is the peer's. It makes one a transfer, so an older
//! one is left over from a transfer before, and its end may be noticed late.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proto::address::is_same_host;
use proto::drs::{DrsChannel, DrsEvent, DrsRole, Nonce};
use rustix::event::PollFlags;
use socket2::Socket;

use super::connection::DrsConnection;
use crate::connect::{SHORTAGE_PAUSE, is_shortage};

/// How long a connection may take to say the nonce.
const PATIENCE: Duration = Duration::from_secs(3);

/// Connections that may be about to say it.
const MAX_CALLERS: usize = 8;

/// After so many connections the door stays closed for a while: who waits there costs nothing. The
/// peer makes one a transfer.
const CROWD: u32 = 16;

/// So long. A peer that waits among strangers is heard that much later.
const REST: Duration = Duration::from_millis(100);

/// A connection that has not said the nonce yet.
#[derive(Debug)]
struct UnverifiedPeer {
    wire: DrsConnection,
    since: Duration,
}

/// The connections that have come in a transfer.
#[derive(Debug)]
pub(super) struct DrsAcceptor {
    end: DrsRole,
    nonce: Nonce,
    /// As they came.
    callers: Vec<UnverifiedPeer>,
    /// Whether connections are taken: not before there is a data connection.
    open: bool,
    /// Not before this, for want of descriptors or because of strangers.
    not_before: Duration,
    /// Connections that came.
    came: u32,
    /// Of those, the ones that were closed because they were not the peer's.
    strangers: u32,
}

/// A connection that has said the nonce, and what it said then.
pub(super) type VerifiedConnection = (DrsConnection, Vec<DrsEvent>);

impl DrsAcceptor {
    pub(super) fn new(end: DrsRole, nonce: Nonce) -> Self {
        Self {
            end,
            nonce,
            callers: Vec::new(),
            open: false,
            not_before: Duration::ZERO,
            came: 0,
            strangers: 0,
        }
    }

    /// Descriptors to wait for.
    pub(super) fn poll_fds<'a>(
        &'a self,
        listener: &'a Socket,
    ) -> impl Iterator<Item = (BorrowedFd<'a>, PollFlags)> {
        let door = self.open.then_some((listener.as_fd(), PollFlags::IN));
        let callers = self.callers.iter().map(|caller| caller.wire.poll_fds());
        door.into_iter().chain(callers)
    }

    /// Takes what waits and hears what was said; `peers`: hosts of the data connections. Returns
    /// the newest connection that proved to be the peer's and lives.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        listener: &Socket,
        peers: &[IpAddr],
    ) -> Option<VerifiedConnection> {
        self.open = !peers.is_empty() && now >= self.not_before;
        let mut newest = self.check_greetings(now);
        while self.open {
            match listener.accept() {
                Ok((socket, from)) => {
                    let from = from.as_socket().map(|from| from.ip());
                    let known = from.is_some_and(|ip| peers.iter().any(|p| is_same_host(*p, ip)));
                    if known {
                        self.admit(now, socket);
                        newest = self.check_greetings(now).or(newest);
                    } else {
                        tracing::debug!(?from, "DRS connection from another host closed");
                        self.strangers += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.after_refusal(now, &error),
            }
            self.came = self.came.saturating_add(1);
            if self.came.is_multiple_of(CROWD) {
                self.close_until(now + REST);
            }
        }
        newest
    }

    fn admit(&mut self, now: Duration, socket: Socket) {
        let channel = DrsChannel::listening(self.end, self.nonce);
        match DrsConnection::new(socket, channel) {
            Ok(wire) => self.callers.push(UnverifiedPeer { wire, since: now }),
            Err(error) => tracing::debug!(%error, "DRS connection dropped"),
        }
        if self.callers.len() > MAX_CALLERS {
            self.callers.remove(0);
            self.strangers += 1;
        }
    }

    /// Listens to all who have not said the nonce yet.
    fn check_greetings(&mut self, now: Duration) -> Option<VerifiedConnection> {
        let mut newest = None;
        for mut caller in std::mem::take(&mut self.callers) {
            match caller.wire.exchange(now) {
                // What a transfer before has left behind is closed by now.
                Ok(_) if caller.wire.is_closed() => {}
                Ok(events) if caller.wire.is_open() => newest = Some((caller.wire, events)),
                Ok(_) if now.saturating_sub(caller.since) < PATIENCE => self.callers.push(caller),
                Ok(_) => {
                    tracing::debug!("DRS connection without a greeting closed");
                    self.strangers += 1;
                }
                Err(error) => {
                    tracing::debug!(%error, "DRS connection closed");
                    self.strangers += 1;
                }
            }
        }
        newest
    }

    /// accept(2) reports the new connection's own errors too; those pass.
    fn after_refusal(&mut self, now: Duration, error: &io::Error) {
        if is_shortage(error) {
            tracing::warn!(%error, "no room for a DRS connection, trying again");
            self.close_until(now + SHORTAGE_PAUSE);
        }
    }

    fn close_until(&mut self, then: Duration) {
        self.not_before = then;
        self.open = false;
    }
}

impl Drop for DrsAcceptor {
    /// Strangers may be many: they are told of once a transfer.
    fn drop(&mut self) {
        if self.strangers > 0 {
            let count = self.strangers;
            tracing::warn!(count, "DRS connections of others than the peer were closed");
        }
    }
}
