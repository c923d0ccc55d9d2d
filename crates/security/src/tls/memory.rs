//! The wire of a TLS connection, in memory.

use std::io::{self, Read, Write};

/// Least space for received bytes: a record of 16 KiB and its frame take two reads at most.
const MIN_SPACE: usize = 16 << 10;

/// Most space for received bytes. Larger reads are no faster: a record is decrypted from the cache
/// of the processor, and this much fits there.
const MAX_SPACE: usize = 256 << 10;

/// Buffers up to this size are freed when they are empty, so that an idle connection keeps none.
const KEPT_SPACE: usize = 32 << 10;

/// Received bytes that wait for OpenSSL, and OpenSSL's bytes that wait to be sent. Both grow with
/// use and shrink when they are empty.
#[derive(Default)]
pub(super) struct MemoryWire {
    incoming: Incoming,
    outgoing: Outgoing,
    /// Received bytes that OpenSSL may take; `None`: all.
    gate: Option<usize>,
    /// Nothing more is taken in or given out.
    is_dead: bool,
}

#[derive(Default)]
struct Incoming {
    /// All of it is initialised; received bytes are at `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Space of the next read, between the least and the most.
    space: usize,
}

#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    /// Most bytes that waited since the buffer was last empty.
    peak: usize,
}

impl MemoryWire {
    /// Takes received bytes.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if self.is_dead {
            return;
        }
        let incoming = &mut self.incoming;
        incoming.make_room(bytes.len());
        incoming.buffer[incoming.end..incoming.end + bytes.len()].copy_from_slice(bytes);
        incoming.end += bytes.len();
    }

    /// Takes received bytes without a copy; see [`super::TlsEngine::receive_with`].
    pub(super) fn receive_with<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let incoming = &mut self.incoming;
        let space = incoming.space.clamp(MIN_SPACE, MAX_SPACE);
        incoming.make_room(space);
        let result = read(&mut incoming.buffer[incoming.end..incoming.end + space]);
        let count = result.as_ref().map_or(0, |&count| count.min(space));
        if self.is_dead {
            incoming.discard();
            return result;
        }
        incoming.end += count;
        incoming.space = match count {
            count if count == space => (space * 2).min(MAX_SPACE),
            count if count < space / 8 => (space / 2).max(MIN_SPACE),
            _ => space,
        };
        incoming.shrink();
        result
    }

    /// Received bytes that OpenSSL has not taken.
    pub(super) fn unprocessed(&self) -> &[u8] {
        &self.incoming.buffer[self.incoming.start..self.incoming.end]
    }

    /// Lets OpenSSL take so many of the received bytes and no more; `None`: all.
    pub(super) fn set_gate(&mut self, gate: Option<usize>) {
        self.gate = gate;
    }

    /// Takes the bytes that OpenSSL has not taken.
    pub(super) fn take_unprocessed(&mut self) -> Vec<u8> {
        let bytes = self.unprocessed().to_vec();
        self.incoming.discard();
        bytes
    }

    /// Bytes to send.
    pub(super) fn outgoing(&self) -> &[u8] {
        &self.outgoing.buffer[self.outgoing.start..]
    }

    /// Removes sent bytes.
    pub(super) fn mark_sent(&mut self, count: usize) {
        let outgoing = &mut self.outgoing;
        outgoing.start = (outgoing.start + count).min(outgoing.buffer.len());
        if outgoing.start == outgoing.buffer.len() {
            outgoing.clear();
        }
    }

    /// Makes room for so many bytes to send, so that they are not moved while they are made.
    pub(super) fn reserve_outgoing(&mut self, count: usize) {
        self.outgoing.compact();
        self.outgoing.buffer.reserve(count);
    }

    /// Drops the bytes to send: the peer must not see them.
    pub(super) fn discard_outgoing(&mut self) {
        self.outgoing = Outgoing::default();
    }

    /// Drops received bytes now and later: the connection has failed.
    pub(super) fn kill(&mut self) {
        self.is_dead = true;
        self.incoming = Incoming::default();
    }

    /// Memory that is held, bytes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.incoming.buffer.capacity() + self.outgoing.buffer.capacity()
    }
}

impl Incoming {
    fn make_room(&mut self, count: usize) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end >= count {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() - self.end < count {
            self.buffer.resize(self.end + count, 0);
        }
    }

    /// Frees what an idle connection does not need.
    fn shrink(&mut self) {
        if self.start < self.end {
            return;
        }
        let target = self.space.clamp(MIN_SPACE, MAX_SPACE);
        if self.buffer.len() <= KEPT_SPACE || self.buffer.len() > 2 * target {
            self.discard();
        }
    }

    fn discard(&mut self) {
        self.buffer = Vec::new();
        self.start = 0;
        self.end = 0;
    }
}

impl Outgoing {
    /// Everything is sent. A buffer that is small, or was mostly unused, is freed.
    fn clear(&mut self) {
        self.start = 0;
        let capacity = self.buffer.capacity();
        if capacity <= KEPT_SPACE || self.peak < capacity / 4 {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        self.peak = 0;
    }

    /// Moves the waiting bytes to the front when that is cheaper than to keep the sent ones.
    fn compact(&mut self) {
        if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

impl Read for MemoryWire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let waiting = self.unprocessed();
        let allowed = self.gate.unwrap_or(waiting.len()).min(waiting.len());
        if allowed == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = allowed.min(into.len());
        into[..count].copy_from_slice(&waiting[..count]);
        self.incoming.start += count;
        self.gate = self.gate.map(|gate| gate - count);
        self.incoming.shrink();
        Ok(count)
    }
}

impl Write for MemoryWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outgoing = &mut self.outgoing;
        outgoing.compact();
        outgoing.buffer.extend_from_slice(bytes);
        outgoing.peak = outgoing.peak.max(outgoing.buffer.len() - outgoing.start);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
