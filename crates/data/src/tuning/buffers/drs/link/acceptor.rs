//! The listening end of a DRS channel: finds the peer among the incoming connections.
//!
//! Connections from hosts without a data connection are closed at once. The others have a short
//! time to send the nonce, and few may wait at once: a new connection replaces the oldest, so that
//! no stranger on the peer's host can block the peer.
//!
//! The newest connection with the nonce is the peer's. The peer makes one per transfer, so an older
//! one belongs to an earlier transfer, and its end may be noticed late.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::address::is_same_host;
use proto::drs::{DrsChannel, DrsEvent, DrsRole, Nonce};
use rustix::event::PollFlags;
use socket2::Socket;

use super::connection::DrsConnection;
use crate::connect::{SHORTAGE_PAUSE, is_shortage};
use crate::security::{ConnectionOpener, DataSecurity};

/// Time for a connection to send the nonce.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// Most connections that wait to send it.
const MAX_UNVERIFIED: usize = 8;

/// After so many connections, accepting pauses for a while: connections in the backlog cost
/// nothing. The peer makes one per transfer.
const MAX_ACCEPTS: u32 = 16;

/// Length of that pause. A peer among strangers is delayed by this much.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has not sent the nonce yet.
#[derive(Debug)]
struct UnverifiedPeer {
    connection: DrsConnection,
    since: Duration,
}

/// Accepts the connections of one transfer.
#[derive(Debug)]
pub(super) struct DrsAcceptor {
    end: DrsRole,
    nonce: Nonce,
    security: Option<Arc<DataSecurity>>,
    /// In order of arrival.
    unverified: Vec<UnverifiedPeer>,
    /// Whether connections are accepted: not before there is a data connection.
    open: bool,
    /// Accepting pauses until this time, because of missing descriptors or of strangers.
    not_before: Duration,
    /// Number of connections accepted.
    accepted: u32,
    /// Number of those that were closed because they were not the peer's.
    rejected: u32,
}

/// A connection that has sent the nonce, and the messages that followed it.
pub(super) type VerifiedConnection = (DrsConnection, Vec<DrsEvent>);

impl DrsAcceptor {
    pub(super) fn new(end: DrsRole, nonce: Nonce, security: Option<Arc<DataSecurity>>) -> Self {
        Self {
            end,
            nonce,
            security,
            unverified: Vec::new(),
            open: false,
            not_before: Duration::ZERO,
            accepted: 0,
            rejected: 0,
        }
    }

    /// The descriptors to wait for.
    pub(super) fn poll_fds<'a>(
        &'a self,
        listener: &'a Socket,
    ) -> impl Iterator<Item = (BorrowedFd<'a>, PollFlags)> {
        // While accepting pauses, waiting connections must not wake the thread.
        let listening = self.open.then_some((listener.as_fd(), PollFlags::IN));
        let unverified = self
            .unverified
            .iter()
            .map(|peer| peer.connection.poll_fds());
        listening.into_iter().chain(unverified)
    }

    /// Accepts and checks connections. `peers` are the hosts of the data connections. Returns the
    /// newest live connection with the nonce.
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
                        // Checked before the next accept, so that a burst cannot replace a peer
                        // whose greeting has arrived.
                        self.add_peer(now, socket);
                        newest = self.check_greetings(now).or(newest);
                    } else {
                        tracing::debug!(?from, "DRS connection from another host closed");
                        self.rejected += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.after_refusal(now, &error),
            }
            self.accepted = self.accepted.saturating_add(1);
            if self.accepted.is_multiple_of(MAX_ACCEPTS) {
                self.pause_until(now + ACCEPT_PAUSE);
            }
        }
        newest
    }

    fn add_peer(&mut self, now: Duration, socket: Socket) {
        let channel = DrsChannel::listening(self.end, self.nonce);
        match DrsConnection::new(
            socket,
            ConnectionOpener::Peer,
            self.security.as_deref(),
            channel,
        ) {
            Ok(connection) => self.unverified.push(UnverifiedPeer {
                connection,
                since: now,
            }),
            Err(error) => tracing::debug!(%error, "DRS connection dropped"),
        }
        // The oldest goes: the peer sends its greeting at once, so it is rarely the peer.
        if self.unverified.len() > MAX_UNVERIFIED {
            self.unverified.remove(0);
            self.rejected += 1;
        }
    }

    /// Checks all connections that have not sent the nonce yet.
    fn check_greetings(&mut self, now: Duration) -> Option<VerifiedConnection> {
        let mut newest = None;
        for mut peer in std::mem::take(&mut self.unverified) {
            match peer.connection.exchange(now) {
                // A leftover connection of an earlier transfer is closed by now.
                Ok(_) if peer.connection.is_closed() => {}
                Ok(events) if peer.connection.is_open() => newest = Some((peer.connection, events)),
                Ok(_) if now.saturating_sub(peer.since) < GREETING_TIMEOUT => {
                    self.unverified.push(peer);
                }
                Ok(_) => {
                    tracing::debug!("DRS connection without a greeting closed");
                    self.rejected += 1;
                }
                Err(error) => {
                    tracing::debug!(%error, "DRS connection closed");
                    self.rejected += 1;
                }
            }
        }
        newest
    }

    /// accept(2) also reports errors of the new connection; those are ignored.
    fn after_refusal(&mut self, now: Duration, error: &io::Error) {
        if is_shortage(error) {
            tracing::warn!(%error, "out of descriptors or memory for a DRS connection, retrying");
            self.pause_until(now + SHORTAGE_PAUSE);
        }
    }

    fn pause_until(&mut self, then: Duration) {
        self.not_before = then;
        self.open = false;
    }
}

impl Drop for DrsAcceptor {
    /// Logs the number of strangers once per transfer: they may be many.
    fn drop(&mut self) {
        if self.rejected > 0 {
            let count = self.rejected;
            tracing::warn!(count, "DRS connections of others than the peer were closed");
        }
    }
}
