//! The end of a batch: by itself, by a failure of all of it, or by an interrupt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lock;
use super::totals::BatchTotals;
use super::totals::report_failure;
use crate::protection::NO_SECURITY;
use crate::{CopyFailure, CopyObserver, CopyOptions, CopySummary};

/// Runs a batch to its end. Its failure is that of `source`.
pub(super) async fn run_to_end(
    batch: impl Future<Output = Result<(), CopyFailure>>,
    source: impl FnOnce() -> String,
    (options, observer): (&CopyOptions, &Arc<dyn CopyObserver>),
    totals: &Mutex<BatchTotals>,
) {
    match options.interrupt.or_end(batch).await {
        None => lock(totals).set_interrupted(),
        Some(Ok(())) => {}
        Some(Err(failure)) => {
            report_failure(observer, totals, source(), failure);
        }
    }
}

/// The summary. An error before the first file (a bad argument, say) still yields a complete one.
pub(super) fn summary(
    totals: &Mutex<BatchTotals>,
    options: &CopyOptions,
    elapsed: Duration,
) -> CopySummary {
    let mut summary = lock(totals).summary(elapsed);
    summary.security = options.security.in_force();
    if summary.security != NO_SECURITY {
        summary.why = format!("{}; security: {}", summary.why, summary.security);
    }
    summary
}

impl CopySummary {
    /// The summary of a copy that failed before it began.
    pub fn of_failure(failure: &CopyFailure) -> Self {
        let mut totals = BatchTotals::default();
        totals.file_failed(failure, &failure.to_string());
        totals.summary(Duration::ZERO)
    }
}
