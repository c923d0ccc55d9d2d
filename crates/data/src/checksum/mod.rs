//! Checksums: of bytes in order, of parts in any order, of a stored file.

use crc_fast::CrcAlgorithm;
use md5::Md5;
use proto::checksum::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use crate::buffer::PageBuffer;
use crate::error::DataError;
use crate::store::Source;
use crate::store::holes::hole_of_source;

/// The running checksum of bytes in order.
#[derive(Clone)]
pub struct ChecksumHasher {
    state: HasherState,
}

impl std::fmt::Debug for ChecksumHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChecksumHasher").finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum HasherState {
    Adler32(simd_adler32::Adler32),
    Crc(crc_fast::Digest),
    Crc64(crc_fast::Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl ChecksumHasher {
    /// A checksum of no bytes.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        let crc = |which| HasherState::Crc(crc_fast::Digest::new(which));
        let state = match algorithm {
            ChecksumAlgorithm::Adler32 => HasherState::Adler32(simd_adler32::Adler32::new()),
            ChecksumAlgorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumAlgorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            ChecksumAlgorithm::Crc64Nvme => {
                HasherState::Crc64(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))
            }
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
            HasherState::Adler32(hasher) => hasher.write(bytes),
            HasherState::Crc(hasher) | HasherState::Crc64(hasher) => hasher.update(bytes),
            HasherState::Md5(hasher) => hasher.update(bytes),
            HasherState::Sha1(hasher) => hasher.update(bytes),
            HasherState::Sha256(hasher) => hasher.update(bytes),
            HasherState::Sha512(hasher) => hasher.update(bytes),
            HasherState::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// The checksum in lower-case hex.
    pub fn finish(self) -> String {
        match self.state {
            HasherState::Adler32(hasher) => format!("{:08x}", hasher.finish()),
            HasherState::Crc(hasher) => format!("{:08x}", hasher.finalize()),
            HasherState::Crc64(hasher) => format!("{:016x}", hasher.finalize()),
            HasherState::Md5(hasher) => hex(&hasher.finalize()),
            HasherState::Sha1(hasher) => hex(&hasher.finalize()),
            HasherState::Sha256(hasher) => hex(&hasher.finalize()),
            HasherState::Sha512(hasher) => hex(&hasher.finalize()),
            HasherState::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
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

/// The checksum of a run of bytes, which can be combined with that of the run that follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialChecksum {
    kind: CombinableAlgorithm,
    /// The lower half, of all but CRC-64.
    value: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CombinableAlgorithm {
    Adler32,
    Crc32,
    Crc32c,
    Crc64Nvme,
}

impl CombinableAlgorithm {
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Adler32 => None,
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        }
    }

    /// Hexadecimal digits of a checksum.
    fn width(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32 | Self::Crc32c => 8,
            Self::Crc64Nvme => 16,
        }
    }
}

impl PartialChecksum {
    /// The checksum of no bytes; `None` for an algorithm whose checksums cannot be combined.
    pub(crate) fn empty(algorithm: ChecksumAlgorithm) -> Option<Self> {
        let (kind, value) = match algorithm {
            ChecksumAlgorithm::Adler32 => (CombinableAlgorithm::Adler32, 1),
            ChecksumAlgorithm::Crc32 => (CombinableAlgorithm::Crc32, 0),
            ChecksumAlgorithm::Crc32c => (CombinableAlgorithm::Crc32c, 0),
            ChecksumAlgorithm::Crc64Nvme => (CombinableAlgorithm::Crc64Nvme, 0),
            _ => return None,
        };
        Some(Self {
            kind,
            value,
            len: 0,
        })
    }

    /// The checksum of `len` zeros, with the same algorithm.
    pub(crate) fn zeros(self, len: u64) -> Self {
        let empty = Self {
            // The checksum of no bytes: 1 for Adler-32, 0 for CRCs.
            value: u64::from(self.kind == CombinableAlgorithm::Adler32),
            len: 0,
            ..self
        };
        let mut hasher = PartialHasher::same_algorithm(empty);
        hasher.update(&[0]);
        let (mut power, mut rest, mut all) = (hasher.finish(), len, empty);
        while rest > 0 {
            if rest & 1 == 1 {
                all = all.combine(power);
            }
            rest >>= 1;
            if rest > 0 {
                power = power.combine(power);
            }
        }
        all
    }

    /// The checksum of this run followed by `next`.
    pub(crate) fn combine(self, next: Self) -> Self {
        let value = match self.kind.crc() {
            // The library needs two non-empty runs.
            _ if self.len == 0 => next.value,
            _ if next.len == 0 => self.value,
            None => combine_adler32(self.value, next.value, next.len),
            Some(which) => crc_fast::checksum_combine(which, self.value, next.value, next.len),
        };
        Self {
            value,
            len: self.len + next.len,
            ..self
        }
    }

    /// The checksum in lower-case hex.
    pub(crate) fn finish(self) -> String {
        format!("{:0width$x}", self.value, width = self.kind.width())
    }
}

/// Combines the checksums of the parts of a file to that of the whole. `parts` are the checksums in
/// lower-case hex and the lengths in bytes, in order and without gaps. `None` for an algorithm
/// whose checksums cannot be combined, or when one of them is not valid.
pub fn combine_checksums<'p>(
    algorithm: ChecksumAlgorithm,
    parts: impl IntoIterator<Item = (&'p str, u64)>,
) -> Option<String> {
    let empty = PartialChecksum::empty(algorithm)?;
    let joined = parts.into_iter().try_fold(empty, |all, (checksum, len)| {
        // A part may come from a peer, so its text is untrusted.
        let fits = checksum.len() <= empty.kind.width();
        let value = u64::from_str_radix(checksum, 16).ok().filter(|_| fits)?;
        Some(all.combine(PartialChecksum {
            value,
            len,
            ..empty
        }))
    });
    joined.map(PartialChecksum::finish)
}

/// The running checksum of a run of bytes that ends as a [`PartialChecksum`]. Extending it costs a
/// fraction of combining two of them.
pub(crate) struct PartialHasher {
    kind: CombinableAlgorithm,
    state: PartialHasherState,
    len: u64,
}

#[allow(
    clippy::large_enum_variant,
    reason = "each stream has one; the bytes cost less than an allocation per block"
)]
enum PartialHasherState {
    Adler32(simd_adler32::Adler32),
    Crc(crc_fast::Digest),
}

