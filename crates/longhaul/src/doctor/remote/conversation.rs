//! A control connection that is examined: replies, TLS and GSI without verification, which comes after.

use std::collections::VecDeque;
use std::time::Duration;

use copy::{Failure, FailureKind};
use data::transport::{ControlTransport, tls_error};
use ftp::location::Server;
use proto::client::{SecurityExchange, SecurityStep};
use proto::command::Command;
use proto::printable::printable;
use proto::reply::{Reply, ReplyReader};
use proto::security::{ExchangeKind, SecurityMechanism, SecurityToken};
use security::tls::{TlsConfig, TlsEngine, TlsError, TlsOptions, TlsRole};
use security::x509::{CertifiedKey, ShownChain};
use tokio::time::timeout;

use super::PATIENCE;
use super::offer::{OfferedSecurity, SecurityOffer};

/// Most tokens before a GSI server shows its certificate: with TLS it does so in its first.
const MAX_TOKENS: usize = 8;
/// Validity of the certificate that the examination of GSI shows, if the server asks before it answers.
const OWN_VALIDITY: Duration = Duration::from_secs(3600);

/// A connection with a server.
pub(super) struct Conversation {
    transport: ControlTransport,
    reader: ReplyReader,
    replies: VecDeque<Reply>,
    host: String,
    /// `HOST:PORT`, for messages.
    name: String,
}

impl Conversation {
    /// Connects.
    ///
    /// # Errors
    /// `Unreachable`
    pub(super) async fn open(server: &Server) -> Result<Self, Failure> {
        Ok(Self {
            transport: ftp::connect_to_server(server, PATIENCE).await?,
            reader: ReplyReader::expecting_greeting(),
            replies: VecDeque::new(),
            host: server.host.clone(),
            name: server.host_and_port(),
        })
    }

