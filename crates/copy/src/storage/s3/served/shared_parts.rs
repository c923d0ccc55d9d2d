//! The parts of an object that several servers write: each sends its own, and the one that has begun the object completes it.

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
    /// CRC-32C, hex.
    pub(super) crc32c: String,
    /// The checksum of [`UploadOfServers::algorithm`], hex.
    pub(super) also: Option<String>,
}

/// An upload to which several servers send parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UploadOfServers {
    pub(super) begun: BegunUpload,
    /// Name of the checksum of all bytes that is wanted besides CRC-32C, if those of parts tell it.
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
    let sum = |part: &WrittenPart| match algorithm {
        ChecksumAlgorithm::Crc32c => Some(part.crc32c.clone()),
        _ => part.also.clone(),
    };
    let sums: Option<Vec<String>> = parts.iter().map(sum).collect();
    let sums = sums?;
    let lengths = parts.iter().map(|part| part.bytes);
    combine_checksums(algorithm, sums.iter().map(String::as_str).zip(lengths))
}

impl WrittenPart {
    /// The part as the end of the upload names it, `with_sum` or without.
    pub(super) fn completed(self, with_sum: bool) -> CompletedPart {
        CompletedPart {
            number: self.number,
            etag: self.etag,
            crc32c: with_sum.then(|| base64_of_hex(&self.crc32c)).flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: &[(u32, u64)]) -> Vec<WrittenPart> {
        let part = |(number, bytes): &(u32, u64)| WrittenPart {
            number: *number,
            bytes: *bytes,
            etag: String::new(),
            crc32c: String::new(),
            also: None,
        };
        of.iter().map(part).collect()
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
