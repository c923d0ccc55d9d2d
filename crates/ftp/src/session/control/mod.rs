//! The client's side of a control connection: sends command lines and reads replies, each within a
//! timeout.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use data::tunnel::{DataRoute, TunnelRoute};
use proto::client::IacHandling;
use proto::command::Command;
use proto::reply::{Reply, ReplyReader};
use socket2::{SockRef, TcpKeepalive};
use tokio::time::timeout;

use crate::Failure;
use crate::location::Server;
use crate::ssh::CarriedLogin;
use reach::ReachedServer;

pub(crate) mod dialogue;
mod echo;
mod marker_rate;
mod pipelining;
mod protected_lines;
mod protection;
pub(crate) mod reach;
mod surplus;

use echo::SentSecrets;
use marker_rate::MAX_MARKER_BURST;
pub(crate) use marker_rate::MarkerRateLimit;
use protected_lines::ProtectedLines;
use surplus::SurplusReplies;

/// Bytes read from the control connection at once.
const READ_SIZE: usize = 16 << 10;
/// Telnet IAC, the byte that begins a Telnet sequence (RFC 854).
const IAC: u8 = 255;
/// Preliminary replies accepted to one short command. A server that sends more would keep the
/// client waiting for ever.
pub(crate) const MAX_PRELIMINARY_REPLIES: usize = 100;
/// TCP keepalive: idle time before the first probe (TCP_KEEPIDLE, tcp(7)). The control connection
/// is idle during a long transfer, and NAT routers forget idle connections.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// Interval between keepalive probes (TCP_KEEPINTVL, tcp(7)).
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// The client's side of one control connection.
#[derive(Debug)]
pub(crate) struct ClientControlConnection {
    transport: ControlTransport,
    reader: ReplyReader,
    received_replies: VecDeque<Reply>,
    name: String,
    peer: SocketAddr,
    local: SocketAddr,
    /// The way through a proxy.
    route: Option<Arc<DataRoute>>,
    /// The login of ssh that carries it.
    carried_by: Option<CarriedLogin>,
    /// Shortest wait for a reply through the proxy, or through what carries the session.
    tunnel_rtt: Option<Duration>,
    /// When the command was sent whose reply is the next one.
    sent_at: Option<Instant>,
    reply_timeout: Duration,
    unusable: bool,
    /// The server's 421 reply, repeated to callers whose replies it still owes.
    closing_reply: Option<String>,
    /// The connection broke or was closed by the peer, rather than abandoned here.
    connection_lost: bool,
    /// Commands whose final replies are outstanding. If a caller stops waiting for one, later
    /// replies would be taken for answers to other commands, so the connection is unusable until
    /// this is zero.
    outstanding_replies: usize,
    /// Lines sent ahead, whose replies follow those: see
    /// [`ClientControlConnection::send_pipelined_with_prefetch`].
    prefetched_commands: VecDeque<Vec<u8>>,
    /// How the server reads a byte 255 in a command.
    iac_handling: IacHandling,
    /// SBUF commands sent during a transfer. Their replies may follow the transfer's final reply or
    /// never come.
    unanswered_sbuf: usize,
    /// Protects each line of a GSI session.
    gsi: Option<ProtectedLines>,
    /// The last bytes read end within a line.
    ends_within_a_line: bool,
    surplus: SurplusReplies,
    /// Masked in what the server says.
    secrets: SentSecrets,
}

impl ClientControlConnection {
    /// Connects to the first address of the name that accepts. Also returns the duration of the TCP
    /// handshake.
    pub(crate) async fn connect(
        server: &Server,
        reply_timeout: Duration,
    ) -> Result<(Self, Duration), Failure> {
        let reached = reach::reach(server, reply_timeout).await?;
        let rtt = reached.rtt;
        let connection = Self::from_reached(reached, server.host_and_port(), reply_timeout)?;
        Ok((connection, rtt))
    }

