//! Requests to stop a running server: the first drains it, the second ends it at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The receiving end of stop requests, for [`crate::serve()`]: the first request drains the server,
/// the second ends it at once.
#[derive(Debug)]
pub struct Shutdown {
    requests: mpsc::Receiver<()>,
}

/// The sending end of a [`Shutdown`].
#[derive(Debug, Clone)]
pub struct ShutdownHandle {
    requests: mpsc::Sender<()>,
}

/// Capacity of the channel. More requests have no effect, because the second ends everything.
const PENDING: usize = 2;

impl Shutdown {
    /// Requests made by the program: for embedding and tests.
    pub fn manual() -> (ShutdownHandle, Self) {
        let (sender, requests) = mpsc::channel(PENDING);
        (ShutdownHandle { requests: sender }, Self { requests })
    }

    /// Requests made by the signals SIGTERM and SIGINT. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The signal handlers could not be installed.
    pub fn on_signals() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (handle, shutdown) = Self::manual();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    () = handle.requests.closed() => return,
                }
                handle.request();
            }
        });
        Ok(shutdown)
    }

    /// Waits for the next request; waits for ever once every handle is dropped.
    pub(crate) async fn next_request(&mut self) {
        if self.requests.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl ShutdownHandle {
    /// Asks the server to drain, or to end at once if it is draining already.
    pub fn request(&self) {
        // If the channel is full, it already holds the request that ends everything.
        let _ = self.requests.try_send(());
    }
}
