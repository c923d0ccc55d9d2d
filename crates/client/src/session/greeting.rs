//! The greeting of a server, and the reason for its absence.

use std::time::Duration;

use proto::reply::Reply;
use tokio::time::timeout;

use super::control::ClientControlConnection;
use super::replies::display_reply;
use crate::location::Server;
use crate::{CopyFailure, Exit};

/// Silence before the greeting after which the user is told a possible reason. Servers that look up the
/// client's name may take some seconds.
const NOTICED_SILENCE: Duration = Duration::from_secs(5);

/// Reads the greeting. Of a server of `ftps:` that stays silent the user is told why that may be, before the
/// time for a reply is over: the server may wait for a handshake in the first byte.
///
/// # Errors
/// `Unreachable`: the server accepts no session, or the connection is lost.
pub(super) async fn read_greeting(
    control: &mut ClientControlConnection,
    server: &Server,
) -> Result<Reply, CopyFailure> {
    let advice = server.silence_advice();
    if advice.is_empty() {
        return reply_to_the_connection(control).await;
    }
    let name = control.name().to_owned();
    let patience = NOTICED_SILENCE.min(control.reply_timeout() / 2);
    let mut greeting = std::pin::pin!(reply_to_the_connection(control));
    if let Ok(read) = timeout(patience, greeting.as_mut()).await {
        return read;
    }
    server
        .security
        .warn_once(&format!("{name} sends no greeting{advice}"));
    greeting.await.map_err(|failure| CopyFailure {
        message: format!("{}{advice}", failure.message),
        ..failure
    })
}

async fn reply_to_the_connection(
    control: &mut ClientControlConnection,
) -> Result<Reply, CopyFailure> {
    let reply = control.final_reply().await?;
    // 421 (service not available) and 530 come instead of 220.
    if reply.is_success() {
        return Ok(reply);
    }
    let message = format!(
        "{} accepts no session now: {}; try again later",
        control.name(),
        display_reply(&reply)
    );
    Err(CopyFailure {
        exit: Exit::Unreachable,
        message,
        transient: reply.is_transient_error(),
        no_room: false,
        away: false,
    })
}
