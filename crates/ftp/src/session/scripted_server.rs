//! A scripted FTP server for tests: expects command lines, sends replies, moves data.

use std::net::SocketAddr;
use std::sync::Arc;

use data::transport::ControlTransport;
use proto::eblock::{BlockFlags, BlockHeader, HEADER_LEN};
use security::tls::TlsConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Credential;
use crate::location::{Scheme, Server};

/// One step of a script.
#[derive(Debug, Clone)]
pub enum ScriptedAction {
    /// Sends this text, each line with CR LF.
    SendLine(&'static str),
    /// Sends this line repeatedly until the connection closes.
    SendLineForever(&'static str),
    /// Reads one line, which must begin with this.
    ExpectLine(&'static str),
    /// Expects PASV (or EPSV, whichever is named), listens and replies with the port.
    ExpectPassiveAndReply(&'static str),
    /// Expects PASV (or EPSV, whichever is named) and listens, without a reply yet.
    ExpectPassive(&'static str),
    /// Replies with the address of the data port.
    SendPassiveReply,
    /// Accepts on the data port, sends this and closes.
    SendData(Vec<u8>),
    /// Accepts on the data port and reads to the end.
    ReceiveData,
    /// Accepts on the data port and keeps the connection open.
    AcceptAndHold,
    /// Accepts on the data port, for the next transfer of data.
    AcceptAhead,
    /// Reads the blocks of one MODE E file up to EOF, over the held connection or, without one, the next that arrives,
    /// and holds it.
    ReceiveBlocks,
    /// Expects no bytes on the held data connection for this long, milliseconds.
    ExpectDataSilence(u64),
    /// Connects to the address of PORT, sends this and closes.
    ConnectAndSendData(Vec<u8>),
    /// Expects no input for this long, milliseconds.
    ExpectSilence(u64),
    /// Expects that the client closes its sending side.
    ExpectEof,
    /// Waits, milliseconds.
    Sleep(u64),
    /// Performs a TLS handshake with this configuration.
    StartTls(TlsConfig),
    /// Performs a TLS handshake, in which the client refuses this end.
    FailTls(TlsConfig),
}

use ScriptedAction::{
    AcceptAhead, AcceptAndHold, ConnectAndSendData, ExpectDataSilence, ExpectEof, ExpectLine,
    ExpectPassive, ExpectPassiveAndReply, ExpectSilence, FailTls, ReceiveBlocks, ReceiveData,
    SendData, SendLine, SendLineForever, SendPassiveReply, Sleep, StartTls,
};

/// The steps of several parts, one after the other.
pub fn script<const N: usize>(parts: [Vec<ScriptedAction>; N]) -> Vec<ScriptedAction> {
    parts.into_iter().flatten().collect()
}

/// Expects a command and sends a reply.
pub fn command_and_reply(line: &'static str, reply: &'static str) -> Vec<ScriptedAction> {
    vec![ExpectLine(line), SendLine(reply)]
}

/// Greeting and login of a plain server without FEAT.
pub fn login_script() -> Vec<ScriptedAction> {
    login_script_with_feat("500 what?")
}

/// Greeting and login with this reply to FEAT.
pub fn login_script_with_feat(feat: &'static str) -> Vec<ScriptedAction> {
    let mut actions = vec![SendLine("220 fake")];
    actions.extend(command_and_reply("USER joe", "331 pw"));
    actions.extend(command_and_reply("PASS secret", "230 in"));
    actions.extend(command_and_reply("FEAT", feat));
    if feat.contains("PARALLEL") {
        actions.extend(command_and_reply("SITE CLIENTINFO", "250 ok"));
    }
    actions.extend(command_and_reply("TYPE I", "200 ok"));
    actions
}

/// Greeting and login of a server that supports pipelining: it reads all commands before it
/// replies. The replies to `prefetched`, which the client sends behind them, are left to the caller.
pub fn pipelined_login_script(
    feat: &'static str,
    prefetched: &[&'static str],
) -> Vec<ScriptedAction> {
    let lines = [
        "USER joe",
        "PASS secret",
        "FEAT",
        "SITE CLIENTINFO",
        "TYPE I",
    ];
    let mut actions = vec![SendLine(LONGHAUL_GREETING)];
    actions.extend(lines.iter().chain(prefetched).map(|line| ExpectLine(line)));
    actions.extend([
        SendLine("331 pw\n230 in"),
        SendLine(feat),
        SendLine("250 ok\n200 ok"),
    ]);
    actions
}

/// Greeting and login of globus-gridftp-server: everything behind PASS arrives at once. The replies to `prefetched` are left
/// to the caller.
pub fn toolkit_login_script(
    feat: &'static str,
    prefetched: &[&'static str],
) -> Vec<ScriptedAction> {
    let mut actions = vec![SendLine(TOOLKIT_GREETING)];
    actions.extend(command_and_reply("USER joe", "331 pw"));
    actions.extend([ExpectLine("PASS secret"), ExpectSilence(50)]);
    actions.push(SendLine("230 in"));
    let lines = ["FEAT", "SITE CLIENTINFO", "TYPE I"];
    actions.extend(lines.iter().chain(prefetched).map(|line| ExpectLine(line)));
    actions.extend([SendLine(feat), SendLine("250 ok\n200 ok")]);
    actions
}

/// The greeting of globus-gridftp-server.
pub const TOOLKIT_GREETING: &str =
    "220 h GridFTP Server 13.20 (gcc64, 1560187294-0) [Globus Toolkit 6.0] ready.";

/// The greeting of a server that supports pipelining.
pub const LONGHAUL_GREETING: &str = "220 longhaul 0.1.0 GridFTP server ready.";

/// A server that plays a script in the background.
pub struct ScriptedFtpServer {
    /// Address and login of it.
    pub server: Server,
    task: JoinHandle<Vec<u8>>,
}

impl ScriptedFtpServer {
    /// Starts a server for one session. It closes when the script ends.
    pub async fn start_session(actions: Vec<ScriptedAction>) -> Self {
        Self::start_sessions(vec![actions]).await
    }

    /// Starts a server for several sessions, one after the other.
    pub async fn start_sessions(sessions: Vec<Vec<ScriptedAction>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut received = Vec::new();
            for actions in sessions {
                let (stream, _) = listener.accept().await.unwrap();
                received.append(&mut ScriptedFtpSession::new(stream).play(actions).await);
            }
            received
        });
        let server = Server {
            scheme: Scheme::Ftp,
            host: "127.0.0.1".to_owned(),
            port,
            credential: Credential::password("joe", "secret"),
            query: None,
            security: Arc::default(),
        };
        Self { server, task }
    }

    /// Waits for the end of the script and returns the bytes received over data connections. Panics
    /// if the client did not follow the script.
    pub async fn finish(self) -> Vec<u8> {
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, self.task)
            .await
            .unwrap()
            .unwrap()
    }
}

struct ScriptedFtpSession {
    control: ControlTransport,
    /// Received and not looked at yet.
    unread: Vec<u8>,
    data: Option<TcpListener>,
    /// Which command the passive reply answers: PASV or EPSV.
    passive_verb: &'static str,
    /// Address from PORT.
    port_argument: Option<SocketAddr>,
    held_connections: Vec<TcpStream>,
    accepted_ahead: Option<TcpStream>,
    received: Vec<u8>,
}

impl ScriptedFtpSession {
    fn new(stream: TcpStream) -> Self {
        Self {
            control: ControlTransport::accepted(stream),
            unread: Vec::new(),
            data: None,
            passive_verb: "",
            port_argument: None,
            held_connections: Vec::new(),
            accepted_ahead: None,
            received: Vec::new(),
        }
    }

    async fn play(mut self, actions: Vec<ScriptedAction>) -> Vec<u8> {
        for act in actions {
            self.act(act).await;
        }
        self.received
    }

    async fn act(&mut self, act: ScriptedAction) {
        match act {
            SendLine(text) => self.send_reply(text).await,
            SendLineForever(line) => {
                let lines = [line, "\r\n"].concat().repeat(1000);
                while self.control.write_all(lines.as_bytes()).await.is_ok() {}
            }
            ExpectLine(expected) => self.expect_line(expected).await,
            ExpectPassiveAndReply(verb) => {
                self.listen_for_data(verb).await;
                self.send_passive_reply().await;
            }
            ExpectPassive(verb) => self.listen_for_data(verb).await,
            SendPassiveReply => self.send_passive_reply().await,
            SendData(bytes) => {
                let mut data = self.accept().await;
                // The client may close before it has read everything.
                let _ = data.write_all(&bytes).await;
            }
            ReceiveData => {
                let mut data = self.accept().await;
                data.read_to_end(&mut self.received).await.unwrap();
            }
            AcceptAndHold => {
                let data = self.accept().await;
                self.held_connections.push(data);
            }
            AcceptAhead => self.accepted_ahead = Some(self.accept().await),
            ReceiveBlocks => self.receive_blocks().await,
            ExpectDataSilence(ms) => {
                let limit = std::time::Duration::from_millis(ms);
                let mut byte = [0];
                let data = self.held_connections.last_mut().unwrap();
                let received = tokio::time::timeout(limit, data.read(&mut byte)).await;
                assert!(received.is_err(), "data arrived");
            }
            ConnectAndSendData(bytes) => {
                let mut data = TcpStream::connect(self.port_argument.unwrap())
                    .await
                    .unwrap();
                data.write_all(&bytes).await.unwrap();
            }
            ExpectSilence(ms) => {
                let limit = std::time::Duration::from_millis(ms);
                let received = tokio::time::timeout(limit, self.fill()).await;
                assert!(received.is_err(), "received {:?}", self.unread);
            }
            ExpectEof => {
                // A client that abandons TLS may reset the connection.
                let ended = self.fill().await.unwrap_or(0) == 0;
                assert!(
                    ended && self.unread.is_empty(),
                    "received {:?}",
                    self.unread
                );
            }
            StartTls(config) => {
                self.control.start_tls(&config, None).unwrap();
                self.control.complete_handshake().await.unwrap();
            }
            FailTls(config) => {
                self.control.start_tls(&config, None).unwrap();
                // With TLS 1.3 the refusal may arrive after the server's end of the handshake.
                let _ = self.control.complete_handshake().await;
            }
            Sleep(ms) => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
        }
    }

    /// Reads more bytes; 0: the client has closed its end.
    async fn fill(&mut self) -> std::io::Result<usize> {
        let mut buffer = [0; 4096];
        let count = self.control.read(&mut buffer).await?;
        self.unread.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    async fn send_reply(&mut self, text: &str) {
        let mut bytes = text.replace('\n', "\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n");
        self.control.write_all(&bytes).await.unwrap();
    }

    async fn expect_line(&mut self, expected: &str) {
        let end = loop {
            if let Some(at) = self.unread.iter().position(|byte| *byte == b'\n') {
                break at + 1;
            }
            if self.fill().await.unwrap() == 0 {
                break self.unread.len();
            }
        };
        let line: Vec<u8> = self.unread.drain(..end).collect();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(
            line.starts_with(expected) && line.ends_with("\r\n"),
            "expected {expected:?}, got {line:?}"
        );
        if let Some(numbers) = line.trim_end().strip_prefix("PORT ") {
            self.port_argument = Some(address(numbers));
        }
    }

    async fn listen_for_data(&mut self, verb: &'static str) {
        self.expect_line(verb).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.data = Some(listener);
        self.passive_verb = verb;
    }

    async fn send_passive_reply(&mut self) {
        let address = self.data.as_ref().unwrap().local_addr().unwrap();
        let text = if self.passive_verb == "PASV" {
            format!("227 Entering Passive Mode ({})", port_argument_of(address))
        } else {
            format!(
                "229 Entering Extended Passive Mode (|||{}|)",
                address.port()
            )
        };
        self.send_reply(&text).await;
    }

    async fn receive_blocks(&mut self) {
        if self.held_connections.is_empty() {
            let data = self.accept().await;
            self.held_connections.push(data);
        }
        let data = self.held_connections.last_mut().unwrap();
        loop {
            let mut header = [0; HEADER_LEN];
            data.read_exact(&mut header).await.unwrap();
            let header = BlockHeader::decode(&header);
            if header.flags.contains(BlockFlags::EOF) {
                return;
            }
            let mut payload = data.take(header.count);
            payload.read_to_end(&mut self.received).await.unwrap();
        }
    }

    /// The data connection that was accepted ahead, or else the next that arrives.
    async fn accept(&mut self) -> TcpStream {
        if let Some(accepted) = self.accepted_ahead.take() {
            return accepted;
        }
        self.data.as_ref().unwrap().accept().await.unwrap().0
    }
}

fn address(numbers: &str) -> SocketAddr {
    let numbers: Vec<u8> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers.try_into().unwrap();
    SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))
}

fn port_argument_of(address: SocketAddr) -> String {
    let port = address.port();
    format!("127,0,0,1,{},{}", port >> 8, port & 255)
}
