//! Checksums: of a stream, of pieces in any order, of a stored file.

use proto::checksum::Algorithm;

use crate::error::DataError;
use crate::store::Source;

/// A running sum of bytes in order.
pub struct Digest {
    // private
}

impl Digest {
    /// Nothing summed.
    pub fn new(algorithm: Algorithm) -> Self {
        let _ = algorithm;
        todo!()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let _ = bytes;
        todo!()
    }

    /// Lower-case hex.
    pub fn finish(self) -> String {
        todo!()
    }
}

/// Sums `length` bytes (to the end if `None`) of a source from `offset`; a range beyond the end
/// sums what is there. `progress` is called now and then with the bytes done and stops the sum by
/// returning `false` ([`DataError::Aborted`]).
pub fn sum_source(
    algorithm: Algorithm,
    source: &dyn Source,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String, DataError> {
    let _ = (algorithm, source, offset, length, progress);
    todo!()
}
