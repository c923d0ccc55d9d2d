//! The control connection: command lines out, replies in, each with its time-out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use proto::client::TelnetEscape;
use proto::command::Command;
use proto::reply::{Reply, ReplyReader};
use socket2::{SockRef, TcpKeepalive};
use tokio::time::timeout;

use crate::location::Server;
use crate::{Exit, Failure};

mod ahead;
mod markers;

use markers::MOST_MARKERS;
pub(crate) use markers::MarkerPace;

/// Bytes taken off the control connection at once.
const READ_SIZE: usize = 16 << 10;
/// The byte that begins a Telnet sequence (RFC 854).
const IAC: u8 = 255;
/// Most preliminary replies to one command: one who sends them without end answers never.
pub(crate) const MOST_PRELIMINARY: usize = 100;
/// TCP keep-alive: first probe after this long without traffic, then every [`KEEPALIVE_EVERY`].
/// Long transfers leave the control connection idle, and routers forget idle connections.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
/// See [`KEEPALIVE_AFTER`].
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);

/// One control connection.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    transport: ControlTransport,
    reader: ReplyReader,
    ready: VecDeque<Reply>,
    name: String,
    peer: SocketAddr,
    local: SocketAddr,
    patience: Duration,
    lost: bool,
    /// Farewell with which the server ended the session (421), for those whose answers it owes.
    farewell: Option<String>,
    /// The connection broke or was closed, rather than given up.
    cut: bool,
    /// Commands whose final replies are still to come: when a caller gave up on one, later replies
    /// would be taken for answers to other commands.
    awaiting: usize,
    /// Lines sent ahead of their time, behind those: see [`ControlChannel::send_with`].
    ahead: VecDeque<Vec<u8>>,
    /// The server's understanding of a byte 255 of a command.
    telnet: TelnetEscape,
    /// Commands sent while another ran (SBUF) whose answers may come behind that one's, or not at
    /// all.
    unanswered: usize,
}

