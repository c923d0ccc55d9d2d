//! Runs the blocking part of a test on a thread of its own, and ends it when the test is dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::TestFailure;

/// Longest wait of a blocking part before it looks whether it shall end.
const LOOK: Duration = Duration::from_millis(100);

/// Whether a blocking part shall end. Clones share the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    /// Whether it shall end.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The end of one wait: `deadline`, or earlier to look again.
    pub(super) fn wait_until(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + LOOK)
    }
}

/// Sets the flag when it is dropped.
struct CancelOnDrop(Cancelled);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work`, which must end soon after its argument is set.
///
/// # Errors
/// Those of `work`.
pub(super) async fn run_blocking<T: Send + 'static>(
    test: &str,
    client: IpAddr,
    work: impl FnOnce(Cancelled) -> Result<T, TestFailure> + Send + 'static,
) -> Result<T, TestFailure> {
    let cancelled = Cancelled::default();
    let _guard = CancelOnDrop(cancelled.clone());
    tokio::task::spawn_blocking(move || work(cancelled))
        .await
        .unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            Err(TestFailure::system(test, client, "run the test", source))
        })
}
