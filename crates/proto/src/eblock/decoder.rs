//! One connection's byte stream to blocks.

use super::{BlockError, BlockFlags, BlockHeader, HEADER_LEN, MAX_STREAMS};

/// Meaning of the next bytes of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvent {
    /// File data follows: `len` bytes at `offset`, all within the bytes offered or still to come.
    Data {
        /// File offset.
        offset: u64,
        /// Bytes of the offered input that belong there.
        len: usize,
    },
    /// Bytes to be dropped (restart-marker blocks).
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

/// Decoder of one connection's byte stream for one transfer; takes input split anywhere.
#[derive(Debug, Clone, Default)]
pub struct BlockDecoder {
    header: [u8; HEADER_LEN],
    header_filled: usize,
    payload: BlockPayload,
    eod_state: EodState,
}

/// The payload of the block that was announced last.
#[derive(Debug, Clone, Copy, Default)]
struct BlockPayload {
    left: u64,
    offset: u64,
    /// It is a restart marker, not file data.
    skip: bool,
}

/// How far the connection is with ending the transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EodState {
    /// No EOD yet.
    #[default]
    NotReached,
    /// The block that was announced last is the last one.
    Announced { close: bool },
    /// [`BlockEvent::Eod`] was given.
    Reached,
}

impl BlockDecoder {
    /// At the start of a transfer on a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes from the front of `input`. Returns how many bytes were consumed and what they mean;
    /// `None` means that all input was consumed and more is needed. Call again with the rest until
    /// it is empty *and* the last answer was `None` (events may remain after the last byte).
    /// After [`BlockEvent::Eod`] no input is consumed: what follows belongs to the next transfer
    /// and its own decoder.
    ///
    /// # Errors
    /// A header that announces nonsense. The connection is then out of step and must be closed.
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, Option<BlockEvent>), BlockError> {
        let mut used = 0;
        // A header may be no event by itself, and a peer may send any number of those in a row.
        loop {
            let rest = &input[used..];
            if self.payload.left > 0 {
                let (n, event) = self.take_payload(rest);
                return Ok((used + n, event));
            }
            match self.eod_state {
                EodState::NotReached => {}
                EodState::Announced { close } => {
                    self.eod_state = EodState::Reached;
                    return Ok((used, Some(BlockEvent::Eod { close })));
                }
                EodState::Reached => return Ok((used, None)),
            }
            let n = rest.len().min(HEADER_LEN - self.header_filled);
            self.header[self.header_filled..self.header_filled + n].copy_from_slice(&rest[..n]);
            self.header_filled += n;
            used += n;
            if self.header_filled < HEADER_LEN {
                return Ok((used, None));
            }
            self.header_filled = 0;
            if let Some(event) = self.on_header(BlockHeader::decode(&self.header))? {
                return Ok((used, Some(event)));
            }
        }
    }

    /// Bytes of payload that must follow before the next header. An edge may move them itself
    /// ([`Self::skip_payload`]): to [`Self::payload_offset`] if they are file data, nowhere otherwise.
    pub fn payload_left(&self) -> u64 {
        self.payload.left
    }

    /// Whether the payload is file data, and no restart marker that is to be dropped.
    pub fn is_payload_data(&self) -> bool {
        !self.payload.skip
    }

    /// Bytes of header still missing before the next event can be known. 0 inside a payload, and
    /// when [`Self::decode`] has an event to give without any input.
    pub fn header_left(&self) -> usize {
        match self.eod_state {
            EodState::NotReached if self.payload.left == 0 => HEADER_LEN - self.header_filled,
            _ => 0,
        }
    }

    /// Where the pending payload belongs in the file (meaningful while `payload_left() > 0`).
    pub fn payload_offset(&self) -> u64 {
        self.payload.offset
    }

    /// The edge moved `n` payload bytes itself (splice). `n` must not exceed `payload_left()`.
    pub fn skip_payload(&mut self, n: u64) {
        let n = n.min(self.payload.left);
        self.payload.left -= n;
        self.payload.offset += n;
    }

    /// Whether the stream may end here without loss: nothing pending of a header or block.
    pub fn is_at_boundary(&self) -> bool {
        self.payload.left == 0 && self.header_filled == 0
    }

    fn take_payload(&mut self, input: &[u8]) -> (usize, Option<BlockEvent>) {
        let len = usize::try_from(self.payload.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        if len == 0 {
            return (0, None);
        }
        let event = if self.payload.skip {
            BlockEvent::Skip { len }
        } else {
            BlockEvent::Data {
                offset: self.payload.offset,
                len,
            }
        };
        self.skip_payload(len as u64);
        (len, Some(event))
    }

    /// Notes what a complete header announces; returns an event if it carries one by itself.
    fn on_header(&mut self, h: BlockHeader) -> Result<Option<BlockEvent>, BlockError> {
        check_header(h)?;
        let event = if h.flags.contains(BlockFlags::EOF) {
            Some(BlockEvent::Eof { streams: h.offset })
        } else {
            self.payload = announced_payload(h);
            None
        };
        if h.flags.contains(BlockFlags::EOD) {
            let close = h.flags.contains(BlockFlags::CLOSE);
            self.eod_state = EodState::Announced { close };
        }
        Ok(event)
    }
}