    fn from_reached(
        reached: ReachedServer,
        name: String,
        reply_timeout: Duration,
    ) -> Result<Self, Failure> {
        let broken = |error: std::io::Error| {
            Failure::unreachable(format!("lost {name} at once: {error}; try again"))
        };
        let ReachedServer {
            transport,
            peer,
            local,
            route,
            carried_by,
            rtt,
        } = reached;
        let is_carried = transport.is_carried();
        let local = match local {
            Some(local) => local,
            None => transport.local_addr().map_err(broken)?,
        };
        if !is_carried {
            let socket = SockRef::from(&transport);
            // Commands are small and latency counts: Nagle's algorithm (RFC 896) would delay the second
            // one until the first is acknowledged.
            socket.set_tcp_nodelay(true).map_err(broken)?;
            let keepalive = TcpKeepalive::new()
                .with_time(KEEPALIVE_AFTER)
                .with_interval(KEEPALIVE_EVERY);
            socket.set_tcp_keepalive(&keepalive).map_err(broken)?;
        }
        Ok(Self {
            transport,
            reader: ReplyReader::expecting_greeting(),
            received_replies: VecDeque::new(),
            name,
            peer,
            local,
            tunnel_rtt: (route.is_some() || is_carried).then_some(rtt),
            route,
            carried_by,
            sent_at: None,
            reply_timeout,
            unusable: false,
            closing_reply: None,
            connection_lost: false,
            // The greeting is the first reply.
            outstanding_replies: 1,
            prefetched_commands: VecDeque::new(),
            iac_handling: IacHandling::default(),
            unanswered_sbuf: 0,
            gsi: None,
            ends_within_a_line: false,
            surplus: SurplusReplies::default(),
            secrets: SentSecrets::default(),
        })
    }

    /// `host:port` as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The server's address. Unspecified behind a proxy that was given the server's name.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The way of data connections; `None`: they are direct.
    pub(crate) fn route(&self) -> Option<&Arc<DataRoute>> {
        self.route.as_ref()
    }

    /// Decides how data connections go, where ssh carries the session: beside it if a port of the server can be reached. Returns
    /// whether the server reaches ports of this machine; `None`: ssh does not carry it, and nothing is known.
    pub(crate) async fn settle_data_route(&mut self) -> Option<bool> {
        let login = self.carried_by.as_ref()?;
        let found = login.open_ports().await;
        if !found.far {
            self.route = Some(Arc::new(DataRoute::Carried(Arc::new(login.carrier()))));
        }
        Some(found.near)
    }

    /// Round trip through the proxy, or what carries the session, by the replies: the kernel sees only the way to it. `None`: it sees
    /// all of the way.
    pub(crate) fn tunnel_rtt(&self) -> Option<Duration> {
        self.tunnel_rtt
    }

    /// Finds the address of a server that only the proxy knows, as servers that connect to each other need it.
    pub(crate) async fn find_peer_addr(&mut self, server: &Server) -> Result<(), Failure> {
        if let Some(DataRoute::Proxy(route)) = self.route.as_deref()
            && self.peer.ip().is_unspecified()
        {
            let ip = reach::address_of(server, self.reply_timeout).await?;
            self.peer.set_ip(ip);
            self.route = Some(Arc::new(DataRoute::Proxy(TunnelRoute {
                server_ip: ip,
                ..route.clone()
            })));
        }
        Ok(())
    }

    /// The local address.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Longest wait for one reply.
    pub(crate) fn reply_timeout(&self) -> Duration {
        self.reply_timeout
    }

    /// Sets the longest wait for one reply.
    pub(crate) fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// The transport of the connection, for reading TCP_INFO of its socket.
    pub(crate) fn transport(&self) -> &ControlTransport {
        &self.transport
    }

    /// Sets how a byte 255 is sent from here on.
    pub(crate) fn set_iac_handling(&mut self, handling: IacHandling) {
        self.iac_handling = handling;
    }

    /// Whether the server can receive this name unchanged: see [`proto::client::IacHandling`].
    pub(crate) fn can_send_name(&self, name: &[u8]) -> bool {
        self.iac_handling != IacHandling::Dropped || !name.contains(&IAC)
    }

    /// Whether a command can be sent: the connection is intact and no reply is outstanding.
    pub(crate) fn is_usable(&self) -> bool {
        !self.unusable && self.outstanding_replies == 0 && self.unanswered_sbuf == 0
    }

    /// Whether no reply is outstanding, also to commands sent ahead.
    pub(crate) fn awaits_nothing(&self) -> bool {
        self.outstanding_replies == 0 && self.prefetched_commands.is_empty()
    }

