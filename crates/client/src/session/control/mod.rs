//! The control connection: command lines out, replies in, each with its time-out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use proto::client::IacHandling;
use proto::command::Command;
use proto::reply::{Reply, ReplyReader};
use socket2::{SockRef, TcpKeepalive};
use tokio::time::timeout;

use crate::location::Server;
use crate::{CopyFailure, Exit};

mod marker_rate;
mod pipelining;

use marker_rate::MAX_MARKER_BURST;
pub(crate) use marker_rate::MarkerRateLimit;

/// Bytes taken off the control connection at once.
const READ_SIZE: usize = 16 << 10;
/// The byte that begins a Telnet sequence (RFC 854).
const IAC: u8 = 255;
/// Most preliminary replies to one command: one who sends them without end answers never.
pub(crate) const MAX_PRELIMINARY_REPLIES: usize = 100;
/// TCP keep-alive: first probe after this long without traffic, then every [`KEEPALIVE_EVERY`].
/// Long transfers leave the control connection idle, and routers forget idle connections.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// One control connection.
#[derive(Debug)]
pub(crate) struct ClientControlConnection {
    transport: ControlTransport,
    reader: ReplyReader,
    received_replies: VecDeque<Reply>,
    name: String,
    peer: SocketAddr,
    local: SocketAddr,
    reply_timeout: Duration,
    unusable: bool,
    /// Farewell with which the server ended the session (421), for those whose answers it owes.
    closing_reply: Option<String>,
    /// The connection broke or was closed, rather than given up.
    connection_lost: bool,
    /// Commands whose final replies are still to come: when a caller gave up on one, later replies
    /// would be taken for answers to other commands.
    outstanding_replies: usize,
    /// Lines sent ahead of their time, behind those: see [`ClientControlConnection::send_pipelined_with_prefetch`].
    prefetched_commands: VecDeque<Vec<u8>>,
    /// The server's understanding of a byte 255 of a command.
    iac_handling: IacHandling,
    /// Commands sent while another ran (SBUF) whose answers may come behind that one's, or not at
    /// all.
    unanswered_sbuf: usize,
}

impl ClientControlConnection {
    /// Connects to the first address of the name that answers. Also gives the time of the TCP
    /// handshake.
    pub(crate) async fn connect(
        server: &Server,
        patience: Duration,
    ) -> Result<(Self, Duration), CopyFailure> {
        let name = display_name(server);
        let mut reason = String::from("the name has no address");
        // A refusal is an answer: most likely nothing serves there.
        let mut refused = true;
        for address in resolve(server, &name, patience).await? {
            let start = Instant::now();
            match timeout(patience, ControlTransport::connect(address)).await {
                Ok(Ok(transport)) => {
                    let handshake = start.elapsed();
                    return Ok((Self::from_transport(transport, name, patience)?, handshake));
                }
                Ok(Err(error)) => {
                    refused &= error.kind() == std::io::ErrorKind::ConnectionRefused;
                    reason = format!("{error}");
                }
                Err(_) => {
                    refused = false;
                    reason = format!("no answer in {} s", patience.as_secs());
                }
            }
            if !name.contains(&address.ip().to_string()) {
                reason = format!("{} ({reason})", address.ip());
            }
        }
        Err(CopyFailure {
            exit: Exit::Unreachable,
            message: format!(
                "cannot connect to {name}: {reason}; check host and port, and that the server runs"
            ),
            transient: !refused,
        })
    }

