//! The service over HTTP: XML-RPC, JSON with an OpenAPI description, a web page with live updates, metrics in
//! Prometheus' text format, and health.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::service::Advisor;

mod answers;
mod connections;
mod description;
mod health;
mod json_api;
mod limits;
mod live;
mod metrics;
mod names;
mod operations;
mod page;
mod routes;
mod shared;
mod token;
mod xml_rpc;

pub use description::openapi;
pub use limits::ServerLimits;
pub use token::{TokenFileError, check_token_file};

use shared::Shared;
use token::WriteToken;

/// The reason why the HTTP server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HttpStartError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenFileError),
}

/// The running HTTP server. Dropped without [`stop`](Self::stop), it goes on.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl HttpServer {
    /// The address that it listens on, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, answers the requests that have arrived, and ends within some seconds.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A task that panicked has ended, too.
        let _ = self.task.await;
    }
}

/// Serves on the address of the settings, with the usual limits.
///
/// # Errors
/// The address or the token file cannot be used.
pub async fn serve(advisor: &Advisor) -> Result<HttpServer, HttpStartError> {
    let address = advisor.config().listen;
    let failed = |cause| HttpStartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    serve_on(advisor, listener, ServerLimits::default())
}

/// Serves on a socket that listens already.
///
/// # Errors
/// The token file cannot be used, or the socket has no address.
pub fn serve_on(
    advisor: &Advisor,
    listener: TcpListener,
    limits: ServerLimits,
) -> Result<HttpServer, HttpStartError> {
    let address = listener
        .local_addr()
        .map_err(|cause| HttpStartError::Listen {
            address: advisor.config().listen,
            cause,
        })?;
    let token_file = advisor.config().token_file.as_deref();
    let token = token_file.map(WriteToken::read).transpose()?;
    let (stop, stopping) = watch::channel(false);
    let shared = Arc::new(Shared::new(
        advisor.clone(),
        token,
        limits,
        stopping.clone(),
    ));
    let router = routes::router(&shared);
    let task = tokio::spawn(connections::accept(listener, router, shared, stopping));
    Ok(HttpServer {
        address,
        stop,
        task,
    })
}
