//! The dialogue with a proxy that opens a TCP connection to a server: CONNECT of HTTP (RFC 9110 §9.3.6) and SOCKS5
//! (RFC 1928, RFC 1929); and with a program that carries it ([`crate::carried`]).
//!
//! The caller sends [`TunnelDialogue::output`], and hands over at most [`TunnelDialogue::wanted`] bytes at a time. So it
//! never reads a byte of the server, which may speak first: an FTP greeting can be in the segment of the proxy's reply.

mod connect;
mod socks5;

use std::net::IpAddr;

use crate::carried::{AnswerLines, CarriedRequest, is_data_answer};
use crate::security::Secret;
use connect::ConnectResponse;
use socks5::Socks5Stage;

/// Longest host name, user name and password, bytes: SOCKS5 has one byte for each length.
const MAX_FIELD: usize = 255;

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunnelProtocol {
    /// HTTP/1.1 with the method CONNECT.
    HttpConnect,
    /// SOCKS version 5 with the command CONNECT.
    Socks5,
}

/// The host that a proxy connects to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TargetHost {
    /// A name, which the proxy resolves: at most 255 bytes, printable ASCII.
    Name(String),
    Address(IpAddr),
}

/// The server that a proxy connects to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TunnelTarget {
    host: TargetHost,
    port: u16,
}

/// A host that a proxy cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a proxy takes host names of 1 to 255 printable ASCII characters without spaces")]
pub struct TunnelTargetError;

impl TunnelTarget {
    /// A host by its name or address (without brackets).
    ///
    /// # Errors
    /// The name cannot be sent: a line break in it would be a line of the request.
    pub fn new(host: &str, port: u16) -> Result<Self, TunnelTargetError> {
        let host = match host.parse::<IpAddr>() {
            Ok(ip) => TargetHost::Address(ip.to_canonical()),
            Err(_) if is_sendable_name(host) => TargetHost::Name(host.to_owned()),
            Err(_) => return Err(TunnelTargetError),
        };
        Ok(Self { host, port })
    }

    /// A host by its address.
    pub fn at(ip: IpAddr, port: u16) -> Self {
        let host = TargetHost::Address(ip.to_canonical());
        Self { host, port }
    }

    /// The same host with another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        let host = self.host.clone();
        Self { host, port }
    }

    /// The host's address; `None`: the proxy resolves a name.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.host {
            TargetHost::Name(_) => None,
            TargetHost::Address(ip) => Some(ip),
        }
    }
}

/// `host:port`, an IPv6 address in brackets.
impl std::fmt::Display for TunnelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
            TargetHost::Address(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
            TargetHost::Address(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

fn is_sendable_name(name: &str) -> bool {
    let is_graphic = name.bytes().all(|byte| byte.is_ascii_graphic());
    // A colon would make a port of the rest, a slash a path.
    is_graphic && (1..=MAX_FIELD).contains(&name.len()) && !name.contains([':', '/', '[', ']'])
}

/// User and password for a proxy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ProxyLogin {
    user: Secret,
    password: Secret,
}

/// A login that no proxy takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("user and password of a proxy have at most 255 bytes each, and the user has no `:`")]
pub struct ProxyLoginError;

impl ProxyLogin {
    /// # Errors
    /// A part is too long for SOCKS5 (RFC 1929), or the user has a colon (RFC 7617) or is empty.
    pub fn new(user: &[u8], password: &[u8]) -> Result<Self, ProxyLoginError> {
        let is_valid = (1..=MAX_FIELD).contains(&user.len())
            && password.len() <= MAX_FIELD
            && !user.contains(&b':');
        is_valid
            .then(|| Self {
                user: Secret(user.to_vec()),
                password: Secret(password.to_vec()),
            })
            .ok_or(ProxyLoginError)
    }

    /// The user, for messages.
    pub fn user(&self) -> String {
        crate::printable::printable(&self.user.0).to_string()
    }
}

impl std::fmt::Debug for ProxyLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProxyLogin({:?}, ***)", self.user())
    }
}

/// The reason why a proxy opens no connection. Texts of the proxy are printable and short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelError {
    /// The peer speaks another protocol than HTTP.
    #[error("it does not answer in HTTP")]
    NotHttp,
    /// The peer speaks another protocol than SOCKS5.
    #[error("it does not answer in SOCKS5{}", if *.speaks_http { ", but in HTTP" } else { "" })]
    NotSocks5 {
        /// It speaks HTTP.
        speaks_http: bool,
    },
    /// The reply breaks the protocol, or is longer than any valid one.
    #[error("its reply is invalid: {0}")]
    Invalid(&'static str),
    /// The proxy wants a login, and there is none.
    #[error("it requires a login")]
    LoginRequired,
    /// The proxy refuses the login.
    #[error("it refuses the login")]
    LoginRefused,
    /// The proxy forbids the connection.
    #[error("it forbids the connection ({0})")]
    Forbidden(String),
    /// The server behind the proxy refuses connections.
    #[error("the server refuses the connection")]
    ServerRefused,
    /// The proxy cannot reach the server.
    #[error("it cannot reach the server ({0})")]
    Unreachable(String),
    /// The proxy cannot do what it was asked for.
    #[error("it does not support such a connection ({0})")]
    Unsupported(String),
}

