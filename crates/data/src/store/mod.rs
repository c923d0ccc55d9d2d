//! Stores, which are read and written: files, pipes, memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use proto::ranges::RangeSet;

pub mod bundle;
#[cfg(test)]
mod conformance;
pub mod durability;
pub mod file;
pub mod holes;
pub mod memory;
pub mod modification_time;
pub mod naming;
pub mod root;
pub mod unwritten_pages;
pub mod write_lock;
mod writeback;

/// A store to send from.
#[allow(
    clippy::len_without_is_empty,
    reason = "the length is a system call and may be unknown; a read tells whether a source is empty"
)]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// For messages: the path, `standard input`.
    fn name(&self) -> String;
    /// Reads bytes from `offset`; returns 0 at the end. A sequential source requires ascending,
    /// gapless offsets, and returns `io::ErrorKind::InvalidInput` otherwise.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// The present size; `None` for a sequential source.
    fn len(&self) -> io::Result<Option<u64>>;
    /// A descriptor for sendfile and splice, if offsets apply to it.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Reports that these ranges will probably be read, too. A source that reads ahead may begin with them.
    fn will_read(&self, _ranges: &RangeSet) {}
    /// Reports that these ranges will not be read after all.
    fn will_not_read(&self, _ranges: &RangeSet) {}
}

/// A store to receive into.
pub trait Sink: Send + Sync + std::fmt::Debug {
    /// For messages: the path, `standard output`.
    fn name(&self) -> String;
    /// Writes all of `buf` at `offset`. A sequential sink requires ascending, gapless offsets, and
    /// returns `io::ErrorKind::InvalidInput` otherwise.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;
    /// Leaves `len` zeros at `offset` as a hole. `Ok(false)`: the sink has no holes, so that zeros are written.
    fn leave_hole(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }
    /// Called each time before bytes up to the offset `end` are written to [`Sink::fd`] directly, instead of
    /// by [`Sink::write_at`]. A sink that must prepare its first byte, or refuses bytes, does it here.
    fn begin(&self, _end: u64) -> io::Result<()> {
        Ok(())
    }
    /// A descriptor for splice: with offsets if [`Sink::is_seekable`], else in order.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// A descriptor of a file that may come to share the blocks of another (FICLONE).
    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.fd()
    }
    /// Whether offsets may come in any order.
    fn is_seekable(&self) -> bool;
    /// A reader of the written bytes, for checksums that cannot be combined: they are computed
    /// while blocks still arrive out of order. `None` if this sink cannot be read.
    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        None
    }
    /// A reader of the stored bytes, to compare them with bytes that arrive again. `None` if this
    /// sink cannot be read.
    fn open_for_comparison(&self) -> Option<Arc<dyn Source>> {
        self.open_reader()
    }
    /// Reports that `len` bytes at `offset` were written to [`Sink::fd`] directly. Early write-back
    /// counts them; its errors are those of a write.
    fn spliced(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Whether [`Sink::sync`] forces bytes to disk. Stored bytes are then safe only after it.
    fn is_durable(&self) -> bool {
        false
    }
    /// Forces all bytes stored before the call, and the file's directory entry, to disk, if the
    /// sink is [durable](Sink::is_durable). An error that was returned once is returned each time.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
