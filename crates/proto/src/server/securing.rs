//! AUTH, ADAT, CCC and protected commands (RFC 2228): the security exchange before a login.
//!
//! A mechanism that the driver does not offer is refused. For one that it offers, the session says what
//! comes next, and the driver computes it: [`Action::Secure`] asks, [`super::Outcome::Security`] answers.
//!
//! A command that travels in the clear is never taken for secured. The driver begins no exchange when it has
//! read more than AUTH ([`SecurityFailure::ReadAhead`]): somebody on the way may have put it there
//! (the flaw of CVE-2011-0411). In a session whose commands travel in tokens a clear one is refused.

use super::replies;
use super::session::{Session, Travelled};
use super::state::{ExchangeStep, State};
use super::{Action, SecurityAnswer, SecurityFailure, SecurityRequest};
use crate::command::{Command, Secret};
use crate::line::LineEvent;
use crate::reply::Reply;
use crate::security::{Carriage, Mechanism, Protection, Securing, SecurityToken};

type Answer = Result<SecurityAnswer, SecurityFailure>;

impl Session {
    /// Whether the driver was asked for something and has not answered.
    pub(super) fn is_securing(&self) -> bool {
        match &self.securing {
            Securing::Exchanging(_, expected) => *expected != ExchangeStep::Adat,
            Securing::Clear | Securing::Secured(_) => self.unprotecting,
        }
    }

    /// Refusal of a command that came in the clear, if the session may not take it so.
    pub(super) fn refused_in_the_clear(&self, command: &Command) -> Option<Vec<Action>> {
        use Command as C;
        match (&self.securing, command) {
            (Securing::Exchanging(..), C::Auth(_) | C::Adat(_) | C::Quit) => None,
            (Securing::Exchanging(..), _) => {
                Some(replies::reply(503, "The security exchange is not over."))
            }
            (Securing::Secured(by), C::Mic(_) | C::Conf(_) | C::Enc(_))
                if by.carriage == Carriage::Tokens =>
            {
                None
            }
            (Securing::Secured(by), _) if by.carriage == Carriage::Tokens => Some(replies::reply(
                533,
                "Commands must be protected in this session.",
            )),
            _ => None,
        }
    }

    /// Refusal of a command that came in a protected one, if it makes no sense there.
    pub(super) fn refused_in_another(&self, command: &Command) -> Option<Vec<Action>> {
        let protected = matches!(
            command,
            Command::Mic(_) | Command::Conf(_) | Command::Enc(_)
        );
        protected.then(|| replies::reply(503, "A protected command holds another one."))
    }

    /// AUTH
    pub(super) fn auth(&mut self, name: &str) -> Vec<Action> {
        let offered = self.config.mechanisms.iter().find(|m| m.is_named(name));
        let Some(mechanism) = offered.cloned() else {
            return replies::reply(504, format!("No security is offered: {name}."));
        };
        if self.logged_in() || matches!(self.securing, Securing::Secured(_)) {
            return replies::reply(503, "Security is agreed upon once, and before the login.");
        }
        // What was said of a login was said in the clear.
        self.state = State::Connected;
        self.securing = Securing::Exchanging(mechanism.clone(), ExchangeStep::Beginning);
        vec![Action::Secure(SecurityRequest::Begin(mechanism))]
    }

    /// ADAT
    pub(super) fn adat(&mut self, token: SecurityToken) -> Vec<Action> {
        match &mut self.securing {
            Securing::Exchanging(_, expected @ ExchangeStep::Adat) => {
                *expected = ExchangeStep::Verdict;
                vec![Action::Secure(SecurityRequest::Take(token))]
            }
            _ => replies::reply(503, "ADAT belongs to an exchange that AUTH begins."),
        }
    }

    /// MIC, CONF and ENC
    pub(super) fn protected(&mut self, how: Protection, token: SecurityToken) -> Vec<Action> {
        match &self.securing {
            Securing::Secured(by) if by.carriage == Carriage::Tokens => {
                self.unprotecting = true;
                vec![Action::Secure(SecurityRequest::Unprotect(how, token))]
            }
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// CCC
    pub(super) fn clear_commands(&self) -> Vec<Action> {
        match &self.securing {
            Securing::Secured(_) => replies::reply(534, "Commands stay protected here."),
            _ => replies::reply(503, "No security exchange was made."),
        }
    }

    /// Takes the driver's answer to [`Action::Secure`].
    pub(super) fn on_security(&mut self, answer: Answer) -> Vec<Action> {
        if !self.is_securing() {
            return Vec::new();
        }
        match std::mem::take(&mut self.securing) {
            Securing::Exchanging(mechanism, expected) => {
                self.on_exchange(mechanism, expected, answer)
            }
            before => {
                self.securing = before;
                self.unprotecting = false;
                match answer {
                    Ok(SecurityAnswer::Command(line)) => self.on_unprotected(line),
                    _ => replies::reply(535, "The protection of the command is not right."),
                }
            }
        }
    }

    /// The state is [`Securing::Clear`] unless this says otherwise.
    fn on_exchange(
        &mut self,
        mechanism: Mechanism,
        expected: ExchangeStep,
        answer: Answer,
    ) -> Vec<Action> {
        use SecurityAnswer as A;
        match (expected, answer) {
            (_, Err(SecurityFailure::ReadAhead)) => {
                let text = "Nothing may be sent behind AUTH before its answer; closing.";
                vec![Action::Reply(Reply::new(421, text)), Action::Close]
            }
            (ExchangeStep::Beginning, Ok(A::Begun)) => self.begun(mechanism),
            (ExchangeStep::Beginning, Err(failure)) => {
                replies::reply(431, format!("{}: {failure}.", mechanism.name))
            }
            (ExchangeStep::Verdict, Ok(A::Continue(token))) => {
                self.securing = Securing::Exchanging(mechanism, ExchangeStep::Adat);
                replies::reply(335, token.labelled())
            }
            (ExchangeStep::Verdict, Ok(A::Secured(token))) => {
                self.securing = Securing::Secured(mechanism);
                let text = token.map_or("Secured.".to_owned(), |token| token.labelled());
                replies::reply(235, text)
            }
            (ExchangeStep::Handshake, Ok(A::Secured(_))) => {
                self.securing = Securing::Secured(mechanism);
                Vec::new()
            }
            // Nothing can be said on a connection that is neither clear nor secured.
            (ExchangeStep::Handshake, _) => vec![Action::Close],
            (_, Err(failure)) => replies::reply(535, format!("{}: {failure}.", mechanism.name)),
            (_, Ok(_)) => replies::reply(535, "The security exchange has failed."),
        }
    }

    fn begun(&mut self, mechanism: Mechanism) -> Vec<Action> {
        let name = &mechanism.name;
        match mechanism.carriage {
            Carriage::Handshake => {
                let reply = Reply::new(234, format!("Begin {name}."));
                self.securing = Securing::Exchanging(mechanism, ExchangeStep::Handshake);
                let shake = Action::Secure(SecurityRequest::Handshake);
                vec![Action::Reply(reply), shake]
            }
            Carriage::Tokens => {
                let text = format!("Using {name}; ADAT must follow.");
                self.securing = Securing::Exchanging(mechanism, ExchangeStep::Adat);
                replies::reply(334, text)
            }
        }
    }

    /// A command whose protection was right.
    fn on_unprotected(&mut self, mut line: Secret) -> Vec<Action> {
        let line = LineEvent::Line(std::mem::take(&mut line.0));
        self.take_line(&line, Travelled::Protected)
    }
}
