//! Security exchanges with a fake mechanism: these tests check the order of messages only.

use std::collections::VecDeque;

use super::{ExpectedInput, ServerSession, SessionConfig, code, config, grant, line};
use crate::command::Secret;
use crate::line::{LineEvent, LineReader};
use crate::security::{CommandProtection, ExchangeKind, SecurityMechanism, SecurityToken};
use crate::server::{
    DriverEvent, SecurityFailure, SecurityRequest, SecurityResponse, SessionAction,
};

fn offering(exchange: ExchangeKind) -> SessionConfig {
    let mechanism = SecurityMechanism {
        name: "FAKE".to_owned(),
        exchange,
    };
    SessionConfig {
        mechanisms: [mechanism].into(),
        ..config()
    }
}

fn token(text: &str) -> SecurityToken {
    SecurityToken::new(text.into()).unwrap()
}

fn adat(text: &str) -> LineEvent {
    line(&format!("ADAT {}", token(text).encode()))
}

fn security(response: SecurityResponse) -> DriverEvent {
    DriverEvent::Security(Ok(response))
}

/// A driver that keeps the contract. Each read returns all bytes that the client has sent.
struct ScriptedDriver {
    session: ServerSession,
    reader: LineReader,
    queued_lines: VecDeque<LineEvent>,
    /// The last read ended inside a line.
    partial_line: bool,
    /// Number of tokens that the fake mechanism requires.
    required_tokens: usize,
    handshake: bool,
    replies: Vec<u16>,
    other_actions: Vec<SessionAction>,
}

impl ScriptedDriver {
    fn new(exchange: ExchangeKind, required_tokens: usize) -> Self {
        Self {
            session: ServerSession::new(offering(exchange)),
            reader: LineReader::new(1000),
            queued_lines: VecDeque::new(),
            partial_line: false,
            required_tokens,
            handshake: false,
            replies: Vec::new(),
            other_actions: Vec::new(),
        }
    }

    /// One read of the socket.
    fn receive(&mut self, bytes: &str) {
        let mut lines = Vec::new();
        self.reader.feed(bytes.as_bytes(), &mut lines);
        self.queued_lines.extend(lines);
        self.partial_line = !bytes.ends_with('\n');
        while self.session.expected_input() == ExpectedInput::Line {
            let Some(line) = self.queued_lines.pop_front() else {
                return;
            };
            let actions = self.session.on_line(&line);
            self.carry_out(actions);
        }
    }

    fn carry_out(&mut self, actions: Vec<SessionAction>) {
        for action in actions {
            match action {
                SessionAction::Reply(reply) => self.replies.push(reply.code),
                SessionAction::Secure(request) => {
                    let response = self.respond(request);
                    let next = self
                        .session
                        .on_driver_event(DriverEvent::Security(response));
                    self.carry_out(next);
                }
                other => self.other_actions.push(other),
            }
        }
    }

    fn respond(&mut self, request: SecurityRequest) -> Result<SecurityResponse, SecurityFailure> {
        match request {
            SecurityRequest::Begin(_) if !self.queued_lines.is_empty() || self.partial_line => {
                Err(SecurityFailure::ReadAhead)
            }
            SecurityRequest::Begin(_) => Ok(SecurityResponse::Ready),
            SecurityRequest::Handshake => {
                self.handshake = true;
                Ok(SecurityResponse::Secured(None))
            }
            SecurityRequest::ProcessToken(token) if token.as_bytes() == b"wrong" => {
                Err(SecurityFailure::Failed("not you".to_owned()))
            }
            SecurityRequest::ProcessToken(_) if self.required_tokens > 1 => {
                self.required_tokens -= 1;
                Ok(SecurityResponse::Continue(token("more")))
            }
            SecurityRequest::ProcessToken(_) => Ok(SecurityResponse::Secured(Some(token("end")))),
            SecurityRequest::Unprotect(_, token) => {
                Ok(SecurityResponse::Command(Secret(token.as_bytes().to_vec())))
            }
        }
    }

