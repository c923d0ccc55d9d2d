//! One file, as many attempts as it takes.

use std::future::Future;

use super::meter::FileMeter;
use super::{Context, Outcome};
use crate::retry::Retries;
use crate::{Event, Exit, Failure};

/// A copy of one file that can be attempted again.
pub(super) trait Job {
    /// One attempt: from connecting to putting the verified file in place. Goes on from what
    /// earlier attempts made safe.
    fn attempt(&mut self) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Gives up what was resumed from an earlier run; `false` when nothing was.
    fn forget_resumed(&mut self) -> bool;

    /// Whether the last attempt's bytes have to be moved again, so that it was no progress.
    fn in_vain(&self) -> bool {
        false
    }

    /// Whether what was read from the source can be read again.
    fn repeatable(&self) -> bool {
        true
    }
}

/// Attempts until success or a final failure. A checksum mismatch of a file that builds upon an
/// earlier run is started over once; of one that was moved whole in this run, it is final.
pub(super) async fn persist(
    ctx: &Context,
    source: &str,
    meter: &FileMeter,
    job: &mut impl Job,
) -> Result<Outcome, Failure> {
    let mut retries = Retries::new(ctx.options.retries, ctx.seed);
    loop {
        let before = meter.moved();
        let failure = match job.attempt().await {
            Ok(outcome) => return Ok(outcome),
            Err(failure) => failure,
        };
        if failure.exit == Exit::Integrity && job.forget_resumed() {
            ctx.warn(format!("{}; starting over", failure.message));
            continue;
        }
        // After a cut, the one who is at it may be our own last session, which the server has not
        // given up yet.
        let others = failure.is_occupied() && !retries.begun();
        if !job.repeatable() || others {
            return Err(failure);
        }
        let moved = match job.in_vain() {
            true => 0,
            false => meter.moved().saturating_sub(before),
        };
        let Some((attempt, after)) = retries.next(&failure, moved) else {
            return Err(failure);
        };
        ctx.observer.event(Event::Retrying {
            source: source.to_owned(),
            reason: failure.message,
            attempt,
            after,
        });
        tokio::time::sleep(after).await;
    }
}