impl std::fmt::Debug for PartialHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialHasher")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl PartialHasher {
    /// A checksum of no bytes, with the same algorithm as `piece`.
    pub(crate) fn same_algorithm(piece: PartialChecksum) -> Self {
        let state = match piece.kind.crc() {
            None => PartialHasherState::Adler32(simd_adler32::Adler32::new()),
            Some(which) => PartialHasherState::Crc(crc_fast::Digest::new(which)),
        };
        Self {
            kind: piece.kind,
            state,
            len: 0,
        }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            PartialHasherState::Adler32(hasher) => hasher.write(bytes),
            PartialHasherState::Crc(hasher) => hasher.update(bytes),
        }
        self.len += bytes.len() as u64;
    }

    /// The checksum of the whole run.
    pub(crate) fn finish(self) -> PartialChecksum {
        let value = match self.state {
            PartialHasherState::Adler32(hasher) => hasher.finish().into(),
            PartialHasherState::Crc(hasher) => hasher.finalize(),
        };
        PartialChecksum {
            kind: self.kind,
            value,
            len: self.len,
        }
    }
}

/// Adler-32 of `first` followed by a run of `len` bytes whose checksum is `second` (RFC 1950 §8.2:
/// both halves are sums modulo the same prime).
fn combine_adler32(first: u64, second: u64, len: u64) -> u64 {
    const PRIME: u64 = 65_521;
    let split = |value: u64| (value & 0xffff, value >> 16);
    let ((a1, b1), (a2, b2)) = (split(first), split(second));
    // The second run started with a = 1, which is subtracted once (`PRIME - 1`).
    let a = (a1 + a2 + PRIME - 1) % PRIME;
    let b = (b1 + b2 + (len % PRIME) * (a1 + PRIME - 1)) % PRIME;
    b << 16 | a
}

