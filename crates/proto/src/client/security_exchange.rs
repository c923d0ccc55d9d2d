//! AUTH and ADAT at the client (RFC 2228 §3, RFC 4217 §4).
//!
//! The exchange is the first on a connection, before any login. The driver sends the command of
//! [`SecurityExchange::begin`] with nothing behind it ([`super::may_pipeline`]). It passes each final
//! reply to [`SecurityExchange::on_reply`], which returns the next step of the mechanism.

use crate::command::Command;
use crate::reply::Reply;
use crate::security::{ExchangeKind, SecurityMechanism, SecurityState, SecurityToken, TokenError};

/// Replies to AUTH of servers that do not know the verb or the mechanism, or have it switched off. vsftpd
/// answers 530 to every verb that it does not expect before the login.
const NOT_OFFERED: [u16; 6] = [500, 501, 502, 504, 530, 534];

/// Input that a security exchange waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedSecurityInput {
    /// The reply to AUTH.
    AuthReply,
    /// The mechanism's next token, from the driver.
    MechanismToken,
    /// The reply to ADAT.
    AdatReply,
    /// The end of the handshake.
    Handshake,
}

/// The security exchange of one control connection.
#[derive(Debug, Default)]
pub struct SecurityExchange {
    state: SecurityState<ExpectedSecurityInput>,
}

/// Next step of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityStep {
    /// Perform the handshake on the connection, then call [`SecurityExchange::on_handshake_complete`].
    Handshake,
    /// Pass the server's token, if any, to the mechanism, and the mechanism's token to
    /// [`SecurityExchange::send_token`].
    ProcessToken(Option<SecurityToken>),
    /// The exchange is complete. The mechanism must check the last token, if any.
    Secured(Option<SecurityToken>),
}

