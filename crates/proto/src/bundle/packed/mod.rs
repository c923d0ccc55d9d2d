//! Compressed announcements (`SITE BUNDLE PACK`).

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::{BundleEntry, parse_entries};

/// Most bytes of announcements in one line before compression. Even if they cannot be compressed, their base64 is shorter than
/// the 64 KiB that a server reads of a line.
const MAX_PACKED_BYTES: usize = 40_000;

/// The files of each compressed announcement, so that there are as few as possible.
pub(crate) fn packed_lines(entries: &[BundleEntry]) -> Vec<&[BundleEntry]> {
    let mut lines = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (index, entry) in entries.iter().enumerate() {
        let length = entry.encode().len() + 1;
        if bytes + length > MAX_PACKED_BYTES && first < index {
            lines.push(&entries[first..index]);
            (first, bytes) = (index, 0);
        }
        bytes += length;
    }
    if first < entries.len() {
        lines.push(&entries[first..]);
    }
    lines
}

/// The argument of `SITE BUNDLE PACK`.
pub(crate) fn pack(entries: &[BundleEntry]) -> String {
    let words: Vec<String> = entries.iter().map(BundleEntry::encode).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing into memory does not fail; a text that is cut would be refused.
    let _ = encoder.write_all(words.join(" ").as_bytes());
    STANDARD_NO_PAD.encode(encoder.finish().unwrap_or_default())
}

/// The files of an argument of `SITE BUNDLE PACK`. `None`: it is damaged, too long, or announces what is out of range.
pub(crate) fn unpack(argument: &[u8]) -> Option<Vec<BundleEntry>> {
    let packed = STANDARD_NO_PAD.decode(argument).ok()?;
    let mut text = Vec::new();
    // One byte more than is allowed shows that there are more.
    let limit = MAX_PACKED_BYTES as u64 + 1;
    let mut decoder = ZlibDecoder::new(packed.as_slice()).take(limit);
    decoder.read_to_end(&mut text).ok()?;
    (text.len() <= MAX_PACKED_BYTES)
        .then(|| parse_entries(&text))
        .flatten()
}

#[cfg(test)]
mod tests;
