//! The connections of the in-memory storage, which may break, stall, or change a byte.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use data::store::Source;
use data::store::memory::MemorySource;
use parking_lot::{Mutex, MutexGuard};

/// The connection of one transfer, which may break.
#[derive(Debug)]
pub(super) struct FaultyConnection(Mutex<FaultyConnectionState>);

#[derive(Debug)]
pub(super) struct FaultyConnectionState {
    cut_after: u64,
    pub(super) moved: u64,
    pub(super) broken: bool,
    /// Offset of a byte that changes on the way.
    pub(super) wrong: Option<u64>,
    /// Offset of the first byte that does not arrive.
    pub(super) stalls: Option<u64>,
}

impl FaultyConnection {
    /// A connection that breaks after so many bytes.
    pub(super) fn breaking_after(cut_after: u64) -> Self {
        Self(Mutex::new(FaultyConnectionState {
            cut_after,
            moved: 0,
            broken: false,
            wrong: None,
            stalls: None,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FaultyConnectionState> {
        self.0.lock()
    }

    pub(super) fn pass(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.lock();
        if state.moved >= state.cut_after {
            state.broken = true;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        state.moved += bytes as u64;
        Ok(())
    }
}

/// A file that is read over a faulty connection.
#[derive(Debug)]
pub(super) struct MemoryDownloadSource(pub(super) MemorySource, pub(super) Arc<FaultyConnection>);

impl Source for MemoryDownloadSource {
    fn name(&self) -> String {
        self.0.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let step = buf.len().min(64 << 10);
        let n = self.0.read_at(offset, &mut buf[..step])?;
        if self.1.lock().stalls.is_some_and(|at| at <= offset) {
            std::thread::sleep(Duration::from_millis(5));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let wrong = self.1.lock().wrong;
        let wrong = wrong.and_then(|at| usize::try_from(at.checked_sub(offset)?).ok());
        if let Some(byte) = wrong.and_then(|at| buf[..n].get_mut(at)) {
            *byte ^= 1;
        }
        self.1.pass(n).map(|()| n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        self.0.len()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