/// The progress of a dialogue.
#[derive(Debug)]
enum DialogueState {
    Connect {
        response: ConnectResponse,
        has_login: bool,
    },
    Socks5 {
        stage: Socks5Stage,
        target: TunnelTarget,
        login: Option<ProxyLogin>,
        received: Vec<u8>,
    },
    Carried(AnswerLines),
    Open,
    Failed,
}

/// One dialogue, from the first byte to the open tunnel.
pub struct TunnelDialogue {
    state: DialogueState,
    /// Bytes that the caller has still to send. They may hold the password.
    output: Secret,
    sent: usize,
}

impl std::fmt::Debug for TunnelDialogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelDialogue")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl TunnelDialogue {
    /// The dialogue that asks for a connection to `target`.
    pub fn new(
        protocol: TunnelProtocol,
        target: &TunnelTarget,
        login: Option<&ProxyLogin>,
    ) -> Self {
        let (state, output) = match protocol {
            TunnelProtocol::HttpConnect => {
                let state = DialogueState::Connect {
                    response: ConnectResponse::default(),
                    has_login: login.is_some(),
                };
                (state, connect::request(target, login))
            }
            TunnelProtocol::Socks5 => {
                let state = DialogueState::Socks5 {
                    stage: Socks5Stage::Method,
                    target: target.clone(),
                    login: login.cloned(),
                    received: Vec::new(),
                };
                (state, socks5::greeting(login.is_some()))
            }
        };
        Self::begin(state, output)
    }

    /// The dialogue with a far end that is asked for a data connection to this port of its own.
    pub fn carried(port: u16) -> Self {
        let request = CarriedRequest::Data { port }.line();
        Self::begin(
            DialogueState::Carried(AnswerLines::default()),
            request.into_bytes(),
        )
    }

    fn begin(state: DialogueState, output: Vec<u8>) -> Self {
        Self {
            state,
            output: Secret(output),
            sent: 0,
        }
    }

    /// Whether the tunnel is open: all further bytes are the server's.
    pub fn is_open(&self) -> bool {
        matches!(self.state, DialogueState::Open)
    }

    /// The bytes to send now.
    pub fn output(&self) -> &[u8] {
        self.output.0.get(self.sent..).unwrap_or_default()
    }

    /// Notes that the first `count` bytes of [`TunnelDialogue::output`] are sent.
    pub fn sent(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.output.0.len());
    }

    /// Most bytes that may be read now: as many as the proxy must still send at least. 0 once the tunnel is open, or after
    /// an error.
    pub fn wanted(&self) -> usize {
        match &self.state {
            DialogueState::Connect { response, .. } => response.wanted(),
            DialogueState::Socks5 {
                stage, received, ..
            } => stage.wanted(received),
            DialogueState::Carried(_) => 1,
            DialogueState::Open | DialogueState::Failed => 0,
        }
    }

    /// Takes bytes of the proxy, at most [`TunnelDialogue::wanted`] (further ones would be lost).
    ///
    /// # Errors
    /// The proxy opens no connection. The dialogue is over.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), TunnelError> {
        let bytes = bytes.get(..self.wanted()).unwrap_or(bytes);
        let received = self.take(bytes);
        if received.is_err() {
            self.state = DialogueState::Failed;
        }
        received
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), TunnelError> {
        match &mut self.state {
            DialogueState::Connect {
                response,
                has_login,
            } => {
                if response.receive(bytes, *has_login)? {
                    self.state = DialogueState::Open;
                }
            }
            DialogueState::Socks5 {
                stage,
                target,
                login,
                received,
            } => {
                received.extend_from_slice(bytes);
                if stage.wanted(received) > 0 {
                    return stage.check_begin(received);
                }
                let reply = std::mem::take(received);
                match stage.next(&reply, target, login.as_ref())? {
                    Some((next, output)) => {
                        *stage = next;
                        self.output = Secret(output);
                        self.sent = 0;
                    }
                    None => self.state = DialogueState::Open,
                }
            }
            DialogueState::Carried(lines) => {
                let invalid = |_| TunnelError::Invalid("its login prints more than 64 KB");
                for byte in bytes {
                    let line = lines.receive(*byte).map_err(invalid)?;
                    if line.is_some_and(|line| is_data_answer(&line)) {
                        self.state = DialogueState::Open;
                        break;
                    }
                }
            }
            DialogueState::Open | DialogueState::Failed => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
