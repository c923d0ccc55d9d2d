//! AUTH and ADAT as the client sends them (RFC 2228 §3, RFC 4217 §4).
//!
//! The exchange comes first on a connection, before any login. The driver sends what
//! [`SecurityExchange::begin`] says, with nothing behind it ([`super::may_pipeline`]), and gives each final reply to
//! [`SecurityExchange::on_reply`], which says what the mechanism is to do.

use crate::command::Command;
use crate::reply::Reply;
use crate::security::{ExchangeKind, SecurityMechanism, SecurityState, SecurityToken, TokenError};

/// The next thing that an exchange waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedSecurityInput {
    /// The answer to AUTH.
    AuthReply,
    /// The mechanism's word on the last token.
    MechanismToken,
    /// The answer to ADAT.
    AdatReply,
    /// The end of the handshake.
    Handshake,
}

/// The security exchange of one control connection.
#[derive(Debug, Default)]
pub struct SecurityExchange {
    securing: SecurityState<ExpectedSecurityInput>,
}

/// Next task of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityStep {
    /// Shake hands on the connection, then call [`SecurityExchange::on_handshake_complete`].
    Handshake,
    /// Give the server's token to the mechanism, if there is one, and what it says to
    /// [`SecurityExchange::send_token`].
    ProcessToken(Option<SecurityToken>),
    /// The exchange is over. What the token says, if there is one, is for the mechanism to check.
    Secured(Option<SecurityToken>),
}

