//! Security exchanges with mechanisms that secure nothing: only the order of things is looked at.

use std::collections::VecDeque;

use super::{ExpectedInput, ServerSession, SessionConfig, code, config, grant, line};
use crate::command::Secret;
use crate::line::{LineEvent, LineReader};
use crate::security::{CommandProtection, ExchangeKind, SecurityMechanism, SecurityToken};
use crate::server::{
    DriverEvent, SecurityFailure, SecurityRequest, SecurityResponse, SessionAction,
};

fn offering(carriage: ExchangeKind) -> SessionConfig {
    let mechanism = SecurityMechanism {
        name: "FAKE".to_owned(),
        exchange: carriage,
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

fn security(answer: SecurityResponse) -> DriverEvent {
    DriverEvent::Security(Ok(answer))
}

/// A driver that keeps the contract, over a connection on which everything has come at once.
struct ScriptedDriver {
    session: ServerSession,
    reader: LineReader,
    held: VecDeque<LineEvent>,
    /// Bytes behind the last whole line.
    amidst: bool,
    /// Tokens that the fake mechanism wants to hear before it is content.
    wants: usize,
    handshake: bool,
    replies: Vec<u16>,
    others: Vec<SessionAction>,
}

impl ScriptedDriver {
    fn new(carriage: ExchangeKind, wants: usize) -> Self {
        Self {
            session: ServerSession::new(offering(carriage)),
            reader: LineReader::new(1000),
            held: VecDeque::new(),
            amidst: false,
            wants,
            handshake: false,
            replies: Vec::new(),
            others: Vec::new(),
        }
    }

    /// One read of the socket.
    fn receives(&mut self, bytes: &str) {
        let mut lines = Vec::new();
        self.reader.feed(bytes.as_bytes(), &mut lines);
        self.held.extend(lines);
        self.amidst = !bytes.ends_with('\n');
        while self.session.expected_input() == ExpectedInput::Line {
            let Some(line) = self.held.pop_front() else {
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
                    let answer = self.compute(request);
                    let next = self.session.on_driver_event(DriverEvent::Security(answer));
                    self.carry_out(next);
                }
                other => self.others.push(other),
            }
        }
    }

    fn compute(&mut self, request: SecurityRequest) -> Result<SecurityResponse, SecurityFailure> {
        match request {
            SecurityRequest::Begin(_) if !self.held.is_empty() || self.amidst => {
                Err(SecurityFailure::ReadAhead)
            }
            SecurityRequest::Begin(_) => Ok(SecurityResponse::Ready),
            SecurityRequest::Handshake => {
                self.handshake = true;
                Ok(SecurityResponse::Secured(None))
            }
            SecurityRequest::ProcessToken(heard) if heard.as_bytes() == b"wrong" => {
                Err(SecurityFailure::Failed("not you".to_owned()))
            }
            SecurityRequest::ProcessToken(_) if self.wants > 1 => {
                self.wants -= 1;
                Ok(SecurityResponse::Continue(token("more")))
            }
            SecurityRequest::ProcessToken(_) => Ok(SecurityResponse::Secured(Some(token("end")))),
            SecurityRequest::Unprotect(_, heard) => {
                Ok(SecurityResponse::Command(Secret(heard.as_bytes().to_vec())))
            }
        }
    }

    fn says(&mut self, text: &str) {
        self.receives(&format!("{text}\r\n"));
    }
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused_as_ever() {
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
    let asked = session.on_line(&line("auth fake"));
    assert!(matches!(
        &asked[..],
        [SessionAction::Secure(SecurityRequest::Begin(_))]
    ));
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
    let begun = session.on_driver_event(security(SecurityResponse::Ready));
    assert_eq!(code(&begun), 234);
    assert_eq!(
        begun.last(),
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
fn tokens_go_to_and_fro_until_the_mechanism_is_content() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 3);
    driver.says("AUTH FAKE");
    for _ in 0..3 {
        driver.says("ADAT Zm9v");
    }
    assert_eq!(driver.replies, [334, 335, 335, 235]);
    assert!(!driver.handshake);
    driver.says("ADAT Zm9v");
    assert_eq!(driver.replies.pop(), Some(533));
    let user = token("USER ann").encode();
    driver.says(&format!("ENC {user}"));
    assert_eq!(driver.replies.pop(), Some(331));
}

#[test]
fn a_reply_carries_the_mechanisms_token() {
    let mut session = ServerSession::new(offering(ExchangeKind::Tokens));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    let asked = session.on_line(&adat("hello"));
    let take = SessionAction::Secure(SecurityRequest::ProcessToken(token("hello")));
    assert_eq!(asked, [take]);
    let answer = session.on_driver_event(security(SecurityResponse::Continue(token("foo"))));
    let [SessionAction::Reply(reply)] = &answer[..] else {
        panic!("{answer:?}");
    };
    assert_eq!((reply.code, &reply.lines[0][..]), (335, &b"ADAT=Zm9v"[..]));
    assert_eq!(SecurityToken::from_reply(reply), Ok(Some(token("foo"))));
}

/// CVE-2011-0411 and its like: who sits between the two puts a command behind AUTH, in the clear.
#[test]
fn what_was_sent_behind_auth_is_never_executed() {
    for carriage in [ExchangeKind::Handshake, ExchangeKind::Tokens] {
        for behind in [
            "USER mallory\r\n",
            "US",
            "\r\n",
            "USER m\r\nPASS x\r\nQUIT\r\n",
        ] {
            let mut driver = ScriptedDriver::new(carriage, 1);
            driver.receives(&format!("AUTH FAKE\r\n{behind}"));
            assert_eq!(driver.replies, [421], "{behind:?}");
            assert_eq!(driver.others, [SessionAction::Close]);
            driver.says("NOOP");
            assert_eq!(driver.replies.len(), 1, "nothing is answered any more");
            assert!(!driver.handshake);
        }
    }
}

#[test]
fn what_was_sent_behind_the_last_token_is_not_taken_for_protected() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 1);
    driver.says("AUTH FAKE");
    driver.receives("ADAT Zm9v\r\nUSER mallory\r\nPASS x\r\nQUIT\r\n");
    assert_eq!(driver.replies, [334, 235, 533, 533, 533]);
    assert_eq!(driver.others, []);
}

