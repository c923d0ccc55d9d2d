//! Extended block mode (MODE E): the 17-byte header and the count of end-of-data marks (EOD).
//!
//! Source: GFD.20 §3.4 and Appendix II. Header: descriptor (1 byte of flags), byte count (8),
//! offset (8), big-endian.

mod completion;
mod decoder;

pub use completion::EodCounter;
pub use decoder::{BlockDecoder, BlockEvent, check_header};

/// Length of a MODE E header, bytes.
pub const HEADER_LEN: usize = 17;

/// Most data connections of one transfer. A larger EOD count is refused.
pub const MAX_STREAMS: u64 = 4096;

/// Descriptor bits of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockFlags(pub u8);

impl BlockFlags {
    /// Legacy end of record; ignored.
    pub const EOR: u8 = 0x80;
    /// The offset field holds the number of EODs to expect.
    pub const EOF: u8 = 0x40;
    /// The data may have errors; ignored.
    pub const ERROR: u8 = 0x20;
    /// The block is a restart marker, not file data.
    pub const RESTART: u8 = 0x10;
    /// Last block on this connection for this transfer.
    pub const EOD: u8 = 0x08;
    /// The sender closes this connection after the transfer.
    pub const CLOSE: u8 = 0x04;

    /// Whether all bits of `mask` are set.
    pub const fn contains(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// One MODE E header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHeader {
    /// Descriptor bits.
    pub flags: BlockFlags,
    /// Length of the data after this header, bytes.
    pub count: u64,
    /// File offset of the data, or the EOD count when [`BlockFlags::EOF`] is set.
    pub offset: u64,
}

impl BlockHeader {
    /// Header of a block of file data.
    pub const fn data(offset: u64, count: u64) -> Self {
        Self {
            flags: BlockFlags(0),
            count,
            offset,
        }
    }

    /// Header of the EOD on one connection.
    pub const fn eod(close: bool) -> Self {
        Self {
            flags: BlockFlags(BlockFlags::EOD | if close { BlockFlags::CLOSE } else { 0 }),
            count: 0,
            offset: 0,
        }
    }

    /// Header with EOD for this connection and EOF, which announces `streams` EODs in total.
    pub const fn eof(streams: u64, close: bool) -> Self {
        // The sender announces EOF together with the EOD of its last stream.
        let close = if close { BlockFlags::CLOSE } else { 0 };
        Self {
            flags: BlockFlags(BlockFlags::EOF | BlockFlags::EOD | close),
            count: 0,
            offset: streams,
        }
    }

    /// Header with the EOF of a stripe that has had no streams of its own.
    pub const fn eof_of_nothing() -> Self {
        Self {
            flags: BlockFlags(BlockFlags::EOF),
            count: 0,
            offset: 0,
        }
    }

    /// Encodes the header.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0] = self.flags.0;
        b[1..9].copy_from_slice(&self.count.to_be_bytes());
        b[9..17].copy_from_slice(&self.offset.to_be_bytes());
        b
    }

    /// Decodes a header. Every bit pattern decodes; [`check_header`] validates it.
    pub fn decode(b: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&b[at..at + 8]);
            u64::from_be_bytes(w)
        };
        Self {
            flags: BlockFlags(b[0]),
            count: word(1),
            offset: word(9),
        }
    }
}

/// Error in the blocks of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// offset + count exceeds the largest file offset, 2^63 - 1.
    #[error("block of {count} bytes at offset {offset} exceeds the largest file offset")]
    BeyondMaxOffset {
        /// Announced offset.
        offset: u64,
        /// Announced length.
        count: u64,
    },
    /// An EOD count above [`MAX_STREAMS`].
    #[error("end-of-data count {0} is too large")]
    EodCountTooLarge(u64),
    /// The connection closed inside a block or before its EOD.
    #[error("data connection ended before its end-of-data mark")]
    Truncated,
    /// Two EOF headers announce different counts.
    #[error("two end-of-file headers announce different end-of-data counts: {0} and {1}")]
    EodCountMismatch(u64, u64),
    /// An EOF header with data. Its offset field holds the EOD count, so the offset of the data is
    /// unknown.
    #[error("end-of-file header announces {0} bytes of data")]
    EofWithData(u64),
    /// The same offset was received twice with different bytes, so the right content is unknown.
    #[error("bytes at offset {0} were received twice with different content")]
    ConflictingDuplicate(u64),
    /// The same offset was received twice, and the first bytes cannot be compared: the store cannot be
    /// read, or they are still being received on another connection.
    #[error("bytes at offset {0} were received twice and cannot be compared")]
    UnverifiableDuplicate(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_encoded_in_17_big_endian_bytes() {
        let hex = |h: BlockHeader| h.encode().map(|b| format!("{b:02x}")).concat();
        assert_eq!(
            hex(BlockHeader::data(0, 6)),
            "0000000000000000060000000000000000"
        );
        assert_eq!(
            hex(BlockHeader::eof(2, false)),
            "4800000000000000000000000000000002"
        );
        assert_eq!(
            hex(BlockHeader::eod(false)),
            "0800000000000000000000000000000000"
        );
        assert_eq!(
            hex(BlockHeader::eod(true)),
            "0c00000000000000000000000000000000"
        );
        assert_eq!(
            hex(BlockHeader::eof(1, true)),
            "4c00000000000000000000000000000001"
        );
    }
}
