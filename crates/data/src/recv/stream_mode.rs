//! MODE S: the connection is the file, and its end the file's end (RFC 959 §3.4.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::ReceiveTask;
use super::pending_connections::{
    PeekResult, PendingConnection, PendingConnections, PendingDecision,
};
use super::stream_receiver::StreamReceiver;
use crate::budget::StreamPermit;
use crate::channel::{ChannelEndpoint, SessionDataChannel, open_first};
use crate::error::DataError;
use crate::os::wake;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;
use crate::transfer_checksum::TransferChecksum;

/// How long a connection that ended without a byte waits for another one that is there to send some.
const GRACE: Duration = Duration::from_secs(5);

/// Receives until the peer's FIN, in the caller's thread.
pub(super) fn receive(
    channel: &mut SessionDataChannel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    let permit = channel.permit()?;
    let sum = task.sum(false);
    let budget = channel.budget().cloned();
    let stream = match channel.take_endpoint() {
        passive @ ChannelEndpoint::Passive { .. } => first_sender(
            &passive,
            &mut PendingConnections::new(task, budget, 1),
            task,
            permit,
        )?,
        other => open_first(&other, task.transfer, task.settings, permit)?,
    };
    let go_on = || task.transfer.check().is_ok();
    sum.run_with_follower(go_on, || receive_file(stream, task, &sum))?;
    Ok(sum.finish())
}

/// The first connection that sends a byte. One that ends in order without any is an empty file,
/// unless another is there: then that is given the time to send one.
fn first_sender(
    endpoint: &ChannelEndpoint,
    waiting: &mut PendingConnections<'_>,
    task: &ReceiveTask<'_>,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    let transfer = task.transfer;
    let mut ended_since = None;
    loop {
        transfer.check()?;
        waiting.accept_and_inspect(endpoint, judge)?;
        let left = if waiting.has_closed() {
            let since = *ended_since.get_or_insert_with(Instant::now);
            GRACE.saturating_sub(since.elapsed())
        } else {
            let patience = task.settings.connect_timeout;
            patience.saturating_sub(transfer.begin().elapsed())
        };
        let alone = waiting.is_empty();
        let found = waiting.take_ready().or_else(|| {
            let over = alone || left.is_zero();
            over.then(|| waiting.take_closed()).flatten()
        });
        if let Some(stream) = found {
            return Ok(Arc::new(stream.with_permit(permit)));
        }
        let clock = transfer.clock();
        let left = match (left.is_zero(), alone) {
            (false, _) => left,
            (true, true) => return Err(waiting.no_peer()),
            // A sender may be slow to begin.
            (true, false) => clock.time_left(),
        };
        if left.is_zero() {
            let seconds = clock.limit_seconds();
            return Err(DataError::Stalled { seconds });
        }
        let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
        waiting.add_poll_fds(endpoint, &mut fds);
        wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("a wait", e))?;
    }
}

/// A connection that broke before anything came over it is nobody's fault but its own.
fn judge(candidate: &PendingConnection, seen: PeekResult<'_>) -> PendingDecision {
    match seen {
        PeekResult::Silence => PendingDecision::Wait,
        PeekResult::Bytes(_) => PendingDecision::Accept,
        PeekResult::End => PendingDecision::Closed,
        PeekResult::Broken(error) => PendingDecision::Reject(candidate.broke(error)),
    }
}

/// Stores what the connection brings.
fn receive_file(
    stream: Arc<DataStream>,
    task: &ReceiveTask<'_>,
    sum: &TransferChecksum,
) -> Result<(), DataError> {
    let mut wire = StreamIo::new(task.transfer, stream);
    wire.handshake()?;
    let mut inlet = StreamReceiver::new(wire, task, sum);
    let mut offset = task.plan.stream_start;
    loop {
        let room = task
            .plan
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(offset));
        let n = if room > 0 {
            inlet.receive_step(offset, room)?
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
