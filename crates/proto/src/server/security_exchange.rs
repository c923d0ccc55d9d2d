//! AUTH, ADAT, CCC and protected commands (RFC 2228): the security exchange before a login.
//!
//! A mechanism that the driver does not offer is refused. For one that it offers, the session says what
//! comes next, and the driver computes it: [`SessionAction::Secure`] asks, [`super::DriverEvent::Security`] answers.
//!
//! A command that travels in the clear is never taken for secured. The driver begins no exchange when it has
//! read more than AUTH ([`SecurityFailure::ReadAhead`]): somebody on the way may have put it there
//! (the flaw of CVE-2011-0411). In a session whose commands travel in tokens a clear one is refused.

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
    /// Whether the driver was asked for something and has not answered.
    pub(super) fn is_securing(&self) -> bool {
        match &self.security {
            SecurityState::Exchanging(_, expected) => *expected != ExchangeWait::Adat,
            SecurityState::Clear | SecurityState::Secured(_) => self.unprotecting,
        }
    }

    /// Refusal of a command that came in the clear, if the session may not take it so.
    pub(super) fn refuse_clear_command(&self, command: &Command) -> Option<Vec<SessionAction>> {
        use Command as C;
        match (&self.security, command) {
            (SecurityState::Exchanging(..), C::Auth(_) | C::Adat(_) | C::Quit) => None,
            (SecurityState::Exchanging(..), _) => {
                Some(replies::reply(503, "The security exchange is not over."))
            }
            (SecurityState::Secured(by), C::Mic(_) | C::Conf(_) | C::Enc(_))
                if by.exchange == ExchangeKind::Tokens =>
            {
                None
            }
            (SecurityState::Secured(by), _) if by.exchange == ExchangeKind::Tokens => Some(
                replies::reply(533, "Commands must be protected in this session."),
            ),
            _ => None,
        }
    }

    /// Refusal of a command that came in a protected one, if it makes no sense there.
    pub(super) fn refuse_nested_command(&self, command: &Command) -> Option<Vec<SessionAction>> {
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
        // What was said of a login was said in the clear.
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
        how: CommandProtection,
        token: SecurityToken,
    ) -> Vec<SessionAction> {
        match &self.security {
            SecurityState::Secured(by) if by.exchange == ExchangeKind::Tokens => {
                self.unprotecting = true;
                vec![SessionAction::Secure(SecurityRequest::Unprotect(
                    how, token,
                ))]
            }
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// CCC
    pub(super) fn clear_commands(&self) -> Vec<SessionAction> {
        match &self.security {
            SecurityState::Secured(_) => replies::reply(534, "Commands stay protected here."),
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// Takes the driver's answer to [`SessionAction::Secure`].
    pub(super) fn on_security(&mut self, answer: SecurityResult) -> Vec<SessionAction> {
        if !self.is_securing() {
            return Vec::new();
        }
        match std::mem::take(&mut self.security) {
            SecurityState::Exchanging(mechanism, expected) => {
                self.on_exchange(mechanism, expected, answer)
            }
            before => {
                self.security = before;
                self.unprotecting = false;
                match answer {
                    Ok(SecurityResponse::Command(line)) => self.on_unprotected(line),
                    _ => replies::reply(535, "The protection of the command is not right."),
                }
            }
        }
    }

    /// The state is [`SecurityState::Clear`] unless this says otherwise.
    fn on_exchange(
        &mut self,
        mechanism: SecurityMechanism,
        expected: ExchangeWait,
        answer: SecurityResult,
    ) -> Vec<SessionAction> {
        use SecurityResponse as A;
        match (expected, answer) {
            (_, Err(SecurityFailure::ReadAhead)) => {
                let text = "Nothing may be sent behind AUTH before its answer; closing.";
                vec![
                    SessionAction::Reply(Reply::new(421, text)),
                    SessionAction::Close,
                ]
            }
            (ExchangeWait::ExchangeReady, Ok(A::Ready)) => self.on_exchange_ready(mechanism),
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
            // Nothing can be said on a connection that is neither clear nor secured.
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
                let shake = SessionAction::Secure(SecurityRequest::Handshake);
                vec![SessionAction::Reply(reply), shake]
            }
            ExchangeKind::Tokens => {
                let text = format!("Using {name}; ADAT must follow.");
                self.security = SecurityState::Exchanging(mechanism, ExchangeWait::Adat);
                replies::reply(334, text)
            }
        }
    }

    /// A command whose protection was right.
    fn on_unprotected(&mut self, mut line: Secret) -> Vec<SessionAction> {
        let line = LineEvent::Line(std::mem::take(&mut line.0));
        self.process_line(&line, LineProtection::Protected)
    }
}
