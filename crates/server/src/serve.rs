//! The life of a server: start, accept sessions, drain.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data::transport::ControlTransport;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::listen;
use crate::monitoring;
use crate::node;
use crate::proxy_header;
use crate::reload::{self, ReloadRequests};
use crate::service_manager;
use crate::session::{self, SessionEntry};
use crate::shutdown::Shutdown;
use crate::startup::{self, ControlListeners, ServeError};
use crate::state::{LostProcess, ServerPhase, ServerState, lost_process};
use crate::stripes::watch_nodes;
use crate::transfer::ControlAddresses;

/// Longest time for sessions to send their last replies after running transfers were cut.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// Reason in the 421 of a client that the lists of networks exclude.
const NOT_SERVED: &str = "clients at your address are not served";

/// Serves until `shutdown` requests a stop, then drains: no session is accepted any more, idle
/// sessions get a 421, and running transfers, with the commands that follow them directly, go on for
/// at most [`ServerConfig::drain`]. A second request ends the server at once. `ready` is called with
/// the bound address before the first session is accepted.
///
/// Must be called inside a tokio runtime with time and I/O enabled.
///
/// # Errors
/// The server could not start, or a process that it needs has ended; see [`ServeError`].
pub async fn serve(
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let ready = |announced: &ServerAnnouncement| ready(announced.address);
    serve_with_reloads(config, ready, shutdown, ReloadRequests::never()).await
}

/// The addresses of a server that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAnnouncement {
    /// Address of the control port.
    pub address: SocketAddr,
    /// Address of the port with implicit TLS.
    pub implicit_tls: Option<SocketAddr>,
    /// Address of the HTTP port for monitoring.
    pub metrics: Option<SocketAddr>,
    /// SHA-256 of the certificate that the server has made for itself.
    pub self_signed: Option<String>,
}

/// Like [`serve`], and applies new settings, users, certificates and gridmap while it runs. Sessions keep the
/// settings that they began with; logins and limits follow at once. The control addresses, the root, the
/// account and the log files cannot change while the server runs: a message says so if new settings differ.
///
/// # Errors
/// See [`serve`].
pub async fn serve_with_reloads(
    config: ServerConfig,
    ready: impl FnOnce(&ServerAnnouncement),
    mut shutdown: Shutdown,
    mut reloads: ReloadRequests,
) -> Result<(), ServeError> {
    let (mut listeners, shared) = startup::start_up(config)?;
    let announcement = announcement(&listeners, &shared)?;
    tracing::info!(address = %announcement.address, "serving");
    if let Some(address) = announcement.implicit_tls {
        tracing::info!(%address, "serving with implicit TLS");
    }
    // Ends when this function does, so that monitors see the server drain.
    let mut monitors = JoinSet::new();
    if let Some(listener) = listeners.metrics.take() {
        monitors.spawn(monitoring::serve(listener, Arc::clone(&shared)));
        let directory = Arc::clone(&shared.node_directory);
        monitors.spawn(watch_nodes(directory, shared.subscribe_material()));
    }
    ready(&announcement);
    let manager = shared.config.service_manager.clone();
    if let Some(manager) = &manager {
        manager.ready();
    }
    let lost = tokio::select! {
        lost = accept_and_drain(listeners, shared, &mut shutdown, &mut reloads) => lost,
        () = service_manager::keep_alive(manager.as_deref()) => None,
    };
    lost.map_or(Ok(()), |lost| Err(lost.into()))
}

/// Serves until a stop is requested or a process that the server needs has ended, and drains. Returns that process.
async fn accept_and_drain(
    listeners: ControlListeners,
    mut shared: Arc<ServerState>,
    shutdown: &mut Shutdown,
    reloads: &mut ReloadRequests,
) -> Option<LostProcess> {
    let mut sessions = JoinSet::new();
    // Reloads keep the processes.
    let first = Arc::clone(&shared);
    let lost = lost_process(&first.config);
    tokio::pin!(lost);
    loop {
        let settings = tokio::select! {
            () = accept_until(&listeners, &shared, &mut sessions, shutdown) => break,
            lost = &mut lost => {
                tracing::error!("{lost}; the server finishes running transfers and ends");
                shared.note_lost_process(lost);
                break;
            }
            settings = reloads.next_settings() => settings,
        };
        shared = reload::apply(&shared, settings).await;
        if let Some(manager) = &shared.config.service_manager {
            manager.ready();
        }
    }
    if let Some(manager) = &shared.config.service_manager {
        manager.stopping(shared.config.drain + LAST_REPLIES);
    }
    // Closing the listeners first makes new connections fail at once instead of waiting unserved.
    drop(listeners);
    drain(&shared, &mut sessions, shutdown).await;
    shared.lost_process()
}