    fn from_transport(
        transport: ControlTransport,
        name: String,
        patience: Duration,
    ) -> Result<Self, CopyFailure> {
        let broken = |error: std::io::Error| {
            unreachable_failure(format!("lost {name} at once: {error}; try again"))
        };
        let peer = transport.peer_addr().map_err(broken)?;
        let local = transport.local_addr().map_err(broken)?;
        let socket = SockRef::from(&transport);
        socket.set_tcp_nodelay(true).map_err(broken)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY);
        socket.set_tcp_keepalive(&keepalive).map_err(broken)?;
        Ok(Self {
            transport,
            reader: ReplyReader::expecting_greeting(),
            received_replies: VecDeque::new(),
            name,
            peer,
            local,
            reply_timeout: patience,
            unusable: false,
            closing_reply: None,
            connection_lost: false,
            // The greeting.
            outstanding_replies: 1,
            prefetched_commands: VecDeque::new(),
            iac_handling: IacHandling::default(),
            unanswered_sbuf: 0,
        })
    }

    /// `host:port` as the user named it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The server's end.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Longest wait for a reply.
    pub(crate) fn reply_timeout(&self) -> Duration {
        self.reply_timeout
    }

    /// The transport that its bytes go through, for the kernel's view of it.
    pub(crate) fn transport(&self) -> &ControlTransport {
        &self.transport
    }

    /// From here on a byte 255 goes out as the server takes it.
    pub(crate) fn set_iac_handling(&mut self, telnet: IacHandling) {
        self.iac_handling = telnet;
    }

    /// Whether a name can be told to the server: see [`IacHandling::Dropped`].
    pub(crate) fn can_send_name(&self, name: &[u8]) -> bool {
        self.iac_handling != IacHandling::Dropped || !name.contains(&IAC)
    }

    /// Whether the next command can be sent: nothing was given up, no reply is outstanding.
    pub(crate) fn is_usable(&self) -> bool {
        !self.unusable && self.outstanding_replies == 0 && self.unanswered_sbuf == 0
    }

    /// Whether the other side, or the network, ended the connection without a word.
    pub(crate) fn connection_was_lost(&self) -> bool {
        self.connection_lost
    }

    /// Gives the connection up: every later use fails at once.
    pub(crate) fn abandon(&mut self) {
        self.unusable = true;
    }

    /// Sends a command without waiting for its reply.
    pub(crate) async fn send(&mut self, command: &Command) -> Result<(), CopyFailure> {
        tracing::debug!(server = %self.name, ?command, "command");
        self.send_line(command.encode()).await
    }

    /// Sends a line as it is; CR LF is added. One that was sent ahead is not sent again.
    pub(crate) async fn send_line(&mut self, line: Vec<u8>) -> Result<(), CopyFailure> {
        self.check_ready_to_send()?;
        if self.take_prefetched(&line).await? {
            self.outstanding_replies = 1;
            return Ok(());
        }
        self.discard_unsolicited_replies()?;
        self.outstanding_replies = 1;
        self.write_line(line).await
    }

    fn check_ready_to_send(&mut self) -> Result<(), CopyFailure> {
        if self.unusable {
            return Err(
                self.unusable_failure("the control connection was given up after a failure")
            );
        }
        if self.outstanding_replies > 0 {
            return Err(self.unusable_failure("an earlier command was given up before its answer"));
        }
        Ok(())
    }

    /// Says goodbye without waiting for the answer: the end of what this side says goes out behind
    /// QUIT, so that a server which has not answered yet sees both, in order.
    pub(crate) async fn quit_without_reply(&mut self) {
        if !self.unusable && self.write_line(Command::Quit.encode()).await.is_ok() {
            // Nothing can be done about a connection that breaks now.
            let _ = self.transport.shutdown().await;
        }
        self.unusable = true;
    }

    /// Sends SBUF while a transfer runs. A server that takes it then does not answer; one whose
    /// transfer ended meanwhile says 200 (2003 paper §4.2). [`ClientControlConnection::drain_sbuf_replies`] is due
    /// after the transfer's final reply.
    pub(crate) async fn send_buffer_size(&mut self, bytes: u64) -> Result<(), CopyFailure> {
        if self.unusable {
            return Err(
                self.unusable_failure("the control connection was given up after a failure")
            );
        }
        let command = Command::Sbuf(bytes);
        tracing::debug!(server = %self.name, ?command, "command");
        self.unanswered_sbuf += 1;
        self.write_line(command.encode()).await
    }

    /// Finds the place behind all answers to [`ClientControlConnection::send_buffer_size`]: a PWD has an answer
    /// of its own code. Without success the connection is given up.
    pub(crate) async fn drain_sbuf_replies(&mut self) {
        if self.unanswered_sbuf == 0 {
            return;
        }
        let most = self.unanswered_sbuf + 1;
        if self.send(&Command::Pwd).await.is_err() {
            return;
        }
        for _ in 0..most {
            match self.final_reply().await {
                Ok(reply) if reply.code == 257 => {
                    self.unanswered_sbuf = 0;
                    return;
                }
                // One that answers SBUF with something else; the next may be PWD's.
                Ok(_) => self.outstanding_replies = 1,
                Err(_) => return,
            }
        }
        self.abandon();
    }

    async fn write_line(&mut self, mut line: Vec<u8>) -> Result<(), CopyFailure> {
        line.extend_from_slice(b"\r\n");
        self.write(&line).await
    }

    async fn write(&mut self, text: &[u8]) -> Result<(), CopyFailure> {
        let escaped: Vec<u8>;
        let mut text = text;
        if self.iac_handling == IacHandling::Doubled && text.contains(&IAC) {
            let twice = |byte: &u8| std::iter::repeat_n(*byte, 1 + usize::from(*byte == IAC));
            escaped = text.iter().flat_map(twice).collect();
            text = &escaped;
        }
        match timeout(self.reply_timeout, self.transport.write_all(text)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.connection_lost_failure(&error.to_string())),
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// Replies that nobody asked for belong to no command; 421 announces the end.
    fn discard_unsolicited_replies(&mut self) -> Result<(), CopyFailure> {
        while let Some(reply) = self.received_replies.pop_front() {
            tracing::debug!(server = %self.name, code = reply.code, text = %reply.for_log(), "reply nobody asked for");
            if reply.code == 421 {
                return Err(self.unusable_failure(&super::replies::display_reply(&reply)));
            }
        }
        Ok(())
    }

    /// The next reply, preliminary or final, however long it takes. Cancelling loses nothing.
    pub(crate) async fn next_reply(&mut self) -> Result<Reply, CopyFailure> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if let Some(reply) = self.received_replies.pop_front() {
                tracing::debug!(server = %self.name, code = reply.code, text = %reply.for_log(), "reply");
                if reply.code == 200 && self.unanswered_sbuf > 0 {
                    continue;
                }
                if reply.code == 421 {
                    self.unusable = true;
                    self.closing_reply = Some(super::replies::display_reply(&reply));
                }
                if !reply.is_preliminary() {
                    self.outstanding_replies = self.outstanding_replies.saturating_sub(1);
                }
                return Ok(reply);
            }
            if self.unusable {
                let farewell = self.closing_reply.clone();
                return Err(
                    self.unusable_failure(farewell.as_deref().unwrap_or("it was given up before"))
                );
            }
            match self.transport.read(&mut buffer).await {
                Ok(0) => return Err(self.connection_lost_failure("the server closed it")),
                Ok(n) => self.parse_received(&buffer[..n])?,
                Err(error) => return Err(self.connection_lost_failure(&error.to_string())),
            }
        }
    }

    fn parse_received(&mut self, bytes: &[u8]) -> Result<(), CopyFailure> {
        let mut replies = Vec::new();
        let result = self.reader.feed(bytes, &mut replies);
        self.received_replies.extend(replies);
        result.map_err(|error| {
            self.unusable = true;
            CopyFailure {
                exit: Exit::Protocol,
                message: format!(
                    "{} does not speak FTP: {error}; check host and port",
                    self.name
                ),
                transient: false,
            }
        })
    }

    /// The next reply within the time-out.
    pub(crate) async fn wait_for_reply(&mut self) -> Result<Reply, CopyFailure> {
        self.wait_for_reply_within(self.reply_timeout).await
    }

    /// The next reply within a time-out of its own.
    pub(crate) async fn wait_for_reply_within(
        &mut self,
        limit: Duration,
    ) -> Result<Reply, CopyFailure> {
        match timeout(limit, self.next_reply()).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// The next final reply; each preliminary one starts the time-out anew, up to [`MAX_PRELIMINARY_REPLIES`].
    pub(crate) async fn final_reply(&mut self) -> Result<Reply, CopyFailure> {
        for _ in 0..=MAX_PRELIMINARY_REPLIES {
            let reply = self.wait_for_reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        Err(self.too_many_replies_failure(MAX_PRELIMINARY_REPLIES))
    }

    /// The same for a command whose work may take long, as long as [`MarkerRateLimit`] allows its markers.
    pub(crate) async fn final_reply_with_markers(&mut self) -> Result<Reply, CopyFailure> {
        let mut markers = MarkerRateLimit::new();
        loop {
            let reply = self.wait_for_reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
            if markers.is_exceeded() {
                return Err(self.too_many_markers_failure());
            }
        }
    }

    /// Gives the connection up to a server whose markers are too many for [`MarkerRateLimit`].
    pub(crate) fn too_many_markers_failure(&mut self) -> CopyFailure {
        self.too_many_replies_failure(MAX_MARKER_BURST as usize)
    }

    /// Gives the connection up to a server that sends more than `most` preliminary replies.
    fn too_many_replies_failure(&mut self, most: usize) -> CopyFailure {
        self.unusable = true;
        CopyFailure::new(
            Exit::Protocol,
            format!(
                "{} sent more than {most} preliminary replies and no final one; report this to its \
                 administrator",
                self.name
            ),
        )
    }

    /// Sends a command and reads its final reply.
    pub(crate) async fn call(&mut self, command: &Command) -> Result<Reply, CopyFailure> {
        self.send(command).await?;
        self.final_reply().await
    }

    fn connection_lost_failure(&mut self, reason: &str) -> CopyFailure {
        self.connection_lost = true;
        self.unusable_failure(reason)
    }

    fn unusable_failure(&mut self, reason: &str) -> CopyFailure {
        self.unusable = true;
        unreachable_failure(format!(
            "lost the control connection to {}: {reason}; try again, with --resume",
            self.name
        ))
    }

    fn timeout_failure(&mut self) -> CopyFailure {
        self.unusable = true;
        unreachable_failure(format!(
            "{} did not answer within {} s; try again, with a longer --timeout if it is slow",
            self.name,
            self.reply_timeout.as_secs()
        ))
    }
}

async fn resolve(
    server: &Server,
    name: &str,
    patience: Duration,
) -> Result<Vec<SocketAddr>, CopyFailure> {
    let lookup = tokio::net::lookup_host((server.host.as_str(), server.port));
    let reason = match timeout(patience, lookup).await {
        Ok(Ok(addresses)) => return Ok(addresses.collect()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer in {} s", patience.as_secs()),
    };
    Err(CopyFailure {
        exit: Exit::Unreachable,
        message: format!("cannot find the address of {name}: {reason}; check the host name"),
        transient: false,
    })
}

fn display_name(server: &Server) -> String {
    if server.host.contains(':') {
        format!("[{}]:{}", server.host, server.port)
    } else {
        format!("{}:{}", server.host, server.port)
    }
}

/// A lost or unreachable peer, worth another attempt.
pub(crate) fn unreachable_failure(message: String) -> CopyFailure {
    CopyFailure {
        exit: Exit::Unreachable,
        message,
        transient: true,
    }
}
