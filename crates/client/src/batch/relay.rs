//! From one storage to another by way of this machine, where they cannot move a file between them: what one
//! brings goes through a bounded pipe to the other.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data::job::TransferControl;
use data::store::{Sink, Source};
use proto::printable::printable;

use crate::CopyFailure;
use crate::storage::contract::Storage;
use crate::transfer::{TransferAttempt, TransferSpec};

/// Bytes that may be on their way between both.
const ROOM: usize = 8 << 20;
/// How long a write or read waits at a time until it looks whether the other end is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A file at a storage.
pub(super) struct RelayEndpoint<'e> {
    storage: &'e mut dyn Storage,
    path: &'e [u8],
}

impl<'e> RelayEndpoint<'e> {
    pub(super) fn new(storage: &'e mut dyn Storage, path: &'e [u8]) -> Self {
        Self { storage, path }
    }
}

/// Fetches and stores at the same time. The report is the storing end's, with the sum of what passed.
pub(super) async fn copy(
    from: RelayEndpoint<'_>,
    to: RelayEndpoint<'_>,
    spec: &TransferSpec,
    control: &Arc<TransferControl>,
) -> Result<TransferAttempt, CopyFailure> {
    let pipe = Arc::new(RelayPipe::new(printable(from.path).to_string()));
    // The bytes count once, where they are stored.
    let fetching = Arc::new(TransferControl::new());
    let (mouth, stop) = (
        RelaySink(Arc::clone(&pipe)),
        CancelFetchOnDrop(Arc::clone(&fetching)),
    );
    let fetch_spec = TransferSpec {
        checksum: None,
        server_checksum: None,
        started: Arc::default(),
        stored_ranges: Arc::default(),
        // What the source stands by says nothing of what is stored.
        confirmation: Arc::default(),
        // One limit, kept where the bytes leave.
        options: data::options::TransferOptions {
            rate: None,
            ..spec.options.clone()
        },
        ..spec.clone()
    };
    let fetch = async {
        let _tells = EndSideOnDrop(Arc::clone(&pipe), RelaySide::Fetching);
        let fetched = from
            .storage
            .fetch(from.path, Arc::new(mouth), &fetch_spec, &fetching)
            .await;
        match fetched {
            Ok(_) => pipe.finish(),
            // The other end may wait for its storage, and not for bytes.
            Err(_) => {
                pipe.end(RelaySide::Fetching);
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
        let _tells = EndSideOnDrop(Arc::clone(&pipe), RelaySide::Storing);
        let source: Arc<dyn Source> = Arc::new(RelaySource(Arc::clone(&pipe)));
        let stored = to.storage.store(source, to.path, &store_spec, control);
        let stored = stored.await;
        if stored.is_err() {
            pipe.end(RelaySide::Storing);
            fetching.cancel();
        }
        stored
    };
    let (fetched, stored) = tokio::join!(fetch, store);
    drop(stop);
    match (fetched, stored) {
        (Ok(fetched), Ok(mut stored)) => {
            stored.warnings.extend(fetched.warnings);
            stored.remarks.extend(fetched.remarks);
            Ok(stored)
        }
        // One end that breaks takes the other with it: the reason is the one that is not the pipe's.
        (Err(fetching), Err(storing)) => Err(match pipe.first_gone() {
            Some(RelaySide::Storing) => storing,
            _ => fetching,
        }),
        (Err(failure), _) | (_, Err(failure)) => Err(failure),
    }
}

/// Stops the fetching threads when the relay is dropped.
struct CancelFetchOnDrop(Arc<TransferControl>);

impl Drop for CancelFetchOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One of the two that use the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelaySide {
    Fetching,
    Storing,
}

/// Tells the other side that this one is gone.
struct EndSideOnDrop(Arc<RelayPipe>, RelaySide);

impl Drop for EndSideOnDrop {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// Bytes in order, from one thread to another.
#[derive(Debug)]
struct RelayPipe {
    name: String,
    state: Mutex<RelayPipeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RelayPipeState {
    bytes: VecDeque<u8>,
    /// Offset of the next byte that is written, and of the next that is read.
    written: u64,
    read: u64,
    /// All has been written.
    whole: bool,
    /// The side that went first, before all was written.
    gone: Option<RelaySide>,
}

impl RelayPipe {
    fn new(name: String) -> Self {
        Self {
            name,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RelayPipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, RelayPipeState>) -> MutexGuard<'s, RelayPipeState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn finish(&self) {
        self.lock().whole = true;
        self.changed.notify_all();
    }

    fn end(&self, side: RelaySide) {
        let mut state = self.lock();
        if !state.whole {
            state.gone.get_or_insert(side);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn first_gone(&self) -> Option<RelaySide> {
        self.lock().gone
    }
}

fn out_of_order(offset: u64, due: u64) -> io::Error {
    let message = format!("the relay is sequential: offset {offset} came when {due} was due");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Where bytes go in.
#[derive(Debug)]
struct RelaySink(Arc<RelayPipe>);

impl Sink for RelaySink {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn write_at(&self, offset: u64, mut buf: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        if offset != state.written {
            return Err(out_of_order(offset, state.written));
        }
        while !buf.is_empty() {
            if state.gone.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let room = ROOM.saturating_sub(state.bytes.len()).min(buf.len());
            if room == 0 {
                state = self.0.wait(state);
                continue;
            }
            state.bytes.extend(&buf[..room]);
            state.written += room as u64;
            buf = &buf[room..];
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

/// Where they come out.
#[derive(Debug)]
struct RelaySource(Arc<RelayPipe>);

impl Source for RelaySource {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
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
            if state.whole {
                return Ok(0);
            }
            if state.gone.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state = self.0.wait(state);
        }
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
