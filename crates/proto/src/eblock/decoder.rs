//! Decoder of the MODE E byte stream of one connection.

use super::{BlockError, BlockFlags, BlockHeader, HEADER_LEN, MAX_STREAMS};

/// Event in the byte stream of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEvent {
    /// File data: the last `len` bytes of the consumed input belong at `offset`.
    Data {
        /// File offset.
        offset: u64,
        /// Number of bytes.
        len: usize,
    },
    /// Payload of a restart-marker block, which is discarded.
    Skip {
        /// Number of bytes.
        len: usize,
    },
    /// An EOF header: the transfer ends after so many EODs.
    Eof {
        /// Number of EODs to expect.
        streams: u64,
    },
    /// EOD: the connection has no more data for this transfer.
    Eod {
        /// The sender will close the connection, so it cannot be reused.
        close: bool,
    },
}

/// Decoder of the byte stream of one connection, for one transfer. The input may be split anywhere.
#[derive(Debug, Clone, Default)]
pub struct BlockDecoder {
    header: [u8; HEADER_LEN],
    header_filled: usize,
    payload: BlockPayload,
    eod_state: EodState,
}

/// Remaining payload of the current block.
#[derive(Debug, Clone, Copy, Default)]
struct BlockPayload {
    left: u64,
    offset: u64,
    /// The payload is a restart marker, not file data.
    skip: bool,
}

/// State of the EOD of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EodState {
    /// No header with EOD has arrived.
    #[default]
    NotReached,
    /// The current block has the EOD flag.
    Announced { close: bool },
    /// [`BlockEvent::Eod`] was returned.
    Reached,
}

impl BlockDecoder {
    /// Decoder for the start of a transfer on a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the start of `input`. Returns the number of consumed bytes and the event; `None` means
    /// that all input was consumed and more is needed. Call again with the rest until it is empty *and*
    /// the last event was `None`, since an event may follow the last byte. After [`BlockEvent::Eod`] no
    /// input is consumed: the following bytes belong to the next transfer and its own decoder.
    ///
    /// # Errors
    /// An invalid header. The block boundaries are lost then, and the connection must be closed.
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, Option<BlockEvent>), BlockError> {
        let mut used = 0;
        // A header of an empty block is no event, and a peer may send any number of those in a row:
        // a loop instead of recursion keeps the stack bounded.
        loop {
            let rest = &input[used..];
            if self.payload.left > 0 {
                let (n, event) = self.take_payload(rest);
                return Ok((used + n, event));
            }
            // EOD of a block with data is reported only here, after its payload.
            match self.eod_state {
                EodState::NotReached => {}
                EodState::Announced { close } => {
                    self.eod_state = EodState::Reached;
                    return Ok((used, Some(BlockEvent::Eod { close })));
                }
                EodState::Reached => return Ok((used, None)),
            }
            // A header may be split across reads, so it is collected.
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

    /// Remaining bytes of payload before the next header. The caller may move them without the decoder
    /// and report this by [`Self::skip_payload`]: to [`Self::payload_offset`] if they are file data
    /// ([`Self::is_payload_data`]), otherwise to nowhere.
    pub fn payload_left(&self) -> u64 {
        self.payload.left
    }

    /// Whether the remaining payload is file data and not a restart marker.
    pub fn is_payload_data(&self) -> bool {
        !self.payload.skip
    }

    /// Missing bytes of the current header. 0 inside a payload, and when [`Self::decode`] can return an
    /// event without input.
    pub fn header_left(&self) -> usize {
        match self.eod_state {
            // After EOD nothing may be read: the next bytes belong to the next transfer.
            EodState::NotReached if self.payload.left == 0 => HEADER_LEN - self.header_filled,
            _ => 0,
        }
    }

    /// File offset of the remaining payload; valid while `payload_left() > 0`.
    pub fn payload_offset(&self) -> u64 {
        self.payload.offset
    }

    /// Skips `n` bytes of payload that the caller has moved itself (splice(2)). `n` must not exceed
    /// `payload_left()`.
    pub fn skip_payload(&mut self, n: u64) {
        let n = n.min(self.payload.left);
        self.payload.left -= n;
        self.payload.offset += n;
    }

    /// Whether the input has ended at a block boundary: no header or block is incomplete.
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

    /// Handles a complete header; returns its event, if the header alone is one.
    fn on_header(&mut self, h: BlockHeader) -> Result<Option<BlockEvent>, BlockError> {
        check_header(h)?;
        // EOF and EOD may be in one header (GFD.20 §3.4.2): EOF is reported first, EOD by the next call.
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

/// Checks that a header is valid.
///
/// # Errors
/// The block lies beyond the largest file offset, the EOD count exceeds [`MAX_STREAMS`], or an EOF header
/// has data.
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
    // `off_t` is signed, so the kernel rejects larger offsets in pwrite(2).
    if end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(BlockError::BeyondMaxOffset {
            offset,
            count: h.count,
        });
    }
    Ok(())
}

/// File offset of the payload. The offset field of a restart marker has no meaning and is ignored.
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

    /// All events of `wire`, decoded in one piece, and the number of consumed bytes.
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
    fn data_eof_and_eod_are_decoded_in_order() {
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
    fn no_input_is_consumed_after_the_eod() {
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
    fn any_number_of_empty_blocks_is_accepted() {
        let mut wire = header(0, 0, 5).repeat(200_000);
        wire.extend(header(0x08, 0, 0));
        let (used, events) = decode(&wire).unwrap();
        assert_eq!(used, wire.len());
        assert_eq!(events, [BlockEvent::Eod { close: false }]);
    }

    #[test]
    fn restart_markers_are_distinguished_from_file_data() {
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
    fn the_eod_follows_payload_that_the_caller_skipped() {
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
    fn invalid_headers_are_refused() {
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