    /// Whether the connection works, though replies may be outstanding.
    pub(crate) fn is_intact(&self) -> bool {
        !self.unusable
    }

    /// Whether the peer or the network closed the connection without a 421.
    pub(crate) fn connection_was_lost(&self) -> bool {
        self.connection_lost
    }

    /// Abandons the connection: every later use fails at once.
    pub(crate) fn abandon(&mut self) {
        self.unusable = true;
    }

    /// Sends a command without waiting for its reply.
    pub(crate) async fn send(&mut self, command: &Command) -> Result<(), Failure> {
        self.note_command(command);
        self.send_encoded(command.encode()).await?;
        self.surplus.on_sent(Some(command.verb()));
        Ok(())
    }

    /// Sends a line without secrets as it is, with CR LF added.
    pub(crate) async fn send_line(&mut self, line: Vec<u8>) -> Result<(), Failure> {
        dialogue::log_line(&self.name, &line);
        self.send_encoded(line).await?;
        self.surplus.on_sent(None);
        Ok(())
    }

    /// A line that was sent ahead is not sent again.
    async fn send_encoded(&mut self, line: Vec<u8>) -> Result<(), Failure> {
        self.check_ready_to_send()?;
        if self.take_prefetched(&line).await? {
            self.outstanding_replies = 1;
            return Ok(());
        }
        self.discard_surplus_replies().await?;
        self.outstanding_replies = 1;
        self.write_line(line).await?;
        self.sent_at = Some(Instant::now());
        Ok(())
    }

    fn check_ready_to_send(&mut self) -> Result<(), Failure> {
        if self.unusable {
            return Err(
                self.unusable_failure("the control connection was abandoned after a failure")
            );
        }
        if self.outstanding_replies > 0 {
            return Err(self.unusable_failure("an earlier command was abandoned before its reply"));
        }
        Ok(())
    }

    /// Sends QUIT without waiting for the reply, then shuts down the sending side. The FIN follows
    /// QUIT, so a server that has not answered yet sees both in order.
    pub(crate) async fn quit_without_reply(&mut self) {
        dialogue::log_command(&self.name, &Command::Quit);
        if !self.unusable && self.write_line(Command::Quit.encode()).await.is_ok() {
            // A connection that breaks here needs no handling: it is being closed.
            let _ = self.transport.shutdown().await;
        }
        self.unusable = true;
    }

    /// Sends SBUF during a transfer. A server that applies it sends no reply; one whose transfer
    /// has ended replies 200 (2003 paper §4.2). Call
    /// [`ClientControlConnection::drain_sbuf_replies`] after the transfer's final reply.
    pub(crate) async fn send_buffer_size(&mut self, bytes: u64) -> Result<(), Failure> {
        // The caller's own command is outstanding here, so the usual check before sending does not
        // apply.
        if self.unusable {
            return Err(
                self.unusable_failure("the control connection was abandoned after a failure")
            );
        }
        let command = Command::Sbuf(bytes);
        dialogue::log_command(&self.name, &command);
        self.unanswered_sbuf += 1;
        self.write_line(command.encode()).await
    }

    /// Reads past all replies to [`ClientControlConnection::send_buffer_size`]: PWD follows them,
    /// and its reply has a code of its own (257). Abandons the connection if that reply does not
    /// come.
    pub(crate) async fn drain_sbuf_replies(&mut self) {
        if self.unanswered_sbuf == 0 {
            return;
        }
        // Every SBUF may have a reply, and PWD has one.
        let max_replies = self.unanswered_sbuf + 1;
        if self.send(&Command::Pwd).await.is_err() {
            return;
        }
        for _ in 0..max_replies {
            match self.final_reply().await {
                Ok(reply) if reply.code == 257 => {
                    self.unanswered_sbuf = 0;
                    return;
                }
                // A reply to SBUF other than 200; the next one may be PWD's.
                Ok(_) => self.outstanding_replies = 1,
                Err(_) => return,
            }
        }
        self.abandon();
    }

    async fn write_line(&mut self, line: Vec<u8>) -> Result<(), Failure> {
        let text = self.encode_line(line)?;
        self.write(&text.0).await
    }

