//! One file, as many attempts as it takes.

use super::copying::FileCopy;
use super::meter::FileMeter;
use super::{Context, Outcome};
use crate::retry::Retries;
use crate::{Event, Exit, Failure};

/// Attempts until success or a final failure. A checksum mismatch of a file that builds upon an
/// earlier run is started over once; of one that was moved whole in this run, it is final.
pub(super) async fn persist(
    ctx: &Context,
    source: &str,
    meter: &FileMeter,
    copy: &mut FileCopy<'_>,
) -> Result<Outcome, Failure> {
    let mut retries = Retries::new(ctx.options.retries, ctx.seed);
    loop {
        let before = meter.moved();
        let failure = match copy.attempt().await {
            Ok(outcome) => return Ok(outcome),
            Err(failure) => failure,
        };
        if failure.exit == Exit::Integrity && copy.forget_resumed() {
            ctx.warn(format!("{}; starting over", failure.message));
            continue;
        }
        // After a cut, the one who is at it may be our own last session, which the server has not
        // given up yet.
        let others = failure.is_occupied() && !retries.begun();
        if !copy.repeatable() || others {
            return Err(failure);
        }
        let moved = match copy.in_vain() {
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
