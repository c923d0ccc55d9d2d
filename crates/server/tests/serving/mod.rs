//! Starts a server for a test, on threads of this process.

use std::sync::mpsc;
use std::thread::JoinHandle;

use server::config::ServerConfig;
use server::{ReloadRequests, ServeError, ServerAnnouncement, Shutdown, ShutdownHandle};

/// The thread that runs a server.
pub(crate) type ServerThread = JoinHandle<Result<(), ServeError>>;

/// Starts a server that takes these reloads; returns its addresses, the handle that stops it, and the thread
/// that runs it.
pub(crate) fn start_server(
    config: ServerConfig,
    reloads: ReloadRequests,
) -> (ServerAnnouncement, ShutdownHandle, ServerThread) {
    let (shutdown, requests) = Shutdown::manual();
    let (ready, announced) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(server::serve_with_reloads(
                config,
                move |announcement| ready.send(announcement.clone()).unwrap(),
                requests,
                reloads,
            ))
    });
    let announcement = announced.recv().expect("the server starts");
    (announcement, shutdown, thread)
}
