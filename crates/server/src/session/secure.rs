//! The security exchange of a session, and its credential for data connections.

use std::io;

use data::transport::tls_error;
use proto::security::{DataCredential, ExchangeKind, SecurityMechanism, SecurityToken};
use proto::server::{
    CarriedRules, DriverEvent, SecurityFailure, SecurityRequest, SecurityResponse, ServerSession,
    SessionConfig,
};
use security::gsi::GsiStep;
use security::x509::CertifiedKey;
use tokio::time::sleep_until;

use super::control::ServerControlConnection;
use super::settings::session_config;
use super::{SessionDriver, SessionEnd};
use crate::limits::HandshakeSlot;
use crate::secure::{
    CarriedSecurity, GridSecurity, GsiExchange, SecurityMaterial, SessionSecurity, TlsSecurity,
    tls_mechanism,
};
use crate::state::ServerPhase;
use crate::users::UserAccount;
use crate::work::{ExchangeStep, SessionWork};

/// The text for a client whose exchange is refused. Which check failed is for the log only.
const REFUSED: &str = "the exchange was refused; the server's log has the reason";

/// The reason why a TLS handshake is not complete.
enum HandshakeEnd {
    /// One end has refused the other. An alert may be on its way to the client, so the connection is
    /// closed with care.
    Refused,
    /// The handshake took too long or must make room: the connection is dropped at once.
    Abandoned(&'static str),
}

/// Waits until newer exchanges displace the one that `slot` counts; waits for ever without an exchange.
pub(super) async fn displaced(slot: Option<&HandshakeSlot>) {
    match slot {
        Some(slot) => slot.displaced().await,
        None => std::future::pending().await,
    }
}

impl SessionDriver {
    /// Carries out a step of the security exchange.
    pub(super) fn secure(&mut self, request: SecurityRequest) {
        self.work = match request {
            SecurityRequest::Begin(_) if self.control.has_buffered_input() => {
                tracing::warn!("data was sent behind AUTH before its reply; the session ends");
                immediate(Err(SecurityFailure::ReadAhead))
            }
            SecurityRequest::Begin(mechanism) => {
                self.begin_exchange(&mechanism);
                immediate(Ok(SecurityResponse::Ready))
            }
            SecurityRequest::Handshake => SessionWork::Handshake,
            SecurityRequest::ProcessToken(token) => self.process_token(token),
        };
    }

    fn begin_exchange(&mut self, mechanism: &SecurityMechanism) {
        let slot = self.shared.handshakes.begin(self.addresses.peer.ip());
        self.security = match mechanism.exchange {
            ExchangeKind::Tokens => SessionSecurity::Exchanging(GsiExchange {
                slot,
                acceptor: None,
            }),
            ExchangeKind::Handshake => SessionSecurity::Handshake(slot),
            // No command begins it.
            ExchangeKind::Carried => return,
        };
    }

    fn process_token(&mut self, token: SecurityToken) -> SessionWork {
        let SessionSecurity::Exchanging(exchange) = &mut self.security else {
            return immediate(refused());
        };
        let acceptor = exchange.acceptor.take();
        SessionWork::exchange(acceptor, token, &self.shared, self.addresses.peer.ip())
    }

    /// Takes the result of a step of a GSI exchange. After the last one, commands and replies are
    /// protected; the reply that ends the exchange is still in the clear.
    pub(super) fn on_exchange_step(
        &mut self,
        step: Result<ExchangeStep, String>,
    ) -> Result<(), SessionEnd> {
        let step = step.and_then(|step| match step.result {
            Ok(next) => Ok((step.acceptor, next)),
            Err(error) => Err(error.to_string()),
        });
        let mut complete = None;
        let answer = match step {
            Ok((acceptor, GsiStep::Continue(token))) => {
                if let SessionSecurity::Exchanging(exchange) = &mut self.security {
                    exchange.acceptor = Some(acceptor);
                }
                SecurityToken::new(token)
                    .map(SecurityResponse::Continue)
                    .map_err(|error| error.to_string())
            }
            Ok((_, GsiStep::Complete(token, mut context))) => {
                let grid = GridSecurity::of(&mut context);
                self.security = SessionSecurity::Grid(Box::new(grid));
                complete = Some(context);
                let token = token.map(SecurityToken::new).transpose();
                token
                    .map(|token| SecurityResponse::Secured {
                        token,
                        identified: true,
                    })
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error),
        };
        let answer = answer.or_else(|error| {
            tracing::warn!(error, "GSI exchange refused");
            self.security = SessionSecurity::Clear;
            complete = None;
            refused()
        });
        let outcome = self.finish_work(DriverEvent::Security(answer));
        self.report_outcome(outcome);
        if let Some(context) = complete {
            self.control.protect(*context);
        }
        Ok(())
    }

