//! MODE S: the connection is the file, and its end the file's end (RFC 959 §3.4.1).

use std::sync::Arc;

use super::Job;
use super::inlet::Inlet;
use crate::budget::Permit;
use crate::channel::Channel;
use crate::error::DataError;
use crate::stream::Stream;
use crate::sum::Sum;
use crate::wire::Wire;

/// Receives until the peer's FIN, in the caller's thread.
pub(super) fn receive(channel: &mut Channel, job: &Job<'_>) -> Result<Option<String>, DataError> {
    let permit = channel.permit()?;
    let sum = job.sum(false);
    let stream = channel.open_single(job.transfer, job.settings)?;
    let go_on = || job.transfer.check().is_ok();
    sum.beside(go_on, || drain(stream, permit, job, &sum))?;
    Ok(sum.digest())
}

/// Stores what the connection brings.
fn drain(stream: Arc<Stream>, permit: Permit, job: &Job<'_>, sum: &Sum) -> Result<(), DataError> {
    let mut inlet = Inlet::new(Wire::new(job.transfer, stream, permit), job, sum);
    let mut offset = job.plan.stream_start;
    loop {
        let room = job
            .plan
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(offset));
        let n = if room > 0 {
            inlet.step(offset, room)?
        } else {
            // The limit is reached: the FIN must come now.
            let beyond = inlet.skip(1)?;
            job.check_limit(offset, beyond)?;
            beyond
        };
        if n == 0 {
            return Ok(());
        }
        offset += n;
    }
}
