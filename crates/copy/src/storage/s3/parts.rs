//! The parts of an object that is sent: cut from a file, or read from a source that has no offsets.

use std::collections::VecDeque;

use data::checksum::{ChecksumHasher, checksum_source};
use data::error::DataError;
use data::send::body::BodyStream;
use data::store::Source;
use data::store::memory::MemorySource;
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::ByteRange;
use proto::s3::documents::CompletedPart;

use super::checksums::base64_of_hex;

/// Bytes read in one step.
const STEP: usize = 1 << 20;

/// A part that is to be sent.
pub(super) struct NextPart {
    pub(super) number: u32,
    /// Its place in the object.
    pub(super) range: ByteRange,
    /// Its bytes, if they had to be read already.
    pub(super) bytes: Option<MemorySource>,
    /// CRC-32C, hex.
    pub(super) crc32c: Option<String>,
}

impl NextPart {
    /// The part as the end of the upload names it.
    pub(super) fn completed(&self, etag: String) -> CompletedPart {
        CompletedPart {
            number: self.number,
            etag,
            crc32c: self.crc32c.as_deref().and_then(base64_of_hex),
        }
    }
}

/// Gives the parts to the streams that send them.
pub(super) struct PartSupply<'s> {
    source: &'s dyn Source,
    /// Offset of the object's first byte in the source.
    offset: u64,
    /// Whether parts have checksums.
    has_checksums: bool,
    from: SupplyState,
}

enum SupplyState {
    /// The missing parts of a file.
    Ranges(Mutex<VecDeque<(u32, ByteRange)>>),
    /// One part after the other.
    Sequence(Mutex<SequenceState>),
}

struct SequenceState {
    /// Bytes of a part.
    part: u64,
    /// Bytes of the object, if known.
    length: Option<u64>,
    number: u32,
    at: u64,
    /// The first part, if it was read to see whether there are more.
    first: Option<Vec<u8>>,
    has_ended: bool,
}

impl<'s> PartSupply<'s> {
    pub(super) fn of_ranges(
        source: &'s dyn Source,
        offset: u64,
        has_checksums: bool,
        missing: impl IntoIterator<Item = (u32, ByteRange)>,
    ) -> Self {
        Self {
            source,
            offset,
            has_checksums,
            from: SupplyState::Ranges(Mutex::new(missing.into_iter().collect())),
        }
    }

    pub(super) fn of_sequence(
        source: &'s dyn Source,
        offset: u64,
        has_checksums: bool,
        part: u64,
        length: Option<u64>,
        first: Option<Vec<u8>>,
    ) -> Self {
        Self {
            source,
            offset,
            has_checksums,
            from: SupplyState::Sequence(Mutex::new(SequenceState {
                part,
                length,
                number: 1,
                at: 0,
                first,
                has_ended: false,
            })),
        }
    }

    /// The source of a part's bytes, and their offset in it.
    pub(super) fn bytes<'p>(&'p self, part: &'p NextPart) -> (&'p dyn Source, u64) {
        match &part.bytes {
            Some(bytes) => (bytes, 0),
            None => (self.source, self.offset.saturating_add(part.range.start)),
        }
    }

    /// The next part; `None`: there is none left.
    pub(super) fn next(&self, stream: &BodyStream<'_>) -> Result<Option<NextPart>, DataError> {
        let sequence = match &self.from {
            SupplyState::Ranges(left) => {
                let Some((number, range)) = left.lock().pop_front() else {
                    return Ok(None);
                };
                let crc32c = self
                    .has_checksums
                    .then(|| self.checksum(range, stream))
                    .transpose()?;
                return Ok(Some(NextPart {
                    number,
                    range,
                    bytes: None,
                    crc32c,
                }));
            }
            SupplyState::Sequence(sequence) => sequence,
        };
        // The others wait: the bytes come in order.
        let mut state = sequence.lock();
        if state.has_ended {
            return Ok(None);
        }
        let bytes = match state.first.take() {
            Some(first) => first,
            None => self.read_part(&mut state, stream)?,
        };
        let start = state.at;
        let end = start + bytes.len() as u64;
        state.has_ended = state
            .length
            .map_or((end - start) < state.part, |length| end >= length);
        let number = state.number;
        (state.at, state.number) = (end, number + 1);
        drop(state);
        let Some(range) = ByteRange::new(start, end) else {
            return Ok(None);
        };
        let crc32c = self.has_checksums.then(|| {
            let mut hasher = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
            hasher.update(&bytes);
            hasher.finish()
        });
        Ok(Some(NextPart {
            number,
            range,
            bytes: Some(MemorySource::new(bytes, self.source.name())),
            crc32c,
        }))
    }

    fn checksum(&self, range: ByteRange, stream: &BodyStream<'_>) -> Result<String, DataError> {
        checksum_source(
            ChecksumAlgorithm::Crc32c,
            self.source,
            self.offset.saturating_add(range.start),
            Some(range.len()),
            &mut |_| stream.check().is_ok(),
        )
    }

    fn read_part(
        &self,
        state: &mut SequenceState,
        stream: &BodyStream<'_>,
    ) -> Result<Vec<u8>, DataError> {
        let left = state.length.map_or(u64::MAX, |length| length - state.at);
        let wanted = left.min(state.part);
        let at = self.offset.saturating_add(state.at);
        let bytes = read_up_to(self.source, at, wanted, &mut || stream.check())?;
        match state.length {
            Some(length) if (bytes.len() as u64) < wanted => Err(DataError::Shrunk {
                what: self.source.name(),
                at: state.at + bytes.len() as u64,
                expected: length,
            }),
            _ => Ok(bytes),
        }
    }
}

/// Reads bytes up to the end of the source, at most `wanted`.
pub(super) fn read_up_to(
    source: &dyn Source,
    at: u64,
    wanted: u64,
    go_on: &mut dyn FnMut() -> Result<(), DataError>,
) -> Result<Vec<u8>, DataError> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    while bytes.len() < wanted {
        go_on()?;
        let done = bytes.len();
        bytes.resize(done + STEP.min(wanted - done), 0);
        let n = source
            .read_at(at.saturating_add(done as u64), &mut bytes[done..])
            .map_err(|error| DataError::Read {
                what: source.name(),
                source: error,
            })?;
        bytes.truncate(done + n);
        if n == 0 {
            break;
        }
    }
    Ok(bytes)
}
