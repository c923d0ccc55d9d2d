//! MODE S: the connection is the file, and its end is the end of the file (RFC 959 §3.4.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::ReceiveTask;
use super::pending_connections::{
    PeekResult, PendingConnection, PendingConnections, PendingDecision,
};
use super::stream_receiver::StreamReceiver;
use crate::budget::StreamPermit;
use crate::channel::{ChannelEndpoint, SessionDataChannel, open_taken};
use crate::error::DataError;
use crate::os::wake;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;
use crate::transfer_checksum::TransferChecksum;

/// Time for another pending connection to send a byte after one has closed without any.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Receives until the peer's FIN, in the caller's thread.
pub(super) fn receive(
    channel: &mut SessionDataChannel,
    task: &ReceiveTask<'_>,
) -> Result<Option<String>, DataError> {
    // Taken before any connection is accepted, so that a full server refuses at once.
    let permit = channel.permit()?;
    let checksum = task.checksum(false);
    let budget = channel.budget().cloned();
    let stream = match channel.take_endpoint() {
        passive @ ChannelEndpoint::Passive { .. } => first_sender(
            &passive,
            &mut PendingConnections::new(task, budget, 1),
            task,
            permit,
        )?,
        other => open_taken(other, task.transfer, task.settings, permit)?,
    };
    let go_on = || task.transfer.check().is_ok();
    checksum.run_with_follower(go_on, || receive_file(stream, task, &checksum))?;
    Ok(checksum.finish())
}

/// The first connection that sends a byte. One that closes in order without any is an empty file,
/// unless another connection is pending: that one then gets time to send a byte.
fn first_sender(
    endpoint: &ChannelEndpoint,
    pending: &mut PendingConnections<'_>,
    task: &ReceiveTask<'_>,
    permit: StreamPermit,
) -> Result<Arc<DataStream>, DataError> {
    let transfer = task.transfer;
    let mut ended_since = None;
    loop {
        transfer.check()?;
        pending.accept_and_inspect(endpoint, decide_by_first_byte)?;
        // After a close without data, other connections get a short time of their own.
        let left = if pending.has_closed() {
            let since = *ended_since.get_or_insert_with(Instant::now);
            GRACE_PERIOD.saturating_sub(since.elapsed())
        } else {
            let timeout = task.settings.connect_timeout;
            let left = timeout.saturating_sub(transfer.begin().elapsed());
            left.min(pending.time_left())
        };
        let alone = pending.is_empty();
        let found = pending.take_ready().or_else(|| {
            // Without another connection, the empty file is the answer.
            let must_decide = alone || left.is_zero();
            must_decide.then(|| pending.take_closed()).flatten()
        });
        if let Some(stream) = found {
            return Ok(Arc::new(stream.with_permit(permit)));
        }
        let clock = transfer.clock();
        let left = match (left.is_zero(), alone) {
            (false, _) => left,
            (true, true) => return Err(pending.no_peer()),
            // The sender may be slow to begin.
            (true, false) => clock.time_left(),
        };
        if left.is_zero() {
            let seconds = clock.limit_seconds();
            return Err(DataError::Stalled { seconds });
        }
        let mut fds = vec![PollFd::new(transfer.stop_wake(), PollFlags::IN)];
        pending.add_poll_fds(endpoint, &mut fds);
        let left = left.min(pending.max_wait());
        wake::wait_any(&mut fds, left).map_err(|e| DataError::setup("poll(2)", e))?;
    }
}

/// A connection that broke before it carried a byte does not fail the transfer.
fn decide_by_first_byte(connection: &PendingConnection, peeked: PeekResult<'_>) -> PendingDecision {
    match peeked {
        PeekResult::Silence => PendingDecision::Wait,
        PeekResult::Bytes(_) => PendingDecision::Accept,
        PeekResult::End => PendingDecision::Closed,
        PeekResult::Broken(error) => PendingDecision::Reject(connection.broke(error)),
    }
}

/// Stores everything that the connection carries.
fn receive_file(
    stream: Arc<DataStream>,
    task: &ReceiveTask<'_>,
    checksum: &TransferChecksum,
) -> Result<(), DataError> {
    // One thread is enough: MODE S has one connection.
    let io = StreamIo::new(task.transfer, stream);
    io.handshake()?;
    let mut receiver = StreamReceiver::new(io, task, checksum);
    let mut offset = task.plan.stream_start;
    loop {
        if task.is_beyond_early_end(offset) {
            receiver.report();
            task.transfer.end_early();
            return Ok(());
        }
        let limit = task.plan.limit.unwrap_or(u64::MAX);
        let remaining = task.before_early_end(offset, limit.saturating_sub(offset));
        let n = if remaining > 0 {
            receiver.receive_step(offset, remaining)?
        } else {
            // The limit is reached: the next event must be FIN.
            let excess = receiver.take_end()?;
            task.check_limit(offset, excess)?;
            excess
        };
        if n == 0 {
            return Ok(());
        }
        offset += n;
    }
}
