//! MODE S: the connection is the file, and its end the file's end (RFC 959 §3.4.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::ReceiveTask;
use super::inlet::Inlet;
use super::waiting::{Candidate, Seen, Verdict, Waiting};
use crate::budget::Permit;
use crate::channel::{Channel, Endpoint, open_one};
use crate::error::DataError;
use crate::os::wake;
use crate::stream::Stream;
use crate::sum::Sum;
use crate::wire::Wire;

/// How long a connection that ended without a byte waits for another one that is there to send some.
const GRACE: Duration = Duration::from_secs(5);

/// Receives until the peer's FIN, in the caller's thread.
pub(super) fn receive(
    channel: &mut Channel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    let permit = channel.permit()?;
    let sum = task.sum(false);
    let budget = channel.budget().cloned();
    let stream = match channel.spend() {
        passive @ Endpoint::Passive { .. } => {
            first_sender(&passive, &mut Waiting::new(task, budget, 1), task, permit)?
        }
        other => open_one(&other, task.transfer, task.settings, permit)?,
    };
    let go_on = || task.transfer.check().is_ok();
    sum.beside(go_on, || drain(stream, task, &sum))?;
    Ok(sum.digest())
}

/// The first connection that sends a byte. One that ends in order without any is an empty file,
/// unless another is there: then that is given the time to send one.
fn first_sender(
    endpoint: &Endpoint,
    waiting: &mut Waiting<'_>,
    task: &ReceiveTask<'_>,
    permit: Permit,
) -> Result<Arc<Stream>, DataError> {
    let transfer = task.transfer;
    let mut ended_since = None;
    loop {
        transfer.check()?;
        waiting.turn(endpoint, judge)?;
        let left = if waiting.has_ended() {
            let since = *ended_since.get_or_insert_with(Instant::now);
            GRACE.saturating_sub(since.elapsed())
        } else {
            let patience = task.settings.connect;
            patience.saturating_sub(transfer.begin().elapsed())
        };
        let alone = waiting.is_empty();
        let found = waiting.take_chosen().or_else(|| {
            let over = alone || left.is_zero();
            over.then(|| waiting.take_ended()).flatten()
        });
        if let Some(stream) = found {
            return Ok(Arc::new(stream.with_permit(permit)));
        }
        let clock = transfer.clock();
        let left = match (left.is_zero(), alone) {
            (false, _) => left,
            (true, true) => return Err(waiting.no_peer()),
            // A sender may be slow to begin.
            (true, false) => clock.left(),
        };
        if left.is_zero() {
            let seconds = clock.limit_seconds();
            return Err(DataError::Stalled { seconds });
        }
        let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
        waiting.awaited(endpoint, &mut fds);
        wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("a wait", e))?;
    }
}

/// A connection that broke before anything came over it is nobody's fault but its own.
fn judge(candidate: &Candidate, seen: Seen<'_>) -> Verdict {
    match seen {
        Seen::Silence => Verdict::Stays,
        Seen::Bytes(_) => Verdict::Chosen,
        Seen::End => Verdict::Ended,
        Seen::Broken(error) => Verdict::Dropped(candidate.broke(error)),
    }
}

/// Stores what the connection brings.
fn drain(stream: Arc<Stream>, task: &ReceiveTask<'_>, sum: &Sum) -> Result<(), DataError> {
    let mut wire = Wire::new(task.transfer, stream);
    wire.handshake()?;
    let mut inlet = Inlet::new(wire, task, sum);
    let mut offset = task.plan.stream_start;
    loop {
        let room = task
            .plan
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(offset));
        let n = if room > 0 {
            inlet.step(offset, room)?
        } else {
            // The limit is reached: the FIN must come now.
            let beyond = inlet.skip(1)?;
            task.check_limit(offset, beyond)?;
            beyond
        };
        if n == 0 {
            return Ok(());
        }
        offset += n;
    }
}
