//! MODE S: the connection is the file, and its end the file's end (RFC 959 §3.4.1).

use super::Job;
use super::inlet::Inlet;
use crate::channel::Channel;
use crate::error::DataError;
use crate::sum::Sum;
use crate::wire::Wire;

/// Receives until the peer's FIN, in the caller's thread.
pub(super) fn receive(channel: &mut Channel, job: &Job<'_>) -> Result<Option<String>, DataError> {
    let permit = channel.permit()?;
    let sum = Sum::one_stream(job.settings.sum);
    let stream = channel.open_single(job.transfer, job.settings)?;
    let mut inlet = Inlet::new(Wire::new(job.transfer, stream, permit), job, &sum);
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
            break;
        }
        offset += n;
    }
    drop(inlet);
    Ok(sum.digest())
}