/// Bytes of a stored file read in one call.
const READ_SIZE: usize = 1 << 20;

/// A checksum of stored bytes that can pause between two reads.
#[derive(Debug, Clone)]
pub struct SourceChecksum {
    algorithm: ChecksumAlgorithm,
    /// The checksum of all before the last hole; `None` where holes are read as zeros, because checksums do not combine.
    before: Option<PartialChecksum>,
    /// That of the bytes behind it.
    digest: ChecksumHasher,
    /// Bytes in `digest`.
    run: u64,
    offset: u64,
    length: Option<u64>,
    done: u64,
}

impl SourceChecksum {
    /// The checksum of `length` bytes (up to the end if `None`) from `offset`. A range beyond the
    /// end covers the bytes that exist.
    pub fn new(algorithm: ChecksumAlgorithm, offset: u64, length: Option<u64>) -> Self {
        Self {
            algorithm,
            before: PartialChecksum::empty(algorithm),
            digest: ChecksumHasher::new(algorithm),
            run: 0,
            offset,
            length,
            done: 0,
        }
    }

    /// The checksum of everything so far that combines with what follows.
    fn combined(&self) -> Option<PartialChecksum> {
        let before = self.before?;
        let digest = self.digest.clone().finish();
        Some(before.combine(PartialChecksum {
            value: u64::from_str_radix(&digest, 16).ok()?,
            len: self.run,
            ..before
        }))
    }

    fn take_zeros(&mut self, len: u64) {
        self.before = self
            .combined()
            .map(|before| before.combine(before.zeros(len)));
        self.digest = ChecksumHasher::new(self.algorithm);
        self.run = 0;
        self.done += len;
    }

    fn finish(&self) -> String {
        match self.combined() {
            Some(combined) => combined.finish(),
            None => self.digest.clone().finish(),
        }
    }

    /// Continues up to the end (returns the checksum in lower-case hex), or until `go_on`, which is
    /// called after each read with the number of bytes done, returns `false` (returns `None`: call
    /// again).
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn advance(
        &mut self,
        source: &dyn Source,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<String>, DataError> {
        let mut buffer = PageBuffer::new(READ_SIZE);
        loop {
            // `length` may be larger than the source; the read below then ends the loop.
            let left = self.length.map_or(u64::MAX, |length| length - self.done);
            let want = usize::try_from(left).unwrap_or(READ_SIZE).min(READ_SIZE);
            let at = self.offset.checked_add(self.done).filter(|_| want > 0);
            let hole = at.filter(|_| self.before.is_some());
            let hole = hole.map_or(0, |at| hole_of_source(source, at, left));
            if hole > 0 {
                self.take_zeros(hole);
                if !go_on(self.done) {
                    return Ok(None);
                }
                continue;
            }
            let n = match at {
                None => 0,
                Some(at) => source
                    .read_at(at, &mut buffer.as_mut()[..want])
                    .map_err(|e| DataError::read(source, e))?,
            };
            if n == 0 {
                return Ok(Some(self.finish()));
            }
            self.digest.update(&buffer.as_mut()[..n]);
            self.run += n as u64;
            self.done += n as u64;
            // The hasher stays in `self`, so the next call continues here.
            if !go_on(self.done) {
                return Ok(None);
            }
        }
    }
}

/// Runs a [`SourceChecksum`] without a pause. `progress` stops it by returning `false`
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
