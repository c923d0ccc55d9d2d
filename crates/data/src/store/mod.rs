//! Stores, which are read and written: files, pipes, memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[cfg(test)]
mod conformance;
pub mod durability;
pub mod file;
pub mod memory;
pub mod root;
pub mod unwritten_pages;
pub mod write_lock;
mod writeback;

/// Something to send.
#[allow(
    clippy::len_without_is_empty,
    reason = "the length is asked of the system and may be unknown; emptiness is seen by reading"
)]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// For messages: the path, `standard input`.
    fn name(&self) -> String;
    /// Bytes from `offset`; 0 at the end. A sequential source requires ascending, gapless offsets
    /// and gives `io::ErrorKind::InvalidInput` otherwise.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Size now; `None` for a sequential source.
    fn len(&self) -> io::Result<Option<u64>>;
    /// A descriptor for sendfile and splice, if offsets apply to it.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Somewhere to store.
pub trait Sink: Send + Sync + std::fmt::Debug {
    /// For messages: the path, `standard output`.
    fn name(&self) -> String;
    /// Writes all of `buf` at `offset`. A sequential sink requires ascending, gapless offsets and
    /// gives `io::ErrorKind::InvalidInput` otherwise.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;
    /// Called before bytes that have come are put into [`Sink::fd`] past [`Sink::write_at`], each
    /// time: a sink that has something to do before its first byte does it here.
    fn begin(&self) -> io::Result<()> {
        Ok(())
    }
    /// A descriptor for splice: with offsets if [`Sink::is_seekable`], else in order.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Whether offsets may come in any order.
    fn is_seekable(&self) -> bool;
    /// The written bytes, readable again: checksums that cannot be combined are then made while
    /// blocks still arrive out of order. `None` if this sink cannot be read.
    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        None
    }
    /// The stored bytes, to be compared with those that come again. `None` if this sink cannot be read.
    fn open_for_comparison(&self) -> Option<Arc<dyn Source>> {
        self.open_reader()
    }
    /// `len` bytes at `offset` came through [`Sink::fd`]. Early write-back counts them; its errors are
    /// those of a write.
    fn spliced(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Whether [`Sink::sync`] forces bytes to disk: what was stored is then safe only after it.
    fn is_durable(&self) -> bool {
        false
    }
    /// All bytes stored before the call, and the file's entry in its directory, are on disk when this
    /// returns, if the sink is [durable](Sink::durable). An error that was told once is told each time.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
