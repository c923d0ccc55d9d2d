//! AUTH, ADAT and CCC (RFC 2228): the security exchange before a login.
//!
//! A mechanism that the driver does not offer is refused. For an offered one, the session decides the
//! next step and the driver computes it: [`SessionAction::Secure`] requests the step, and
//! [`super::DriverEvent::Security`] returns its result.
//!
//! The session never treats a command received in the clear as secured. The driver refuses an exchange
//! when it has read more than AUTH ([`SecurityFailure::ReadAhead`]), since an attacker on the path may have
//! injected it (CVE-2011-0411). A session whose commands travel in tokens refuses clear commands.

use super::logged_in::{ExchangeWait, LoginState};
use super::session::ServerSession;
use super::{SecurityFailure, SecurityRequest, SecurityResponse, SessionAction, replies};
use crate::command::Command;
use crate::reply::Reply;
use crate::security::{ExchangeKind, SecurityMechanism, SecurityState, SecurityToken};

type SecurityResult = Result<SecurityResponse, SecurityFailure>;

impl ServerSession {
    /// Whether the session waits for the driver's response to a [`SecurityRequest`].
    pub(super) fn awaits_security_response(&self) -> bool {
        matches!(&self.security, SecurityState::Exchanging(_, expected) if *expected != ExchangeWait::Adat)
    }

    /// Refusal of a command during a security exchange; `None` if the session accepts it.
    pub(super) fn refuse_during_exchange(&self, command: &Command) -> Option<Vec<SessionAction>> {
        use Command as C;
        match (&self.security, command) {
            // RFC 2228 §3: AUTH restarts the exchange; no login may begin before it is complete.
            (SecurityState::Exchanging(..), C::Auth(_) | C::Adat(_) | C::Quit) => None,
            (SecurityState::Exchanging(..), _) => {
                Some(replies::reply(503, "The security exchange is not over."))
            }
            _ => None,
        }
    }

    /// AUTH
    pub(super) fn auth(&mut self, name: &str) -> Vec<SessionAction> {
        let offered = self.config.mechanisms.iter().find(|m| m.is_named(name));
        let Some(mechanism) = offered.cloned() else {
            return replies::reply(504, "Unknown authentication type.");
        };
        let is_agreed = matches!(
            self.security,
            SecurityState::Secured(_) | SecurityState::Cleared(_)
        );
        if self.is_logged_in() || is_agreed {
            return replies::reply(503, "Security is agreed upon once, and before the login.");
        }
        // A USER before AUTH was sent in the clear, so an attacker could have injected it.
        self.state = LoginState::Connected;
        self.protection.on_auth(name);
        self.security = SecurityState::Exchanging(mechanism.clone(), ExchangeWait::ExchangeReady);
        vec![SessionAction::Secure(SecurityRequest::Begin(mechanism))]
    }

    /// ADAT
    pub(super) fn adat(&mut self, token: SecurityToken) -> Vec<SessionAction> {
        match &mut self.security {
            SecurityState::Exchanging(_, expected @ ExchangeWait::Adat) => {
                *expected = ExchangeWait::MechanismResult;
                vec![SessionAction::Secure(SecurityRequest::ProcessToken(token))]
            }
            _ => replies::reply(503, "ADAT belongs to an exchange that AUTH begins."),
        }
    }

    /// CCC (RFC 2228 §3, RFC 4217 §5). A server may refuse it by policy (534).
    pub(super) fn clear_commands(&mut self) -> Vec<SessionAction> {
        match &self.security {
            SecurityState::Secured(mechanism)
                if mechanism.exchange == ExchangeKind::Handshake && self.config.allow_ccc =>
            {
                // The password must not follow in the clear.
                if !self.is_logged_in() {
                    return replies::reply(503, "Log in before CCC.");
                }
                self.security = SecurityState::Cleared(mechanism.clone());
                self.identified = false;
                let mut actions = replies::reply(200, "Commands are in the clear from now on.");
                actions.push(SessionAction::ClearCommands);
                actions
            }
            SecurityState::Secured(_) => replies::reply(534, "Commands stay protected here."),
            _ => replies::reply(503, "The commands of this session are not protected."),
        }
    }

