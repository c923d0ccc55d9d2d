//! Starts a server for a test, on threads of this process.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use server::config::ServerConfig;
use server::{ServeError, Shutdown, ShutdownHandle};

/// Starts a server; returns its address, the handle that stops it, and the thread that runs it.
pub(crate) fn start_server(
    config: ServerConfig,
) -> (
    SocketAddr,
    ShutdownHandle,
    JoinHandle<Result<(), ServeError>>,
) {
    let (shutdown, requests) = Shutdown::manual();
    let (ready, bound) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(server::serve(
                config,
                move |address| ready.send(address).unwrap(),
                requests,
            ))
    });
    (bound.recv().expect("the server starts"), shutdown, thread)
}
