//! A connection with an SFTP server: one channel of ssh, on which requests go ahead of replies.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ftp::protection::ChannelPlace;
use proto::sftp::{
    SftpError, SftpExtensions, SftpLimits, SftpReply, SftpRequest, packet_len, put_write,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::errors::{self, SftpFailed};
use crate::local::replacement::random_token;

/// Bytes that are read at a time.
const READ_STEP: usize = 256 << 10;
/// Bytes that were sent, and are worth the work to forget them before the rest is sent.
const FORGOTTEN_STEP: usize = 1 << 20;
/// Requests of one call that are sent ahead of their replies.
pub(super) const MAX_AHEAD: usize = 64;
/// Longest wait for what takes a server long: a checksum, a file forced to disk. A connection that is dead ends before.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(3600);

/// A connection. Reads and writes never block: a server may stop reading while its own replies wait to be read.
#[derive(Debug)]
pub(super) struct SftpConnection {
    socket: UnixStream,
    /// Received bytes, from `taken` on.
    incoming: Vec<u8>,
    taken: usize,
    /// Bytes to send, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    next_id: u32,
    /// Requests without a reply.
    unanswered: u64,
    /// Further ones, whose replies nobody needs.
    unheeded: Vec<u32>,
    /// The protocol was broken, or the connection has ended.
    is_lost: bool,
    /// Longest wait for a reply.
    timeout: Duration,
    pub(super) extensions: SftpExtensions,
    pub(super) limits: SftpLimits,
    /// In the shared login.
    pub(super) place: Option<ChannelPlace>,
}

impl SftpConnection {
    /// A connection whose first packets were exchanged. The socket does not block.
    pub(super) fn new(socket: UnixStream, extensions: SftpExtensions, timeout: Duration) -> Self {
        Self {
            socket,
            incoming: Vec::new(),
            taken: 0,
            outgoing: Vec::new(),
            sent: 0,
            // A reply to another connection's request, which a server may mix in, is not one to ours.
            next_id: u32::try_from(random_token() & u64::from(u32::MAX)).unwrap_or_default(),
            unanswered: 0,
            unheeded: Vec::new(),
            is_lost: false,
            timeout,
            extensions,
            limits: SftpLimits::default(),
            place: None,
        }
    }

    /// Whether further requests can be made.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_lost && self.unanswered == 0
    }

    /// Makes no further requests: a reply was not asked for.
    pub(super) fn give_up(&mut self) {
        self.is_lost = true;
    }

    /// A handle that ends the connection.
    pub(super) fn handle(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// Longest wait for a reply.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Queues a request. Returns its number.
    pub(super) fn send(&mut self, request: &SftpRequest<'_>) -> u32 {
        let id = self.new_id();
        request.put(id, &mut self.outgoing);
        id
    }

    /// Sends a request whose reply nobody needs.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn send_unheeded(&mut self, request: &SftpRequest<'_>) -> Result<(), SftpFailed> {
        if self.unheeded.len() >= MAX_AHEAD {
            return self.call(request).map(|_| ());
        }
        let id = self.send(request);
        self.unanswered -= 1;
        self.unheeded.push(id);
        self.exchange()
    }

    /// Queues a WRITE of what `fill` appends. Returns its number and its bytes: without any, nothing is sent.
    pub(super) fn send_write<E>(
        &mut self,
        handle: &[u8],
        offset: u64,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Option<(u32, u32)>, E> {
        let length = put_write(&mut self.outgoing, self.next_id, handle, offset, fill)?;
        Ok((length > 0).then(|| (self.new_id(), length)))
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.unanswered += 1;
        id
    }

    /// Sends and receives as much as is possible now.
    ///
    /// # Errors
    /// The connection is lost, and every reply of before was taken.
    pub(super) fn exchange(&mut self) -> Result<(), SftpFailed> {
        // A server that has ended may have answered before: what it did counts although nothing can be sent.
        let exchanged = self.flush().and(self.fill());
        if self.has_packet() {
            return Ok(());
        }
        self.is_lost |= exchanged.is_err();
        exchanged.map_err(SftpFailed::Lost)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            match self.socket.write(&self.outgoing[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }

    /// There may be something to send for as long as a file lasts. No more is moved than is forgotten.
    fn forget_sent(&mut self) {
        if self.sent >= FORGOTTEN_STEP.max(self.outgoing.len() / 2) {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Bytes that are held to be sent.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.outgoing.len()
    }

    /// Receives, while less than a packet is there.
    fn fill(&mut self) -> io::Result<()> {
        while !self.has_packet() {
            self.incoming.drain(..self.taken);
            self.taken = 0;
            let end = self.incoming.len();
            self.incoming.resize(end + READ_STEP, 0);
            let read = self.socket.read(&mut self.incoming[end..]);
            self.incoming.truncate(end + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a whole packet, or one with an impossible length, has come.
    fn has_packet(&self) -> bool {
        let bytes = &self.incoming[self.taken..];
        match packet_len(bytes) {
            Ok(Some(length)) => bytes.len() >= length,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The next reply that has come, and the number of its request.
    ///
    /// # Errors
    /// The server breaks the protocol.
    pub(super) fn take(&mut self) -> Result<Option<(u32, SftpReply)>, SftpFailed> {
        loop {
            let taken = self.parse_next();
            self.is_lost |= taken.is_err();
            let taken = taken.map_err(SftpFailed::Broken)?;
            let Some((id, _)) = &taken else {
                return Ok(None);
            };
            match self.unheeded.iter().position(|unheeded| unheeded == id) {
                Some(at) => self.unheeded.swap_remove(at),
                None => {
                    self.unanswered = self.unanswered.saturating_sub(1);
                    return Ok(taken);
                }
            };
        }
    }

    fn parse_next(&mut self) -> Result<Option<(u32, SftpReply)>, SftpError> {
        let bytes = &self.incoming[self.taken..];
        let Some(length) = packet_len(bytes)?.filter(|length| *length <= bytes.len()) else {
            return Ok(None);
        };
        let reply = SftpReply::parse(&bytes[4..length])?;
        self.taken += length;
        Ok(Some(reply))
    }

    /// The replies to requests, in their order. All are asked for, whatever the replies are.
    ///
    /// # Errors
    /// The connection is lost, or was silent for too long.
    pub(super) fn call_all(
        &mut self,
        requests: &[SftpRequest<'_>],
        patience: Duration,
    ) -> Result<Vec<SftpReply>, SftpFailed> {
        let mut replies = Vec::with_capacity(requests.len());
        for some in requests.chunks(MAX_AHEAD) {
            let ids: Vec<u32> = some.iter().map(|request| self.send(request)).collect();
            let mut arrived = HashMap::new();
            let mut deadline = Instant::now() + patience;
            while arrived.len() < ids.len() {
                self.exchange()?;
                while let Some((id, reply)) = self.take()? {
                    if !ids.contains(&id) || arrived.insert(id, reply).is_some() {
                        self.is_lost = true;
                        return Err(SftpFailed::Unasked);
                    }
                    deadline = Instant::now() + patience;
                }
                if arrived.len() < ids.len() {
                    wait_for(&[&*self], deadline)?;
                    if Instant::now() >= deadline {
                        self.is_lost = true;
                        return Err(SftpFailed::Silent(patience));
                    }
                }
            }
            replies.extend(ids.iter().filter_map(|id| arrived.remove(id)));
        }
        Ok(replies)
    }

    /// The reply to one request.
    ///
    /// # Errors
    /// As [`SftpConnection::call_all`].
    pub(super) fn call(&mut self, request: &SftpRequest<'_>) -> Result<SftpReply, SftpFailed> {
        self.call_for(request, self.timeout)
    }

    /// The reply to a request that may take long.
    ///
    /// # Errors
    /// As [`SftpConnection::call_all`].
    pub(super) fn call_for(
        &mut self,
        request: &SftpRequest<'_>,
        patience: Duration,
    ) -> Result<SftpReply, SftpFailed> {
        let replies = self.call_all(std::slice::from_ref(request), patience)?;
        replies.into_iter().next().ok_or(SftpFailed::Unasked)
    }

    /// A request whose result is a status.
    ///
    /// # Errors
    /// The refusal, or as [`SftpConnection::call_all`].
    pub(super) fn done(&mut self, request: &SftpRequest<'_>) -> Result<(), SftpFailed> {
        let reply = self.call(request)?;
        errors::done(reply)
    }

    /// A request whose result is a handle.
    ///
    /// # Errors
    /// As [`SftpConnection::done`].
    pub(super) fn open(&mut self, request: &SftpRequest<'_>) -> Result<Vec<u8>, SftpFailed> {
        match self.call(request)? {
            SftpReply::Handle(handle) => Ok(handle),
            other => Err(errors::unexpected(other)),
        }
    }
}

/// Waits until something can be sent or received on one of the connections.
///
/// # Errors
/// The system refuses.
pub(super) fn wait_for(
    connections: &[&SftpConnection],
    deadline: Instant,
) -> Result<(), SftpFailed> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut polled: Vec<PollFd<'_>> = connections
        .iter()
        .map(|connection| {
            let mut events = PollFlags::IN;
            if connection.sent < connection.outgoing.len() {
                events |= PollFlags::OUT;
            }
            PollFd::from_borrowed_fd(connection.socket.as_fd(), events)
        })
        .collect();
    match poll(&mut polled, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(SftpFailed::Lost(errno.into())),
    }
}
