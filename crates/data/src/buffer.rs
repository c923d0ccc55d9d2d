//! The reusable buffer of a stream thread.

/// Alignment of transfer buffers: a page, so that whole pages are copied.
const PAGE: usize = 4096;

/// Bytes that start at a page boundary. Pages are only touched, and so only cost memory, as far
/// as the buffer is used.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageBuffer {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE];
        // `align_offset` may decline to answer; the buffer is then merely not aligned.
        let start = bytes.as_ptr().align_offset(PAGE);
        let start = if start < PAGE { start } else { 0 };
        Self { bytes, start, len }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page() {
        let mut buffer = PageBuffer::new(10_000);
        assert_eq!(buffer.as_mut().len(), 10_000);
        assert_eq!(buffer.as_ref().as_ptr().addr() % PAGE, 0);
    }
}