    fn send_line(&mut self, text: &str) {
        self.receive(&format!("{text}\r\n"));
    }
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused() {
    let mut session = ServerSession::new(config());
    for text in ["AUTH TLS", "AUTH GSSAPI", "AUTH"] {
        assert_eq!(code(&session.on_line(&line(text))), 504, "{text}");
    }
    for text in ["ADAT AAAA", "MIC AAAA", "CONF AAAA", "ENC AAAA", "CCC"] {
        assert_eq!(code(&session.on_line(&line(text))), 503, "{text}");
    }
    assert_eq!(code(&session.on_line(&line("USER ann"))), 331);
    assert_eq!(
        session.on_driver_event(security(SecurityResponse::Ready)),
        []
    );
}

#[test]
fn a_handshake_follows_the_234() {
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    let actions = session.on_line(&line("auth fake"));
    assert!(matches!(
        &actions[..],
        [SessionAction::Secure(SecurityRequest::Begin(_))]
    ));
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
    let actions = session.on_driver_event(security(SecurityResponse::Ready));
    assert_eq!(code(&actions), 234);
    assert_eq!(
        actions.last(),
        Some(&SessionAction::Secure(SecurityRequest::Handshake))
    );
    assert_eq!(
        session.expected_input(),
        ExpectedInput::DriverEvent,
        "lines wait for its end"
    );
    assert_eq!(code(&session.on_line(&line("USER ann"))), 503);
    assert_eq!(
        session.on_driver_event(security(SecurityResponse::Secured(None))),
        []
    );
    assert_eq!(code(&session.on_line(&line("AUTH FAKE"))), 503, "once");
    assert_eq!(code(&session.on_line(&line("CCC"))), 534);
    assert_eq!(code(&session.on_line(&line("USER ann"))), 331);
}

#[test]
fn tokens_are_exchanged_until_the_mechanism_is_satisfied() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 3);
    driver.send_line("AUTH FAKE");
    for _ in 0..3 {
        driver.send_line("ADAT Zm9v");
    }
    assert_eq!(driver.replies, [334, 335, 335, 235]);
    assert!(!driver.handshake);
    driver.send_line("ADAT Zm9v");
    assert_eq!(driver.replies.pop(), Some(533));
    let user = token("USER ann").encode();
    driver.send_line(&format!("ENC {user}"));
    assert_eq!(driver.replies.pop(), Some(331));
}

#[test]
fn a_reply_carries_the_mechanisms_token() {
    let mut session = ServerSession::new(offering(ExchangeKind::Tokens));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    let actions = session.on_line(&adat("hello"));
    let take = SessionAction::Secure(SecurityRequest::ProcessToken(token("hello")));
    assert_eq!(actions, [take]);
    let response = session.on_driver_event(security(SecurityResponse::Continue(token("foo"))));
    let [SessionAction::Reply(reply)] = &response[..] else {
        panic!("{response:?}");
    };
    assert_eq!((reply.code, &reply.lines[0][..]), (335, &b"ADAT=Zm9v"[..]));
    assert_eq!(SecurityToken::from_reply(reply), Ok(Some(token("foo"))));
}

/// An attacker on the path injects clear commands behind AUTH (CVE-2011-0411).
#[test]
fn commands_injected_behind_auth_are_never_executed() {
    for exchange in [ExchangeKind::Handshake, ExchangeKind::Tokens] {
        for behind in [
            "USER mallory\r\n",
            "US",
            "\r\n",
            "USER m\r\nPASS x\r\nQUIT\r\n",
        ] {
            let mut driver = ScriptedDriver::new(exchange, 1);
            driver.receive(&format!("AUTH FAKE\r\n{behind}"));
            assert_eq!(driver.replies, [421], "{behind:?}");
            assert_eq!(driver.other_actions, [SessionAction::Close]);
            driver.send_line("NOOP");
            assert_eq!(driver.replies.len(), 1, "nothing is answered any more");
            assert!(!driver.handshake);
        }
    }
}

