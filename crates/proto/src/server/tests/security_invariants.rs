//! Security rules that hold for any input, whatever the client sends and the mechanism answers.

use crate::security::{
    DataChannelAuth, ExchangeKind, ProtectionLevel, SecurityMechanism, SecurityState, SecurityToken,
};
use crate::server::logged_in::ExchangeWait;
use crate::server::session::ServerSession;
use crate::server::{DriverEvent, SecurityFailure, SecurityResponse, SessionAction, SessionConfig};

/// Commands of security exchanges and of the protection of data connections.
pub(super) const SECURITY_LINES: &[&str] = &[
    "AUTH TLS",
    "AUTH SSL",
    "AUTH TLS-P",
    "AUTH GSSAPI",
    "AUTH",
    "ADAT dG9rZW4=",
    "ADAT dG9rZW4=",
    "ADAT",
    "MIC dG9rZW4=",
    "CONF dG9rZW4=",
    "ENC dG9rZW4=",
    "CCC",
    "PBSZ 0",
    "PBSZ 1048576",
    "PROT C",
    "PROT S",
    "PROT E",
    "PROT P",
    "PROT P",
    "DCAU N",
    "DCAU A",
    "DCAU S /CN=x",
    "DCSC D",
    "DCSC P cGVt",
    "USER ann",
    "USER :bearer:",
    "USER anonymous",
    "PASS x",
    "PASV",
    "PORT 127,0,0,1,200,1",
    "RETR f",
    "STOR f",
    "REIN",
];

/// A configuration that offers both mechanisms, or none, with the policy of these bits.
pub(super) fn with_policy(config: SessionConfig, bits: u8) -> SessionConfig {
    let bit = |n: u8| bits >> n & 1 == 1;
    let mechanism = |name: &str, exchange| SecurityMechanism {
        name: name.to_owned(),
        exchange,
    };
    let both = [
        mechanism("TLS", ExchangeKind::Handshake),
        mechanism("GSSAPI", ExchangeKind::Tokens),
    ];
    SessionConfig {
        mechanisms: if bits == 0 { [].into() } else { both.into() },
        clear_passwords: !bit(0),
        tls_required: bit(1) && bit(2),
        require_data_protection: bit(3) && bit(4),
        bearer_tokens: bit(5),
        allow_ccc: bit(6),
        ..config
    }
}

/// A session in the clear (0), or one that is secured by a mechanism (1 and 2), if any is offered.
pub(super) fn started(config: SessionConfig, start: usize) -> ServerSession {
    let offered = start
        .checked_sub(1)
        .and_then(|nth| config.mechanisms.get(nth));
    match offered.cloned() {
        Some(mechanism) => ServerSession::secured_from_start(config, mechanism, false),
        None => ServerSession::new(config),
    }
}

/// Whether a user with a password may log in at once.
pub(super) fn may_log_in(session: &ServerSession) -> bool {
    let config = &session.config;
    session.is_secured() || (config.clear_passwords && !config.tls_required)
}

/// An answer of the mechanism; most are those that let the exchange go on.
pub(super) fn security_event(session: &ServerSession, choice: u8, ok: bool) -> DriverEvent {
    let token = || SecurityToken::new(b"token".to_vec()).unwrap();
    let awaited = match &session.security {
        SecurityState::Exchanging(_, awaited) => *awaited,
        other => panic!("nothing is exchanged: {other:?}"),
    };
    let secured = SecurityResponse::Secured {
        token: None,
        identified: ok,
    };
    DriverEvent::Security(match (choice, awaited) {
        (0..8, _) => Err(SecurityFailure::ReadAhead),
        (8..16, _) => Err(SecurityFailure::Failed("no".to_owned())),
        (16..24, _) => Err(SecurityFailure::Unavailable("no".to_owned())),
        (24..32, _) => Ok(SecurityResponse::Continue(token())),
        (_, ExchangeWait::ExchangeReady) => Ok(SecurityResponse::Ready),
        (32..96, ExchangeWait::MechanismResult) => Ok(SecurityResponse::Continue(token())),
        _ => Ok(secured),
    })
}

/// Checks the actions that the session has returned.
pub(super) fn check(session: &ServerSession, actions: &[SessionAction]) {
    for action in actions {
        match action {
            SessionAction::Authenticate { user, password } => {
                check_login(session, user, password.is_some());
            }
            SessionAction::SetDataCredential(_) => assert!(session.expects_protected_lines()),
            SessionAction::ClearCommands => {
                assert!(session.config.allow_ccc && session.is_logged_in());
                assert!(!session.is_secured());
            }
            SessionAction::Transfer(request) => {
                let protection = &request.protection;
                let is_private = protection.level == ProtectionLevel::Private;
                assert!(!session.config.require_data_protection || is_private);
                let has_auth = protection.authentication != DataChannelAuth::None;
                let is_clear = protection.level == ProtectionLevel::Clear;
                if session.expects_protected_lines() {
                    assert!(has_auth || is_clear, "protection without a key");
                } else {
                    assert!(!has_auth, "DCAU outside a session with tokens");
                    let was_secured = !matches!(session.security, SecurityState::Clear);
                    assert!(was_secured || is_clear, "PROT in a clear session");
                }
            }
            _ => {}
        }
    }
}

fn check_login(session: &ServerSession, user: &str, has_password: bool) {
    let config = &session.config;
    if session.is_secured() {
        assert!(has_password || (session.identified && !session.expects_protected_lines()));
        return;
    }
    assert!(has_password, "nobody is identified in a clear session");
    assert!(!config.tls_required && user != ":bearer:");
    assert!(config.clear_passwords || user == "anonymous", "{user}");
}
