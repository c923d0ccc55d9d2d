//! Checksums: of a stream, of pieces in any order, of a stored file.

use crc_fast::CrcAlgorithm;
use md5::Md5;
use proto::checksum::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use crate::buffer::PageBuffer;
use crate::error::DataError;
use crate::store::Source;

/// A running sum of bytes in order.
#[derive(Clone)]
pub struct ChecksumHasher {
    state: HasherState,
}

impl std::fmt::Debug for ChecksumHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum HasherState {
    Adler32(simd_adler32::Adler32),
    Crc(crc_fast::Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl ChecksumHasher {
    /// Nothing summed.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        let crc = |which| HasherState::Crc(crc_fast::Digest::new(which));
        let state = match algorithm {
            ChecksumAlgorithm::Adler32 => HasherState::Adler32(simd_adler32::Adler32::new()),
            ChecksumAlgorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumAlgorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            ChecksumAlgorithm::Md5 => HasherState::Md5(Md5::new()),
            ChecksumAlgorithm::Sha1 => HasherState::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => HasherState::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha512 => HasherState::Sha512(Sha512::new()),
            ChecksumAlgorithm::Blake3 => HasherState::Blake3(Box::default()),
        };
        Self { state }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            HasherState::Adler32(sum) => sum.write(bytes),
            HasherState::Crc(sum) => sum.update(bytes),
            HasherState::Md5(sum) => sum.update(bytes),
            HasherState::Sha1(sum) => sum.update(bytes),
            HasherState::Sha256(sum) => sum.update(bytes),
            HasherState::Sha512(sum) => sum.update(bytes),
            HasherState::Blake3(sum) => {
                sum.update(bytes);
            }
        }
    }

    /// Lower-case hex.
    pub fn finish(self) -> String {
        match self.state {
            HasherState::Adler32(sum) => format!("{:08x}", sum.finish()),
            HasherState::Crc(sum) => format!("{:08x}", sum.finalize()),
            HasherState::Md5(sum) => hex(&sum.finalize()),
            HasherState::Sha1(sum) => hex(&sum.finalize()),
            HasherState::Sha256(sum) => hex(&sum.finalize()),
            HasherState::Sha512(sum) => hex(&sum.finalize()),
            HasherState::Blake3(sum) => sum.finalize().to_hex().to_string(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

/// The sum of a run of bytes that can be joined to the sum of the run after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialChecksum {
    kind: CombinableAlgorithm,
    value: u32,
    /// Bytes summed.
    pub(crate) len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CombinableAlgorithm {
    Adler32,
    Crc32,
    Crc32c,
}

impl CombinableAlgorithm {
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Adler32 => None,
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        }
    }
}

impl PartialChecksum {
    /// The sum of no bytes; `None` for an algorithm whose sums do not join.
    pub(crate) fn empty(algorithm: ChecksumAlgorithm) -> Option<Self> {
        let (kind, value) = match algorithm {
            ChecksumAlgorithm::Adler32 => (CombinableAlgorithm::Adler32, 1),
            ChecksumAlgorithm::Crc32 => (CombinableAlgorithm::Crc32, 0),
            ChecksumAlgorithm::Crc32c => (CombinableAlgorithm::Crc32c, 0),
            _ => return None,
        };
        Some(Self {
            kind,
            value,
            len: 0,
        })
    }

    /// This run followed by `next`.
    pub(crate) fn combine(self, next: Self) -> Self {
        let value = match self.kind.crc() {
            _ if self.len == 0 => next.value,
            _ if next.len == 0 => self.value,
            None => combine_adler32(self.value, next.value, next.len),
            Some(which) => low_half(crc_fast::checksum_combine(
                which,
                self.value.into(),
                next.value.into(),
                next.len,
            )),
        };
        Self {
            value,
            len: self.len + next.len,
            ..self
        }
    }

    /// Lower-case hex.
    pub(crate) fn finish(self) -> String {
        format!("{:08x}", self.value)
    }
}

/// The sum of a file from the sums of its parts, in order and without gaps: lower-case hex and
/// length in bytes of each. `None` for an algorithm whose sums do not join, or when one of them is
/// no sum.
pub fn combine_checksums<'p>(
    algorithm: ChecksumAlgorithm,
    parts: impl IntoIterator<Item = (&'p str, u64)>,
) -> Option<String> {
    let empty = PartialChecksum::empty(algorithm)?;
    let joined = parts.into_iter().try_fold(empty, |all, (sum, len)| {
        let value = u32::from_str_radix(sum, 16).ok()?;
        Some(all.combine(PartialChecksum {
            value,
            len,
            ..empty
        }))
    });
    joined.map(PartialChecksum::finish)
}

/// A run of bytes that is being summed and will end as a [`PartialChecksum`]. Extending it costs a
/// fraction of joining two pieces.
pub(crate) struct PartialHasher {
    kind: CombinableAlgorithm,
    sum: PartialHasherState,
    len: u64,
}

#[allow(
    clippy::large_enum_variant,
    reason = "there is one a stream, and no allocation a block is worth the bytes"
)]
enum PartialHasherState {
    Adler32(simd_adler32::Adler32),
    Crc(crc_fast::Digest),
}

