use proptest::collection::vec;
use proptest::prelude::*;
use proto::eblock::{BlockDecoder, BlockError, BlockEvent, BlockFlags, BlockHeader, HEADER_LEN};

use crate::split::pieces;

/// One block: flags, offset, and its data.
#[derive(Debug, Clone)]
struct TestBlock {
    flags: u8,
    offset: u64,
    data: Vec<u8>,
}

fn block() -> impl Strategy<Value = TestBlock> {
    let flags = prop_oneof![
        6 => Just(0),
        1 => Just(BlockFlags::EOR),
        1 => Just(BlockFlags::RESTART),
        1 => Just(BlockFlags::EOF),
        1 => Just(BlockFlags::EOD),
        1 => Just(BlockFlags::EOD | BlockFlags::CLOSE),
        1 => Just(BlockFlags::EOD | BlockFlags::EOF),
    ];
    (flags, 0..4000u64, vec(any::<u8>(), 0..40)).prop_map(|(flags, offset, mut data)| {
        if flags & BlockFlags::EOF != 0 {
            data.clear();
        }
        TestBlock {
            flags,
            offset,
            data,
        }
    })
}

fn wire(blocks: &[TestBlock]) -> Vec<u8> {
    let mut wire = Vec::new();
    for b in blocks {
        let header = BlockHeader {
            flags: BlockFlags(b.flags),
            count: b.data.len() as u64,
            offset: b.offset,
        };
        wire.extend(header.encode());
        wire.extend(&b.data);
    }
    wire
}

/// Output of a decoder, with one item per byte of data, so that it does not depend on splits.
#[derive(Debug, Clone, PartialEq)]
enum DecodedItem {
    Byte(u64, u8),
    Skipped(u8),
    Eof(u64),
    Eod(bool),
}

/// Expected output for the blocks.
fn model(blocks: &[TestBlock]) -> Vec<DecodedItem> {
    let mut items = Vec::new();
    for b in blocks {
        if b.flags & BlockFlags::EOF != 0 {
            items.push(DecodedItem::Eof(b.offset));
        }
        for (offset, byte) in (b.offset..).zip(&b.data) {
            items.push(if b.flags & BlockFlags::RESTART != 0 {
                DecodedItem::Skipped(*byte)
            } else {
                DecodedItem::Byte(offset, *byte)
            });
        }
        if b.flags & BlockFlags::EOD != 0 {
            items.push(DecodedItem::Eod(b.flags & BlockFlags::CLOSE != 0));
            break;
        }
    }
    items
}

fn record(event: BlockEvent, bytes: &[u8], items: &mut Vec<DecodedItem>) {
    match event {
        BlockEvent::Data { offset, len } => {
            assert_eq!(len, bytes.len());
            items.extend(
                (offset..)
                    .zip(bytes)
                    .map(|(at, b)| DecodedItem::Byte(at, *b)),
            );
        }
        BlockEvent::Skip { len } => {
            assert_eq!(len, bytes.len());
            items.extend(bytes.iter().map(|b| DecodedItem::Skipped(*b)));
        }
        BlockEvent::Eof { streams } => items.push(DecodedItem::Eof(streams)),
        BlockEvent::Eod { close } => items.push(DecodedItem::Eod(close)),
    }
}

/// Feeds the pieces; the payload of an event is the tail of what the call consumed.
fn decode(pieces: &[&[u8]]) -> Result<Vec<DecodedItem>, BlockError> {
    let mut decoder = BlockDecoder::new();
    let mut items = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let (used, event) = decoder.decode(rest)?;
            let consumed = &rest[..used];
            rest = &rest[used..];
            match event {
                Some(event) => {
                    let len = match event {
                        BlockEvent::Data { len, .. } | BlockEvent::Skip { len } => len,
                        _ => 0,
                    };
                    record(event, &consumed[used - len..], &mut items);
                }
                None => break,
            }
        }
    }
    Ok(items)
}

/// Decodes only the headers and moves the payload itself, as a caller with splice(2) does.
fn splice(wire: &[u8]) -> Result<Vec<DecodedItem>, BlockError> {
    let mut decoder = BlockDecoder::new();
    let mut items = Vec::new();
    let mut at = 0;
    loop {
        while decoder.payload_left() > 0 {
            let Some(byte) = wire.get(at) else {
                return Ok(items);
            };
            items.push(if decoder.is_payload_data() {
                DecodedItem::Byte(decoder.payload_offset(), *byte)
            } else {
                DecodedItem::Skipped(*byte)
            });
            decoder.skip_payload(1);
            at += 1;
        }
        let end = wire.len().min(at + decoder.header_left());
        let header = &wire[at..end];
        at = end;
        let (used, event) = decoder.decode(header)?;
        assert_eq!(used, header.len(), "asked for more than it takes");
        match event {
            Some(event) => record(event, &[], &mut items),
            None if header.is_empty() && decoder.payload_left() == 0 => return Ok(items),
            None => {}
        }
        if matches!(event, Some(BlockEvent::Eod { .. })) {
            return Ok(items);
        }
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events(
        blocks in vec(block(), 0..12),
        cuts in vec(0..30usize, 0..40),
    ) {
        let wire = wire(&blocks);
        prop_assert_eq!(decode(&pieces(&wire, &cuts)), Ok(model(&blocks)));
    }

    #[test]
    fn skipping_the_payload_gives_the_same_events(blocks in vec(block(), 0..12)) {
        prop_assert_eq!(splice(&wire(&blocks)), Ok(model(&blocks)));
    }

    #[test]
    fn encoded_headers_are_decoded_back(flags: u8, count: u64, offset: u64) {
        let header = BlockHeader { flags: BlockFlags(flags), count, offset };
        prop_assert_eq!(BlockHeader::decode(&header.encode()), header);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), zeros in 0..HEADER_LEN) {
        let quiet = [vec![0; zeros], bytes.clone()].concat();
        let _ = decode(&[&quiet]);
        let _ = decode(&[&bytes]);
        let _ = splice(&bytes);
    }
}
