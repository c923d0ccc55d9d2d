//! The end of a batch: by itself, by a failure of all of it, or by an interrupt.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::batch::totals::{BatchTotals, report_failure};
use crate::events::{CopyObserver, CopySummary};
use crate::options::CopyOptions;
use ftp::Failure;
use ftp::protection::NO_SECURITY;

/// Runs a batch to its end. Its failure is that of `source`.
pub(crate) async fn run_to_end(
    batch: impl Future<Output = Result<(), Failure>>,
    source: impl FnOnce() -> String,
    options: &CopyOptions,
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
) {
    match options.interrupt.or_end(batch).await {
        None => totals.lock().set_interrupted(),
        Some(Ok(())) => {}
        Some(Err(failure)) => {
            report_failure(observer, totals, source(), failure);
        }
    }
}

/// The summary. An error before the first file (a bad argument, say) still yields a complete one.
pub(crate) fn summary(
    totals: &Mutex<BatchTotals>,
    options: &CopyOptions,
    elapsed: Duration,
) -> CopySummary {
    let mut summary = totals.lock().summary(elapsed);
    summary.security = options.security.in_force();
    if summary.security != NO_SECURITY {
        summary.why = format!("{}; security: {}", summary.why, summary.security);
    }
    summary
}

impl CopySummary {
    /// The summary of a copy that failed before it began.
    pub fn of_failure(failure: &Failure) -> Self {
        let mut totals = BatchTotals::default();
        totals.file_failed(failure, &failure.to_string());
        totals.summary(Duration::ZERO)
    }
}
