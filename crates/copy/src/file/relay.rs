//! Copies from storage to storage through this machine, where the storages cannot transfer between
//! themselves. A bounded pipe connects the fetch to the store.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use data::job::TransferControl;
use data::store::{Sink, Source};
use parking_lot::{Condvar, Mutex, MutexGuard};
use proto::printable::printable;

use crate::storage::contract::Storage;
use ftp::Failure;
use ftp::transfer::{TransferAttempt, TransferSpec};

/// Capacity of the pipe between fetch and store, bytes.
const PIPE_CAPACITY: usize = 8 << 20;
/// Longest wait of a blocked read or write before it checks whether the other side still exists.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A file at a storage.
pub(crate) struct RelayEndpoint<'e> {
    storage: &'e mut dyn Storage,
    path: &'e [u8],
}

impl<'e> RelayEndpoint<'e> {
    pub(crate) fn new(storage: &'e mut dyn Storage, path: &'e [u8]) -> Self {
        Self { storage, path }
    }
}

/// Fetches and stores at the same time. The report is that of the storing side and includes the
/// checksum of the relayed bytes.
pub(crate) async fn copy(
    from: RelayEndpoint<'_>,
    to: RelayEndpoint<'_>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, Failure> {
    let pipe = Arc::new(RelayPipe::new(printable(from.path).to_string()));
    // Bytes count once, where they are stored, so the fetch has a control block of its own.
    let fetching = Arc::new(TransferControl::new());
    let (sink, cancel_guard) = (
        RelaySink(Arc::clone(&pipe)),
        CancelFetchOnDrop(Arc::clone(&fetching)),
    );
    let fetch_spec = fetch_spec(spec);
    let fetch = async {
        let _end_guard = EndSideOnDrop(Arc::clone(&pipe), RelaySide::Fetching);
        let fetched = from
            .storage
            .fetch(from.path, Arc::new(sink), &fetch_spec, &fetching)
            .await;
        match fetched {
            Ok(_) => pipe.mark_complete(),
            // The storing side may be waiting for its storage rather than for bytes, so it is
            // cancelled explicitly.
            Err(_) => {
                pipe.close_side(RelaySide::Fetching);
                control.cancel();
            }
        }
        fetched
    };
    let store_spec = TransferSpec {
        part: None,
        ..spec.clone()
    };
    let store = async {
        let _end_guard = EndSideOnDrop(Arc::clone(&pipe), RelaySide::Storing);
        let source: Arc<dyn Source> = Arc::new(RelaySource(Arc::clone(&pipe)));
        let stored = to.storage.store(source, to.path, &store_spec, control);
        let stored = stored.await;
        if stored.is_err() {
            pipe.close_side(RelaySide::Storing);
            fetching.cancel();
        }
        stored
    };
    let (fetched, stored) = tokio::join!(fetch, store);
    // Both futures have ended, so the guard has nothing left to cancel.
    drop(cancel_guard);
    match (fetched, stored) {
        (Ok(fetched), Ok(mut stored)) => {
            stored.warnings.extend(fetched.warnings);
            stored.remarks.extend(fetched.remarks);
            Ok(stored)
        }
        // A failure on one side breaks the pipe and makes the other side fail too. The first side
        // that closed has the real reason.
        (Err(fetching), Err(storing)) => Err(match pipe.first_closed() {
            Some(RelaySide::Storing) => storing,
            _ => fetching,
        }),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

/// The parameters of the fetching side.
fn fetch_spec(spec: &TransferSpec) -> TransferSpec {
    TransferSpec {
        checksum: None,
        server_checksum: None,
        started: Arc::default(),
        stored_ranges: Arc::default(),
        // The source's confirmation says nothing about what is stored.
        confirmation: Arc::default(),
        // The rate limit applies once, where the bytes leave this machine.
        options: data::options::TransferOptions {
            rate: None,
            ..spec.options.clone()
        },
        ..spec.clone()
    }
}

/// Stops the fetching threads when the relay is dropped.
struct CancelFetchOnDrop(Arc<TransferControl>);

impl Drop for CancelFetchOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One side of the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelaySide {
    Fetching,
    Storing,
}

/// Closes one side of the pipe when it is dropped.
struct EndSideOnDrop(Arc<RelayPipe>, RelaySide);

impl Drop for EndSideOnDrop {
    fn drop(&mut self) {
        self.0.close_side(self.1);
    }
}

/// A bounded pipe between two threads.
#[derive(Debug)]
struct RelayPipe {
    name: String,
    state: Mutex<RelayPipeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RelayPipeState {
    bytes: VecDeque<u8>,
    /// Offsets of the next byte to write and the next byte to read.
    written: u64,
    read: u64,
    /// All bytes have been written.
    is_complete: bool,
    /// The side that closed first, before all bytes were written.
    closed_by: Option<RelaySide>,
}

impl RelayPipe {
    fn new(name: String) -> Self {
        Self {
            name,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn wait(&self, state: &mut MutexGuard<'_, RelayPipeState>) {
        self.changed.wait_for(state, PEER_CHECK_INTERVAL);
    }

    fn mark_complete(&self) {
        self.state.lock().is_complete = true;
        self.changed.notify_all();
    }

    fn close_side(&self, side: RelaySide) {
        let mut state = self.state.lock();
        if !state.is_complete {
            state.closed_by.get_or_insert(side);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn first_closed(&self) -> Option<RelaySide> {
        self.state.lock().closed_by
    }
}

fn out_of_order(offset: u64, expected: u64) -> io::Error {
    let message = format!("the relay is sequential: got offset {offset}, expected {expected}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The writing end of the pipe.
#[derive(Debug)]
struct RelaySink(Arc<RelayPipe>);

impl Sink for RelaySink {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn write_at(&self, offset: u64, mut buf: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if offset != state.written {
            return Err(out_of_order(offset, state.written));
        }
        while !buf.is_empty() {
            // EPIPE, as for a pipe whose reader is gone (pipe(7)).
            if state.closed_by.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let free = PIPE_CAPACITY
                .saturating_sub(state.bytes.len())
                .min(buf.len());
            if free == 0 {
                self.0.wait(&mut state);
                continue;
            }
            state.bytes.extend(&buf[..free]);
            state.written += free as u64;
            buf = &buf[free..];
            self.0.changed.notify_all();
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        false
    }
}

/// The reading end of the pipe.
#[derive(Debug)]
struct RelaySource(Arc<RelayPipe>);

impl Source for RelaySource {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        if offset != state.read {
            return Err(out_of_order(offset, state.read));
        }
        loop {
            if !state.bytes.is_empty() {
                let n = state.bytes.len().min(buf.len());
                let (first, second) = state.bytes.as_slices();
                let of_first = first.len().min(n);
                buf[..of_first].copy_from_slice(&first[..of_first]);
                buf[of_first..n].copy_from_slice(&second[..n - of_first]);
                state.bytes.drain(..n);
                state.read += n as u64;
                self.0.changed.notify_all();
                return Ok(n);
            }
            if state.is_complete {
                return Ok(0);
            }
            if state.closed_by.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.0.wait(&mut state);
        }
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
