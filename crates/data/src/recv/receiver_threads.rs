//! The reader threads of a MODE E transfer, one for each connection.

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use super::ReceiveTask;
use super::block_reader::{BlockReader, StreamEnd};
use super::extended_receive::{ExtendedReceive, StreamPast};
use crate::error::DataError;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;

/// The reader threads of one transfer.
pub(super) struct ReceiverThreads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    pub(super) task: &'env ReceiveTask<'env>,
    pub(super) receive: &'env ExtendedReceive,
    readers: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl<'scope, 'env> ReceiverThreads<'scope, 'env> {
    /// No readers yet. Readers are threads of `scope`.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        task: &'env ReceiveTask<'env>,
        receive: &'env ExtendedReceive,
    ) -> Self {
        Self {
            scope,
            task,
            receive,
            readers: Vec::new(),
            started: 0,
        }
    }

    /// Starts a reader for a connection.
    pub(super) fn start(
        &mut self,
        stream: Arc<DataStream>,
        past: StreamPast,
    ) -> Result<(), DataError> {
        self.join_finished();
        let (task, receive) = (self.task, self.receive);
        // Counted before the thread starts, so that the acceptor does not see a gap without
        // readers.
        let guard = receive.start_reader();
        let io = StreamIo::new(task.transfer, stream);
        let reader = std::thread::Builder::new()
            .name(format!("recv-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let _guard = guard;
                read_one(io, task, receive, past);
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.readers.push(reader);
        Ok(())
    }

    /// Joins readers that have ended. Their stacks would stay allocated otherwise, because
    /// connections may come and go for as long as the transfer lasts.
    fn join_finished(&mut self) {
        let readers = std::mem::take(&mut self.readers);
        let (ended, running) = readers.into_iter().partition(ScopedJoinHandle::is_finished);
        self.readers = running;
        self.join_all(ended);
    }

    pub(super) fn join(mut self) {
        let readers = std::mem::take(&mut self.readers);
        self.join_all(readers);
    }

    fn join_all(&self, readers: Vec<ScopedJoinHandle<'_, ()>>) {
        for reader in readers {
            // The panic message is already printed; the transfer is not complete.
            if reader.join().is_err() {
                self.task.transfer.fail(DataError::Aborted);
            }
        }
    }
}

fn read_one(io: StreamIo<'_>, task: &ReceiveTask<'_>, receive: &ExtendedReceive, past: StreamPast) {
    let stream = Arc::clone(io.stream());
    let end = match io.handshake() {
        Ok(()) => BlockReader::new(io, task, receive, past).run(),
        Err(error) => BlockReader::end_unused(error, receive).map(|end| (end, past)),
    };
    let (end, past) = match end {
        Ok(end) => end,
        Err(error) => return task.transfer.fail(error),
    };
    match end {
        // EOD without CLOSE: the connection may carry the next transfer (GFD.20 §3.4.3).
        StreamEnd::Eod { close: false } => receive.park(stream),
        // Closing it now would end the sender's other connections, too. Nothing more is read from it.
        StreamEnd::BeyondEnd => receive.park(stream),
        // A connection that never carried anything may be a stranger's; it is kept only if it came
        // from the cache.
        StreamEnd::Idle if past.has_carried || past.is_cached => receive.park(stream),
        StreamEnd::Turn => receive.wait_for_turn(stream, past),
        StreamEnd::Eod { close: true } | StreamEnd::ClosedUnused | StreamEnd::Idle => {}
    }
}
