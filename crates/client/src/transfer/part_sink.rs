//! Stops a server that goes on past the end of the part that was asked for (REST without ERET).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data::store::Sink;

/// Takes bytes up to `end` and refuses the first write beyond it.
#[derive(Debug)]
pub(crate) struct PartSink {
    inner: Arc<dyn Sink>,
    end: u64,
    full: AtomicBool,
}

impl PartSink {
    /// `end`: file offset after the part's last byte.
    pub(super) fn new(inner: Arc<dyn Sink>, end: u64) -> Self {
        Self {
            inner,
            end,
            full: AtomicBool::new(end == 0),
        }
    }

    /// File offset after the part's last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the part's last byte was stored.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }
}

impl Sink for PartSink {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let inside = buf.len().min(room);
        if inside > 0 {
            self.inner.write_at(offset, &buf[..inside])?;
        }
        let reached = offset.saturating_add(inside as u64) >= self.end;
        self.full.fetch_or(reached, Ordering::AcqRel);
        if inside < buf.len() {
            return Err(io::Error::other("the part is complete"));
        }
        Ok(())
    }

    /// None: bytes must pass through [`Sink::write_at`] to be counted.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn seekable(&self) -> bool {
        self.inner.seekable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::store::memory::MemorySink;

    #[test]
    fn takes_the_part_and_no_more() {
        let memory = MemorySink::new(100, "m");
        let sink = PartSink::new(Arc::new(memory.clone()), 5);
        sink.write_at(0, b"abc").unwrap();
        assert!(!sink.is_full());
        assert!(sink.write_at(3, b"defgh").is_err());
        assert!(sink.is_full());
        assert_eq!(memory.bytes(), b"abcde");
    }

    #[test]
    fn a_part_that_ends_exactly_is_no_error() {
        let memory = MemorySink::new(100, "m");
        let sink = PartSink::new(Arc::new(memory), 5);
        sink.write_at(0, b"abcde").unwrap();
        assert!(sink.is_full());
    }
}
