//! Accepts the connections of a MODE E transfer for as long as it lasts, and detects that no more
//! data can come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::eblock::{BlockError, BlockFlags, BlockHeader, HEADER_LEN, check_header};
use rustix::event::{PollFd, PollFlags};

use super::extended_receive::{StreamPast, WaitingStream};
use super::pending_connections::{
    PeekResult, PendingConnection, PendingConnections, PendingDecision,
};
use super::receiver_threads::ReceiverThreads;
use crate::budget::StreamPermit;
use crate::channel::{ChannelEndpoint, SessionDataChannel};
use crate::error::DataError;
use crate::os::wake;
use crate::stream::DataStream;

/// Time for a new connection to arrive after all others have ended.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Polling interval while no reader is active, or at the limit of streams.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Accepts connections, and starts readers for those that send blocks.
pub(super) struct StreamAcceptor<'c, 'scope, 'env> {
    channel: &'c SessionDataChannel,
    readers: ReceiverThreads<'scope, 'env>,
    pending: PendingConnections<'env>,
    /// For the first connection.
    permit: Option<StreamPermit>,
    idle_since: Option<Instant>,
}

impl<'c, 'scope, 'env> StreamAcceptor<'c, 'scope, 'env> {
    pub(super) fn new(
        channel: &'c SessionDataChannel,
        readers: ReceiverThreads<'scope, 'env>,
        permit: Option<StreamPermit>,
    ) -> Self {
        Self {
            channel,
            pending: PendingConnections::new(readers.task, channel.budget().cloned(), HEADER_LEN),
            readers,
            permit,
            idle_since: None,
        }
    }

    /// Starts readers for connections that exist already.
    pub(super) fn adopt(&mut self, streams: Vec<Arc<DataStream>>) -> Result<(), DataError> {
        streams.into_iter().try_for_each(|stream| {
            let past = StreamPast {
                is_cached: true,
                ..StreamPast::default()
            };
            self.readers.start(stream, past)
        })
    }

    /// Accepts connections until the transfer is complete, must stop, or cannot continue.
    pub(super) fn run(&mut self) -> Result<(), DataError> {
        loop {
            self.readers.task.transfer.check()?;
            if self.readers.receive.is_complete() {
                return Ok(());
            }
            self.pending
                .accept_and_inspect(self.channel.endpoint(), decide_by_header)?;
            self.start_ready()?;
            self.check_sender_alive()?;
            self.wait()?;
        }
    }

    /// Waits for all readers to end.
    pub(super) fn join(self) {
        self.readers.join();
    }

    /// Starts readers for connections that have sent a block, as far as the limits allow, and asks readers to give up
    /// their turns to the others.
    fn start_ready(&mut self) -> Result<(), DataError> {
        let max = self.readers.task.settings.max_connections;
        while self.without_reader() > 0 && self.readers.receive.active_readers() < max {
            // The permit reserved at the start is used first, so that the transfer cannot starve.
            let permit = self.permit.take();
            let permit = permit.or_else(|| self.channel.further_permit().ok());
            // Active readers come first: another connection gives up its permit.
            let Some(permit) = permit.or_else(|| self.readers.receive.take_unused_permit()) else {
                break;
            };
            // New ones first: the others had a turn already.
            if self.pending.has_ready() {
                if let Some(stream) = self.pending.take_ready() {
                    let stream = Arc::new(stream.with_permit(permit));
                    self.readers.start(stream, StreamPast::default())?;
                }
            } else if let Some(WaitingStream { stream, past }) = self.readers.receive.take_waiting()
            {
                stream.set_permit(permit);
                self.readers.start(stream, past)?;
            }
        }
        self.readers.receive.ask_for_turns(self.without_reader());
        Ok(())
    }

    /// Number of connections with bytes that nobody reads.
    fn without_reader(&self) -> usize {
        self.pending.ready_count() + self.readers.receive.waiting_with_bytes()
    }

