//! A scripted server for tests: hears lines, says replies, moves data when told.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Credential;
use crate::location::{Scheme, Server};

/// One thing the server does.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedAction {
    /// Sends these bytes, each line as it is plus CR LF.
    SendLine(&'static str),
    /// Sends this line again and again until nobody takes it any more.
    SendLineForever(&'static str),
    /// Reads one line, which must start with this.
    ExpectLine(&'static str),
    /// Hears PASV (or EPSV when that is the word) and tells a data port.
    ExpectPassiveAndReply(&'static str),
    /// Hears PASV (or EPSV when that is the word) and listens, but does not tell yet.
    ExpectPassive(&'static str),
    /// Tells the data port.
    SendPassiveReply,
    /// Accepts on the data port, sends this and closes.
    SendData(Vec<u8>),
    /// Accepts on the data port and takes what comes.
    ReceiveData,
    /// Accepts on the data port and keeps the connection open.
    AcceptAndHold,
    /// Connects to where PORT told, sends this and closes.
    ConnectAndSendData(Vec<u8>),
    /// Hears nothing for so long, milliseconds.
    ExpectSilence(u64),
    /// Hears that the client says no more.
    ExpectEof,
    /// Waits, milliseconds.
    Sleep(u64),
}

use ScriptedAction::{
    AcceptAndHold, ConnectAndSendData, ExpectEof, ExpectLine, ExpectPassive, ExpectPassiveAndReply,
    ExpectSilence, ReceiveData, SendData, SendLine, SendLineForever, SendPassiveReply, Sleep,
};

/// Hears a line and says a reply.
pub(crate) fn command_and_reply(line: &'static str, reply: &'static str) -> Vec<ScriptedAction> {
    vec![ExpectLine(line), SendLine(reply)]
}

/// Greeting and login of a plain server without FEAT.
pub(crate) fn login_script() -> Vec<ScriptedAction> {
    login_script_with_feat("500 what?")
}

/// Greeting and login with a FEAT reply.
pub(crate) fn login_script_with_feat(feat: &'static str) -> Vec<ScriptedAction> {
    let mut acts = vec![SendLine("220 fake")];
    acts.extend(command_and_reply("USER joe", "331 pw"));
    acts.extend(command_and_reply("PASS secret", "230 in"));
    acts.extend(command_and_reply("FEAT", feat));
    if feat.contains("PARALLEL") {
        acts.extend(command_and_reply("SITE CLIENTINFO", "250 ok"));
    }
    acts.extend(command_and_reply("TYPE I", "200 ok"));
    acts
}

/// Greeting and login of a server that takes commands ahead: all is heard before anything is said.
/// `questions` are those behind it, which are left to be answered.
pub(crate) fn pipelined_login_script(
    feat: &'static str,
    questions: &[&'static str],
) -> Vec<ScriptedAction> {
    let lines = [
        "USER joe",
        "PASS secret",
        "FEAT",
        "SITE CLIENTINFO",
        "TYPE I",
    ];
    let mut acts = vec![SendLine(LONGHAUL_GREETING)];
    acts.extend(lines.iter().chain(questions).map(|line| ExpectLine(line)));
    acts.extend([
        SendLine("331 pw\n230 in"),
        SendLine(feat),
        SendLine("250 ok\n200 ok"),
    ]);
    acts
}

/// The greeting of a server that takes commands ahead.
pub(crate) const LONGHAUL_GREETING: &str = "220 longhaul 0.1.0 GridFTP server ready.";

/// A running script.
pub(crate) struct ScriptedFtpServer {
    /// How to reach it.
    pub(crate) server: Server,
    task: JoinHandle<Vec<u8>>,
}

impl ScriptedFtpServer {
    /// Starts a server for one session. It closes when the script ends.
    pub(crate) async fn start_session(acts: Vec<ScriptedAction>) -> Self {
        Self::start_sessions(vec![acts]).await
    }

    /// Starts a server for so many sessions, one after the other.
    pub(crate) async fn start_sessions(sessions: Vec<Vec<ScriptedAction>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut taken = Vec::new();
            for acts in sessions {
                let (stream, _) = listener.accept().await.unwrap();
                taken.append(&mut ScriptedFtpSession::new(stream).play(acts).await);
            }
            taken
        });
        let server = Server {
            scheme: Scheme::Ftp,
            host: "127.0.0.1".to_owned(),
            port,
            credential: Credential::password("joe", "secret"),
            query: None,
        };
        Self { server, task }
    }

    /// Waits for the end of the script; what came over data connections. Panics if the client did
    /// not keep to the script.
    pub(crate) async fn finish(self) -> Vec<u8> {
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, self.task)
            .await
            .unwrap()
            .unwrap()
    }
}

struct ScriptedFtpSession {
    control: BufReader<TcpStream>,
    data: Option<TcpListener>,
    /// PASV or EPSV.
    asked: &'static str,
    /// Where PORT told to connect.
    told: Option<SocketAddr>,
    held: Vec<TcpStream>,
    taken: Vec<u8>,
}

impl ScriptedFtpSession {
    fn new(stream: TcpStream) -> Self {
        Self {
            control: BufReader::new(stream),
            data: None,
            asked: "",
            told: None,
            held: Vec::new(),
            taken: Vec::new(),
        }
    }

    async fn play(mut self, acts: Vec<ScriptedAction>) -> Vec<u8> {
        for act in acts {
            self.act(act).await;
        }
        self.taken
    }

    async fn act(&mut self, act: ScriptedAction) {
        match act {
            SendLine(text) => self.say(text).await,
            SendLineForever(line) => {
                let lines = [line, "\r\n"].concat().repeat(1000);
                while self.control.write_all(lines.as_bytes()).await.is_ok() {}
            }
            ExpectLine(expected) => self.hear(expected).await,
            ExpectPassiveAndReply(verb) => {
                self.open(verb).await;
                self.tell().await;
            }
            ExpectPassive(verb) => self.open(verb).await,
            SendPassiveReply => self.tell().await,
            SendData(bytes) => {
                let mut data = self.accept().await;
                // The client may have had enough before the end.
                let _ = data.write_all(&bytes).await;
            }
            ReceiveData => {
                let mut data = self.accept().await;
                data.read_to_end(&mut self.taken).await.unwrap();
            }
            AcceptAndHold => {
                let data = self.accept().await;
                self.held.push(data);
            }
            ConnectAndSendData(bytes) => {
                let mut data = TcpStream::connect(self.told.unwrap()).await.unwrap();
                data.write_all(&bytes).await.unwrap();
            }
            ExpectSilence(ms) => {
                let limit = std::time::Duration::from_millis(ms);
                let heard = tokio::time::timeout(limit, self.control.fill_buf()).await;
                assert!(heard.is_err(), "heard {heard:?}");
            }
            ExpectEof => assert!(self.control.fill_buf().await.unwrap().is_empty()),
            Sleep(ms) => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
        }
    }

    async fn say(&mut self, text: &str) {
        let mut bytes = text.replace('\n', "\r\n").into_bytes();
        bytes.extend_from_slice(b"\r\n");
        self.control.write_all(&bytes).await.unwrap();
    }

    async fn hear(&mut self, expected: &str) {
        let mut line = Vec::new();
        self.control.read_until(b'\n', &mut line).await.unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(
            line.starts_with(expected) && line.ends_with("\r\n"),
            "expected {expected:?}, heard {line:?}"
        );
        if let Some(numbers) = line.trim_end().strip_prefix("PORT ") {
            self.told = Some(address(numbers));
        }
    }

    async fn open(&mut self, verb: &'static str) {
        self.hear(verb).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.data = Some(listener);
        self.asked = verb;
    }

    async fn tell(&mut self) {
        let address = self.data.as_ref().unwrap().local_addr().unwrap();
        let text = if self.asked == "PASV" {
            format!("227 Entering Passive Mode ({})", six_numbers(address))
        } else {
            format!(
                "229 Entering Extended Passive Mode (|||{}|)",
                address.port()
            )
        };
        self.say(&text).await;
    }

    async fn accept(&mut self) -> TcpStream {
        self.data.as_ref().unwrap().accept().await.unwrap().0
    }
}

fn address(numbers: &str) -> SocketAddr {
    let numbers: Vec<u8> = numbers.split(',').map(|n| n.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers.try_into().unwrap();
    SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))
}

fn six_numbers(address: SocketAddr) -> String {
    let port = address.port();
    format!("127,0,0,1,{},{}", port >> 8, port & 255)
}
