//! Files of equal size, compared by their checksums.

use proto::checksum::ChecksumAlgorithm;

use super::comparison::Comparison;
use crate::batch::BatchContext;
use crate::batch::retry::RetryBudget;
use crate::file::checksums::ChecksumEndpoint;
use crate::file::composite::{composite_sum, sum_of_parts};
use crate::plan::{PlanReader, PlannedFile};
use crate::storage::capabilities::AvailableChecksums;
use crate::storage::contract::Storage;
use crate::storage::optional::CompositeSum;
use ftp::Failure;
use ftp::location::Location;

/// One end of a comparison.
struct ComparedFile<'a> {
    storage: &'a mut dyn Storage,
    path: &'a [u8],
    available: AvailableChecksums,
}

/// Adds the files of equal size whose content differs, as far as checksums show it.
///
/// # Errors
/// Neither end has checksums of its own, or the ends have none in common.
pub(super) async fn compare_contents(
    ctx: &BatchContext,
    from: &Location,
    to: &Location,
    comparison: &Comparison,
) -> Result<(), Failure> {
    let undecided = comparison.undecided();
    undecided.end(true);
    let mut reader = PlanReader::of(undecided);
    let mut unknown = 0_u64;
    while let Some(item) = reader.next_file(undecided)? {
        match compare(ctx, from, to, &item).await? {
            Some(true) => comparison.keep(&item)?,
            Some(false) => comparison.copy(&item),
            None => {
                unknown += 1;
                comparison.copy(&item);
            }
        }
    }
    if unknown > 0 {
        ctx.warn(format!(
            "files of equal size that are copied again, since they have no checksum that both ends know: {unknown}"
        ));
    }
    Ok(())
}

/// Whether both ends have the same content; `None`: the object of a bucket has no checksum that tells it.
async fn compare(
    ctx: &BatchContext,
    from: &Location,
    to: &Location,
    item: &PlannedFile,
) -> Result<Option<bool>, Failure> {
    let ids = [from.storage_id(), to.storage_id()];
    let mut retries = RetryBudget::new(ctx.options.retry, ctx.seed);
    loop {
        let mut source = ctx.session(&ids[0]).await?;
        let mut copy = ctx.session(&ids[1]).await?;
        let paths = (item.source.path(), item.destination.path());
        let compared = is_same(&mut *source, paths.0, &mut *copy, paths.1).await;
        let has_sums_of_files =
            source.composite_sums().is_some() || copy.composite_sums().is_some();
        ctx.return_session(&ids[0], source, &compared);
        ctx.return_session(&ids[1], copy, &compared);
        match compared {
            Ok(None) if !has_sums_of_files => {
                return Err(Failure::protocol(format!(
                    "{} and {} have no checksum in common: leave out --checksum to compare sizes and times",
                    from.display(),
                    to.display()
                )));
            }
            Err(failure) if failure.may_retry() => {
                let name = item.source.display().to_string();
                ctx.wait_for_retry(&name, &ids, &mut retries, 0, failure)
                    .await?;
            }
            compared => return compared,
        }
    }
}

/// Whether two files have the same content, by the cheapest checksum that both storages have, or by one of the parts in which
/// one of them is stored. `None`: they have none in common.
async fn is_same(
    source: &mut dyn Storage,
    source_path: &[u8],
    copy: &mut dyn Storage,
    copy_path: &[u8],
) -> Result<Option<bool>, Failure> {
    let (of_source, of_copy) = tokio::try_join!(
        source.available_checksums(source_path),
        copy.available_checksums(copy_path)
    )?;
    if let Some(algorithm) = common_algorithm(&of_source, &of_copy) {
        let (a, b) = tokio::try_join!(
            source.checksum(algorithm, 0, None, source_path),
            copy.checksum(algorithm, 0, None, copy_path)
        )?;
        return Ok(Some(a.eq_ignore_ascii_case(&b)));
    }
    let (source_sum, copy_sum) = tokio::try_join!(
        composite_sum(source, source_path),
        composite_sum(copy, copy_path)
    )?;
    if let (Some(a), Some(b)) = (&source_sum, &copy_sum)
        && (a.algorithm, &a.parts) == (b.algorithm, &b.parts)
    {
        let is_same = a.sum == b.sum;
        return Ok((is_same || a.is_certain && b.is_certain).then_some(is_same));
    }
    let source = ComparedFile {
        storage: source,
        path: source_path,
        available: of_source,
    };
    let copy = ComparedFile {
        storage: copy,
        path: copy_path,
        available: of_copy,
    };
    if let Some(is_same) = has_sum(copy, source_sum).await? {
        return Ok(Some(is_same));
    }
    has_sum(source, copy_sum).await
}