    /// Fails when no reader is active and no other connection can be expected.
    fn check_sender_alive(&mut self) -> Result<(), DataError> {
        let (task, receive) = (self.readers.task, self.readers.receive);
        if receive.active_readers() > 0 || receive.is_complete() {
            self.idle_since = None;
            return Ok(());
        }
        // A reader records its failure before it ends.
        task.transfer.check()?;
        // Before the connect timeout the sender may simply not have connected yet.
        let listening = matches!(self.channel.endpoint(), ChannelEndpoint::Passive { .. });
        let nothing_received = !receive.has_valid_header();
        if nothing_received
            && listening
            && task.transfer.begin().elapsed() < task.settings.connect_timeout
            && !self.pending.time_left().is_zero()
        {
            return Ok(());
        }
        // The sender, or one of its connections, may be slow to begin.
        if receive.has_live_parked() || !self.pending.is_empty() {
            let clock = task.transfer.clock();
            let seconds = clock.limit_seconds();
            return if clock.time_left().is_zero() {
                Err(DataError::Stalled { seconds })
            } else {
                Ok(())
            };
        }
        if nothing_received {
            // An invalid first header is a better explanation than "no connection".
            let bad = receive.take_bad_start();
            return Err(bad.unwrap_or_else(|| self.pending.no_peer()));
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        // The sender may open its next connection after the last one ended.
        if listening && since.elapsed() < GRACE_PERIOD {
            return Ok(());
        }
        Err(DataError::Block {
            peer: "the sender".to_owned(),
            source: BlockError::Truncated,
        })
    }

    fn wait(&mut self) -> Result<(), DataError> {
        let (task, receive) = (self.readers.task, self.readers.receive);
        let is_at_limit = self.without_reader() > 0;
        let waiting = match is_at_limit {
            true => Vec::new(),
            false => receive.waiting_streams(),
        };
        let mut fds = vec![
            PollFd::new(task.transfer.stop_wake(), PollFlags::IN),
            PollFd::new(&receive.acceptor_wake, PollFlags::IN),
        ];
        fds.extend(waiting.iter().map(|s| PollFd::new(&**s, PollFlags::IN)));
        self.pending.add_poll_fds(self.channel.endpoint(), &mut fds);
        // A new permit or a closed listener wakes no thread, so the wait is short when there is work
        // to start.
        let busy = receive.active_readers() > 0 && !is_at_limit;
        let timeout = if busy { GRACE_PERIOD } else { POLL_INTERVAL };
        wake::wait_any(&mut fds, timeout).map_err(|e| DataError::setup("poll(2)", e))?;
        receive.acceptor_wake.clear();
        Ok(())
    }
}

/// Decides about a connection by its first header. An error before that belongs to the connection
/// (a port scan, a wrong peer), not to the transfer.
fn decide_by_header(connection: &PendingConnection, peeked: PeekResult<'_>) -> PendingDecision {
    let bytes = match peeked {
        PeekResult::Silence => return PendingDecision::Wait,
        PeekResult::End => return PendingDecision::Closed,
        PeekResult::Broken(error) => return PendingDecision::Reject(connection.broke(error)),
        PeekResult::Bytes(bytes) => bytes,
    };
    let Ok(bytes) = <&[u8; HEADER_LEN]>::try_from(bytes) else {
        return PendingDecision::Wait;
    };
    let header = BlockHeader::decode(bytes);
    match check_header(header) {
        Err(source) => PendingDecision::Reject(DataError::Block {
            peer: connection.peer().to_string(),
            source,
        }),
        Ok(())
            if header.count == 0 && header.flags.0 & (BlockFlags::EOF | BlockFlags::EOD) == 0 =>
        {
            // An empty block shows nothing about the sender: discard it and wait for the next
            // header.
            connection.skip(&mut [0; HEADER_LEN]);
            PendingDecision::Wait
        }
        Ok(()) => PendingDecision::Accept,
    }
}
