//! Protection of a new control connection, between the greeting and the login. A session that must
//! be protected is, or it is not opened.

use proto::client::{ExchangeError, SecurityExchange, SecurityStep};
use proto::command::Command;
use proto::reply::Reply;
use proto::security::{ExchangeKind, SecurityMechanism, SecurityToken};
use security::gsi::{Delegation, GsiContext, GsiError, GsiInitiator, GsiStep};
use security::tls::TlsConfig;
use security::x509::CertifiedKey;

use super::control::ClientControlConnection;
use crate::Failure;
use crate::failure::display_reply;
use crate::location::{Scheme, Server};
use crate::protection::{
    DelegationChoice, TlsUse, auth_refused_failure, clear_fallback_warning,
    exchange_refused_failure, gsi_failure, tls_withdrawn_failure,
};

/// Longest validity of a delegated proxy, seconds. A transfer that outlives it fails.
const DELEGATION_SECONDS: u64 = 12 * 3600;
/// Most tokens of an exchange: TLS 1.2 with delegation takes five from each end.
const MAX_TOKENS: usize = 20;

/// Protection of a control connection.
#[derive(Debug)]
pub(crate) enum ClientSessionSecurity {
    /// None.
    Clear,
    /// TLS with this configuration.
    Tls(TlsConfig),
    /// GSI.
    Gsi(GsiSession),
    /// That of the program that carries it (ssh).
    Carried,
}

impl ClientSessionSecurity {
    /// SHA-256 of the server's certificate, if it has shown one.
    pub(super) fn fingerprint(&self, control: &ClientControlConnection) -> Option<String> {
        match self {
            Self::Gsi(session) => session.fingerprint.clone(),
            _ => control.tls()?.peer_fingerprint(),
        }
    }
}

/// A GSI session.
#[derive(Debug)]
pub(crate) struct GsiSession {
    /// The user's credential.
    pub own: CertifiedKey,
    /// The server has a proxy of it.
    pub(crate) delegated: bool,
    /// TLS version and cipher suite.
    pub description: String,
    /// SHA-256 of the server's certificate.
    pub(crate) fingerprint: Option<String>,
}