/// Whether a file has this checksum of parts; `None`: it is unknown.
async fn has_sum(
    file: ComparedFile<'_>,
    sum: Option<CompositeSum>,
) -> Result<Option<bool>, Failure> {
    let Some(sum) = sum.filter(|sum| file.available.ranges.contains(&sum.algorithm)) else {
        return Ok(None);
    };
    let endpoint = ChecksumEndpoint::Named {
        storage: file.storage,
        path: file.path,
        origin: 0,
    };
    let computed = sum_of_parts(endpoint, &sum).await?;
    let is_same = computed.map(|computed| computed.eq_ignore_ascii_case(&sum.sum));
    // Another value may be one of another kind.
    Ok(is_same.filter(|is_same| *is_same || sum.is_certain))
}

/// The cheapest checksum that both ends can provide of a file.
fn common_algorithm(a: &AvailableChecksums, b: &AvailableChecksums) -> Option<ChecksumAlgorithm> {
    let mut all = ChecksumAlgorithm::CHEAPEST_FIRST.into_iter();
    all.find(|algorithm| {
        let has = |end: &AvailableChecksums| {
            end.ranges.contains(algorithm) || end.whole_files.contains(algorithm)
        };
        has(a) && has(b)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::storage::memory::{MemoryStorage, MemoryStore};
    use crate::storage::s3::S3Storage;
    use crate::storage::s3::bucket_server::{BUCKET, BucketServer};

    /// Files in memory and the objects of a bucket, with paths `/f`.
    struct ComparedEnds {
        name: &'static str,
        server: BucketServer,
    }

    impl ComparedEnds {
        fn new(name: &'static str, file: &[u8]) -> Self {
            MemoryStore::named(name).put("/f", file, 0);
            Self {
                name,
                server: BucketServer::start(),
            }
        }

        async fn compare(&self) -> Option<bool> {
            let mut memory = MemoryStorage::open(self.name);
            let timeout = Duration::from_secs(20);
            let mut bucket =
                S3Storage::new(BUCKET, self.server.settings(), &Arc::default(), timeout);
            let there = is_same(&mut memory, b"/f", &mut bucket, b"/f").await;
            let back = is_same(&mut bucket, b"/f", &mut memory, b"/f").await;
            assert_eq!(there, back);
            there.unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn checksums_of_parts_are_compared_with_the_same_parts_of_the_file() {
        let ends = ComparedEnds::new("parts", b"abcdefgh");
        for tells in [true, false] {
            ends.server.put_parts("f", &[b"abc", b"defg", b"h"], tells);
            assert_eq!(ends.compare().await, Some(true), "{tells}");
            ends.server.put_parts("f", &[b"abc", b"dEfg", b"h"], tells);
            assert_eq!(ends.compare().await, Some(false), "{tells}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tag_proves_that_contents_are_the_same_and_never_that_they_differ() {
        let ends = ComparedEnds::new("tags", b"abcdefgh");
        ends.server.put_tagged_parts("f", &[b"abc", b"def", b"gh"]);
        assert_eq!(ends.compare().await, Some(true));
        ends.server.put_tagged_parts("f", &[b"abc", b"dEf", b"gh"]);
        assert_eq!(ends.compare().await, None);
        // Lengths that nobody can guess.
        ends.server.put_tagged_parts("f", &[b"abcd", b"e", b"fgh"]);
        assert_eq!(ends.compare().await, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_without_any_checksum_is_unknown() {
        let ends = ComparedEnds::new("none", b"abcdefgh");
        ends.server.put("f", b"abcdefgh");
        assert_eq!(ends.compare().await, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_buckets_with_the_same_parts_are_compared_without_reading_them() {
        let [a, b] = [(); 2].map(|()| BucketServer::start());
        let timeout = Duration::from_secs(20);
        let session = |server: &BucketServer| {
            S3Storage::new(BUCKET, server.settings(), &Arc::default(), timeout)
        };
        for (of_b, expected) in [(&b"de"[..], Some(true)), (b"dE", Some(false)), (b"d", None)] {
            a.put_parts("f", &[b"abc", b"de"], true);
            b.put_parts("f", &[b"abc", of_b], true);
            let same = is_same(&mut session(&a), b"/f", &mut session(&b), b"/f").await;
            assert_eq!(same, Ok(expected));
        }
    }
}
