//! Checksum files (`SHA256SUMS`), as sha256sum(1) and b3sum(1) write and check them.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use proto::checksum::ChecksumAlgorithm;

use crate::options::{RemoteOptions, WriteSums};
use ftp::Failure;

mod check;
mod line;
mod read_back;
mod read_receipt;
pub(crate) mod receipt;
mod results;
pub(crate) mod writer;

pub use read_receipt::{ReceiptOutline, read_receipt};
pub use results::{CheckTotals, CheckedFile, CheckedSum};

impl WriteSums {
    /// The checksum file `path`. Without an algorithm its name tells it (`MD5SUMS`, `x.sha512`), otherwise SHA-256.
    pub fn new(path: PathBuf, algorithm: Option<ChecksumAlgorithm>) -> Self {
        let algorithm = algorithm.or_else(|| algorithm_of_sums(&path));
        Self {
            path,
            algorithm: algorithm.unwrap_or(ChecksumAlgorithm::Sha256),
        }
    }
}

/// The algorithm that the name of a checksum file tells.
fn algorithm_of_sums(path: &Path) -> Option<ChecksumAlgorithm> {
    line::algorithm_of_file(path.file_name()?.as_encoded_bytes())
}

/// A name as a checksum file writes it, if it needs escapes: its line begins with a backslash then.
pub fn escape_sums_name(name: &[u8]) -> Option<Vec<u8>> {
    line::escape_name(name)
}

/// Compares files with the checksums that `sums` has, as sha256sum(1) writes them. `name`: that of the checksum file,
/// which tells the algorithm if `algorithm` does not; otherwise the length of the checksums does. Names are relative to
/// `base`, a directory or a URL. `visit` receives each result, in the order of the lines.
///
/// # Errors
/// `Usage`: no line has a checksum, or one is too long. `Unreachable`: the server is lost. `Local`: `sums` cannot be
/// read.
pub async fn check_sums(
    sums: &mut (dyn BufRead + Send),
    name: &Path,
    algorithm: Option<ChecksumAlgorithm>,
    base: &str,
    options: &RemoteOptions,
    visit: &mut (dyn FnMut(CheckedFile) + Send + '_),
) -> Result<CheckTotals, Failure> {
    let algorithm = algorithm.or_else(|| algorithm_of_sums(name));
    check::check(sums, name, algorithm, base, options, visit).await
}