impl std::fmt::Debug for PartialHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl PartialHasher {
    /// No bytes, of the same algorithm as `piece`.
    pub(crate) fn same_algorithm(piece: PartialChecksum) -> Self {
        let sum = match piece.kind.crc() {
            None => PartialHasherState::Adler32(simd_adler32::Adler32::new()),
            Some(which) => PartialHasherState::Crc(crc_fast::Digest::new(which)),
        };
        Self {
            kind: piece.kind,
            sum,
            len: 0,
        }
    }

    /// Bytes summed.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.sum {
            PartialHasherState::Adler32(sum) => sum.write(bytes),
            PartialHasherState::Crc(sum) => sum.update(bytes),
        }
        self.len += bytes.len() as u64;
    }

    /// The whole run.
    pub(crate) fn finish(self) -> PartialChecksum {
        let value = match self.sum {
            PartialHasherState::Adler32(sum) => sum.finish(),
            PartialHasherState::Crc(sum) => low_half(sum.finalize()),
        };
        PartialChecksum {
            kind: self.kind,
            value,
            len: self.len,
        }
    }
}

/// A 32-bit CRC is returned in 64 bits.
fn low_half(crc: u64) -> u32 {
    let [a, b, c, d, ..] = crc.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Adler-32 of `first` followed by a run of `len` bytes whose sum is `second` (RFC 1950 §8.2:
/// both halves are sums modulo the same prime).
fn combine_adler32(first: u32, second: u32, len: u64) -> u32 {
    const PRIME: u64 = 65_521;
    let split = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((a1, b1), (a2, b2)) = (split(first), split(second));
    let a = (a1 + a2 + PRIME - 1) % PRIME;
    let b = (b1 + b2 + (len % PRIME) * (a1 + PRIME - 1)) % PRIME;
    low_half(b << 16 | a)
}

/// Bytes read at a time while a stored file is summed.
const STEP: usize = 1 << 20;

/// A sum of stored bytes that can pause between two reads.
#[derive(Debug, Clone)]
pub struct SourceChecksum {
    digest: ChecksumHasher,
    offset: u64,
    length: Option<u64>,
    done: u64,
}

impl SourceChecksum {
    /// Of `length` bytes (to the end if `None`) from `offset`; a range beyond the end sums what is
    /// there.
    pub fn new(algorithm: ChecksumAlgorithm, offset: u64, length: Option<u64>) -> Self {
        Self {
            digest: ChecksumHasher::new(algorithm),
            offset,
            length,
            done: 0,
        }
    }

    /// Goes on until the end (the sum in lower-case hex) or until `go_on`, which is called now and
    /// then with the bytes done, returns `false` (`None`: call it again).
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn advance(
        &mut self,
        source: &dyn Source,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, DataError> {
        let mut buffer = PageBuffer::new(STEP);
        loop {
            let left = self.length.map_or(u64::MAX, |length| length - self.done);
            let want = usize::try_from(left).unwrap_or(STEP).min(STEP);
            let at = self.offset.checked_add(self.done).filter(|_| want > 0);
            let n = match at {
                None => 0,
                Some(at) => source
                    .read_at(at, &mut buffer.as_mut()[..want])
                    .map_err(|e| DataError::read(source, e))?,
            };
            if n == 0 {
                return Ok(Some(self.digest.clone().finish()));
            }
            self.digest.update(&buffer.as_mut()[..n]);
            self.done += n as u64;
            if !go_on(self.done) {
                return Ok(None);
            }
        }
    }
}

/// [`SourceChecksum`] in one go. `progress` stops the sum by returning `false`
/// ([`DataError::Aborted`]).
pub fn checksum_source(
    algorithm: ChecksumAlgorithm,
    source: &dyn Source,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String, DataError> {
    SourceChecksum::new(algorithm, offset, length)
        .advance(source, progress)?
        .ok_or(DataError::Aborted)
}

#[cfg(test)]
mod tests;
