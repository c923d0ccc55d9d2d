//! The intake of a MODE E transfer: takes connections for as long as the transfer lasts, and
//! knows when nothing more can come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::eblock::{BlockError, BlockFlags, BlockHeader, HEADER_LEN, check_header};
use rustix::event::{PollFd, PollFlags};

use super::pending_connections::{
    PeekResult, PendingConnection, PendingConnections, PendingDecision,
};
use super::receiver_threads::ReceiverThreads;
use crate::budget::StreamPermit;
use crate::channel::{ChannelEndpoint, SessionDataChannel};
use crate::error::DataError;
use crate::os::wake;
use crate::stream::DataStream;

/// How long a new connection may take to appear after all others have gone.
const GRACE: Duration = Duration::from_secs(1);

/// How often to look again while no reader is at work, or at the stream bound.
const LOOK: Duration = Duration::from_millis(50);

/// Takes connections, and hands those that send blocks to readers.
pub(super) struct StreamAcceptor<'c, 'scope, 'env> {
    channel: &'c SessionDataChannel,
    crew: ReceiverThreads<'scope, 'env>,
    waiting: PendingConnections<'env>,
    /// For the first connection.
    permit: Option<StreamPermit>,
    gone_since: Option<Instant>,
}

impl<'c, 'scope, 'env> StreamAcceptor<'c, 'scope, 'env> {
    pub(super) fn new(
        channel: &'c SessionDataChannel,
        crew: ReceiverThreads<'scope, 'env>,
        permit: Option<StreamPermit>,
    ) -> Self {
        Self {
            channel,
            waiting: PendingConnections::new(crew.task, channel.budget().cloned(), HEADER_LEN),
            crew,
            permit,
            gone_since: None,
        }
    }

    /// Starts readers for connections that are there already.
    pub(super) fn adopt(&mut self, streams: Vec<Arc<DataStream>>) -> Result<(), DataError> {
        streams
            .into_iter()
            .try_for_each(|stream| self.crew.start(stream, true))
    }

    /// Takes connections until the transfer is complete, must stop, or cannot go on.
    pub(super) fn run(&mut self) -> Result<(), DataError> {
        loop {
            self.crew.task.transfer.check()?;
            if self.crew.gathering.is_complete() {
                return Ok(());
            }
            self.waiting
                .accept_and_inspect(self.channel.endpoint(), decide_by_header)?;
            self.promote()?;
            self.check_sender_alive()?;
            self.wait()?;
        }
    }

    /// Waits for all readers to end.
    pub(super) fn join(self) {
        self.crew.join();
    }

    /// Starts readers for connections that have sent a block, as far as the bounds allow.
    fn promote(&mut self) -> Result<(), DataError> {
        let most = self.crew.task.settings.max_connections;
        while self.waiting.has_ready() && self.crew.gathering.active() < most {
            let permit = self.permit.take();
            let permit = permit.or_else(|| self.channel.permit().ok());
            let Some(permit) = permit.or_else(|| self.crew.gathering.take_parked_permit()) else {
                return Ok(());
            };
            if let Some(stream) = self.waiting.take_ready() {
                let stream = Arc::new(stream.with_permit(permit));
                self.crew.start(stream, false)?;
            }
        }
        Ok(())
    }

    /// Fails when no reader is at work and nothing gives hope for another.
    fn check_sender_alive(&mut self) -> Result<(), DataError> {
        let (task, gathering) = (self.crew.task, self.crew.gathering);
        if gathering.active() > 0 || gathering.is_complete() {
            self.gone_since = None;
            return Ok(());
        }
        // A reader notes its failure before it ends.
        task.transfer.check()?;
        let listening = matches!(self.channel.endpoint(), ChannelEndpoint::Passive { .. });
        let early = !gathering.has_valid_header();
        if early && listening && task.transfer.begin().elapsed() < task.settings.connect_timeout {
            return Ok(());
        }
        // A sender may be slow to begin, or one of its connections may be.
        if gathering.has_live_parked() || !self.waiting.is_empty() {
            let clock = task.transfer.clock();
            let seconds = clock.limit_seconds();
            return if clock.time_left().is_zero() {
                Err(DataError::Stalled { seconds })
            } else {
                Ok(())
            };
        }
        if early {
            let bad = gathering.take_bad_start();
            return Err(bad.unwrap_or_else(|| self.waiting.no_peer()));
        }
        let since = *self.gone_since.get_or_insert_with(Instant::now);
        if listening && since.elapsed() < GRACE {
            return Ok(());
        }
        Err(DataError::Block {
            peer: "the sender".to_owned(),
            source: BlockError::Truncated,
        })
    }

    fn wait(&mut self) -> Result<(), DataError> {
        let (task, gathering) = (self.crew.task, self.crew.gathering);
        let mut fds = vec![
            PollFd::new(task.transfer.stop_wake(), PollFlags::IN),
            PollFd::new(&gathering.nudge, PollFlags::IN),
        ];
        self.waiting.add_poll_fds(self.channel.endpoint(), &mut fds);
        let busy = gathering.active() > 0 && !self.waiting.has_ready();
        let timeout = if busy { GRACE } else { LOOK };
        wake::wait_any(&mut fds, timeout).map_err(|e| DataError::setup("a wait", e))?;
        gathering.nudge.clear();
        Ok(())
    }
}

/// Verdict on a connection by its first header. Trouble before that is the connection's own (a port
/// scan, a wrong peer), never the transfer's.
fn decide_by_header(candidate: &PendingConnection, seen: PeekResult<'_>) -> PendingDecision {
    let bytes = match seen {
        PeekResult::Silence => return PendingDecision::Wait,
        PeekResult::End => return PendingDecision::Closed,
        PeekResult::Broken(error) => return PendingDecision::Reject(candidate.broke(error)),
        PeekResult::Bytes(bytes) => bytes,
    };
    let Ok(bytes) = <&[u8; HEADER_LEN]>::try_from(bytes) else {
        return PendingDecision::Wait;
    };
    let header = BlockHeader::decode(bytes);
    match check_header(header) {
        Err(source) => PendingDecision::Reject(DataError::Block {
            peer: candidate.peer().to_string(),
            source,
        }),
        Ok(())
            if header.count == 0 && header.flags.0 & (BlockFlags::EOF | BlockFlags::EOD) == 0 =>
        {
            candidate.skip(&mut [0; HEADER_LEN]);
            PendingDecision::Wait
        }
        Ok(()) => PendingDecision::Accept,
    }
}
