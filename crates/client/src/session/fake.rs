//! A scripted server for tests: hears lines, says replies, moves data when told.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Credential;
use crate::location::{Scheme, Server};

/// One thing the server does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends these bytes, each line as it is plus CR LF.
    Say(&'static str),
    /// Sends this line again and again until nobody takes it any more.
    SayWithoutEnd(&'static str),
    /// Reads one line, which must start with this.
    Hear(&'static str),
    /// Hears PASV (or EPSV when that is the word) and tells a data port.
    Listen(&'static str),
    /// Hears PASV (or EPSV when that is the word) and listens, but does not tell yet.
    Open(&'static str),
    /// Tells the data port.
    Tell,
    /// Accepts on the data port, sends this and closes.
    Give(Vec<u8>),
    /// Accepts on the data port and takes what comes.
    Take,
    /// Accepts on the data port and keeps the connection open.
    Hold,
    /// Connects to where PORT told, sends this and closes.
    Deliver(Vec<u8>),
    /// Hears nothing for so long, milliseconds.
    Silence(u64),
    /// Hears that the client says no more.
    HearEnd,
    /// Waits, milliseconds.
    Wait(u64),
}

use Act::{
    Deliver, Give, Hear, HearEnd, Hold, Listen, Open, Say, SayWithoutEnd, Silence, Take, Tell, Wait,
};

/// Hears a line and says a reply.
pub(crate) fn call(line: &'static str, reply: &'static str) -> Vec<Act> {
    vec![Hear(line), Say(reply)]
}

/// Greeting and login of a plain server without FEAT.
pub(crate) fn login() -> Vec<Act> {
    login_with("500 what?")
}

/// Greeting and login with a FEAT reply.
pub(crate) fn login_with(feat: &'static str) -> Vec<Act> {
    let mut acts = vec![Say("220 fake")];
    acts.extend(call("USER joe", "331 pw"));
    acts.extend(call("PASS secret", "230 in"));
    acts.extend(call("FEAT", feat));
    if feat.contains("PARALLEL") {
        acts.extend(call("SITE CLIENTINFO", "250 ok"));
    }
    acts.extend(call("TYPE I", "200 ok"));
    acts
}

/// Greeting and login of a server that takes commands ahead: all is heard before anything is said.
/// `questions` are those behind it, which are left to be answered.
pub(crate) fn login_at_once(feat: &'static str, questions: &[&'static str]) -> Vec<Act> {
    let lines = [
        "USER joe",
        "PASS secret",
        "FEAT",
        "SITE CLIENTINFO",
        "TYPE I",
    ];
    let mut acts = vec![Say(LONGHAUL)];
    acts.extend(lines.iter().chain(questions).map(|line| Hear(line)));
    acts.extend([Say("331 pw\n230 in"), Say(feat), Say("250 ok\n200 ok")]);
    acts
}

/// The greeting of a server that takes commands ahead.
pub(crate) const LONGHAUL: &str = "220 longhaul 0.1.0 GridFTP server ready.";

/// A running script.
pub(crate) struct Fake {
    /// How to reach it.
    pub(crate) server: Server,
    task: JoinHandle<Vec<u8>>,
}

impl Fake {
    /// Starts a server for one session. It closes when the script ends.
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        Self::start_each(vec![acts]).await
    }

    /// Starts a server for so many sessions, one after the other.
    pub(crate) async fn start_each(sessions: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut taken = Vec::new();
            for acts in sessions {
                let (stream, _) = listener.accept().await.unwrap();
                taken.append(&mut Actor::new(stream).play(acts).await);
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

struct Actor {
    control: BufReader<TcpStream>,
    data: Option<TcpListener>,
    /// PASV or EPSV.
    asked: &'static str,
    /// Where PORT told to connect.
    told: Option<SocketAddr>,
    held: Vec<TcpStream>,
    taken: Vec<u8>,
}

impl Actor {
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

    async fn play(mut self, acts: Vec<Act>) -> Vec<u8> {
        for act in acts {
            self.act(act).await;
        }
        self.taken
    }

    async fn act(&mut self, act: Act) {
        match act {
            Say(text) => self.say(text).await,
            SayWithoutEnd(line) => {
                let lines = [line, "\r\n"].concat().repeat(1000);
                while self.control.write_all(lines.as_bytes()).await.is_ok() {}
            }
            Hear(expected) => self.hear(expected).await,
            Listen(verb) => {
                self.open(verb).await;
                self.tell().await;
            }
            Open(verb) => self.open(verb).await,
            Tell => self.tell().await,
            Give(bytes) => {
                let mut data = self.accept().await;
                // The client may have had enough before the end.
                let _ = data.write_all(&bytes).await;
            }
            Take => {
                let mut data = self.accept().await;
                data.read_to_end(&mut self.taken).await.unwrap();
            }
            Hold => {
                let data = self.accept().await;
                self.held.push(data);
            }
            Deliver(bytes) => {
                let mut data = TcpStream::connect(self.told.unwrap()).await.unwrap();
                data.write_all(&bytes).await.unwrap();
            }
            Silence(ms) => {
                let limit = std::time::Duration::from_millis(ms);
                let heard = tokio::time::timeout(limit, self.control.fill_buf()).await;
                assert!(heard.is_err(), "heard {heard:?}");
            }
            HearEnd => assert!(self.control.fill_buf().await.unwrap().is_empty()),
            Wait(ms) => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
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
