//! The life of a server: start, accept sessions, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data::transport::ControlTransport;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::data_address::ControlAddresses;
use crate::listen;
use crate::reload::{self, ReloadRequests};
use crate::session;
use crate::shared::{ServerPhase, ServerState};
use crate::shutdown::Shutdown;
use crate::startup::{self, ServeError};

/// Longest time for sessions to send their last replies after running transfers were cut.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// Serves until `shutdown` requests a stop, then drains: no session is accepted any more, idle
/// sessions get a 421, and running transfers, with the commands that follow them directly, go on for
/// at most [`ServerConfig::drain`]. A second request ends the server at once. `ready` is called with
/// the bound address before the first session is accepted.
///
/// Must be called inside a tokio runtime with time and I/O enabled.
///
/// # Errors
/// The server could not start; see [`ServeError`]. A server that has started returns `Ok` at its end.
pub async fn serve(
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    serve_with_reloads(config, ready, shutdown, ReloadRequests::never()).await
}

/// Like [`serve`], and applies new settings and users while it runs. Sessions keep the settings that
/// they began with; logins and limits follow at once. The control address, the root, the account and
/// the log files cannot change while the server runs: a message says so if new settings differ.
///
/// # Errors
/// See [`serve`].
pub async fn serve_with_reloads(
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    mut shutdown: Shutdown,
    mut reloads: ReloadRequests,
) -> Result<(), ServeError> {
    let address = config.listen;
    let (listener, mut shared) = startup::start_up(config)?;
    let bound = listener
        .local_addr()
        .map_err(|source| ServeError::Listen { address, source })?;
    tracing::info!(address = %bound, "serving");
    ready(bound);

    let mut sessions = JoinSet::new();
    loop {
        let settings = tokio::select! {
            () = accept_until(
                &listener,
                &shared,
                &mut sessions,
                &mut shutdown,
                ControlTransport::handshake,
            ) => break,
            settings = reloads.next_settings() => settings,
        };
        shared = reload::apply(&shared, settings).await;
    }
    // Closing the listener first makes new connections fail at once instead of waiting unserved.
    drop(listener);
    drain(&shared, &mut sessions, &mut shutdown).await;
    Ok(())
}

/// Accepts connections and starts their sessions until a stop is requested. Each session runs its
/// own `handshake`, for which no other session waits.
async fn accept_until<H>(
    listener: &TcpListener,
    shared: &Arc<ServerState>,
    sessions: &mut JoinSet<()>,
    shutdown: &mut Shutdown,
    handshake: impl Fn(ControlTransport) -> H,
) where
    H: Future<Output = io::Result<ControlTransport>> + Send + 'static,
{
    loop {
        tokio::select! {
            (transport, peer) = listen::accept(listener) => {
                admit(shared, sessions, transport, peer, &handshake);
            }
            // Ended sessions must be removed, or the set grows without bound.
            Some(_) = sessions.join_next() => {}
            () = shutdown.next_request() => return,
        }
    }
}

/// Starts a session, unless a limit forbids it.
fn admit<H>(
    shared: &Arc<ServerState>,
    sessions: &mut JoinSet<()>,
    transport: ControlTransport,
    peer: SocketAddr,
    handshake: impl Fn(ControlTransport) -> H,
) where
    H: Future<Output = io::Result<ControlTransport>> + Send + 'static,
{
    let Ok(local) = transport.local_addr() else {
        return; // the client has left already
    };
    let addresses = ControlAddresses::new(local, peer);
    match shared.session_limits.admit(addresses.peer.ip()) {
        Ok(slot) => {
            let shared = Arc::clone(shared);
            sessions.spawn(session::run(shared, handshake(transport), addresses, slot));
        }
        Err(reason) => {
            tracing::info!(peer = %addresses.peer, %reason, "session turned away");
            listen::refuse_with_421(&transport, &reason.to_string());
        }
    }
}

