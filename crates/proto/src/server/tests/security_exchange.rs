//! Security exchanges with a fake mechanism: these tests check the order of messages only.

use std::collections::VecDeque;

use super::{ExpectedInput, ServerSession, SessionConfig, code, config, grant, line};
use crate::command::unwrap_line;
use crate::line::{LineEvent, LineReader};
use crate::security::{ExchangeKind, SecurityMechanism, SecurityToken};
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
        let secured = self.session.expects_protected_lines();
        for line in lines {
            let mut plain = Vec::new();
            match secured {
                // The fake mechanism accepts every token but this one.
                true => unwrap_line(
                    line,
                    1000,
                    |_, token| match token {
                        b"forged" => Err(()),
                        plain => Ok(plain.to_vec()),
                    },
                    &mut plain,
                ),
                false => plain.push(line),
            }
            self.queued_lines.extend(plain);
        }
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
                Ok(SecurityResponse::Secured {
                    token: None,
                    identified: false,
                })
            }
            SecurityRequest::ProcessToken(token) if token.as_bytes() == b"wrong" => {
                Err(SecurityFailure::Failed("not you".to_owned()))
            }
            SecurityRequest::ProcessToken(_) if self.required_tokens > 1 => {
                self.required_tokens -= 1;
                Ok(SecurityResponse::Continue(token("more")))
            }
            SecurityRequest::ProcessToken(_) => Ok(SecurityResponse::Secured {
                token: Some(token("end")),
                identified: true,
            }),
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
        session.on_driver_event(security(SecurityResponse::Secured {
            token: None,
            identified: false,
        })),
        []
    );
    assert_eq!(code(&session.on_line(&line("AUTH FAKE"))), 503, "once");
    assert_eq!(code(&session.on_line(&line("CCC"))), 534);
    assert_eq!(code(&session.on_line(&line("USER ann"))), 331);
}

#[test]
fn no_login_is_possible_after_ccc() {
    let config = SessionConfig {
        allow_ccc: true,
        ..offering(ExchangeKind::Handshake)
    };
    let mechanism = config.mechanisms[0].clone();
    let mut session = ServerSession::secured_from_start(config, mechanism, true);
    session.on_line(&line("USER ann"));
    let login = DriverEvent::Login(Ok(grant()));
    assert_eq!(code(&session.on_driver_event(login)), 232);
    assert_eq!(code(&session.on_line(&line("CCC"))), 200);
    for text in ["USER bob", "REIN", "USER bob", "AUTH FAKE"] {
        assert_eq!(code(&session.on_line(&line(text))), 503, "{text}");
    }
    assert!(session.is_logged_in());
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
    assert_eq!(reply.token(), Ok(Some(token("foo"))));
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
    for failure in [
        SecurityFailure::Failed("no common cipher".to_owned()),
        SecurityFailure::ReadAhead,
    ] {
        let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
        session.on_line(&line("AUTH FAKE"));
        session.on_driver_event(security(SecurityResponse::Ready));
        let end = session.on_driver_event(DriverEvent::Security(Err(failure)));
        assert_eq!(end, [SessionAction::Close]);
        assert_eq!(session.on_line(&line("USER ann")), []);
    }
}

/// A session after the exchange of a mechanism with this name.
fn secured(exchange: ExchangeKind) -> ScriptedDriver {
    let mut driver = ScriptedDriver::new(exchange, 1);
    driver.send_line("AUTH FAKE");
    if exchange == ExchangeKind::Tokens {
        driver.send_line("ADAT Zm9v");
    }
    assert!(driver.session.is_secured());
    driver.replies.clear();
    driver
}

fn enc(text: &str) -> String {
    format!("ENC {}", token(text).encode())
}

#[test]
fn a_command_with_invalid_protection_ends_the_session() {
    let mut driver = secured(ExchangeKind::Tokens);
    driver.send_line(&enc("NOOP"));
    driver.send_line(&enc("forged"));
    driver.send_line(&enc("NOOP"));
    assert_eq!(driver.replies, [200, 535]);
    assert_eq!(driver.other_actions, [SessionAction::Close]);
}

#[test]
fn protection_is_not_nested() {
    let mut driver = secured(ExchangeKind::Tokens);
    for inner in [
        enc("QUIT"),
        "ADAT AAAA".to_owned(),
        "AUTH FAKE".to_owned(),
        "CCC".to_owned(),
    ] {
        driver.send_line(&enc(&inner));
    }
    assert_eq!(driver.replies, [503, 503, 503, 534]);
    driver.send_line(&enc("QUIT"));
    assert_eq!(driver.replies.pop(), Some(221));
    assert_eq!(driver.other_actions, [SessionAction::Close]);
}

#[test]
fn clear_lines_are_not_executed_in_a_session_with_tokens() {
    let mut driver = secured(ExchangeKind::Tokens);
    for text in ["QUIT", "NOOP", "nonsense", ""] {
        driver.send_line(text);
    }
    assert_eq!(driver.replies, [533; 4]);
    assert_eq!(driver.other_actions, []);
}

#[test]
fn protected_lines_without_an_exchange_are_a_driver_error() {
    let mut session = ServerSession::new(offering(ExchangeKind::Tokens));
    let inner = LineEvent::Protected(b"NOOP".to_vec());
    assert_eq!(code(&session.on_line(&inner)), 503);
}

#[test]
fn only_protected_lines_are_urgent_in_a_session_with_tokens() {
    let mut driver = secured(ExchangeKind::Tokens);
    for text in ["USER ann", "PASS x"] {
        driver.send_line(&enc(text));
    }
    let session = &mut driver.session;
    session.on_driver_event(DriverEvent::Login(Ok(grant())));
    let protected = |text: &str| LineEvent::Protected(text.as_bytes().to_vec());
    session.on_line(&protected("PORT 127,0,0,1,156,64"));
    session.on_line(&protected("RETR /f"));
    for text in ["ABOR", "STAT"] {
        assert!(session.is_urgent(&protected(text)));
        assert!(!session.is_urgent(&line(text)), "injected");
    }
    assert!(!session.is_urgent(&LineEvent::Forged));
    assert_eq!(code(&session.on_line(&protected("STAT"))), 213);
    assert_eq!(session.on_line(&protected("ABOR")), [SessionAction::Abort]);
    let clear = ServerSession::new(config());
    assert!(clear.is_urgent(&line("ABOR")) && !clear.is_urgent(&protected("ABOR")));
}

#[test]
fn old_names_of_tls_select_it() {
    let tls = SecurityMechanism {
        name: "TLS".to_owned(),
        exchange: ExchangeKind::Handshake,
    };
    for name in ["TLS", "tls", "SSL", "TLS-C", "tls-p"] {
        assert!(tls.is_named(name), "{name}");
    }
    for name in ["GSSAPI", "TLS-X", ""] {
        assert!(!tls.is_named(name), "{name}");
    }
    let gssapi = SecurityMechanism {
        name: "GSSAPI".to_owned(),
        exchange: ExchangeKind::Tokens,
    };
    assert!(gssapi.is_named("gssapi") && !gssapi.is_named("SSL"));
}
