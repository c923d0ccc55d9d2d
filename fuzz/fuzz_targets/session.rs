//! Commands at a server that offers both mechanisms: whatever the client sends and the mechanism answers,
//! nobody logs in with a password in the clear, and no data connection has less protection than asked for.

#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use proto::command::unwrap_line;
use proto::line::{LineEvent, LineReader};
use proto::path::VPath;
use proto::security::{
    DataChannelAuth, ExchangeKind, ProtectionLevel, SecurityMechanism, SecurityToken,
};
use proto::server::{
    AccountRights, DriverEvent, ExpectedInput, FileError, FileErrorKind, LoginFailure, LoginGrant,
    SecurityFailure, SecurityRequest, SecurityResponse, ServerSession, SessionAction,
    SessionConfig, TransferError,
};

const LIMIT: usize = 256;

/// Commands that one byte of the input stands for, so that short inputs reach deep states.
const COMMANDS: &[&str] = &[
    "AUTH TLS",
    "AUTH TLS-P",
    "AUTH GSSAPI",
    "ADAT dG9rZW4=",
    "USER ann",
    "USER :bearer:",
    "USER anonymous",
    "PASS x",
    "PBSZ 0",
    "PROT C",
    "PROT P",
    "DCAU N",
    "DCAU A",
    "DCSC D",
    "CCC",
    "REIN",
    "PORT 127,0,0,1,200,1",
    "RETR f",
    "STOR f",
    "ENC Tk9PUA==",
];

fn config(policy: u8) -> SessionConfig {
    let mechanism = |name: &str, exchange| SecurityMechanism {
        name: name.to_owned(),
        exchange,
    };
    SessionConfig {
        mechanisms: [
            mechanism("TLS", ExchangeKind::Handshake),
            mechanism("GSSAPI", ExchangeKind::Tokens),
        ]
        .into(),
        tls_required: policy & 1 == 1,
        require_data_protection: policy & 2 == 2,
        bearer_tokens: true,
        allow_ccc: policy & 4 == 4,
        ..SessionConfig::new(Ipv4Addr::LOCALHOST.into())
    }
}

fn grant() -> LoginGrant {
    LoginGrant {
        user: "ann".to_owned(),
        home: VPath::root(),
        rights: AccountRights {
            write: true,
            third_party: true,
        },
        welcome_lines: Vec::new(),
    }
}

/// A driver that keeps the contract; the bytes of `choices` decide its answers.
struct FuzzDriver<'a> {
    session: ServerSession,
    choices: std::slice::Iter<'a, u8>,
    config: SessionConfig,
    closed: bool,
}

impl FuzzDriver<'_> {
    fn choose(&mut self) -> u8 {
        self.choices.next().copied().unwrap_or_default()
    }

    fn run(&mut self, actions: Vec<SessionAction>) {
        for action in actions {
            assert!(!self.closed, "an action after Close");
            let event = match action {
                SessionAction::Secure(request) => self.secure(request),
                SessionAction::Authenticate { user, password } => {
                    let clear = !self.session.is_secured();
                    assert!(
                        !clear
                            || ["anonymous", "ftp", ":globus-mapping:"]
                                .contains(&user.to_ascii_lowercase().as_str())
                    );
                    assert!(!clear || (password.is_some() && !self.config.tls_required));
                    DriverEvent::Login(match self.choose() % 4 {
                        0 => Err(LoginFailure::Refused("no".to_owned())),
                        1 => Err(LoginFailure::PasswordNeeded),
                        _ => Ok(grant()),
                    })
                }
                SessionAction::SetDataCredential(_) => {
                    assert!(self.session.expects_protected_lines());
                    DriverEvent::DataCredential(Ok(()))
                }
                SessionAction::File(_) => DriverEvent::File(Err(error())),
                SessionAction::Listen(_) => DriverEvent::Listening(Err(error())),
                SessionAction::ListenDrs(_) => DriverEvent::DrsListening(Err(error())),
                SessionAction::Transfer(request) => {
                    let protection = &request.protection;
                    let has_auth = protection.authentication != DataChannelAuth::None;
                    let is_clear = protection.level == ProtectionLevel::Clear;
                    let is_private = protection.level == ProtectionLevel::Private;
                    assert!(is_private || !self.config.require_data_protection);
                    match self.session.expects_protected_lines() {
                        true => assert!(has_auth || is_clear),
                        false => assert!(!has_auth),
                    }
                    DriverEvent::Transferred(Err(TransferError::Aborted))
                }
                SessionAction::ClearCommands => {
                    assert!(self.config.allow_ccc && self.session.is_logged_in());
                    continue;
                }
                SessionAction::Close => {
                    self.closed = true;
                    continue;
                }
                _ => continue,
            };
            assert_ne!(self.session.expected_input(), ExpectedInput::Line);
            let next = self.session.on_driver_event(event);
            self.run(next);
        }
    }

    fn secure(&mut self, request: SecurityRequest) -> DriverEvent {
        let choice = self.choose();
        let secured = SecurityResponse::Secured {
            token: None,
            identified: choice & 1 == 1,
        };
        DriverEvent::Security(match request {
            _ if choice > 250 => Err(SecurityFailure::Failed("no".to_owned())),
            SecurityRequest::Begin(_) if choice > 240 => Err(SecurityFailure::ReadAhead),
            SecurityRequest::Begin(_) => Ok(SecurityResponse::Ready),
            SecurityRequest::ProcessToken(token) if choice > 200 => {
                Ok(SecurityResponse::Continue(SecurityToken::clone(&token)))
            }
            SecurityRequest::Handshake | SecurityRequest::ProcessToken(_) => Ok(secured),
        })
    }
}

/// Replaces a line of one byte above 127 by a command.
fn expand(line: LineEvent) -> LineEvent {
    match &line {
        LineEvent::Line(text) => match text[..] {
            [byte] if byte >= 128 => {
                let command = COMMANDS[usize::from(byte - 128) % COMMANDS.len()];
                LineEvent::Line(command.as_bytes().to_vec())
            }
            _ => line,
        },
        _ => line,
    }
}

fn error() -> FileError {
    FileError {
        kind: FileErrorKind::Other,
        errno: None,
        text: "no".to_owned(),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((policy, rest)) = data.split_first() else {
        return;
    };
    let (choices, wire) = rest.split_at(rest.len().min(8));
    let config = config(*policy);
    let mut driver = FuzzDriver {
        session: ServerSession::new(config.clone()),
        choices: choices.iter(),
        config,
        closed: false,
    };
    let mut lines = Vec::new();
    LineReader::new(LIMIT).feed(wire, &mut lines);
    for line in lines {
        let mut received = vec![expand(line)];
        if driver.session.expects_protected_lines() {
            let line = received.remove(0);
            // A plain line becomes protected, so that the input reaches the commands inside without base64.
            match line {
                LineEvent::Line(ref text) if *policy & 8 == 8 => {
                    received.push(LineEvent::Protected(text.clone()));
                }
                line => unwrap_line(
                    line,
                    LIMIT,
                    |_, token| match token.first() {
                        Some(b'!') => Err(()),
                        _ => Ok(token.to_vec()),
                    },
                    &mut received,
                ),
            }
        }
        for line in received {
            if driver.closed {
                return;
            }
            let actions = driver.session.on_line(&line);
            driver.run(actions);
        }
    }
});
