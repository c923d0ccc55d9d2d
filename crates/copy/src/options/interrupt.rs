//! Ends copies before they are complete.

use std::sync::Arc;

use tokio::sync::watch;

/// Ends copies that run with it in their [`CopyOptions`](crate::options::CopyOptions). Such a copy stops everything, leaves what a
/// `--resume` continues from, and returns its summary with [`FailureKind::Interrupted`](ftp::FailureKind::Interrupted).
#[derive(Debug, Clone, Default)]
pub struct CopyInterrupt(Arc<watch::Sender<bool>>);

impl CopyInterrupt {
    /// Ends the copies, now and later.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }

    /// Whether the copies were ended.
    pub fn is_triggered(&self) -> bool {
        *self.0.borrow()
    }

    /// The output of `work`; `None` if the interrupt came first.
    pub(crate) async fn or_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut triggered = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender is part of `self`, so waiting does not fail.
            _ = triggered.wait_for(|is_triggered| *is_triggered) => None,
            output = work => Some(output),
        }
    }
}