impl ControlChannel {
    /// Connects to the first address of the name that answers. Also gives the time of the TCP
    /// handshake.
    pub(crate) async fn connect(
        server: &Server,
        patience: Duration,
    ) -> Result<(Self, Duration), Failure> {
        let name = shown_name(server);
        let mut reason = String::from("the name has no address");
        // A refusal is an answer: most likely nothing serves there.
        let mut refused = true;
        for address in resolve(server, &name, patience).await? {
            let start = Instant::now();
            match timeout(patience, ControlTransport::connect(address)).await {
                Ok(Ok(transport)) => {
                    let handshake = start.elapsed();
                    return Ok((Self::over(transport, name, patience)?, handshake));
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
        Err(Failure {
            exit: Exit::Unreachable,
            message: format!(
                "cannot connect to {name}: {reason}; check host and port, and that the server runs"
            ),
            transient: !refused,
        })
    }

    fn over(
        transport: ControlTransport,
        name: String,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let broken =
            |error: std::io::Error| unreachable(format!("lost {name} at once: {error}; try again"));
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
            ready: VecDeque::new(),
            name,
            peer,
            local,
            patience,
            lost: false,
            farewell: None,
            cut: false,
            // The greeting.
            awaiting: 1,
            ahead: VecDeque::new(),
            telnet: TelnetEscape::default(),
            unanswered: 0,
        })
    }

    /// `host:port` as the user named it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The server's end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// This end.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Longest wait for a reply.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// The transport that its bytes go through, for the kernel's view of it.
    pub(crate) fn transport(&self) -> &ControlTransport {
        &self.transport
    }

    /// From here on a byte 255 goes out as the server takes it.
    pub(crate) fn speak_telnet(&mut self, telnet: TelnetEscape) {
        self.telnet = telnet;
    }

    /// Whether a name can be told to the server: see [`TelnetEscape::Dropped`].
    pub(crate) fn can_tell(&self, name: &[u8]) -> bool {
        self.telnet != TelnetEscape::Dropped || !name.contains(&IAC)
    }

    /// Whether the next command can be sent: nothing was given up, no reply is outstanding.
    pub(crate) fn is_usable(&self) -> bool {
        !self.lost && self.awaiting == 0 && self.unanswered == 0
    }

    /// Whether the other side, or the network, ended the connection without a word.
    pub(crate) fn was_cut(&self) -> bool {
        self.cut
    }

    /// Gives the connection up: every later use fails at once.
    pub(crate) fn abandon(&mut self) {
        self.lost = true;
    }

    /// Sends a command without waiting for its reply.
    pub(crate) async fn send(&mut self, command: &Command) -> Result<(), Failure> {
        tracing::debug!(server = %self.name, ?command, "command");
        self.send_line(command.encode()).await
    }

    /// Sends a line as it is; CR LF is added. One that was sent ahead is not sent again.
    pub(crate) async fn send_line(&mut self, line: Vec<u8>) -> Result<(), Failure> {
        self.ready_to_send()?;
        if self.was_asked(&line).await? {
            self.awaiting = 1;
            return Ok(());
        }
        self.drop_unasked()?;
        self.awaiting = 1;
        self.write_line(line).await
    }

    fn ready_to_send(&mut self) -> Result<(), Failure> {
        if self.lost {
            return Err(self.gone("the control connection was given up after a failure"));
        }
        if self.awaiting > 0 {
            return Err(self.gone("an earlier command was given up before its answer"));
        }
        Ok(())
    }

    /// Says goodbye without waiting for the answer: the end of what this side says goes out behind
    /// QUIT, so that a server which has not answered yet sees both, in order.
    pub(crate) async fn leave(&mut self) {
        if !self.lost && self.write_line(Command::Quit.encode()).await.is_ok() {
            // Nothing can be done about a connection that breaks now.
            let _ = self.transport.shutdown().await;
        }
        self.lost = true;
    }

    /// Sends SBUF while a transfer runs. A server that takes it then does not answer; one whose
    /// transfer ended meanwhile says 200 (2003 paper §4.2). [`ControlChannel::settle`] is due
    /// after the transfer's final reply.
    pub(crate) async fn tell_buffer(&mut self, bytes: u64) -> Result<(), Failure> {
        if self.lost {
            return Err(self.gone("the control connection was given up after a failure"));
        }
        let command = Command::Sbuf(bytes);
        tracing::debug!(server = %self.name, ?command, "command");
        self.unanswered += 1;
        self.write_line(command.encode()).await
    }

    /// Finds the place behind all answers to [`ControlChannel::tell_buffer`]: a PWD has an answer
    /// of its own code. Without success the connection is given up.
    pub(crate) async fn settle(&mut self) {
        if self.unanswered == 0 {
            return;
        }
        let most = self.unanswered + 1;
        if self.send(&Command::Pwd).await.is_err() {
            return;
        }
        for _ in 0..most {
            match self.final_reply().await {
                Ok(reply) if reply.code == 257 => {
                    self.unanswered = 0;
                    return;
                }
                // One that answers SBUF with something else; the next may be PWD's.
                Ok(_) => self.awaiting = 1,
                Err(_) => return,
            }
        }
        self.abandon();
    }

    async fn write_line(&mut self, mut line: Vec<u8>) -> Result<(), Failure> {
        line.extend_from_slice(b"\r\n");
        self.write(&line).await
    }

    async fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        let escaped: Vec<u8>;
        let mut text = text;
        if self.telnet == TelnetEscape::Doubled && text.contains(&IAC) {
            let twice = |byte: &u8| std::iter::repeat_n(*byte, 1 + usize::from(*byte == IAC));
            escaped = text.iter().flat_map(twice).collect();
            text = &escaped;
        }
        match timeout(self.patience, self.transport.write_all(text)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.broken(&error.to_string())),
            Err(_) => Err(self.silent()),
        }
    }

    /// Replies that nobody asked for belong to no command; 421 announces the end.
    fn drop_unasked(&mut self) -> Result<(), Failure> {
        while let Some(reply) = self.ready.pop_front() {
            tracing::debug!(server = %self.name, code = reply.code, text = %reply.for_log(), "reply nobody asked for");
            if reply.code == 421 {
                return Err(self.gone(&super::replies::shown(&reply)));
            }
        }
        Ok(())
    }

    /// The next reply, preliminary or final, however long it takes. Cancelling loses nothing.
    pub(crate) async fn next_reply(&mut self) -> Result<Reply, Failure> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if let Some(reply) = self.ready.pop_front() {
                tracing::debug!(server = %self.name, code = reply.code, text = %reply.for_log(), "reply");
                if reply.code == 200 && self.unanswered > 0 {
                    continue;
                }
                if reply.code == 421 {
                    self.lost = true;
                    self.farewell = Some(super::replies::shown(&reply));
                }
                if !reply.is_preliminary() {
                    self.awaiting = self.awaiting.saturating_sub(1);
                }
                return Ok(reply);
            }
            if self.lost {
                let farewell = self.farewell.clone();
                return Err(self.gone(farewell.as_deref().unwrap_or("it was given up before")));
            }
            match self.transport.read(&mut buffer).await {
                Ok(0) => return Err(self.broken("the server closed it")),
                Ok(n) => self.take(&buffer[..n])?,
                Err(error) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut replies = Vec::new();
        let result = self.reader.feed(bytes, &mut replies);
        self.ready.extend(replies);
        result.map_err(|error| {
            self.lost = true;
            Failure {
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
    pub(crate) async fn reply(&mut self) -> Result<Reply, Failure> {
        self.reply_within(self.patience).await
    }

    /// The next reply within a time-out of its own.
    pub(crate) async fn reply_within(&mut self, limit: Duration) -> Result<Reply, Failure> {
        match timeout(limit, self.next_reply()).await {
            Ok(result) => result,
            Err(_) => Err(self.silent()),
        }
    }

    /// The next final reply; each preliminary one starts the time-out anew, up to [`MOST_PRELIMINARY`].
    pub(crate) async fn final_reply(&mut self) -> Result<Reply, Failure> {
        for _ in 0..=MOST_PRELIMINARY {
            let reply = self.reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
        Err(self.endless(MOST_PRELIMINARY))
    }

    /// The same for a command whose work may take long, as long as [`MarkerPace`] allows its markers.
    pub(crate) async fn final_reply_of_long_work(&mut self) -> Result<Reply, Failure> {
        let mut markers = MarkerPace::new();
        loop {
            let reply = self.reply().await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
            if markers.too_many() {
                return Err(self.endless_markers());
            }
        }
    }

    /// Gives the connection up to a server whose markers are too many for [`MarkerPace`].
    pub(crate) fn endless_markers(&mut self) -> Failure {
        self.endless(MOST_MARKERS as usize)
    }

    /// Gives the connection up to a server that sends more than `most` preliminary replies.
    fn endless(&mut self, most: usize) -> Failure {
        self.lost = true;
        Failure::new(
            Exit::Protocol,
            format!(
                "{} sent more than {most} preliminary replies and no final one; report this to its \
                 administrator",
                self.name
            ),
        )
    }

    /// Sends a command and reads its final reply.
    pub(crate) async fn call(&mut self, command: &Command) -> Result<Reply, Failure> {
        self.send(command).await?;
        self.final_reply().await
    }

    fn broken(&mut self, reason: &str) -> Failure {
        self.cut = true;
        self.gone(reason)
    }

    fn gone(&mut self, reason: &str) -> Failure {
        self.lost = true;
        unreachable(format!(
            "lost the control connection to {}: {reason}; try again, with --resume",
            self.name
        ))
    }

    fn silent(&mut self) -> Failure {
        self.lost = true;
        unreachable(format!(
            "{} did not answer within {} s; try again, with a longer --timeout if it is slow",
            self.name,
            self.patience.as_secs()
        ))
    }
}

async fn resolve(
    server: &Server,
    name: &str,
    patience: Duration,
) -> Result<Vec<SocketAddr>, Failure> {
    let lookup = tokio::net::lookup_host((server.host.as_str(), server.port));
    let reason = match timeout(patience, lookup).await {
        Ok(Ok(addresses)) => return Ok(addresses.collect()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer in {} s", patience.as_secs()),
    };
    Err(Failure {
        exit: Exit::Unreachable,
        message: format!("cannot find the address of {name}: {reason}; check the host name"),
        transient: false,
    })
}

fn shown_name(server: &Server) -> String {
    if server.host.contains(':') {
        format!("[{}]:{}", server.host, server.port)
    } else {
        format!("{}:{}", server.host, server.port)
    }
}

/// A lost or unreachable peer, worth another attempt.
pub(crate) fn unreachable(message: String) -> Failure {
    Failure {
        exit: Exit::Unreachable,
        message,
        transient: true,
    }
}
