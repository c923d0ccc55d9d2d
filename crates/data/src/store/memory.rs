//! Bytes in memory: listings to send and to receive, and tests.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Sink, Source};

/// Bytes to send.
#[derive(Debug, Clone)]
pub struct MemorySource {
    name: String,
    bytes: Arc<[u8]>,
}

impl MemorySource {
    /// Sends `bytes`. `name` is for messages.
    pub fn new(bytes: impl Into<Arc<[u8]>>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
        }
    }
}

impl Source for MemorySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let n = buf.len().min(self.bytes.len() - from);
        buf[..n].copy_from_slice(&self.bytes[from..from + n]);
        Ok(n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.bytes.len() as u64))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Collects received bytes up to a limit. Gaps read as zeros.
#[derive(Debug, Clone)]
pub struct MemorySink {
    name: String,
    limit: usize,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl MemorySink {
    /// Accepts bytes at offsets below `limit`. A write beyond it fails with
    /// `io::ErrorKind::FileTooLarge`.
    pub fn new(limit: usize, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            limit,
            bytes: Arc::default(),
        }
    }

    /// A copy of the bytes so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// Takes the bytes so far. The sink is empty afterwards.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock())
    }
}

impl Sink for MemorySink {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = from
            .checked_add(buf.len())
            .filter(|end| *end <= self.limit)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        // Growing on demand: the limit may be far above the size of a listing.
        let mut bytes = self.bytes.lock();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[from..end].copy_from_slice(buf);
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        Some(Arc::new(MemorySinkView(self.clone())))
    }
}

/// Reads a sink's present bytes.
#[derive(Debug)]
struct MemorySinkView(MemorySink);

impl Source for MemorySinkView {
    fn name(&self) -> String {
        self.0.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.bytes.lock();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.0.bytes.lock().len() as u64))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::{check_random_sink, check_source};

    #[test]
    fn memory_conforms_as_source() {
        check_source(|bytes| Arc::new(MemorySource::new(bytes, "m")), true);
    }

    #[test]
    fn memory_conforms_as_sink() {
        check_random_sink(&MemorySink::new(1 << 20, "m"));
    }

    #[test]
    fn the_limit_holds_at_any_offset() {
        let sink = MemorySink::new(10, "m");
        sink.write_at(8, b"ab").unwrap();
        for offset in [9, 10, u64::MAX] {
            let error = sink.write_at(offset, b"cd").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        }
        assert_eq!(sink.take(), b"\0\0\0\0\0\0\0\0ab");
        assert!(sink.bytes().is_empty());
    }
}