    async fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        match timeout(self.reply_timeout, self.transport.write_all(text)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.write_failure(error).await),
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// The next reply, preliminary or final, without a timeout. Cancel-safe.
    pub(crate) async fn next_reply(&mut self) -> Result<Reply, Failure> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if let Some(reply) = self.take_received() {
                // A late 200 answers SBUF, not the current command.
                if reply.code == 200 && self.unanswered_sbuf > 0 {
                    continue;
                }
                if reply.code == 421 {
                    self.unusable = true;
                    self.closing_reply = Some(crate::failure::display_reply(&reply));
                }
                if !reply.is_preliminary() {
                    self.outstanding_replies = self.outstanding_replies.saturating_sub(1);
                }
                if let (Some(sent), Some(rtt)) = (self.sent_at.take(), self.tunnel_rtt) {
                    self.tunnel_rtt = Some(rtt.min(sent.elapsed()));
                }
                return Ok(reply);
            }
            if self.unusable {
                let closing_reply = self.closing_reply.clone();
                return Err(self.unusable_failure(
                    closing_reply
                        .as_deref()
                        .unwrap_or("it was abandoned before"),
                ));
            }
            match self.transport.read(&mut buffer).await {
                Ok(0) => return Err(self.connection_lost_failure("the server closed it")),
                // No await follows before the bytes are parsed, so cancelling loses none.
                Ok(n) => self.parse_received(&buffer[..n])?,
                Err(error) => return Err(self.transport_failure(&error)),
            }
        }
    }

    fn parse_received(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let bytes = self.unprotect(bytes)?;
        let mut replies = Vec::new();
        let result = self.reader.feed(&bytes, &mut replies);
        self.received_replies.extend(replies);
        result.map_err(|error| {
            self.unusable = true;
            Failure::protocol(format!(
                "{} does not speak FTP: {}; check host and port",
                self.name,
                self.secrets.in_error(&error)
            ))
        })
    }

    /// The next reply within the session's timeout.
    pub(crate) async fn wait_for_reply(&mut self) -> Result<Reply, Failure> {
        self.wait_for_reply_within(self.reply_timeout).await
    }

    /// The next reply within the given timeout.
    pub(crate) async fn wait_for_reply_within(
        &mut self,
        limit: Duration,
    ) -> Result<Reply, Failure> {
        match timeout(limit, self.next_reply()).await {
            Ok(result) => result,
            Err(_) => Err(self.timeout_failure()),
        }
    }

    /// The next final reply. Each preliminary reply restarts the timeout, up to
    /// [`MAX_PRELIMINARY_REPLIES`].
    pub(crate) async fn final_reply(&mut self) -> Result<Reply, Failure> {
        for _ in 0..=MAX_PRELIMINARY_REPLIES {
            let reply = self.wait_for_reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        Err(self.too_many_replies_failure(MAX_PRELIMINARY_REPLIES))
    }

    /// The final reply of a command that may run long: preliminary replies are limited by
    /// [`MarkerRateLimit`] and not by number.
    pub(crate) async fn final_reply_with_markers(&mut self) -> Result<Reply, Failure> {
        let mut markers = MarkerRateLimit::new();
        loop {
            let reply = self.wait_for_reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
            if markers.count_marker() {
                return Err(self.too_many_markers_failure());
            }
        }
    }

    /// Abandons the connection after more markers than [`MarkerRateLimit`] allows.
    pub(crate) fn too_many_markers_failure(&mut self) -> Failure {
        self.too_many_replies_failure(MAX_MARKER_BURST as usize)
    }

    /// Abandons the connection after more than `limit` preliminary replies.
    fn too_many_replies_failure(&mut self, limit: usize) -> Failure {
        self.unusable = true;
        Failure::protocol(format!(
            "{} sent more than {limit} preliminary replies and no final one; report this to its \
                 administrator",
            self.name
        ))
    }

    fn connection_lost_failure(&mut self, reason: &str) -> Failure {
        self.connection_lost = true;
        self.unusable_failure(reason)
    }

    fn unusable_failure(&mut self, reason: &str) -> Failure {
        self.unusable = true;
        Failure::unreachable(format!(
            "lost the control connection to {}: {reason}; try again",
            self.name
        ))
    }

    fn timeout_failure(&mut self) -> Failure {
        self.unusable = true;
        Failure::unreachable(format!(
            "{} did not answer within {} s; try again, with a longer --timeout if it is slow",
            self.name,
            self.reply_timeout.as_secs()
        ))
    }
}