    /// Performs the TLS handshake after AUTH, and reports its result. All replies are sent before.
    pub(super) async fn perform_handshake(&mut self) -> Result<(), SessionEnd> {
        let answer = match self.tls_handshake().await {
            Ok(identified) => Ok(SecurityResponse::Secured {
                token: None,
                identified,
            }),
            Err(HandshakeEnd::Refused) => refused(),
            Err(HandshakeEnd::Abandoned(reason)) => {
                return Err(SessionEnd::ConnectionLost(io::Error::other(reason)));
            }
        };
        let outcome = self.finish_work(DriverEvent::Security(answer));
        self.report_outcome(outcome);
        Ok(())
    }

    /// Performs the TLS handshake before the greeting; `false`: it failed.
    pub(super) async fn secure_from_start(&mut self) -> bool {
        let identified = match self.tls_handshake().await {
            Ok(identified) => identified,
            Err(HandshakeEnd::Refused) => {
                self.control.close().await;
                return false;
            }
            Err(HandshakeEnd::Abandoned(_)) => return false,
        };
        let config = session_config(&self.shared, &self.addresses);
        self.machine = ServerSession::secured_from_start(config, tls_mechanism(), identified);
        true
    }

    /// Takes over the protection, and the user, of what carries the session.
    pub(super) fn secure_as_carried(&mut self, account: UserAccount, rules: CarriedRules) {
        let mechanism = SecurityMechanism {
            name: "SSH".to_owned(),
            exchange: ExchangeKind::Carried,
        };
        let config = SessionConfig {
            carried: rules,
            ..session_config(&self.shared, &self.addresses)
        };
        self.security = SessionSecurity::Carried(Box::new(CarriedSecurity::of(account)));
        self.machine = ServerSession::secured_from_start(config, mechanism, true);
    }

    /// Performs a TLS handshake within the login timeout, and only while the server is serving and no
    /// newer handshakes displace it. Returns whether the client has proved an identity. The reason of a failure
    /// is logged.
    async fn tls_handshake(&mut self) -> Result<bool, HandshakeEnd> {
        let slot = match std::mem::take(&mut self.security) {
            SessionSecurity::Handshake(slot) => slot,
            // Implicit TLS: no AUTH has counted it.
            _ => self.shared.handshakes.begin(self.addresses.peer.ip()),
        };
        let deadline = self.deadline();
        let done = tokio::select! {
            // A finished handshake comes first: its client is served and gets a proper 421.
            biased;
            done = handshake(&mut self.control, &self.shared.material) => done,
            () = slot.displaced() => return Err(abandoned("newer handshakes have displaced it")),
            _ = self.server_phase.wait_for(|phase| *phase > ServerPhase::Serving) => {
                return Err(abandoned("the server stops"));
            }
            () = sleep_until(deadline) => {
                return Err(abandoned("it was not complete within login-timeout"));
            }
        };
        match done {
            Ok(tls) => {
                let identified = tls.is_identified();
                self.security = SessionSecurity::Tls(Box::new(tls));
                Ok(identified)
            }
            Err(error) => {
                tracing::info!(error, "TLS handshake failed");
                Err(HandshakeEnd::Refused)
            }
        }
    }

    /// Sets the credential of data connections (DCSC).
    pub(super) fn set_data_credential(&mut self, credential: &DataCredential) {
        let read = match credential {
            DataCredential::Default => Ok(None),
            DataCredential::Pem(pem) => {
                let read = CertifiedKey::from_pem(&pem.0, "the credential of DCSC");
                read.map(Some).map_err(|error| error.to_string())
            }
        };
        let answer =
            read.and_then(
                |credential| match self.security.set_data_credential(credential) {
                    true => Ok(()),
                    false => Err("DCSC needs GSI".to_owned()),
                },
            );
        self.work = SessionWork::Immediate(DriverEvent::DataCredential(answer));
    }
}

/// A TLS handshake on the control connection; the text of a failure is for the log.
async fn handshake(
    control: &mut ServerControlConnection,
    material: &SecurityMaterial,
) -> Result<TlsSecurity, String> {
    let in_words = |error: io::Error| match tls_error(&error) {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    // A client that sends nothing costs no memory for TLS.
    control.wait_for_input().await.map_err(in_words)?;
    let config = material.tls_config().map_err(|error| error.to_string())?;
    control.start_tls(&config).await.map_err(in_words)?;
    let engine = control.tls().ok_or("no TLS")?;
    Ok(TlsSecurity::of(config, engine))
}

fn abandoned(reason: &'static str) -> HandshakeEnd {
    tracing::info!(reason, "TLS handshake abandoned");
    HandshakeEnd::Abandoned(reason)
}

fn immediate(answer: Result<SecurityResponse, SecurityFailure>) -> SessionWork {
    SessionWork::Immediate(DriverEvent::Security(answer))
}

fn refused() -> Result<SecurityResponse, SecurityFailure> {
    Err(SecurityFailure::Failed(REFUSED.to_owned()))
}