/// Performs the TLS handshake that precedes the greeting.
///
/// # Errors
/// As [`ClientControlConnection::start_tls`].
pub(super) async fn start_implicit_tls(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<ClientSessionSecurity, Failure> {
    let config = server.security.tls_config(server)?;
    control.start_tls(&config, false).await?;
    Ok(ClientSessionSecurity::Tls(config))
}

/// Secures a connection whose greeting has been read, as its URL and the user's options want it.
///
/// # Errors
/// `Refused`: one end refuses the other, or the server has no such security.
pub(super) async fn secure(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<ClientSessionSecurity, Failure> {
    let tls = match server.scheme {
        Scheme::Gsiftp => return start_gsi(control, server).await,
        Scheme::Ssh | Scheme::Sshftp => return Ok(ClientSessionSecurity::Carried),
        Scheme::Ftps => TlsUse::Require,
        _ => server.security.options().tls,
    };
    if tls == TlsUse::Off {
        return Ok(ClientSessionSecurity::Clear);
    }
    // Made first, so that a missing file costs no AUTH.
    let config = server.security.tls_config(server)?;
    let mut exchange = SecurityExchange::default();
    match begin(control, &mut exchange, "TLS", ExchangeKind::Handshake).await? {
        // Noted before the handshake: after one that failed, no session is clear either.
        AuthAnswer::Begun(SecurityStep::Handshake) => server.security.note_tls(control.name()),
        AuthAnswer::Begun(_) => return Err(unreachable_step(control)),
        AuthAnswer::Refused(reply) if server.security.had_tls(control.name()) => {
            return Err(tls_withdrawn_failure(control.name(), &reply));
        }
        AuthAnswer::Refused(reply) if tls == TlsUse::Try => {
            let warning = clear_fallback_warning(control.name(), &reply);
            server.security.warn_once(&warning);
            return Ok(ClientSessionSecurity::Clear);
        }
        AuthAnswer::Refused(reply) => {
            return Err(auth_refused_failure(control.name(), "TLS", &reply));
        }
    }
    control.start_tls(&config, true).await?;
    match exchange.on_handshake_complete() {
        Ok(()) => Ok(ClientSessionSecurity::Tls(config)),
        Err(_) => Err(unreachable_step(control)),
    }
}

/// Answer to AUTH.
enum AuthAnswer {
    /// The exchange goes on.
    Begun(SecurityStep),
    /// The server does not offer the mechanism.
    Refused(Reply),
}

/// Sends AUTH.
async fn begin(
    control: &mut ClientControlConnection,
    exchange: &mut SecurityExchange,
    name: &str,
    kind: ExchangeKind,
) -> Result<AuthAnswer, Failure> {
    let auth = exchange.begin(SecurityMechanism {
        name: name.to_owned(),
        exchange: kind,
    });
    let reply = control.call(&auth).await?;
    match exchange.on_reply(&reply, control.has_unread_bytes()) {
        Ok(step) => Ok(AuthAnswer::Begun(step)),
        Err(ExchangeError::NotOffered(reply)) => Ok(AuthAnswer::Refused(reply)),
        // 431: the server has the mechanism, but not now.
        Err(ExchangeError::Refused(reply)) => {
            control.abandon();
            Err(Failure::unreachable(format!(
                "{} cannot secure the session now: {}; try again later",
                control.name(),
                display_reply(&reply)
            )))
        }
        Err(error) => Err(control.exchange_failure(&reply, &error.to_string())),
    }
}

async fn start_gsi(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<ClientSessionSecurity, Failure> {
    let (config, own) = server.security.gsi_config(server)?;
    let delegation = match server.security.options().delegation {
        DelegationChoice::None => Delegation::None,
        DelegationChoice::Limited => Delegation::Limited {
            seconds: DELEGATION_SECONDS,
        },
        DelegationChoice::Full => Delegation::Full {
            seconds: DELEGATION_SECONDS,
        },
    };
    let delegated = delegation != Delegation::None;
    let initiator = GsiInitiator::new(&config, delegation)
        .map_err(|error| gsi_failure(control.name(), &error))?;
    let mut exchange = SecurityExchange::default();
    let step = match begin(control, &mut exchange, "GSSAPI", ExchangeKind::Tokens).await? {
        AuthAnswer::Begun(step) => step,
        AuthAnswer::Refused(reply) => {
            return Err(auth_refused_failure(control.name(), "GSSAPI", &reply));
        }
    };
    let context = exchange_tokens(control, exchange, initiator, step).await?;
    let description = context.description();
    let fingerprint = context.peer_fingerprint();
    control.start_gsi(context);
    Ok(ClientSessionSecurity::Gsi(GsiSession {
        own,
        delegated,
        description,
        fingerprint,
    }))
}

/// Exchanges tokens until both ends are satisfied.
async fn exchange_tokens(
    control: &mut ClientControlConnection,
    mut exchange: SecurityExchange,
    mut initiator: GsiInitiator,
    mut step: SecurityStep,
) -> Result<Box<GsiContext>, Failure> {
    let mut context = None;
    for _ in 0..MAX_TOKENS {
        let received = match step {
            SecurityStep::ProcessToken(token) => token,
            SecurityStep::Secured(token) => {
                return finish(control, &mut initiator, context, token);
            }
            SecurityStep::Handshake => return Err(unreachable_step(control)),
        };
        let received = received.as_ref().map(SecurityToken::as_bytes);
        let answer = match initiator.step(received) {
            Ok(GsiStep::Continue(token)) => token,
            Ok(GsiStep::Complete(token, complete)) => {
                context = Some(complete);
                token.unwrap_or_default()
            }
            Err(error) => {
                control.abandon();
                return Err(gsi_failure(control.name(), &error));
            }
        };
        step = send_token(control, &mut exchange, answer).await?;
    }
    control.abandon();
    let problem = GsiError::Token(format!("more than {MAX_TOKENS} tokens"));
    Err(gsi_failure(control.name(), &problem))
}

/// Sends a token and evaluates the reply.
async fn send_token(
    control: &mut ClientControlConnection,
    exchange: &mut SecurityExchange,
    token: Vec<u8>,
) -> Result<SecurityStep, Failure> {
    let adat: Option<Command> = SecurityToken::new(token)
        .ok()
        .and_then(|token| exchange.send_token(token).ok());
    let Some(adat) = adat else {
        return Err(unreachable_step(control));
    };
    let reply = control.call(&adat).await?;
    match exchange.on_reply(&reply, control.has_unread_bytes()) {
        Ok(step) => Ok(step),
        Err(ExchangeError::Refused(reply)) => {
            // globus-gridftp-server accepts nothing more on this connection.
            control.abandon();
            Err(exchange_refused_failure(control.name(), &reply))
        }
        Err(error) => Err(control.exchange_failure(&reply, &error.to_string())),
    }
}

/// The context after the server's 235, which may carry a last token.
fn finish(
    control: &mut ClientControlConnection,
    initiator: &mut GsiInitiator,
    context: Option<Box<GsiContext>>,
    token: Option<SecurityToken>,
) -> Result<Box<GsiContext>, Failure> {
    let failure = |control: &mut ClientControlConnection, error: &GsiError| {
        control.abandon();
        Err(gsi_failure(control.name(), error))
    };
    match (context, token) {
        (Some(context), None) => Ok(context),
        // A server may combine its last token with the 235.
        (None, Some(token)) => match initiator.step(Some(token.as_bytes())) {
            Ok(GsiStep::Complete(None, context)) => Ok(context),
            Ok(_) => failure(
                control,
                &GsiError::Token("it ended the exchange too early".into()),
            ),
            Err(error) => failure(control, &error),
        },
        (None, None) => failure(
            control,
            &GsiError::Token("it ended the exchange too early".into()),
        ),
        (Some(_), Some(_)) => failure(
            control,
            &GsiError::Token("a token follows the last one".into()),
        ),
    }
}

/// The failure for a step that the exchange never takes.
fn unreachable_step(control: &mut ClientControlConnection) -> Failure {
    let nothing = Reply::new(0, "no reply");
    control.exchange_failure(&nothing, "a step out of turn")
}
