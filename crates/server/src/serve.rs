//! A server's life: start, accept, drain.

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
    serve_with_reloads(config, ready, shutdown, ReloadRequests::never()).await
}

/// [`serve`], and takes other settings and users while it runs. Sessions that began before keep the
/// settings that they began with; logins and bounds follow at once. Address, root, account and
/// logs hold for the life of the server: the log says so when they would change.
///
/// # Errors
/// As [`serve`].
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
    drop(listener);
    drain(&shared, &mut sessions, &mut shutdown).await;
    Ok(())
}

/// Takes connections and starts their sessions, each with a `handshake` of its own that nobody else waits
/// for.
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
            // Ended sessions are taken out as they end, or the set would only grow.
            Some(_) = sessions.join_next() => {}
            () = shutdown.next_request() => return,
        }
    }
}

/// Starts a session unless a limit forbids it.
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
        return; // gone already
    };
    let ends = ControlAddresses::new(local, peer);
    match shared.session_limits.admit(ends.peer.ip()) {
        Ok(slot) => {
            let shared = Arc::clone(shared);
            sessions.spawn(session::run(shared, handshake(transport), ends, slot));
        }
        Err(reason) => {
            tracing::info!(peer = %ends.peer, %reason, "session turned away");
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
            () = tokio::time::sleep(FAREWELL) => {}
        }
    }
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

    async fn begins_with(client: &mut TcpStream, code: &[u8; 3]) {
        let mut said = [0; 3];
        timeout(PATIENCE, client.read_exact(&mut said))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&said, code);
    }

    /// A server whose first client's handshake ends when `finish` is notified; the others have none.
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
    async fn others_are_served_while_a_handshake_goes_on() {
        let server = slow_handshake_server(ServerConfig::default()).await;
        let mut first = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..3 {
            let mut other = TcpStream::connect(server.address).await.unwrap();
            begins_with(&mut other, b"220").await;
        }
        let nothing = first.try_read(&mut [0; 3]);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.finish.notify_one();
        begins_with(&mut first, b"220").await;
        server.serving.abort();
    }

    /// It ends without a word, as there is no way to say one.
    async fn ends(mut client: TcpStream) {
        let mut said = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut said)).await;
        assert!(matches!(end, Ok(Ok(0))), "{end:?}");
    }

    #[tokio::test]
    async fn a_handshake_has_as_long_as_a_login_may_take() {
        let server = slow_handshake_server(ServerConfig {
            login_timeout: Duration::from_millis(20),
            ..ServerConfig::default()
        })
        .await;
        ends(TcpStream::connect(server.address).await.unwrap()).await;
    }

    #[tokio::test]
    async fn a_server_that_drains_waits_for_no_handshake() {
        let server = slow_handshake_server(ServerConfig::default()).await;
        let first = TcpStream::connect(server.address).await.unwrap();
        // Connections are taken in order, so that the first one's handshake has begun.
        let mut other = TcpStream::connect(server.address).await.unwrap();
        begins_with(&mut other, b"220").await;
        server.shared.set_phase(ServerPhase::Draining);
        ends(first).await;
    }
}
