//! Extended block mode (MODE E): the 17-byte header and the count of end-of-data marks.
//!
//! Source: GFD.20 §3.4 and Appendix II. Header: descriptor (1 byte of flags), byte count (8),
//! offset (8), big-endian.

/// Bytes of a MODE E header.
pub const HEADER_LEN: usize = 17;

/// Most data connections that one transfer may end with; an EOD count above it is refused.
pub const MAX_STREAMS: u64 = 4096;

/// Descriptor bits of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Legacy end of record; ignored.
    pub const EOR: u8 = 0x80;
    /// The offset field holds the number of EODs to expect.
    pub const EOF: u8 = 0x40;
    /// The data is suspect; ignored.
    pub const ERROR: u8 = 0x20;
    /// The block is a restart marker, not file data.
    pub const RESTART: u8 = 0x10;
    /// Last block of this connection for this transfer.
    pub const EOD: u8 = 0x08;
    /// The sender closes this connection after the transfer.
    pub const CLOSE: u8 = 0x04;

    /// Whether all bits of `mask` are set.
    pub const fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// One MODE E header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Descriptor bits.
    pub flags: Flags,
    /// Bytes of data after this header.
    pub count: u64,
    /// File offset of the first of them, or the EOD count when [`Flags::EOF`] is set.
    pub offset: u64,
}

impl Header {
    /// A block of file data.
    pub const fn data(offset: u64, count: u64) -> Self {
        Self {
            flags: Flags(0),
            count,
            offset,
        }
    }

    /// End of data on this connection.
    pub const fn eod(close: bool) -> Self {
        Self {
            flags: Flags(Flags::EOD | if close { Flags::CLOSE } else { 0 }),
            count: 0,
            offset: 0,
        }
    }

    /// End of data on this connection, and the announcement of `streams` EODs in all.
    pub const fn eof(streams: u64, close: bool) -> Self {
        let close = if close { Flags::CLOSE } else { 0 };
        Self {
            flags: Flags(Flags::EOF | Flags::EOD | close),
            count: 0,
            offset: streams,
        }
    }

    /// To wire form.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0] = self.flags.0;
        b[1..9].copy_from_slice(&self.count.to_be_bytes());
        b[9..17].copy_from_slice(&self.offset.to_be_bytes());
        b
    }

    /// From wire form; every bit pattern is a header.
    pub fn decode(b: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&b[at..at + 8]);
            u64::from_be_bytes(w)
        };
        Self {
            flags: Flags(b[0]),
            count: word(1),
            offset: word(9),
        }
    }
}

/// Why a block cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// offset + count passes the largest file offset, 2^63 - 1.
    #[error("block at {offset} of {count} bytes lies beyond any file")]
    Beyond {
        /// Announced offset.
        offset: u64,
        /// Announced length.
        count: u64,
    },
    /// An EOD count above [`MAX_STREAMS`].
    #[error("end-of-data count {0} is absurd")]
    EodCount(u64),
    /// The connection ended inside a block or before its EOD.
    #[error("data connection ended before its end-of-data mark")]
    Truncated,
    /// Two EOF headers that announce different counts.
    #[error("contradicting end-of-data counts {0} and {1}")]
    Contradiction(u64, u64),
}

/// What the next bytes of one connection mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvent {
    /// File data follows: `len` bytes at `offset`, all within the bytes offered or still to come.
    Data {
        /// File offset.
        offset: u64,
        /// Bytes of the offered input that belong there.
        len: usize,
    },
    /// Bytes to be skipped (restart-marker blocks).
    Skip {
        /// How many of the offered bytes.
        len: usize,
    },
    /// An EOF header was read: the transfer ends after this many EODs.
    Eof {
        /// EODs to expect.
        streams: u64,
    },
    /// The connection has no more data for this transfer.
    Eod {
        /// The sender will close it, so it cannot be reused.
        close: bool,
    },
}

/// Decoder of one connection's byte stream; takes input split anywhere.
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER_LEN],
    have: usize,
    left: u64,
    offset: u64,
    skip: bool,
    pending: Option<BlockEvent>,
    eod: Option<bool>,
}