    /// Handles the driver's response to [`SessionAction::Secure`].
    pub(super) fn on_security(&mut self, response: SecurityResult) -> Vec<SessionAction> {
        let (mechanism, expected) = match &self.security {
            SecurityState::Exchanging(mechanism, expected) if *expected != ExchangeWait::Adat => {
                (mechanism.clone(), *expected)
            }
            // A late or repeated response of the driver must not change the state.
            _ => return Vec::new(),
        };
        self.security = SecurityState::Clear;
        self.on_exchange(mechanism, expected, response)
    }

    /// The exchange is complete.
    pub(super) fn on_secured(&mut self, mechanism: SecurityMechanism, identified: bool) {
        self.protection.on_secured(mechanism.exchange);
        self.identified = identified;
        self.security = SecurityState::Secured(mechanism);
    }

    /// Handles a response during the exchange. The caller has reset the state to
    /// [`SecurityState::Clear`], which remains unless the exchange continues or completes.
    fn on_exchange(
        &mut self,
        mechanism: SecurityMechanism,
        expected: ExchangeWait,
        response: SecurityResult,
    ) -> Vec<SessionAction> {
        use SecurityResponse as A;
        match (expected, response) {
            // After a failed handshake no reply can be sent: the client expects neither clear text
            // nor a working secure channel.
            (ExchangeWait::Handshake, Err(_) | Ok(A::Ready | A::Continue(_))) => {
                vec![SessionAction::Close]
            }
            (_, Err(SecurityFailure::ReadAhead)) => {
                // The read-ahead lines may come from an attacker, so the session cannot continue.
                let text = "Nothing may be sent behind AUTH before its answer; closing.";
                vec![
                    SessionAction::Reply(Reply::new(421, text)),
                    SessionAction::Close,
                ]
            }
            (ExchangeWait::ExchangeReady, Ok(A::Ready)) => self.on_exchange_ready(mechanism),
            // RFC 2228 §5: 431 means that the mechanism needs a resource that is unavailable now.
            (ExchangeWait::ExchangeReady, Err(failure)) => {
                replies::reply(431, format!("{}: {failure}.", mechanism.name))
            }
            (ExchangeWait::MechanismResult, Ok(A::Continue(token))) => {
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Adat);
                vec![SessionAction::Reply(Reply::with_token(335, &token))]
            }
            (ExchangeWait::MechanismResult, Ok(A::Secured { token, identified })) => {
                let reply = match token {
                    Some(token) => Reply::with_token(235, &token),
                    None => Reply::new(
                        235,
                        format!("{} Authentication successful.", mechanism.name),
                    ),
                };
                self.on_secured(mechanism, identified);
                vec![SessionAction::Reply(reply)]
            }
            (ExchangeWait::Handshake, Ok(A::Secured { identified, .. })) => {
                self.on_secured(mechanism, identified);
                Vec::new()
            }
            (_, Err(failure)) => replies::reply(535, format!("{}: {failure}.", mechanism.name)),
            (_, Ok(_)) => replies::reply(535, "The security exchange has failed."),
        }
    }

    fn on_exchange_ready(&mut self, mechanism: SecurityMechanism) -> Vec<SessionAction> {
        match mechanism.exchange {
            ExchangeKind::Handshake => {
                let reply = Reply::new(234, format!("Begin {}.", mechanism.name));
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Handshake);
                // The 234 must leave before the handshake starts (RFC 4217 §4), so it is the first action.
                let handshake = SessionAction::Secure(SecurityRequest::Handshake);
                vec![SessionAction::Reply(reply), handshake]
            }
            // It begins with the connection.
            ExchangeKind::Carried => replies::reply(504, "Unknown authentication type."),
            ExchangeKind::Tokens => {
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Adat);
                // The text of the globus server.
                replies::reply(334, "Using authentication type; ADAT must follow.")
            }
        }
    }
}