/// Error of a security exchange. Nothing more may be sent on the connection, except after
/// [`ExchangeError::NotOffered`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The server does not offer the mechanism. The connection remains usable in the clear.
    #[error("the server does not offer this security: {}", .0.summary())]
    NotOffered(Reply),
    /// The server offers the mechanism but not now, or the exchange failed there. The session must not go
    /// on in the clear.
    #[error("security is refused: {}", .0.summary())]
    Refused(Reply),
    /// More than the reply was read. Data received in the clear must not be treated as secured
    /// (CVE-2011-0411).
    #[error("more than the reply to {0} was received")]
    ReadAhead(&'static str),
    /// The reply holds an invalid token.
    #[error("the token in the reply is {0}")]
    Token(#[from] TokenError),
    /// An unexpected reply, or a call in the wrong state.
    #[error("unexpected reply or call in the security exchange")]
    OutOfTurn,
}

impl SecurityExchange {
    /// Starts the exchange; returns the command to send after the greeting of a new connection.
    pub fn begin(&mut self, mechanism: SecurityMechanism) -> Command {
        let command = Command::Auth(mechanism.name.clone());
        self.state = SecurityState::Exchanging(mechanism, ExpectedSecurityInput::AuthReply);
        command
    }

    /// Whether the exchange is complete, so that a login may follow.
    pub fn is_secured(&self) -> bool {
        matches!(self.state, SecurityState::Secured(_))
    }

    /// Handles the final reply to AUTH or ADAT. `behind` is set if anything beyond this reply was read
    /// from the connection, even a part of a line.
    ///
    /// # Errors
    /// See [`ExchangeError`]; the exchange has ended then.
    pub fn on_reply(&mut self, reply: &Reply, behind: bool) -> Result<SecurityStep, ExchangeError> {
        // The state is taken, so that every error below leaves the exchange ended (`Clear`).
        let SecurityState::Exchanging(mechanism, expected) = std::mem::take(&mut self.state) else {
            return Err(ExchangeError::OutOfTurn);
        };
        if behind {
            return Err(ExchangeError::ReadAhead(match expected {
                ExpectedSecurityInput::AuthReply => "AUTH",
                _ => "ADAT",
            }));
        }
        if expected == ExpectedSecurityInput::AuthReply && NOT_OFFERED.contains(&reply.code) {
            return Err(ExchangeError::NotOffered(reply.clone()));
        }
        if reply.code >= 400 {
            return Err(ExchangeError::Refused(reply.clone()));
        }
        let token = reply.token()?;
        match (expected, mechanism.exchange, reply.code) {
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Handshake, 234) => {
                self.state = SecurityState::Exchanging(mechanism, ExpectedSecurityInput::Handshake);
                Ok(SecurityStep::Handshake)
            }
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Tokens, 334)
            | (ExpectedSecurityInput::AdatReply, ExchangeKind::Tokens, 335) => {
                self.state =
                    SecurityState::Exchanging(mechanism, ExpectedSecurityInput::MechanismToken);
                Ok(SecurityStep::ProcessToken(token))
            }
            // RFC 2228 §3: a mechanism may need no token at all (234), or finish with 235.
            (ExpectedSecurityInput::AuthReply, ExchangeKind::Tokens, 234)
            | (ExpectedSecurityInput::AdatReply, ExchangeKind::Tokens, 235) => {
                self.state = SecurityState::Secured(mechanism);
                Ok(SecurityStep::Secured(token))
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }

    /// The command that carries the mechanism's token.
    ///
    /// # Errors
    /// [`ExchangeError::OutOfTurn`]
    pub fn send_token(&mut self, token: SecurityToken) -> Result<Command, ExchangeError> {
        match &mut self.state {
            SecurityState::Exchanging(_, expected @ ExpectedSecurityInput::MechanismToken) => {
                *expected = ExpectedSecurityInput::AdatReply;
                Ok(Command::Adat(token))
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }

    /// The handshake has succeeded. After a failed one the connection must be closed.
    ///
    /// # Errors
    /// [`ExchangeError::OutOfTurn`]
    pub fn on_handshake_complete(&mut self) -> Result<(), ExchangeError> {
        match std::mem::take(&mut self.state) {
            SecurityState::Exchanging(mechanism, ExpectedSecurityInput::Handshake) => {
                self.state = SecurityState::Secured(mechanism);
                Ok(())
            }
            _ => Err(ExchangeError::OutOfTurn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(exchange_kind: ExchangeKind) -> SecurityExchange {
        let mut exchange = SecurityExchange::default();
        let command = exchange.begin(SecurityMechanism {
            name: "FAKE".to_owned(),
            exchange: exchange_kind,
        });
        assert_eq!(command.encode(), b"AUTH FAKE");
        exchange
    }

    fn token(text: &str) -> SecurityToken {
        SecurityToken::new(text.into()).unwrap()
    }

    #[test]
    fn a_handshake_follows_the_234() {
        let mut exchange = started(ExchangeKind::Handshake);
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
    fn tokens_are_exchanged_until_the_server_is_satisfied() {
        let mut exchange = started(ExchangeKind::Tokens);
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

    /// An attacker on the path injects replies behind the answer, in the clear.
    #[test]
    fn data_behind_the_reply_fails_the_exchange() {
        let mut exchange = started(ExchangeKind::Handshake);
        let end = exchange.on_reply(&Reply::new(234, "Begin."), true);
        assert_eq!(end, Err(ExchangeError::ReadAhead("AUTH")));
        assert_eq!(
            exchange.on_handshake_complete(),
            Err(ExchangeError::OutOfTurn)
        );
        assert!(!exchange.is_secured());
    }

    #[test]
    fn an_unexpected_reply_fails_the_exchange() {
        for (exchange_kind, code, text) in [
            (ExchangeKind::Handshake, 334, "ADAT must follow."),
            (ExchangeKind::Handshake, 200, "Whatever."),
            (ExchangeKind::Tokens, 335, "ADAT=Zm9v"),
            (ExchangeKind::Tokens, 235, "Done."),
        ] {
            let mut exchange = started(exchange_kind);
            let end = exchange.on_reply(&Reply::new(code, text), false);
            assert_eq!(end, Err(ExchangeError::OutOfTurn), "{code}");
            assert!(!exchange.is_secured());
        }
        let mut exchange = started(ExchangeKind::Tokens);
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
    fn a_mechanism_that_is_not_offered_is_told_from_a_failure() {
        for code in [500, 501, 502, 504, 530, 534] {
            let mut exchange = started(ExchangeKind::Handshake);
            let refusal = Reply::new(code, "Unknown authentication type.");
            let end = exchange.on_reply(&refusal, false);
            assert_eq!(end, Err(ExchangeError::NotOffered(refusal)));
            assert!(!exchange.is_secured());
        }
        for code in [421, 431, 535] {
            let mut exchange = started(ExchangeKind::Handshake);
            let refusal = Reply::new(code, "Not now.");
            let end = exchange.on_reply(&refusal, false);
            assert_eq!(end, Err(ExchangeError::Refused(refusal)));
        }
        let mut exchange = started(ExchangeKind::Tokens);
        exchange
            .on_reply(&Reply::new(334, "ADAT must follow."), false)
            .unwrap();
        exchange.send_token(token("hello")).unwrap();
        let refusal = Reply::new(530, "Who are you?");
        let end = exchange.on_reply(&refusal, false);
        assert_eq!(end, Err(ExchangeError::Refused(refusal)), "the token");
    }
}