impl Decoder {
    /// At the start of a transfer on a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes from the front of `input`. Returns how many bytes were consumed and what they mean;
    /// `None` means that all input was consumed and more is needed. Call again with the rest until
    /// it is empty *and* the last answer was `None` (events may remain after the last byte).
    /// After [`BlockEvent::Eod`] no input is consumed.
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, Option<BlockEvent>), BlockError> {
        if let Some(event) = self.pending.take() {
            return Ok((0, Some(event)));
        }
        if self.left > 0 {
            return Ok(self.take_payload(input));
        }
        if let Some(close) = self.eod.take() {
            self.have = 0;
            return Ok((0, Some(BlockEvent::Eod { close })));
        }
        let n = input.len().min(HEADER_LEN - self.have);
        self.header[self.have..self.have + n].copy_from_slice(&input[..n]);
        self.have += n;
        if self.have < HEADER_LEN {
            return Ok((n, None));
        }
        self.have = 0;
        let event = self.on_header(Header::decode(&self.header))?;
        match event {
            Some(e) => Ok((n, Some(e))),
            // A header announces but is no event itself: look at what follows it.
            None => self.decode(&input[n..]).map(|(m, e)| (n + m, e)),
        }
    }

    /// Bytes of payload that must follow before the next header; lets an edge splice them.
    pub fn payload_left(&self) -> u64 {
        self.left
    }

    /// Bytes of header still missing before the next event can be known (0 inside a payload).
    pub fn header_left(&self) -> usize {
        if self.left > 0 {
            0
        } else {
            HEADER_LEN - self.have
        }
    }

    /// Where the pending payload belongs in the file (meaningful while `payload_left() > 0`).
    pub fn payload_offset(&self) -> u64 {
        self.offset
    }

    /// The edge moved `n` payload bytes itself (splice). `n` must not exceed `payload_left()`.
    pub fn advance(&mut self, n: u64) {
        let n = n.min(self.left);
        self.left -= n;
        self.offset += n;
    }

    /// Whether the stream may end here without loss: nothing pending of a header or block.
    pub fn at_boundary(&self) -> bool {
        self.left == 0 && self.have == 0
    }

    fn take_payload(&mut self, input: &[u8]) -> (usize, Option<BlockEvent>) {
        let len = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        if len == 0 {
            return (0, None);
        }
        let event = if self.skip {
            BlockEvent::Skip { len }
        } else {
            BlockEvent::Data {
                offset: self.offset,
                len,
            }
        };
        self.advance(len as u64);
        (len, Some(event))
    }

    /// Notes what a complete header announces; returns an event if it carries one by itself.
    fn on_header(&mut self, h: Header) -> Result<Option<BlockEvent>, BlockError> {
        let is_eof = h.flags.has(Flags::EOF);
        let offset = if is_eof { 0 } else { h.offset };
        if offset
            .checked_add(h.count)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(BlockError::Beyond {
                offset,
                count: h.count,
            });
        }
        self.left = h.count;
        self.offset = offset;
        self.skip = h.flags.has(Flags::RESTART) || is_eof;
        if h.flags.has(Flags::EOD) {
            self.eod = Some(h.flags.has(Flags::CLOSE));
        }
        if !is_eof {
            return Ok(None);
        }
        if h.offset > MAX_STREAMS {
            return Err(BlockError::EodCount(h.offset));
        }
        Ok(Some(BlockEvent::Eof { streams: h.offset }))
    }
}

/// Counts EODs of a whole transfer until they match the EOF header's announcement.
///
/// EOF may come first, last, or alone on any connection; data after EOF is legal (GFD.20 §3.4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Completion {
    eods: u64,
    expected: Option<u64>,
}

impl Completion {
    /// One connection sent its EOD.
    pub fn on_eod(&mut self) {
        self.eods += 1;
    }

    /// An EOF header announced `streams` EODs.
    pub fn on_eof(&mut self, streams: u64) -> Result<(), BlockError> {
        match self.expected {
            Some(before) if before != streams => Err(BlockError::Contradiction(before, streams)),
            _ => {
                self.expected = Some(streams);
                Ok(())
            }
        }
    }

    /// Whether every announced EOD has arrived.
    pub fn complete(&self) -> bool {
        self.expected.is_some_and(|n| self.eods >= n)
    }
}
