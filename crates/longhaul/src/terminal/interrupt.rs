//! SIGINT and SIGTERM end a verb early.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

/// Runs a future to its end; `None` if SIGINT or SIGTERM came first.
pub(crate) fn until_interrupted<T>(future: impl Future<Output = T>) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Only control connections run here; each data stream has its own thread.
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        // Installed before the future runs, so that an early signal is not lost.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            value = future => Ok(Some(value)),
            _ = interrupt.recv() => Ok(None),
            _ = terminate.recv() => Ok::<_, std::io::Error>(None),
        }
    })?;
    // Stream threads of an interrupted transfer end by themselves; 1 s limits the wait for them.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(outcome)
}