#[test]
fn commands_sent_behind_the_last_token_are_refused_as_clear() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 1);
    driver.send_line("AUTH FAKE");
    driver.receive("ADAT Zm9v\r\nUSER mallory\r\nPASS x\r\nQUIT\r\n");
    assert_eq!(driver.replies, [334, 235, 533, 533, 533]);
    assert_eq!(driver.other_actions, []);
}

#[test]
fn other_commands_are_refused_during_an_exchange() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 2);
    driver.send_line("USER ann");
    driver.send_line("AUTH FAKE");
    for text in [
        "USER ann",
        "PASS secret",
        "NOOP",
        "ENC AAAA",
        "ADAT Zm9v",
        "FEAT",
    ] {
        driver.send_line(text);
    }
    assert_eq!(driver.replies, [331, 334, 503, 503, 503, 503, 335, 503]);
    assert_eq!(driver.other_actions, []);
    // AUTH restarts the exchange, QUIT ends the session.
    driver.send_line("AUTH FAKE");
    driver.send_line("QUIT");
    assert_eq!(driver.replies[8..], [334, 221]);
}

#[test]
fn auth_discards_a_user_sent_in_the_clear() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Handshake, 0);
    for text in ["USER ann", "AUTH FAKE", "PASS x"] {
        driver.send_line(text);
    }
    assert_eq!(driver.replies, [331, 234, 503]);
}

#[test]
fn auth_after_login_is_refused() {
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("USER ann"));
    session.on_line(&line("PASS x"));
    session.on_driver_event(DriverEvent::Login(Ok(grant())));
    assert_eq!(code(&session.on_line(&line("AUTH FAKE"))), 503);
    assert_eq!(code(&session.on_line(&line("PWD"))), 257);
}

#[test]
fn a_failed_token_exchange_leaves_the_session_clear() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 1);
    driver.send_line("AUTH FAKE");
    driver.send_line(&format!("ADAT {}", token("wrong").encode()));
    driver.send_line("ADAT Zm9v");
    driver.send_line("USER ann");
    assert_eq!(driver.replies, [334, 535, 503, 331]);
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("AUTH FAKE"));
    let unavailable = SecurityFailure::Unavailable("no key".to_owned());
    let refused = session.on_driver_event(DriverEvent::Security(Err(unavailable)));
    assert_eq!(code(&refused), 431);
    assert_eq!(code(&session.on_line(&line("NOOP"))), 200);
}

#[test]
fn a_failed_handshake_closes_the_session_without_reply() {
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    let failed = SecurityFailure::Failed("no common cipher".to_owned());
    let end = session.on_driver_event(DriverEvent::Security(Err(failed)));
    assert_eq!(end, [SessionAction::Close]);
    assert_eq!(session.on_line(&line("USER ann")), []);
}

#[test]
fn a_command_with_invalid_protection_is_not_executed() {
    let mut session = ServerSession::new(offering(ExchangeKind::Tokens));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    session.on_line(&adat("x"));
    session.on_driver_event(security(SecurityResponse::Secured(None)));
    let actions = session.on_line(&line("MIC Zm9v"));
    let unprotect = SecurityRequest::Unprotect(CommandProtection::Safe, token("foo"));
    assert_eq!(actions, [SessionAction::Secure(unprotect)]);
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
    let invalid = SecurityFailure::Failed("bad checksum".to_owned());
    assert_eq!(
        code(&session.on_driver_event(DriverEvent::Security(Err(invalid)))),
        535
    );
    // A protected command inside another one is refused.
    session.on_line(&line("ENC Zm9v"));
    let inner = Secret(b"MIC Zm9v".to_vec());
    let response = session.on_driver_event(security(SecurityResponse::Command(inner)));
    assert_eq!(code(&response), 503);
    session.on_line(&line("ENC Zm9v"));
    let inner = Secret(b"QUIT".to_vec());
    let response = session.on_driver_event(security(SecurityResponse::Command(inner)));
    assert_eq!(code(&response), 221);
    assert_eq!(response.last(), Some(&SessionAction::Close));
}
