//! A control connection whose client does as the test wants, in the clear, inside TLS or inside GSI.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::net::{AddressFamily, SocketType};
use security::gsi::{Delegation, GsiContext, GsiInitiator, GsiStep};
use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine};

const PATIENCE: Duration = Duration::from_secs(120);

enum SessionLayer {
    Clear,
    Tls(Box<TlsEngine>),
    Grid(Box<GsiContext>),
}

/// One control connection.
pub(super) struct IntruderSession {
    pub(super) stream: TcpStream,
    layer: SessionLayer,
    received: Vec<u8>,
}

impl IntruderSession {
    /// Connects and reads the greeting.
    pub(super) fn connect(server: SocketAddr) -> Result<Self> {
        Self::greeted(TcpStream::connect(server)?)
    }

    /// Connects from 127.0.0.`host`: refused logins delay later ones of the same address.
    pub(super) fn connect_from(host: u8, server: SocketAddr) -> Result<Self> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, host], 0)))?;
        rustix::net::connect(&socket, &server)?;
        Self::greeted(TcpStream::from(socket))
    }

    fn greeted(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut session = Self {
            stream,
            layer: SessionLayer::Clear,
            received: Vec::new(),
        };
        session.expect_reply("220")?;
        Ok(session)
    }

    /// Connects and agrees on TLS.
    pub(super) fn with_tls(server: SocketAddr, config: &TlsConfig) -> Result<Self> {
        let mut session = Self::connect(server)?;
        session.start_tls(config)?;
        Ok(session)
    }

    /// Connects, agrees on GSI and logs in.
    pub(super) fn with_grid(server: SocketAddr, config: &TlsConfig) -> Result<Self> {
        let mut session = Self::connect(server)?;
        let refusal = session.authenticate(config)?;
        ensure!(refusal.is_none(), "{refusal:?}");
        session.expect("USER :globus-mapping:", "331")?;
        session.expect("PASS x", "230")?;
        session.expect("TYPE I", "200")?;
        Ok(session)
    }

    /// AUTH TLS and the handshake.
    pub(super) fn start_tls(&mut self, config: &TlsConfig) -> Result<()> {
        self.expect("AUTH TLS", "234")?;
        let mut engine = TlsEngine::new(config, None)?;
        loop {
            let progress = engine.handshake();
            self.stream.write_all(&take_outgoing(&mut engine))?;
            if progress? == Handshake::Complete {
                break;
            }
            let mut buffer = [0; 1 << 14];
            let count = self.stream.read(&mut buffer)?;
            ensure!(count > 0, "the server ended the handshake");
            engine.receive(&buffer[..count]);
        }
        self.layer = SessionLayer::Tls(Box::new(engine));
        Ok(())
    }

    /// AUTH GSSAPI and the exchange; returns the reply that refuses it.
    pub(super) fn authenticate(&mut self, config: &TlsConfig) -> Result<Option<String>> {
        self.expect("AUTH GSSAPI", "334")?;
        let mut initiator = GsiInitiator::new(config, Delegation::None)?;
        let mut token: Option<Vec<u8>> = None;
        loop {
            let (output, context) = match initiator.step(token.as_deref())? {
                GsiStep::Continue(output) => (Some(output), None),
                GsiStep::Complete(output, context) => (output, Some(context)),
            };
            let reply = match output {
                Some(output) => self.command(&format!("ADAT {}", BASE64.encode(output)))?,
                None => self.reply()?,
            };
            match (reply.get(..3), context) {
                (Some("235"), Some(context)) => {
                    self.layer = SessionLayer::Grid(context);
                    return Ok(None);
                }
                (Some("335"), None) => {
                    let (_, text) = reply.split_once("ADAT=").context("no token")?;
                    token = Some(BASE64.decode(text.trim())?);
                }
                _ => return Ok(Some(reply)),
            }
        }
    }

    /// A command as a GSI token.
    pub(super) fn wrap(&mut self, line: &str) -> Result<Vec<u8>> {
        let SessionLayer::Grid(context) = &mut self.layer else {
            bail!("no GSI");
        };
        Ok(context.wrap(format!("{line}\r\n").as_bytes())?)
    }

    /// The TLS records of a command.
    pub(super) fn records(&mut self, line: &str) -> Result<Vec<u8>> {
        let SessionLayer::Tls(engine) = &mut self.layer else {
            bail!("no TLS");
        };
        engine.write(format!("{line}\r\n").as_bytes())?;
        Ok(take_outgoing(engine))
    }

    /// Sends bytes below all protection.
    pub(super) fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream
            .write_all(bytes)
            .context("the server ended the session")
    }

    pub(super) fn send(&mut self, line: &str) -> Result<()> {
        let bytes = match &self.layer {
            SessionLayer::Clear => format!("{line}\r\n").into_bytes(),
            SessionLayer::Tls(_) => self.records(line)?,
            SessionLayer::Grid(_) => protected("ENC", &self.wrap(line)?),
        };
        self.send_raw(&bytes)
    }

    pub(super) fn command(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.reply().with_context(|| format!("reply to {line}"))
    }

    /// Sends a command; fails unless the reply begins with `code`.
    /// Logs in as anonymous.
    pub(super) fn log_in_anonymously(&mut self) -> Result<()> {
        self.expect("USER anonymous", "331")?;
        self.expect("PASS x", "230").map(drop)
    }

    pub(super) fn expect(&mut self, line: &str, code: &str) -> Result<String> {
        let reply = self.command(line)?;
        ensure!(reply.starts_with(code), "{line}: {reply}");
        Ok(reply)
    }

    pub(super) fn expect_reply(&mut self, code: &str) -> Result<String> {
        let reply = self.reply()?;
        ensure!(reply.starts_with(code), "wanted {code}, got {reply}");
        Ok(reply)
    }

    /// The next reply: its lines, joined.
    pub(super) fn reply(&mut self) -> Result<String> {
        let mut text = self.line()?.context("the session ended")?;
        if text.as_bytes().get(3) == Some(&b'-') {
            let last = format!("{} ", &text[..3]);
            loop {
                let line = self.line()?.context("the session ended in a reply")?;
                text = format!("{text}\n{line}");
                if line.starts_with(&last) {
                    break;
                }
            }
        }
        Ok(text)
    }

    /// Fails unless the server ends the session without a positive reply.
    pub(super) fn expect_end(&mut self) -> Result<()> {
        loop {
            match self.line() {
                Ok(Some(line)) if line.starts_with(['4', '5']) => {}
                Ok(Some(line)) => bail!("the session goes on: {line}"),
                Ok(None) => return Ok(()),
                // The protection of a session that was attacked may be unusable at both ends.
                Err(error) => match error.downcast_ref::<std::io::Error>() {
                    Some(error) if error.kind() == ErrorKind::WouldBlock => {
                        bail!("the session is still open")
                    }
                    _ => return Ok(()),
                },
            }
        }
    }

    /// A line without its protection; `None` at the end.
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                return self.without_protection(line).map(Some);
            }
            let mut buffer = [0; 4096];
            let count = match self.stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                other => other?,
            };
            if count == 0 {
                return Ok(None);
            }
            let SessionLayer::Tls(engine) = &mut self.layer else {
                self.received.extend_from_slice(&buffer[..count]);
                continue;
            };
            engine.receive(&buffer[..count]);
            loop {
                let mut plain = [0; 4096];
                match engine.read(&mut plain)? {
                    ReadResult::Bytes(count) => self.received.extend_from_slice(&plain[..count]),
                    ReadResult::NeedsInput => break,
                    ReadResult::Closed => return Ok(None),
                }
            }
        }
    }

    fn without_protection(&mut self, line: String) -> Result<String> {
        let SessionLayer::Grid(context) = &mut self.layer else {
            return Ok(line);
        };
        if !line.starts_with("63") {
            return Ok(line);
        }
        let plain = context.unwrap(&BASE64.decode(&line[4..])?)?;
        Ok(String::from_utf8_lossy(&plain).trim_end().to_owned())
    }
}

/// The line of a protected command.
pub(super) fn protected(verb: &str, token: &[u8]) -> Vec<u8> {
    format!("{verb} {}\r\n", BASE64.encode(token)).into_bytes()
}

/// Takes the bytes that an engine wants to send.
pub(super) fn take_outgoing(engine: &mut TlsEngine) -> Vec<u8> {
    let bytes = engine.outgoing().to_vec();
    engine.mark_sent(bytes.len());
    bytes
}