fn announcement(
    listeners: &ControlListeners,
    shared: &ServerState,
) -> Result<ServerAnnouncement, ServeError> {
    let bound = |listener: &TcpListener, address| {
        let bound = listener.local_addr();
        bound.map_err(|source| ServeError::Listen { address, source })
    };
    let config = &shared.config;
    let implicit = listeners.implicit_tls.as_ref();
    Ok(ServerAnnouncement {
        address: bound(&listeners.control, config.listen)?,
        implicit_tls: implicit
            .zip(config.security.implicit_tls)
            .map(|(listener, address)| bound(listener, address))
            .transpose()?,
        metrics: listeners
            .metrics
            .as_ref()
            .zip(config.metrics)
            .map(|(listener, address)| bound(listener, address))
            .transpose()?,
        self_signed: shared.material.self_signed_fingerprint(),
    })
}

/// Accepts connections and starts their sessions until a stop is requested. Each session makes its own
/// handshake, for which no other session waits.
async fn accept_until(
    listeners: &ControlListeners,
    shared: &Arc<ServerState>,
    sessions: &mut JoinSet<()>,
    shutdown: &mut Shutdown,
) {
    loop {
        tokio::select! {
            (transport, peer) = listen::accept(&listeners.control) => {
                admit(shared, sessions, transport, SessionEntry::Control, peer);
            }
            (transport, peer) = accept_implicit(listeners.implicit_tls.as_ref()) => {
                admit(shared, sessions, transport, SessionEntry::ImplicitTls, peer);
            }
            // Ended sessions must be removed, or the set grows without bound.
            Some(_) = sessions.join_next() => {}
            () = shutdown.next_request() => return,
        }
    }
}

/// Accepts from the port with implicit TLS; waits for ever if there is none.
async fn accept_implicit(listener: Option<&TcpListener>) -> (ControlTransport, SocketAddr) {
    match listener {
        Some(listener) => listen::accept(listener).await,
        None => std::future::pending().await,
    }
}

/// Starts a session, unless a limit forbids it.
fn admit(
    shared: &Arc<ServerState>,
    sessions: &mut JoinSet<()>,
    transport: ControlTransport,
    entry: SessionEntry,
    peer: SocketAddr,
) {
    if proxy_header::is_proxy(&shared.config.proxy_protocol_from, peer.ip()) {
        sessions.spawn(admit_proxied(Arc::clone(shared), transport, entry, peer));
        return;
    }
    let addresses = transport.local_addr();
    let addresses = addresses.map(|local| ControlAddresses::new(local, peer));
    if let Ok(addresses) = addresses
        && let Some(session) = admitted_session(shared, transport, entry, addresses)
    {
        sessions.spawn(session);
    }
}

/// Serves a client whose address a proxy announces.
async fn admit_proxied(
    shared: Arc<ServerState>,
    mut transport: ControlTransport,
    entry: SessionEntry,
    proxy: SocketAddr,
) {
    match proxy_header::read_client_address(&mut transport).await {
        Ok(client) => {
            let addresses = transport
                .local_addr()
                .map(|local| ControlAddresses::new(local, client.unwrap_or(proxy)).through_proxy());
            if let Ok(addresses) = addresses
                && let Some(session) = admitted_session(&shared, transport, entry, addresses)
            {
                session.await;
            }
        }
        Err(error) => tracing::warn!(%proxy, %error, "a proxy's connection was closed"),
    }
}

/// The session of a connection; `None`: a limit or the client's address forbids it.
fn admitted_session(
    shared: &Arc<ServerState>,
    transport: ControlTransport,
    entry: SessionEntry,
    addresses: ControlAddresses,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let client = addresses.peer.ip();
    if !shared.config.access.permits_address(client) {
        turn_away(shared, &transport, entry, &addresses, NOT_SERVED);
        return None;
    }
    match shared.session_limits.admit(client) {
        Ok(slot) => {
            shared.metrics.count_session(true);
            let shared = Arc::clone(shared);
            Some(async move {
                // A data node serves its front ends and nobody else.
                if shared.config.front_ends.is_empty() {
                    session::run(shared, transport, entry, addresses, slot).await;
                } else {
                    // Boxed: the sessions of other servers should not pay for it.
                    Box::pin(node::run(shared, transport, addresses, slot)).await;
                }
            })
        }
        Err(reason) => {
            turn_away(shared, &transport, entry, &addresses, &reason.to_string());
            None
        }
    }
}

