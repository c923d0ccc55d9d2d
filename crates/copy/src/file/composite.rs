//! Checksums of the checksums of a file's parts, at both ends.

use data::checksum::ChecksumHasher;
use proto::checksum::bytes_of_hex;

use super::checksums::ChecksumEndpoint;
use crate::storage::contract::Storage;
use crate::storage::optional::CompositeSum;
use ftp::Failure;

/// The checksum that a storage has of a file's parts; `None`: it has none.
///
/// # Errors
/// The storage is lost.
pub(crate) async fn composite_sum(
    storage: &mut dyn Storage,
    path: &[u8],
) -> Result<Option<CompositeSum>, Failure> {
    match storage.composite_sums() {
        None => Ok(None),
        Some(sums) => match sums.composite_sum(path).await {
            Err(failure) if failure.may_retry() => Err(failure),
            sum => Ok(sum.unwrap_or_default()),
        },
    }
}

/// The same checksum of the parts at another end; `None`: it has none of these parts.
///
/// # Errors
/// The storage is lost.
pub(crate) async fn sum_of_parts(
    mut endpoint: ChecksumEndpoint<'_>,
    sum: &CompositeSum,
) -> Result<Option<String>, Failure> {
    let mut hasher = ChecksumHasher::new(sum.algorithm);
    for parts in sum.parts.chunks(endpoint.max_queries().max(1)) {
        let sums = match endpoint.checksums(sum.algorithm, parts).await {
            Err(failure) if failure.may_retry() => return Err(failure),
            Err(_) => return Ok(None),
            Ok(sums) => sums,
        };
        for sum in sums {
            let Some(bytes) = bytes_of_hex(&sum) else {
                return Ok(None);
            };
            hasher.update(&bytes);
        }
    }
    Ok(Some(hasher.finish()))
}
