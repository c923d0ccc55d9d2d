//! How a running server is told to stop: once to drain, twice to end at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Requests to stop, as [`crate::serve()`] takes them: the first drains, the second ends at once.
#[derive(Debug)]
pub struct Shutdown {
    requests: mpsc::Receiver<()>,
}

/// The asking end of a [`Shutdown`].
#[derive(Debug, Clone)]
pub struct ShutdownHandle {
    requests: mpsc::Sender<()>,
}

/// Requests that may wait to be seen; more would add nothing, the second ends everything.
const PENDING: usize = 2;

impl Shutdown {
    /// Requests made by hand: embedding and tests.
    pub fn manual() -> (ShutdownHandle, Self) {
        let (sender, requests) = mpsc::channel(PENDING);
        (ShutdownHandle { requests: sender }, Self { requests })
    }

    /// Requests made by SIGTERM and SIGINT. Must be called inside a tokio runtime.
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

    /// The next request. Pends for ever once every handle is gone.
    pub(crate) async fn next_request(&mut self) {
        if self.requests.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl ShutdownHandle {
    /// Asks the server to drain, or to end at once if it drains already.
    pub fn request(&self) {
        // A full queue already holds the request that ends everything.
        let _ = self.requests.try_send(());
    }
}
