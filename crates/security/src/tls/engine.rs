//! One TLS connection.

use std::sync::Arc;

use openssl::hash::MessageDigest;
use openssl::ssl::{Error, ErrorCode, Ssl, SslRef, SslStream, SslVerifyMode};
use openssl::x509::X509;

use super::TlsError;
use super::config::{ClientCertificates, TlsConfig, TlsRole};
use super::error::in_words;
use super::memory::MemoryWire;
use super::newest_session::{self, NewestSession};
use super::session::TlsSession;
use super::verification::PeerCheck;
use crate::x509::PeerIdentity;

/// Largest plain content of a record (RFC 8446 §5.1), bytes.
const RECORD: usize = 16 << 10;

/// Room for the frame of a record: header, nonce, type and authentication tag, bytes.
const RECORD_FRAME: usize = 64;

/// A HelloRetryRequest behind the headers of its record and its message: the version, and the SHA-256 of
/// `HelloRetryRequest` in the place of the random value (RFC 8446 §4.1.3).
const HELLO_RETRY_REQUEST: [u8; 34] = [
    3, 3, 0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8,
    0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33,
    0x9c,
];

/// Most bytes that reading may add to `outgoing` before they are sent (alerts, key updates): a peer
/// that asks for more does not read.
const MAX_ANSWERS: usize = 64 << 10;

/// One TLS connection: received bytes go in, plain bytes and bytes to send come out.
///
/// A connection whose peer does not pass the checks of its [`TlsConfig`] never completes its
/// handshake, so no plain byte passes before. A connection that has failed stays so: every call
/// returns the same error, and received bytes are dropped.
///
/// Received bytes are processed by [`TlsEngine::handshake`] and [`TlsEngine::read`]. A caller that
/// continues them until they need input before it receives more keeps the memory bounded.
pub struct TlsEngine {
    stream: SslStream<MemoryWire>,
    config: TlsConfig,
    check: Arc<PeerCheck>,
    newest: Option<NewestSession>,
    resumed: Option<TlsSession>,
    peer: Option<PeerIdentity>,
    /// The peer's chain after the handshake.
    chain: Vec<X509>,
    state: State,
    /// The last answer of the handshake is a HelloRetryRequest.
    is_retrying: bool,
    /// Bytes that reading has added to `outgoing` since it was last empty.
    answers: usize,
}

enum State {
    Handshaking,
    Open,
    /// close_notify is sent; reading goes on.
    Closed,
    Failed(TlsError),
}

/// Progress of a handshake. In either case [`TlsEngine::outgoing`] may hold bytes to send first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// Complete; the peer is verified.
    Complete,
    /// More bytes of the peer are needed.
    NeedsInput,
}

/// Result of reading plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadResult {
    /// So many bytes; not 0.
    Bytes(usize),
    /// More bytes of the peer are needed.
    NeedsInput,
    /// The peer has ended its direction (close_notify, RFC 8446 §6.1).
    Closed,
}

impl TlsEngine {
    /// A connection before its handshake.
    ///
    /// # Errors
    /// [`TlsError::Config`]
    pub fn new(config: &TlsConfig, resume: Option<&TlsSession>) -> Result<Self, TlsError> {
        let failed =
            |e| TlsError::Config(format!("cannot start a TLS connection: {}", in_words(&e)));
        let mut ssl = Ssl::new(&config.shared().context).map_err(failed)?;
        let check = Arc::new(PeerCheck::new(config.clone()));
        let mode = verify_mode(config);
        if !mode.is_empty() {
            let check = Arc::clone(&check);
            ssl.set_verify_callback(mode, move |passed, context| {
                check.on_certificate(passed, context)
            });
        }
        let mut newest = None;
        let mut resumed = None;
        match config.options().role {
            TlsRole::Server => {
                ssl.set_accept_state();
                if !config.options().tickets {
                    ssl.set_num_tickets(0).map_err(failed)?;
                }
            }
            TlsRole::Client => {
                ssl.set_connect_state();
                newest = Some(newest_session::attach(&mut ssl).map_err(failed)?);
                if let Some(session) = resume
                    && session.offer(&mut ssl, config).map_err(failed)?
                {
                    resumed = Some(session.clone());
                }
                set_server_name(&mut ssl, config).map_err(failed)?;
            }
        }
        Ok(Self {
            stream: SslStream::new(ssl, MemoryWire::default()).map_err(failed)?,
            config: config.clone(),
            check,
            newest,
            resumed,
            peer: None,
            chain: Vec::new(),
            state: State::Handshaking,
            is_retrying: false,
            answers: 0,
        })
    }