async fn drain(shared: &ServerState, sessions: &mut JoinSet<()>, shutdown: &mut Shutdown) {
    tracing::info!(sessions = sessions.len(), "draining");
    shared.set_phase(ServerPhase::Draining);
    let second = tokio::select! {
        () = all_ended(sessions) => return,
        () = shutdown.next_request() => true,
        () = tokio::time::sleep(shared.config.drain) => false,
    };
    tracing::warn!(sessions = sessions.len(), "ending sessions that still run");
    shared.set_phase(ServerPhase::Terminating);
    if !second {
        tokio::select! {
            () = all_ended(sessions) => {}
            () = shutdown.next_request() => {}
            () = tokio::time::sleep(LAST_REPLIES) => {}
        }
    }
    // Aborts the remaining tasks. Dropping a session cancels its transfer, whose thread then ends.
    sessions.shutdown().await;
}

async fn all_ended(sessions: &mut JoinSet<()>) {
    while sessions.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use data::store::root::Root;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::login::Authenticator;
    use crate::transfer_log::TransferLog;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shared(config: ServerConfig, dir: &tempfile::TempDir) -> Arc<ServerState> {
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let logins = Authenticator::new(&config, root, None);
        let log = TransferLog::open(None, None).unwrap();
        Arc::new(ServerState::new(config, Arc::default(), logins, log))
    }

    async fn expect_greeting_code(client: &mut TcpStream, code: &[u8; 3]) {
        let mut said = [0; 3];
        timeout(PATIENCE, client.read_exact(&mut said))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&said, code);
    }

    /// A server whose first client has a handshake that ends when `finish` is notified; the others have
    /// none.
    struct SlowHandshakeServer {
        address: SocketAddr,
        finish: Arc<Notify>,
        shared: Arc<ServerState>,
        serving: tokio::task::JoinHandle<()>,
        _dir: tempfile::TempDir,
    }

    async fn slow_handshake_server(config: ServerConfig) -> SlowHandshakeServer {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(config, &dir);
        let listener = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let finish = Arc::new(Notify::new());
        let (all, notified) = (Arc::clone(&shared), Arc::clone(&finish));
        let serving = tokio::spawn(async move {
            let nth = AtomicUsize::new(0);
            let handshake = |transport: ControlTransport| {
                let first = nth.fetch_add(1, Ordering::Relaxed) == 0;
                let notified = Arc::clone(&notified);
                async move {
                    if first {
                        notified.notified().await;
                    }
                    transport.handshake().await
                }
            };
            let mut sessions = JoinSet::new();
            let (_never, mut shutdown) = Shutdown::manual();
            accept_until(&listener, &all, &mut sessions, &mut shutdown, handshake).await;
        });
        SlowHandshakeServer {
            address,
            finish,
            shared,
            serving,
            _dir: dir,
        }
    }

    #[tokio::test]
    async fn a_slow_handshake_does_not_delay_other_sessions() {
        let server = slow_handshake_server(ServerConfig::default()).await;
        let mut first = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..3 {
            let mut other = TcpStream::connect(server.address).await.unwrap();
            expect_greeting_code(&mut other, b"220").await;
        }
        let nothing = first.try_read(&mut [0; 3]);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.finish.notify_one();
        expect_greeting_code(&mut first, b"220").await;
        server.serving.abort();
    }

    /// Asserts that the connection ends without a reply: before the handshake none can be sent.
    async fn expect_silent_close(mut client: TcpStream) {
        let mut said = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut said)).await;
        assert!(matches!(end, Ok(Ok(0))), "{end:?}");
    }

    #[tokio::test]
    async fn a_handshake_ends_with_the_login_timeout() {
        let server = slow_handshake_server(ServerConfig {
            login_timeout: Duration::from_millis(20),
            ..ServerConfig::default()
        })
        .await;
        expect_silent_close(TcpStream::connect(server.address).await.unwrap()).await;
    }

    #[tokio::test]
    async fn draining_ends_handshakes_at_once() {
        let server = slow_handshake_server(ServerConfig::default()).await;
        let first = TcpStream::connect(server.address).await.unwrap();
        // Connections are accepted in order, so the first one's handshake has begun.
        let mut other = TcpStream::connect(server.address).await.unwrap();
        expect_greeting_code(&mut other, b"220").await;
        server.shared.set_phase(ServerPhase::Draining);
        expect_silent_close(first).await;
    }
}
