//! A server's life: start, accept, drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::data_address::Ends;
use crate::listen;
use crate::reload::{self, Reloads};
use crate::session;
use crate::shared::{Phase, Shared};
use crate::shutdown::Shutdown;
use crate::startup::{self, ServeError};

/// How long sessions may take to say goodbye once running transfers are cut.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves until `shutdown` asks to stop, then drains: no session is taken any more, idle ones are
/// told 421, running transfers and what their clients do right after them go on for at most
/// [`ServerConfig::drain`]. A second request ends
/// at once. `ready` is called with the bound address before the first session is taken.
///
/// Must be called inside a tokio runtime with time and I/O enabled.
///
/// # Errors
/// The server could not start; see [`ServeError`]. Once it serves it returns `Ok` at its end.
pub async fn serve(
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    serve_reloading(config, ready, shutdown, Reloads::never()).await
}

/// [`serve`], and takes other settings and users while it runs. Sessions that began before keep the
/// settings that they began with; logins and bounds follow at once. Address, root, account and
/// logs hold for the life of the server: the log says so when they would change.
///
/// # Errors
/// As [`serve`].
pub async fn serve_reloading(
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    mut shutdown: Shutdown,
    mut reloads: Reloads,
) -> Result<(), ServeError> {
    let address = config.listen;
    let (listener, mut shared) = startup::prepare(config)?;
    let bound = listener
        .local_addr()
        .map_err(|source| ServeError::Listen { address, source })?;
    tracing::info!(address = %bound, "serving");
    ready(bound);

    let mut sessions = JoinSet::new();
    loop {
        let settings = tokio::select! {
            () = accept_until(&listener, &shared, &mut sessions, &mut shutdown) => break,
            settings = reloads.next() => settings,
        };
        shared = reload::apply(&shared, settings).await;
    }
    drop(listener);
    drain(&shared, &mut sessions, &mut shutdown).await;
    Ok(())
}

async fn accept_until(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    sessions: &mut JoinSet<()>,
    shutdown: &mut Shutdown,
) {
    loop {
        tokio::select! {
            (stream, peer) = listen::accept(listener) => admit(shared, sessions, stream, peer),
            // Ended sessions are taken out as they end, or the set would only grow.
            Some(_) = sessions.join_next() => {}
            () = shutdown.requested() => return,
        }
    }
}

/// Starts a session unless a limit forbids it.
fn admit(shared: &Arc<Shared>, sessions: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
    let Ok(local) = stream.local_addr() else {
        return; // gone already
    };
    let ends = Ends::new(local, peer);
    match shared.limits.admit(ends.peer.ip()) {
        Ok(slot) => {
            let shared = Arc::clone(shared);
            sessions.spawn(session::run(shared, stream, ends, slot));
        }
        Err(reason) => {
            tracing::info!(peer = %ends.peer, %reason, "session turned away");
            listen::turn_away(&stream, &reason.to_string());
        }
    }
}

async fn drain(shared: &Shared, sessions: &mut JoinSet<()>, shutdown: &mut Shutdown) {
    tracing::info!(sessions = sessions.len(), "draining");
    shared.enter(Phase::Draining);
    let second = tokio::select! {
        () = all_ended(sessions) => return,
        () = shutdown.requested() => true,
        () = tokio::time::sleep(shared.config.drain) => false,
    };
    tracing::warn!(sessions = sessions.len(), "ending sessions that still run");
    shared.enter(Phase::Ending);
    if !second {
        tokio::select! {
            () = all_ended(sessions) => {}
            () = shutdown.requested() => {}
            () = tokio::time::sleep(FAREWELL) => {}
        }
    }
    sessions.shutdown().await;
}

async fn all_ended(sessions: &mut JoinSet<()>) {
    while sessions.join_next().await.is_some() {}
}