    /// Takes received bytes.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.stream.get_mut().receive(bytes);
    }

    /// Receives into the engine's own buffer, which saves a copy: `read` fills a part of the given
    /// space of at least 16 KiB and returns the number of bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn receive_with<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.stream.get_mut().receive_with(read)
    }

    /// Number of received bytes that are not processed yet.
    pub fn unprocessed(&self) -> usize {
        self.stream.get_ref().unprocessed().len()
    }

    /// Bytes to send.
    pub fn outgoing(&self) -> &[u8] {
        self.stream.get_ref().outgoing()
    }

    /// Removes the first `count` bytes of [`TlsEngine::outgoing`]: they are sent.
    pub fn mark_sent(&mut self, count: usize) {
        let wire = self.stream.get_mut();
        wire.mark_sent(count);
        if wire.outgoing().is_empty() {
            self.answers = 0;
        }
    }

    /// Continues the handshake.
    ///
    /// # Errors
    /// The peer is refused or has refused this end. `outgoing` may hold an alert.
    pub fn handshake(&mut self) -> Result<Handshake, TlsError> {
        match &self.state {
            State::Handshaking => {}
            State::Open | State::Closed => return Ok(Handshake::Complete),
            State::Failed(error) => return Err(error.clone()),
        }
        let waiting = self.outgoing().len();
        let progress = self.stream.do_handshake();
        let answer = &self.outgoing()[waiting..];
        if !answer.is_empty() {
            self.is_retrying = is_hello_retry_request(answer);
        }
        match progress {
            Ok(()) => self.conclude_handshake(),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Handshake::NeedsInput),
            Err(error) => Err(self.fail_with(&error)),
        }
    }

    /// Takes plain bytes out.
    ///
    /// # Errors
    /// [`TlsError::Protocol`], [`TlsError::Alert`]; also before the handshake is complete.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<ReadResult, TlsError> {
        match &self.state {
            State::Open | State::Closed => {}
            State::Handshaking => return Err(not_complete()),
            State::Failed(error) => return Err(error.clone()),
        }
        if buffer.is_empty() {
            return Err(TlsError::Protocol(
                "there is no room to read into".to_owned(),
            ));
        }
        let waiting = self.outgoing().len();
        let mut filled = 0;
        let end = loop {
            // OpenSSL returns one record at most.
            match self.stream.ssl_read(&mut buffer[filled..]) {
                Ok(count) => filled += count,
                Err(error) if error.code() == ErrorCode::WANT_READ => {
                    break Ok(ReadResult::NeedsInput);
                }
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => {
                    break Ok(ReadResult::Closed);
                }
                Err(error) => break Err(self.fail_with(&error)),
            }
            if filled == buffer.len() {
                break Ok(ReadResult::NeedsInput);
            }
        };
        self.count_answers(waiting)?;
        // The end is found again by the next call.
        if filled > 0 {
            return Ok(ReadResult::Bytes(filled));
        }
        end
    }

    /// Encrypts bytes into `outgoing`. One call makes records of at most 16 KiB; all bytes are taken.
    ///
    /// # Errors
    /// The handshake is not complete, or this direction is closed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        match &self.state {
            State::Open => {}
            State::Handshaking => return Err(not_complete()),
            State::Closed => {
                return Err(TlsError::Protocol(
                    "this end has already closed the connection".to_owned(),
                ));
            }
            State::Failed(error) => return Err(error.clone()),
        }
        let records = bytes.len().div_ceil(RECORD);
        let wire = self.stream.get_mut();
        wire.reserve_outgoing(bytes.len() + records * RECORD_FRAME);
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.ssl_write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) => return Err(self.fail_with(&error)),
            }
        }
        Ok(())
    }

    /// Ends this direction: close_notify into `outgoing`. Nothing happens before the handshake is
    /// complete, after a failure, and the second time.
    ///
    /// # Errors
    /// [`TlsError::Protocol`] with OpenSSL's reason.
    pub fn close(&mut self) -> Result<(), TlsError> {
        match &self.state {
            State::Open => {}
            State::Handshaking | State::Closed | State::Failed(_) => return Ok(()),
        }
        match self.stream.shutdown() {
            Ok(_) => {
                self.state = State::Closed;
                Ok(())
            }
            Err(error) => Err(self.fail_with(&error)),
        }
    }

    /// The verified peer; `None` before the handshake, without certificate or unverified.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// The certificates that the peer has shown, leaf first; also unverified and refused ones.
    pub fn peer_certificates(&self) -> Vec<X509> {
        if self.chain.is_empty() {
            return self.check.shown();
        }
        self.chain.clone()
    }

    /// SHA-256 of the certificate that the peer has shown, in lower-case hex; also of an unverified one.
    pub fn peer_fingerprint(&self) -> Option<String> {
        let certificates = self.peer_certificates();
        let digest = certificates.first()?.digest(MessageDigest::sha256()).ok()?;
        let hex = digest.iter().map(|byte| format!("{byte:02x}"));
        Some(hex.collect())
    }

    /// Protocol version and cipher suite, for people: `TLSv1.3 TLS_AES_256_GCM_SHA384`.
    pub fn description(&self) -> String {
        let ssl = self.stream.ssl();
        let cipher = ssl.current_cipher().map_or("no cipher", |c| c.name());
        format!("{} {cipher}", ssl.version_str())
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.stream.ssl().session_reused()
    }

    /// Server: whether its answer to the client, sent or not, is that of a full handshake. A
    /// HelloRetryRequest (RFC 8446 §4.1.4) leaves it open: the client repeats its offer.
    pub fn is_full_handshake(&self) -> bool {
        !self.is_resumed() && !self.is_retrying
    }

    /// Client: the newest session for later connections; with TLS 1.3 it arrives after the
    /// handshake, with the first bytes of the server.
    pub fn session(&self) -> Option<TlsSession> {
        let newest = self.newest.as_ref()?.lock().clone();
        match newest {
            Some(session) => TlsSession::new(&session, self.chain.clone(), &self.config),
            // A resumed handshake need not bring a new one.
            None => self.resumed.clone().filter(|_| self.is_resumed()),
        }
    }

    /// Whether the negotiated suite encrypts (all offered ones do).
    pub fn is_encrypted(&self) -> bool {
        let cipher = self.stream.ssl().current_cipher();
        cipher.is_some_and(|c| c.bits().algorithm > 0)
    }

    /// Received bytes that are not processed yet.
    pub(crate) fn unprocessed_bytes(&self) -> &[u8] {
        self.stream.get_ref().unprocessed()
    }

    /// Lets so many of the received bytes be processed and no more; `None`: all.
    pub(crate) fn set_gate(&mut self, gate: Option<usize>) {
        self.stream.get_mut().set_gate(gate);
    }

    /// Takes the received bytes that are not processed.
    pub(crate) fn take_unprocessed(&mut self) -> Vec<u8> {
        self.stream.get_mut().take_unprocessed()
    }

    /// Takes the bytes to send.
    pub(crate) fn take_outgoing(&mut self) -> Vec<u8> {
        let bytes = self.outgoing().to_vec();
        self.mark_sent(bytes.len());
        bytes
    }

    /// Memory of the buffers, bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.stream.get_ref().held()
    }

    /// The configuration.
    pub(crate) fn config(&self) -> &TlsConfig {
        &self.config
    }

    /// Ends the connection with this error.
    pub(crate) fn refuse(&mut self, problem: &str) -> TlsError {
        self.fail(TlsError::Protocol(problem.to_owned()))
    }

    /// The checks that need the complete handshake. The peer sees nothing of the last flight if
    /// they fail.
    fn conclude_handshake(&mut self) -> Result<Handshake, TlsError> {
        let resumed = self.resumed.as_ref();
        match self.check.conclude(self.stream.ssl(), resumed) {
            Ok((peer, chain)) => {
                self.peer = peer;
                self.chain = chain;
                self.state = State::Open;
                Ok(Handshake::Complete)
            }
            Err(refused) => {
                self.stream.get_mut().discard_outgoing();
                Err(self.fail(TlsError::Peer(refused)))
            }
        }
    }

    /// Bounds what a peer can make this end send by being read.
    fn count_answers(&mut self, before: usize) -> Result<(), TlsError> {
        self.answers += self.outgoing().len() - before;
        if self.answers > MAX_ANSWERS && self.is_alive() {
            let problem = "the peer asks for answers but does not read them";
            return Err(self.fail(TlsError::Protocol(problem.to_owned())));
        }
        Ok(())
    }

    fn is_alive(&self) -> bool {
        !matches!(self.state, State::Failed(_))
    }

    fn fail_with(&mut self, error: &Error) -> TlsError {
        let error = match (self.check.refused(), error.ssl_error()) {
            (Some(refused), _) => TlsError::Peer(refused),
            (None, Some(stack)) => TlsError::of_stack(stack),
            (None, None) => TlsError::Protocol(format!("TLS failed: {error}")),
        };
        self.fail(error)
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.stream.get_mut().kill();
        self.state = State::Failed(error.clone());
        error
    }
}