#[test]
fn nothing_else_is_said_in_the_midst_of_an_exchange() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 2);
    driver.says("USER ann");
    driver.says("AUTH FAKE");
    for text in [
        "USER ann",
        "PASS secret",
        "NOOP",
        "ENC AAAA",
        "ADAT Zm9v",
        "FEAT",
    ] {
        driver.says(text);
    }
    assert_eq!(driver.replies, [331, 334, 503, 503, 503, 503, 335, 503]);
    assert_eq!(driver.others, []);
    // AUTH begins anew, QUIT ends.
    driver.says("AUTH FAKE");
    driver.says("QUIT");
    assert_eq!(driver.replies[8..], [334, 221]);
}

#[test]
fn a_login_that_was_begun_in_the_clear_is_forgotten() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Handshake, 0);
    for text in ["USER ann", "AUTH FAKE", "PASS x"] {
        driver.says(text);
    }
    assert_eq!(driver.replies, [331, 234, 503]);
}

#[test]
fn who_is_logged_in_has_no_exchange() {
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("USER ann"));
    session.on_line(&line("PASS x"));
    session.on_driver_event(DriverEvent::Login(Ok(grant())));
    assert_eq!(code(&session.on_line(&line("AUTH FAKE"))), 503);
    assert_eq!(code(&session.on_line(&line("PWD"))), 257);
}

#[test]
fn an_exchange_that_fails_leaves_the_session_clear() {
    let mut driver = ScriptedDriver::new(ExchangeKind::Tokens, 1);
    driver.says("AUTH FAKE");
    driver.says(&format!("ADAT {}", token("wrong").encode()));
    driver.says("ADAT Zm9v");
    driver.says("USER ann");
    assert_eq!(driver.replies, [334, 535, 503, 331]);
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("AUTH FAKE"));
    let away = SecurityFailure::Unavailable("no key".to_owned());
    let refused = session.on_driver_event(DriverEvent::Security(Err(away)));
    assert_eq!(code(&refused), 431);
    assert_eq!(code(&session.on_line(&line("NOOP"))), 200);
}

#[test]
fn a_handshake_that_fails_ends_the_session_without_a_word() {
    let mut session = ServerSession::new(offering(ExchangeKind::Handshake));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    let failed = SecurityFailure::Failed("no common cipher".to_owned());
    let end = session.on_driver_event(DriverEvent::Security(Err(failed)));
    assert_eq!(end, [SessionAction::Close]);
    assert_eq!(session.on_line(&line("USER ann")), []);
}

#[test]
fn protection_that_is_wrong_executes_nothing() {
    let mut session = ServerSession::new(offering(ExchangeKind::Tokens));
    session.on_line(&line("AUTH FAKE"));
    session.on_driver_event(security(SecurityResponse::Ready));
    session.on_line(&adat("x"));
    session.on_driver_event(security(SecurityResponse::Secured(None)));
    let asked = session.on_line(&line("MIC Zm9v"));
    let unprotect = SecurityRequest::Unprotect(CommandProtection::Safe, token("foo"));
    assert_eq!(asked, [SessionAction::Secure(unprotect)]);
    assert_eq!(session.expected_input(), ExpectedInput::DriverEvent);
    let forged = SecurityFailure::Failed("bad checksum".to_owned());
    assert_eq!(
        code(&session.on_driver_event(DriverEvent::Security(Err(forged)))),
        535
    );
    // One inside the other has no meaning.
    session.on_line(&line("ENC Zm9v"));
    let inner = Secret(b"MIC Zm9v".to_vec());
    let answer = session.on_driver_event(security(SecurityResponse::Command(inner)));
    assert_eq!(code(&answer), 503);
    session.on_line(&line("ENC Zm9v"));
    let inner = Secret(b"QUIT".to_vec());
    let answer = session.on_driver_event(security(SecurityResponse::Command(inner)));
    assert_eq!(code(&answer), 221);
    assert_eq!(answer.last(), Some(&SessionAction::Close));
}
