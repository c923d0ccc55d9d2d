//! The reader threads of a MODE E transfer, one for each connection.

use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use super::ReceiveTask;
use super::block_reader::{BlockReader, StreamEnd};
use super::extended_receive::ExtendedReceive;
use crate::error::DataError;
use crate::stream::DataStream;
use crate::stream_io::StreamIo;

/// The reader threads of one transfer.
pub(super) struct ReceiverThreads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    pub(super) task: &'env ReceiveTask<'env>,
    pub(super) gathering: &'env ExtendedReceive,
    readers: Vec<ScopedJoinHandle<'scope, ()>>,
    started: usize,
}

impl<'scope, 'env> ReceiverThreads<'scope, 'env> {
    /// No reader yet; those that start are threads of `scope`.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        task: &'env ReceiveTask<'env>,
        gathering: &'env ExtendedReceive,
    ) -> Self {
        Self {
            scope,
            task,
            gathering,
            readers: Vec::new(),
            started: 0,
        }
    }

    /// Starts reading a connection.
    pub(super) fn start(&mut self, stream: Arc<DataStream>, cached: bool) -> Result<(), DataError> {
        self.reap();
        let (task, gathering) = (self.task, self.gathering);
        let at_work = gathering.start_reader();
        let wire = StreamIo::new(task.transfer, stream);
        let reader = std::thread::Builder::new()
            .name(format!("recv-{}", self.started))
            .spawn_scoped(self.scope, move || {
                let _at_work = at_work;
                read_one(wire, task, gathering, cached);
            })
            .map_err(|e| DataError::setup("a stream thread", e))?;
        self.started += 1;
        self.readers.push(reader);
        Ok(())
    }

    /// Lets go of readers that have ended; their stacks would stay otherwise, and connections may come
    /// and go for as long as the transfer lasts.
    fn reap(&mut self) {
        let readers = std::mem::take(&mut self.readers);
        let (ended, running) = readers.into_iter().partition(ScopedJoinHandle::is_finished);
        self.readers = running;
        self.await_all(ended);
    }

    pub(super) fn join(mut self) {
        let readers = std::mem::take(&mut self.readers);
        self.await_all(readers);
    }

    fn await_all(&self, readers: Vec<ScopedJoinHandle<'_, ()>>) {
        for reader in readers {
            // A reader that panicked has sent its message; its transfer is not whole.
            if reader.join().is_err() {
                self.task.transfer.fail(DataError::Aborted);
            }
        }
    }
}

fn read_one(
    mut wire: StreamIo<'_>,
    task: &ReceiveTask<'_>,
    gathering: &ExtendedReceive,
    cached: bool,
) {
    let stream = Arc::clone(wire.stream());
    let end = match wire.handshake() {
        Ok(()) => BlockReader::new(wire, task, gathering).run(),
        Err(error) => BlockReader::end_unused(error, gathering),
    };
    match end {
        Ok(StreamEnd::Eod { close: false }) => gathering.park(stream),
        Ok(StreamEnd::Idle { carried }) if carried || cached => gathering.park(stream),
        Ok(_) => {}
        Err(error) => task.transfer.fail(error),
    }
}