/// Whether bytes begin with a record (5 bytes) of a message (4 bytes) HelloRetryRequest.
fn is_hello_retry_request(bytes: &[u8]) -> bool {
    bytes
        .get(9..)
        .is_some_and(|message| message.starts_with(&HELLO_RETRY_REQUEST))
}

fn not_complete() -> TlsError {
    TlsError::Protocol("the TLS handshake is not complete".to_owned())
}

fn verify_mode(config: &TlsConfig) -> SslVerifyMode {
    match (config.options().role, config.client_certificates()) {
        (TlsRole::Client, _) | (TlsRole::Server, ClientCertificates::Optional) => {
            SslVerifyMode::PEER
        }
        (TlsRole::Server, ClientCertificates::None) => SslVerifyMode::NONE,
        (TlsRole::Server, ClientCertificates::Required) => {
            SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT
        }
    }
}

/// Names the host (RFC 6066 §3); addresses are not named.
fn set_server_name(ssl: &mut SslRef, config: &TlsConfig) -> Result<(), openssl::error::ErrorStack> {
    match &config.options().server_name {
        Some(name) if name.parse::<std::net::IpAddr>().is_err() => ssl.set_hostname(name),
        _ => Ok(()),
    }
}

impl std::fmt::Debug for TlsEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsEngine")
            .field("role", &self.config.options().role)
            .finish_non_exhaustive()
    }
}
