//! AUTH, ADAT, CCC and protected commands (RFC 2228): the security exchange before a login.
//!
//! A mechanism that the driver does not offer is refused. For an offered one, the session decides the
//! next step and the driver computes it: [`SessionAction::Secure`] requests the step, and
//! [`super::DriverEvent::Security`] returns its result.
//!
//! The session never treats a command received in the clear as secured. The driver refuses an exchange
//! when it has read more than AUTH ([`SecurityFailure::ReadAhead`]), since an attacker on the path may have
//! injected it (CVE-2011-0411). A session whose commands travel in tokens refuses clear commands.

use super::replies;
use super::session::{LineProtection, ServerSession};
use super::session_state::{ExchangeWait, LoginState};
use super::{SecurityFailure, SecurityRequest, SecurityResponse, SessionAction};
use crate::command::{Command, Secret};
use crate::line::LineEvent;
use crate::reply::Reply;
use crate::security::{
    CommandProtection, ExchangeKind, SecurityMechanism, SecurityState, SecurityToken,
};

type SecurityResult = Result<SecurityResponse, SecurityFailure>;

impl ServerSession {
    /// Whether the session waits for the driver's response to a [`SecurityRequest`].
    pub(super) fn awaits_security_response(&self) -> bool {
        match &self.security {
            SecurityState::Exchanging(_, expected) => *expected != ExchangeWait::Adat,
            SecurityState::Clear | SecurityState::Secured(_) => self.unprotecting,
        }
    }

    /// Refusal of a command received in the clear; `None` if the session accepts it.
    pub(super) fn refuse_clear_command(&self, command: &Command) -> Option<Vec<SessionAction>> {
        use Command as C;
        match (&self.security, command) {
            // RFC 2228 §3: AUTH restarts the exchange; no login may begin before it is complete.
            (SecurityState::Exchanging(..), C::Auth(_) | C::Adat(_) | C::Quit) => None,
            (SecurityState::Exchanging(..), _) => {
                Some(replies::reply(503, "The security exchange is not over."))
            }
            (SecurityState::Secured(mechanism), C::Mic(_) | C::Conf(_) | C::Enc(_))
                if mechanism.exchange == ExchangeKind::Tokens =>
            {
                None
            }
            (SecurityState::Secured(mechanism), _)
                if mechanism.exchange == ExchangeKind::Tokens =>
            {
                Some(replies::reply(
                    533,
                    "Commands must be protected in this session.",
                ))
            }
            _ => None,
        }
    }

    /// Refusal of a protected command inside another one; `None` for all other commands.
    pub(super) fn refuse_nested_command(&self, command: &Command) -> Option<Vec<SessionAction>> {
        // Nested protection has no use, and would allow any depth of decoding from one line.
        let protected = matches!(
            command,
            Command::Mic(_) | Command::Conf(_) | Command::Enc(_)
        );
        protected.then(|| replies::reply(503, "A protected command holds another one."))
    }

    /// AUTH
    pub(super) fn auth(&mut self, name: &str) -> Vec<SessionAction> {
        let offered = self.config.mechanisms.iter().find(|m| m.is_named(name));
        let Some(mechanism) = offered.cloned() else {
            return replies::reply(504, format!("No security is offered: {name}."));
        };
        if self.is_logged_in() || matches!(self.security, SecurityState::Secured(_)) {
            return replies::reply(503, "Security is agreed upon once, and before the login.");
        }
        // A USER before AUTH was sent in the clear, so an attacker could have injected it.
        self.state = LoginState::Connected;
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

    /// MIC, CONF and ENC
    pub(super) fn protected_command(
        &mut self,
        protection: CommandProtection,
        token: SecurityToken,
    ) -> Vec<SessionAction> {
        match &self.security {
            SecurityState::Secured(mechanism) if mechanism.exchange == ExchangeKind::Tokens => {
                self.unprotecting = true;
                vec![SessionAction::Secure(SecurityRequest::Unprotect(
                    protection, token,
                ))]
            }
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// CCC
    pub(super) fn clear_commands(&self) -> Vec<SessionAction> {
        match &self.security {
            // RFC 2228 §3: CCC may be refused by policy with 534. Clear commands after a secured login
            // could be injected by an attacker.
            SecurityState::Secured(_) => replies::reply(534, "Commands stay protected here."),
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// Handles the driver's response to [`SessionAction::Secure`].
    pub(super) fn on_security(&mut self, response: SecurityResult) -> Vec<SessionAction> {
        // A late or repeated response of the driver must not change the state.
        if !self.awaits_security_response() {
            return Vec::new();
        }
        match std::mem::take(&mut self.security) {
            SecurityState::Exchanging(mechanism, expected) => {
                self.on_exchange(mechanism, expected, response)
            }
            previous => {
                self.security = previous;
                self.unprotecting = false;
                match response {
                    Ok(SecurityResponse::Command(line)) => self.on_unprotected(line),
                    _ => replies::reply(535, "The protection of the command is not right."),
                }
            }
        }
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
                replies::reply(335, token.to_reply_text())
            }
            (ExchangeWait::MechanismResult, Ok(A::Secured(token))) => {
                self.security = SecurityState::Secured(mechanism);
                let text = token.map_or("Secured.".to_owned(), |token| token.to_reply_text());
                replies::reply(235, text)
            }
            (ExchangeWait::Handshake, Ok(A::Secured(_))) => {
                self.security = SecurityState::Secured(mechanism);
                Vec::new()
            }
            // After a failed handshake no reply can be sent: the client expects neither clear text
            // nor a working secure channel.
            (ExchangeWait::Handshake, _) => vec![SessionAction::Close],
            (_, Err(failure)) => replies::reply(535, format!("{}: {failure}.", mechanism.name)),
            (_, Ok(_)) => replies::reply(535, "The security exchange has failed."),
        }
    }

    fn on_exchange_ready(&mut self, mechanism: SecurityMechanism) -> Vec<SessionAction> {
        let name = &mechanism.name;
        match mechanism.exchange {
            ExchangeKind::Handshake => {
                let reply = Reply::new(234, format!("Begin {name}."));
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Handshake);
                // The 234 must leave before the handshake starts (RFC 4217 §4), so it is the first action.
                let handshake = SessionAction::Secure(SecurityRequest::Handshake);
                vec![SessionAction::Reply(reply), handshake]
            }
            ExchangeKind::Tokens => {
                let text = format!("Using {name}; ADAT must follow.");
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Adat);
                replies::reply(334, text)
            }
        }
    }

    /// Handles a command whose protection was valid.
    fn on_unprotected(&mut self, mut line: Secret) -> Vec<SessionAction> {
        let line = LineEvent::Line(std::mem::take(&mut line.0));
        self.process_line(&line, LineProtection::Protected)
    }
}