/// Refuses a connection, and says so if the client can read it.
fn turn_away(
    shared: &ServerState,
    transport: &ControlTransport,
    entry: SessionEntry,
    addresses: &ControlAddresses,
    reason: &str,
) {
    shared.metrics.count_session(false);
    shared.load_meter.count_refusal();
    tracing::info!(peer = %addresses.peer, reason, "session turned away");
    // A client that expects TLS cannot read a reply in the clear.
    if entry == SessionEntry::Control {
        listen::refuse_with_421(transport, reason);
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
    use std::io;

    use data::store::root::Root;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
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

    /// A server with a port for implicit TLS.
    struct ListeningServer {
        address: SocketAddr,
        implicit: SocketAddr,
        shared: Arc<ServerState>,
        serving: tokio::task::JoinHandle<()>,
        _dir: tempfile::TempDir,
    }

    async fn start(config: ServerConfig) -> ListeningServer {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(config, &dir);
        let any = || listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (control, implicit) = (any(), any());
        let address = control.local_addr().unwrap();
        let implicit_address = implicit.local_addr().unwrap();
        let listeners = ControlListeners {
            control,
            implicit_tls: Some(implicit),
            metrics: None,
        };
        let all = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            let (_never, mut shutdown) = Shutdown::manual();
            accept_until(&listeners, &all, &mut sessions, &mut shutdown).await;
        });
        ListeningServer {
            address,
            implicit: implicit_address,
            shared,
            serving,
            _dir: dir,
        }
    }

    #[tokio::test]
    async fn half_open_handshakes_do_not_delay_other_sessions() {
        let server = start(ServerConfig::default()).await;
        let silent = TcpStream::connect(server.implicit).await.unwrap();
        for _ in 0..3 {
            let mut other = TcpStream::connect(server.address).await.unwrap();
            expect_greeting_code(&mut other, b"220").await;
        }
        let nothing = silent.try_read(&mut [0; 3]);
        assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        server.serving.abort();
    }

    #[tokio::test]
    async fn a_proxy_on_this_host_brings_no_client_of_this_host() {
        let proxied = start(ServerConfig {
            proxy_protocol_from: vec!["127.0.0.0/8".parse().unwrap()],
            ..ServerConfig::default()
        })
        .await;
        let direct = start(ServerConfig::default()).await;
        for (address, header, code) in [
            (direct.address, "", b"331"),
            (proxied.address, "PROXY UNKNOWN\r\n", b"530"),
            (
                proxied.address,
                "PROXY TCP4 127.0.0.1 127.0.0.1 4000 2811\r\n",
                b"530",
            ),
        ] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let lines = format!("{header}USER ann\r\n");
            client.write_all(lines.as_bytes()).await.unwrap();
            expect_greeting_code(&mut client, b"220").await;
            while client.read_u8().await.unwrap() != b'\n' {}
            expect_greeting_code(&mut client, code).await;
        }
    }

    /// Asserts that the connection ends without a reply: before the handshake none can be sent.
    async fn expect_silent_close(mut client: TcpStream) {
        let mut said = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut said)).await;
        assert!(matches!(end, Ok(Ok(0))), "{end:?}");
    }

    #[tokio::test]
    async fn a_handshake_ends_with_the_login_timeout() {
        let server = start(ServerConfig {
            login_timeout: Duration::from_millis(20),
            ..ServerConfig::default()
        })
        .await;
        expect_silent_close(TcpStream::connect(server.implicit).await.unwrap()).await;
    }

    #[tokio::test]
    async fn draining_ends_handshakes_at_once() {
        let server = start(ServerConfig::default()).await;
        let silent = TcpStream::connect(server.implicit).await.unwrap();
        let mut other = TcpStream::connect(server.address).await.unwrap();
        expect_greeting_code(&mut other, b"220").await;
        server.shared.set_phase(ServerPhase::Draining);
        expect_silent_close(silent).await;
    }

    #[tokio::test]
    async fn handshakes_above_the_bound_of_an_address_end_the_oldest() {
        let server = start(ServerConfig::default()).await;
        let oldest = TcpStream::connect(server.implicit).await.unwrap();
        let mut newer = Vec::new();
        for _ in 0..crate::limits::MAX_HANDSHAKES_PER_ADDRESS {
            newer.push(TcpStream::connect(server.implicit).await.unwrap());
        }
        expect_silent_close(oldest).await;
        let open = newer[1].try_read(&mut [0; 3]);
        assert_eq!(open.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