/// Whether a header can be one of a transfer.
///
/// # Errors
/// It announces nonsense: a block beyond any file, an absurd end-of-data count, or an end of file
/// with data.
pub fn check_header(h: BlockHeader) -> Result<(), BlockError> {
    if h.flags.contains(BlockFlags::EOF) {
        return match (h.count, h.offset) {
            (1.., _) => Err(BlockError::EofWithData(h.count)),
            (0, streams) if streams > MAX_STREAMS => Err(BlockError::EodCountTooLarge(streams)),
            (0, _) => Ok(()),
        };
    }
    let offset = payload_offset(h);
    let end = offset.checked_add(h.count);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(BlockError::BeyondMaxOffset {
            offset,
            count: h.count,
        });
    }
    Ok(())
}

/// The offset of a restart marker means nothing and is not looked at.
fn payload_offset(h: BlockHeader) -> u64 {
    if h.flags.contains(BlockFlags::RESTART) {
        0
    } else {
        h.offset
    }
}

fn announced_payload(h: BlockHeader) -> BlockPayload {
    BlockPayload {
        left: h.count,
        offset: payload_offset(h),
        skip: h.flags.contains(BlockFlags::RESTART),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, count: u64, offset: u64) -> Vec<u8> {
        let flags = BlockFlags(flags);
        BlockHeader {
            flags,
            count,
            offset,
        }
        .encode()
        .to_vec()
    }

    /// All events of `wire` in one piece, and how many bytes were consumed.
    fn decode(wire: &[u8]) -> Result<(usize, Vec<BlockEvent>), BlockError> {
        let mut decoder = BlockDecoder::new();
        let (mut at, mut events) = (0, Vec::new());
        loop {
            let (n, event) = decoder.decode(&wire[at..])?;
            at += n;
            match event {
                Some(event) => events.push(event),
                None => return Ok((at, events)),
            }
        }
    }

    #[test]
    fn data_then_end_of_transfer() {
        let wire = [header(0, 3, 7), b"abc".to_vec(), header(0x48, 0, 2)].concat();
        let (_, events) = decode(&wire).unwrap();
        assert_eq!(
            events,
            [
                BlockEvent::Data { offset: 7, len: 3 },
                BlockEvent::Eof { streams: 2 },
                BlockEvent::Eod { close: false },
            ]
        );
    }

    #[test]
    fn an_eod_on_a_block_with_data_comes_after_the_data() {
        let wire = [header(0x0c, 3, 7), b"abc".to_vec()].concat();
        assert_eq!(
            decode(&wire).unwrap().1,
            [
                BlockEvent::Data { offset: 7, len: 3 },
                BlockEvent::Eod { close: true },
            ]
        );
    }

    #[test]
    fn nothing_is_taken_after_the_eod() {
        let wire = [header(0x08, 0, 0), header(0, 3, 0)].concat();
        let (used, events) = decode(&wire).unwrap();
        assert_eq!((used, events.len()), (HEADER_LEN, 1));
    }

    #[test]
    fn eof_may_come_alone_and_before_data() {
        let wire = [header(0x40, 0, 0), header(0, 1, 0), b"x".to_vec()].concat();
        assert_eq!(
            decode(&wire).unwrap().1,
            [
                BlockEvent::Eof { streams: 0 },
                BlockEvent::Data { offset: 0, len: 1 },
            ]
        );
    }

    #[test]
    fn any_number_of_empty_blocks_is_taken() {
        let mut wire = header(0, 0, 5).repeat(200_000);
        wire.extend(header(0x08, 0, 0));
        let (used, events) = decode(&wire).unwrap();
        assert_eq!(used, wire.len());
        assert_eq!(events, [BlockEvent::Eod { close: false }]);
    }

    #[test]
    fn restart_markers_are_told_from_file_data() {
        let mut decoder = BlockDecoder::new();
        let head = header(0x10, 3, u64::MAX);
        assert_eq!(decoder.decode(&head), Ok((HEADER_LEN, None)));
        assert_eq!((decoder.payload_left(), decoder.header_left()), (3, 0));
        assert!(!decoder.is_payload_data());
        assert!(!decoder.is_at_boundary());
        assert_eq!(
            decoder.decode(b"0-1"),
            Ok((3, Some(BlockEvent::Skip { len: 3 })))
        );
        assert_eq!(decoder.header_left(), HEADER_LEN);
        assert!(decoder.is_at_boundary());
    }

    #[test]
    fn an_edge_that_splices_learns_of_the_eod() {
        let mut decoder = BlockDecoder::new();
        decoder.decode(&header(0x08, 100, 50)).unwrap();
        assert_eq!(
            (decoder.payload_left(), decoder.payload_offset()),
            (100, 50)
        );
        assert_eq!(decoder.header_left(), 0);
        assert!(decoder.is_payload_data());
        decoder.skip_payload(60);
        assert_eq!(
            (decoder.payload_left(), decoder.payload_offset()),
            (40, 110)
        );
        decoder.skip_payload(40);
        assert_eq!(decoder.header_left(), 0, "an event is due, nothing to read");
        assert_eq!(
            decoder.decode(&[]),
            Ok((0, Some(BlockEvent::Eod { close: false })))
        );
        assert_eq!(decoder.header_left(), 0);
    }

    #[test]
    fn header_left_counts_down() {
        let mut decoder = BlockDecoder::new();
        assert_eq!(decoder.header_left(), HEADER_LEN);
        decoder.decode(&[0; 5]).unwrap();
        assert_eq!(decoder.header_left(), HEADER_LEN - 5);
        assert!(!decoder.is_at_boundary());
    }

    #[test]
    fn nonsense_is_refused() {
        let max = i64::MAX as u64;
        assert!(decode(&header(0, 0, max)).is_ok());
        for (offset, count) in [(max, 1), (u64::MAX, 1), (0, u64::MAX), (1, max)] {
            assert_eq!(
                decode(&header(0, count, offset)),
                Err(BlockError::BeyondMaxOffset { offset, count })
            );
        }
        assert!(decode(&header(0x40, 0, MAX_STREAMS)).is_ok());
        let over = MAX_STREAMS + 1;
        assert_eq!(
            decode(&header(0x40, 0, over)),
            Err(BlockError::EodCountTooLarge(over))
        );
        assert_eq!(decode(&header(0x40, 5, 1)), Err(BlockError::EofWithData(5)));
    }
}