    /// The first line of the greeting.
    ///
    /// # Errors
    /// `Unreachable`: the server accepts no session now.
    pub(super) async fn greeting(&mut self) -> Result<String, Failure> {
        let reply = self.reply().await?;
        match reply.is_success() {
            true => Ok(show(&reply)),
            false => Err(self.lost(&format!("it answers {}", show(&reply)))),
        }
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// `Unreachable`: the connection is lost.
    pub(super) async fn call(&mut self, command: &Command) -> Result<Reply, Failure> {
        let mut line = command.encode();
        line.extend_from_slice(b"\r\n");
        let sent = timeout(PATIENCE, async {
            self.transport.write_all(&line).await?;
            self.transport.flush().await
        });
        match sent.await {
            Ok(Ok(())) => self.reply().await,
            Ok(Err(error)) => Err(self.lost(&error.to_string())),
            Err(_) => Err(self.lost(&no_answer())),
        }
    }

    /// Ends the session. Nothing depends on the answer.
    pub(super) async fn quit(mut self) {
        let _ = self.call(&Command::Quit).await;
    }

    async fn reply(&mut self) -> Result<Reply, Failure> {
        loop {
            match self.replies.pop_front() {
                Some(reply) if reply.is_preliminary() => {}
                Some(reply) => return Ok(reply),
                None => self.receive().await?,
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        let mut buffer = [0; 4096];
        let count = match timeout(PATIENCE, self.transport.read(&mut buffer)).await {
            Ok(Ok(0)) => return Err(self.lost("it closed the connection")),
            Ok(Ok(count)) => count,
            Ok(Err(error)) => return Err(self.lost(&error.to_string())),
            Err(_) => return Err(self.lost(&no_answer())),
        };
        let mut replies = Vec::new();
        let fed = self.reader.feed(&buffer[..count], &mut replies);
        self.replies.extend(replies);
        fed.map_err(|error| {
            let text = format!("{} is no FTP server: {error}; check the port", self.name);
            Failure::protocol(text)
        })
    }

    fn lost(&self, reason: &str) -> Failure {
        let text = format!("lost {}: {reason}; try again later", self.name);
        Failure::new(FailureKind::Unreachable, text)
    }

    /// Asks for TLS and makes the handshake.
    ///
    /// # Errors
    /// `Unreachable`: the connection is lost before the handshake.
    pub(super) async fn offer_of_tls(&mut self) -> Result<SecurityOffer, Failure> {
        let mut exchange = SecurityExchange::default();
        let auth = exchange.begin(mechanism("TLS", ExchangeKind::Handshake));
        let reply = self.call(&auth).await?;
        match exchange.on_reply(&reply, !self.replies.is_empty()) {
            Ok(SecurityStep::Handshake) => {
                self.reader = ReplyReader::new();
                Ok(self.start_tls().await)
            }
            Ok(_) => Ok(SecurityOffer::Refused(show(&reply))),
            // Replies behind the one to AUTH would be taken for protected ones (CVE-2011-0411).
            Err(_) if reply.is_success() => Ok(SecurityOffer::Failed(
                "bytes in the clear follow the answer to AUTH TLS".to_owned(),
            )),
            Err(_) => Ok(SecurityOffer::Refused(show(&reply))),
        }
    }

    /// Makes the TLS handshake.
    pub(super) async fn start_tls(&mut self) -> SecurityOffer {
        let begun = examining(TlsOptions::client(), &self.host)
            .and_then(|config| self.transport.start_tls(&config, None));
        if let Err(error) = begun {
            return SecurityOffer::Failed(error.to_string());
        }
        match timeout(PATIENCE, self.transport.complete_handshake()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let reason = tls_error(&error).map_or(error.to_string(), ToString::to_string);
                return SecurityOffer::Failed(reason);
            }
            Err(_) => return SecurityOffer::Failed(no_answer()),
        }
        match self.transport.tls() {
            Some(engine) => offered(engine),
            None => SecurityOffer::Failed("there is no TLS after the handshake".to_owned()),
        }
    }

    /// Asks for GSI until the server has shown its certificate, and leaves the exchange there: this end
    /// shows no credential of the user.
    ///
    /// # Errors
    /// `Unreachable`: the connection is lost.
    pub(super) async fn offer_of_gsi(&mut self) -> Result<SecurityOffer, Failure> {
        let mut exchange = SecurityExchange::default();
        let auth = exchange.begin(mechanism("GSSAPI", ExchangeKind::Tokens));
        let mut reply = self.call(&auth).await?;
        let mut engine = match gsi_engine(&self.host) {
            Ok(engine) => engine,
            Err(reason) => return Ok(SecurityOffer::Failed(reason)),
        };
        for round in 0..MAX_TOKENS {
            let received = match exchange.on_reply(&reply, !self.replies.is_empty()) {
                Ok(SecurityStep::ProcessToken(token)) => token,
                _ if round == 0 => return Ok(SecurityOffer::Refused(show(&reply))),
                _ => return Ok(SecurityOffer::Failed(show(&reply))),
            };
            if let Some(token) = &received {
                engine.receive(token.as_bytes());
            }
            if let Err(error) = engine.handshake() {
                return Ok(SecurityOffer::Failed(error.to_string()));
            }
            if !engine.peer_certificates().is_empty() {
                return Ok(offered(&engine));
            }
            let token = engine.outgoing().to_vec();
            engine.mark_sent(token.len());
            let adat = SecurityToken::new(token)
                .ok()
                .and_then(|token| exchange.send_token(token).ok());
            let Some(adat) = adat else { break };
            reply = self.call(&adat).await?;
        }
        Ok(SecurityOffer::Failed("it shows no certificate".to_owned()))
    }
}

fn offered(engine: &TlsEngine) -> SecurityOffer {
    SecurityOffer::Offered(OfferedSecurity {
        description: engine.description(),
        chain: ShownChain::new(engine.peer_certificates()),
        features: None,
    })
}

fn mechanism(name: &str, exchange: ExchangeKind) -> SecurityMechanism {
    SecurityMechanism {
        name: name.to_owned(),
        exchange,
    }
}

/// An engine with a certificate of its own, which a GSI server never gets to see.
fn gsi_engine(host: &str) -> Result<TlsEngine, String> {
    let own = CertifiedKey::self_signed(&["longhaul doctor".to_owned()], OWN_VALIDITY)
        .map_err(|error| error.to_string())?;
    examining(TlsOptions::grid(TlsRole::Client).with_credential(own), host)
        .and_then(|config| TlsEngine::new(&config, None))
        .map_err(|error| error.to_string())
}

/// A configuration that accepts every certificate: it is reported on, and nothing is sent over the
/// connection but AUTH, FEAT and QUIT.
fn examining(options: TlsOptions, host: &str) -> Result<TlsConfig, TlsError> {
    TlsConfig::new(options.for_host(host).unverified())
}

fn show(reply: &Reply) -> String {
    let summary = reply.summary();
    format!("{} {}", reply.code, printable(&summary))
}

fn no_answer() -> String {
    format!("no answer in {} s", PATIENCE.as_secs())
}
