//! The parts of an object that several servers write: each sends its own, and the one that has begun the object completes it.

use std::collections::BTreeMap;
use std::io;

use data::checksum::combine_checksums;
use proto::checksum::ChecksumAlgorithm;
use proto::s3::documents::CompletedPart;
use serde::{Deserialize, Serialize};

use super::super::checksums::base64_of_hex;
use super::super::record::BegunUpload;

/// A part that is in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WrittenPart {
    /// From 1.
    pub(super) number: u32,
    pub(super) bytes: u64,
    /// Its entity tag, with quotes.
    pub(super) etag: String,
    /// Its checksums in hex, by the names of their algorithms.
    pub(super) sums: BTreeMap<String, String>,
}

/// An upload to which several servers send parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UploadOfServers {
    pub(super) begun: BegunUpload,
    /// Name of the checksum of all bytes that is wanted besides CRC-32C.
    pub(super) algorithm: Option<String>,
}

impl UploadOfServers {
    pub(super) fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        ChecksumAlgorithm::parse(self.algorithm.as_deref()?)
    }
}

/// A part of which no server has all bytes, or several have some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PartsError {
    #[error("bytes from {0} on have not arrived")]
    Missing(u64),
    #[error(
        "the bytes from {start} to {end} came to several data nodes, and a part of an object is put together by one: send blocks of {part} \
         bytes, or without stripes"
    )]
    Scattered { start: u64, end: u64, part: u64 },
}

impl From<PartsError> for io::Error {
    fn from(error: PartsError) -> Self {
        let kind = match error {
            PartsError::Missing(_) => io::ErrorKind::Other,
            // Sent again in the same way, they would come so again.
            PartsError::Scattered { .. } => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// All parts of an object, in their order. But for the last one they have `part` bytes. `length`: that of the object, if it is known.
///
/// # Errors
/// They are not.
pub(super) fn in_order(
    mut parts: Vec<WrittenPart>,
    part: u64,
    length: Option<u64>,
) -> Result<Vec<WrittenPart>, PartsError> {
    parts.sort_unstable_by_key(|written| written.number);
    let mut end = 0;
    for (index, written) in parts.iter().enumerate() {
        let start = u64::from(written.number.saturating_sub(1)).saturating_mul(part);
        let is_last = index + 1 == parts.len();
        if start < end || (written.bytes != part && !is_last) || written.bytes > part {
            let (start, end) = (start, start.saturating_add(part));
            return Err(PartsError::Scattered { start, end, part });
        }
        if start > end {
            return Err(PartsError::Missing(end));
        }
        end = start + written.bytes;
    }
    match length {
        Some(length) if length != end => Err(PartsError::Missing(end)),
        _ => Ok(parts),
    }
}

/// The checksum of an object by those of all its parts, which are in order.
pub(super) fn checksum_of(parts: &[WrittenPart], algorithm: ChecksumAlgorithm) -> Option<String> {
    let sums = parts
        .iter()
        .map(|part| Some((part.sum(algorithm)?, part.bytes)));
    combine_checksums(algorithm, sums.collect::<Option<Vec<_>>>()?)
}

impl WrittenPart {
    fn sum(&self, algorithm: ChecksumAlgorithm) -> Option<&str> {
        self.sums.get(algorithm.name()).map(String::as_str)
    }

    /// The part as the end of the upload names it, `with_sum` or without.
    pub(super) fn completed(self, with_sum: bool) -> CompletedPart {
        let sum = self.sum(ChecksumAlgorithm::Crc32c).filter(|_| with_sum);
        CompletedPart {
            number: self.number,
            crc32c: sum.and_then(base64_of_hex),
            etag: self.etag,
        }
    }
}

#[cfg(test)]
mod tests {
    use data::checksum::ChecksumHasher;

    use super::*;

    fn parts(of: &[(u32, u64)]) -> Vec<WrittenPart> {
        let part = |(number, bytes): &(u32, u64)| WrittenPart {
            number: *number,
            bytes: *bytes,
            etag: String::new(),
            sums: BTreeMap::new(),
        };
        of.iter().map(part).collect()
    }

    #[test]
    fn the_checksum_of_an_object_is_put_together_of_those_of_its_parts() {
        let sums = |algorithm: ChecksumAlgorithm, bytes: &[u8]| {
            let mut hasher = ChecksumHasher::new(algorithm);
            hasher.update(bytes);
            hasher.finish()
        };
        let algorithm = ChecksumAlgorithm::Adler32;
        let mut both = parts(&[(1, 5), (2, 3)]);
        for (part, bytes) in both.iter_mut().zip([&b"01234"[..], b"567"]) {
            let sum = sums(algorithm, bytes);
            part.sums.insert(algorithm.name().to_owned(), sum);
        }
        let all = sums(algorithm, b"01234567");
        assert_eq!(checksum_of(&both, algorithm), Some(all));
        assert_eq!(checksum_of(&both, ChecksumAlgorithm::Crc32c), None);
    }

    #[test]
    fn parts_of_several_servers_are_whole_or_refused() {
        let ordered = |of: &[(u32, u64)], length| in_order(parts(of), 10, length);
        let all = ordered(&[(3, 4), (1, 10), (2, 10)], Some(24)).unwrap();
        assert_eq!(all, parts(&[(1, 10), (2, 10), (3, 4)]));
        assert_eq!(ordered(&[], Some(0)), Ok(Vec::new()));
        let missing = Err(PartsError::Missing(10));
        assert_eq!(ordered(&[(1, 10), (3, 4)], Some(24)), missing);
        assert_eq!(ordered(&[(1, 10)], Some(24)), missing);
        for scattered in [
            &[(1, 10), (2, 3), (2, 4)][..],
            &[(1, 4), (2, 10)],
            &[(1, 11)],
        ] {
            let error = ordered(scattered, None).unwrap_err();
            assert!(matches!(error, PartsError::Scattered { .. }), "{error}");
        }
    }
}
