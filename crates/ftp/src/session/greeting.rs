//! The greeting of a server, and the reason for its absence.

use std::time::{Duration, Instant};

use proto::reply::Reply;
use tokio::time::timeout;

use super::control::ClientControlConnection;
use super::replies::names_session_limit;
use super::secure::{self, ClientSessionSecurity};
use super::{ServerHabits, SessionOpening};
use crate::failure::Sentence;
use crate::location::Server;
use crate::{Failure, FailureKind};

/// Silence before the greeting after which the user is told a possible reason. Servers that look up the
/// client's name may take some seconds.
const NOTICED_SILENCE: Duration = Duration::from_secs(5);

/// Shortest wait for a session beside another one. Servers that serve one client at a time leave further ones without a
/// greeting.
const FURTHER_SESSION_WAIT: Duration = Duration::from_secs(5);
/// The same as a multiple of the time that an earlier greeting took: servers may look up names.
const FURTHER_SESSION_FACTOR: u32 = 4;

/// A connection whose greeting is read.
pub(super) struct GreetedConnection {
    pub(super) control: ClientControlConnection,
    /// Duration of the TCP handshake.
    pub(super) handshake_rtt: Duration,
    /// TLS that precedes the greeting.
    pub(super) security: Option<ClientSessionSecurity>,
    pub(super) greeting: Reply,
    /// Time to the greeting.
    pub(super) after: Duration,
}

/// Connects and reads the greeting. A session beside another one is given up after some seconds of silence.
///
/// # Errors
/// As [`super::ClientSession::open`].
pub(super) async fn connect(
    server: &Server,
    reply_timeout: Duration,
    opening: &SessionOpening<'_>,
) -> Result<GreetedConnection, Failure> {
    let connecting = connect_and_greet(server, reply_timeout);
    if !opening.is_further {
        return connecting.await;
    }
    // Before the time for a reply is over, which would look like a lost server.
    let patience = further_session_wait(opening.habits).min(reply_timeout / 2);
    let silent = |_| {
        let reason = format!(
            "{} accepts no session now: it does not greet a further one within {} s, as servers at their limit of \
             sessions do",
            server.host_and_port(),
            patience.as_secs()
        );
        Err(Failure::transient(FailureKind::SessionLimit, reason).advise("try again later"))
    };
    timeout(patience, connecting).await.unwrap_or_else(silent)
}

fn further_session_wait(habits: ServerHabits) -> Duration {
    FURTHER_SESSION_WAIT.max(habits.greeting * FURTHER_SESSION_FACTOR)
}

async fn connect_and_greet(
    server: &Server,
    reply_timeout: Duration,
) -> Result<GreetedConnection, Failure> {
    let begun = Instant::now();
    let (mut control, handshake_rtt) =
        ClientControlConnection::connect(server, reply_timeout).await?;
    let security = match server.begins_with_tls() {
        true => Some(secure::start_implicit_tls(&mut control, server).await?),
        false => None,
    };
    let greeting = read_greeting(&mut control, server).await?;
    Ok(GreetedConnection {
        control,
        handshake_rtt,
        security,
        greeting,
        after: begun.elapsed(),
    })
}

/// Reads the greeting. Of a server of `ftps:` that stays silent the user is told why that may be, before the
/// time for a reply is over: the server may wait for a handshake in the first byte.
///
/// # Errors
/// `Unreachable`: the server accepts no session, or the connection is lost.
async fn read_greeting(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<Reply, Failure> {
    let Some(advice) = server.silence_advice() else {
        return reply_to_the_connection(control).await;
    };
    let name = control.name().to_owned();
    let patience = NOTICED_SILENCE.min(control.reply_timeout() / 2);
    let mut greeting = std::pin::pin!(reply_to_the_connection(control));
    if let Ok(read) = timeout(patience, greeting.as_mut()).await {
        return read;
    }
    server
        .security
        .warn_once(&format!("{name} sends no greeting; {advice}"));
    greeting.await.map_err(|failure| failure.remark(advice))
}

async fn reply_to_the_connection(control: &mut ClientControlConnection) -> Result<Reply, Failure> {
    let reply = control.final_reply().await?;
    // 421 (service not available) and 530 come instead of 220.
    if reply.is_success() {
        return Ok(reply);
    }
    let kind = match names_session_limit(&reply) {
        true => FailureKind::SessionLimit,
        false => FailureKind::Unreachable,
    };
    let reason = Sentence::from(format!("{} accepts no session now: ", control.name()));
    let failure = Failure::new(kind, reason.reply(&reply)).retried(reply.is_transient_error());
    Err(match reply.code {
        // A host without a server for sshftp:.
        500 => failure,
        _ => failure.advise("try again later"),
    })
}