/// Why an exchange failed. Nothing more may be sent on its connection, unless it was
/// [refused](ExchangeError::Refused).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The server does not offer the mechanism, or its part of the exchange has failed; the connection is clear.
    #[error("security is refused: {}", .0.summary())]
    Refused(Reply),
    /// More was read than the answer. What came in the clear must not be taken for secured
    /// (CVE-2011-0411).
    #[error("more than the answer to {0} came")]
    ReadAhead(&'static str),
    /// A token that is none.
    #[error("the security data of the answer is {0}")]
    Token(#[from] TokenError),
    /// A reply that the exchange has no place for, or a call out of turn.
    #[error("out of turn")]
    OutOfTurn,
}

impl SecurityExchange {
    /// The command that begins it. On a fresh connection, after the greeting.
    pub fn begin(&mut self, mechanism: SecurityMechanism) -> Command {
        let command = Command::Auth(mechanism.name.clone());
        self.securing = SecurityState::Exchanging(mechanism, ExpectedSecurityInput::AuthReply);
        command
    }

    /// Whether the exchange is over, so that a login may follow.
    pub fn is_secured(&self) -> bool {
        matches!(self.securing, SecurityState::Secured(_))
    }

    /// Takes the final reply to AUTH or ADAT. `behind`: whether more than this reply was read from the
    /// connection, a part of a line included.
    ///
    /// # Errors
    /// See [`ExchangeError`]; the exchange is over then.
    pub fn on_reply(&mut self, reply: &Reply, behind: bool) -> Result<SecurityStep, ExchangeError> {
        let SecurityState::Exchanging(mechanism, due) = std::mem::take(&mut self.securing) else {
            return Err(ExchangeError::OutOfTurn);
        };
        if behind {
            return Err(ExchangeError::ReadAhead(match due {
                ExpectedSecurityInput::AuthReply => "AUTH",
                _ => "ADAT",
            }));
        }
        if reply.code >= 400 {
            return Err(ExchangeError::Refused(reply.clone()));
        }
        let token = SecurityToken::from_reply(reply)?;
        match (due, mechanism.exchange, reply.code) {
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Handshake, 234) => {
                self.securing =
                    SecurityState::Exchanging(mechanism, ExpectedSecurityInput::Handshake);
                Ok(SecurityStep::Handshake)
            }
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Tokens, 334)
            | (ExpectedSecurityInput::AdatReply, ExchangeKind::Tokens, 335) => {
                self.securing =
                    SecurityState::Exchanging(mechanism, ExpectedSecurityInput::MechanismToken);
                Ok(SecurityStep::ProcessToken(token))
            }
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Tokens, 234)
            | (ExpectedSecurityInput::AdatReply, ExchangeKind::Tokens, 235) => {
                self.securing = SecurityState::Secured(mechanism);
                Ok(SecurityStep::Secured(token))
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }

    /// The command that carries what the mechanism says.
    ///
    /// # Errors
    /// [`ExchangeError::OutOfTurn`]
    pub fn send_token(&mut self, token: SecurityToken) -> Result<Command, ExchangeError> {
        match &mut self.securing {
            SecurityState::Exchanging(_, due @ ExpectedSecurityInput::MechanismToken) => {
                *due = ExpectedSecurityInput::AdatReply;
                Ok(Command::Adat(token))
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }

    /// The handshake has ended well. After one that failed the connection is of no use.
    ///
    /// # Errors
    /// [`ExchangeError::OutOfTurn`]
    pub fn on_handshake_complete(&mut self) -> Result<(), ExchangeError> {
        match std::mem::take(&mut self.securing) {
            SecurityState::Exchanging(mechanism, ExpectedSecurityInput::Handshake) => {
                self.securing = SecurityState::Secured(mechanism);
                Ok(())
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(carriage: ExchangeKind) -> SecurityExchange {
        let mut exchange = SecurityExchange::default();
        let command = exchange.begin(SecurityMechanism {
            name: "FAKE".to_owned(),
            exchange: carriage,
        });
        assert_eq!(command.encode(), b"AUTH FAKE");
        exchange
    }

    fn token(text: &str) -> SecurityToken {
        SecurityToken::new(text.into()).unwrap()
    }

    #[test]
    fn a_handshake_follows_the_234() {
        let mut exchange = begun(ExchangeKind::Handshake);
        let next = exchange.on_reply(&Reply::new(234, "Begin."), false);
        assert_eq!(next, Ok(SecurityStep::Handshake));
        assert!(!exchange.is_secured());
        assert_eq!(exchange.on_handshake_complete(), Ok(()));
        assert!(exchange.is_secured());
        assert_eq!(
            exchange.on_handshake_complete(),
            Err(ExchangeError::OutOfTurn),
            "once"
        );
    }

    #[test]
    fn tokens_go_to_and_fro_until_the_server_is_content() {
        let mut exchange = begun(ExchangeKind::Tokens);
        let next = exchange.on_reply(&Reply::new(334, "ADAT must follow."), false);
        assert_eq!(next, Ok(SecurityStep::ProcessToken(None)));
        let hello = exchange.send_token(token("hello")).unwrap();
        assert_eq!(hello.encode(), b"ADAT aGVsbG8=");
        let next = exchange.on_reply(&Reply::new(335, "ADAT=Zm9v"), false);
        assert_eq!(next, Ok(SecurityStep::ProcessToken(Some(token("foo")))));
        exchange.send_token(token("on")).unwrap();
        let next = exchange.on_reply(&Reply::new(235, "ADAT=Zg=="), false);
        assert_eq!(next, Ok(SecurityStep::Secured(Some(token("f")))));
        assert!(exchange.is_secured());
    }

    /// Replies that somebody on the way put behind the answer, in the clear.
    #[test]
    fn what_came_behind_the_answer_ends_the_exchange() {
        let mut exchange = begun(ExchangeKind::Handshake);
        let end = exchange.on_reply(&Reply::new(234, "Begin."), true);
        assert_eq!(end, Err(ExchangeError::ReadAhead("AUTH")));
        assert_eq!(
            exchange.on_handshake_complete(),
            Err(ExchangeError::OutOfTurn)
        );
        assert!(!exchange.is_secured());
    }

    #[test]
    fn what_has_no_place_ends_the_exchange() {
        for (carriage, code, text) in [
            (ExchangeKind::Handshake, 334, "ADAT must follow."),
            (ExchangeKind::Handshake, 200, "Whatever."),
            (ExchangeKind::Tokens, 335, "ADAT=Zm9v"),
            (ExchangeKind::Tokens, 235, "Done."),
        ] {
            let mut exchange = begun(carriage);
            let end = exchange.on_reply(&Reply::new(code, text), false);
            assert_eq!(end, Err(ExchangeError::OutOfTurn), "{code}");
            assert!(!exchange.is_secured());
        }
        let mut exchange = begun(ExchangeKind::Tokens);
        assert_eq!(
            exchange.send_token(token("x")),
            Err(ExchangeError::OutOfTurn)
        );
        let spoiled = exchange.on_reply(&Reply::new(334, "ADAT=Z"), false);
        assert_eq!(spoiled, Err(ExchangeError::Token(TokenError::Malformed)));
        let late = exchange.on_reply(&Reply::new(335, "ADAT=Zm9v"), false);
        assert_eq!(late, Err(ExchangeError::OutOfTurn));
    }

    #[test]
    fn a_refusal_is_told_and_leaves_the_connection_clear() {
        let mut exchange = begun(ExchangeKind::Handshake);
        let refusal = Reply::new(504, "No security is offered: FAKE.");
        let end = exchange.on_reply(&refusal, false);
        assert_eq!(end, Err(ExchangeError::Refused(refusal)));
        assert!(!exchange.is_secured());
    }
}
