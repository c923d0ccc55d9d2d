//! The checksum of a stored copy by ranges. A second session asks the server for the checksums of ranges that are
//! stored while the rest still moves, so that only the last ones are left at the end. Together they are the
//! checksum of the whole copy.
//!
//! A range is asked for when its bytes were acknowledged some time ago. A server that has not stored
//! all of them yet answers with another checksum than the source's. Before the end of the transfer that
//! proves nothing, and the range is asked for again later. Every range counts by an answer that agrees with the
//! source, or by the one after the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::checksum::combine_checksums;
use data::job::TransferControl;
use data::store::Source;
use proto::checksum::ChecksumAlgorithm;
use tokio::sync::watch;

use crate::batch::pool::StorageSessionPool;
use crate::storage::contract::Storage;
use crate::storage::local_checksum::checksum_local;
use ftp::Failure;
use ftp::location::StorageId;

/// Size from which a copy is checksummed by ranges.
pub(super) const RANGES_FROM: u64 = 64 << 20;
/// Smallest and largest range before the end, bytes.
const MIN_RANGE: u64 = 16 << 20;
const MAX_RANGE: u64 = 128 << 20;
/// How often the acknowledged bytes are counted.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);
/// A range is asked for so long, and so many round trips, after its bytes were acknowledged.
const STORE_DELAY: Duration = Duration::from_millis(300);
const STORE_ROUND_TRIPS: u32 = 2;
/// Longest such time. It is doubled after each answer that came too early.
const MAX_STORE_DELAY: Duration = Duration::from_secs(60);

/// A copy whose ranges are checksummed.
pub(super) struct RangeSums {
    pub(super) algorithm: ChecksumAlgorithm,
    pub(super) source: Arc<dyn Source>,
    /// Source offset of the copy's first byte.
    pub(super) origin: u64,
    /// Path of the copy at the server.
    pub(super) path: Vec<u8>,
    /// Bytes of the copy.
    pub(super) size: u64,
    /// Counts the bytes that are sent.
    pub(super) control: Arc<TransferControl>,
}

impl RangeSums {
    /// The checksum of the copy, over a session of its own; `None` if the server does not provide it.
    /// `ended` becomes true when the server has confirmed the transfer.
    pub(super) async fn follow(
        self,
        pool: &StorageSessionPool,
        id: &StorageId,
        ended: watch::Receiver<bool>,
    ) -> Option<String> {
        let mut session = pool.acquire_further(id).await.ok()?;
        let acknowledged = || acknowledged_bytes(&self.control);
        let sum = self.sum(&mut *session, ended, acknowledged).await;
        pool.release(id, session);
        sum
    }

    /// The checksum of the copy, combined from those of its ranges. `count` tells how many bytes the server has
    /// acknowledged.
    async fn sum(
        &self,
        session: &mut dyn Storage,
        mut ended: watch::Receiver<bool>,
        count: impl Fn() -> u64 + Send,
    ) -> Option<String> {
        let rtt = session.capabilities().rtt;
        let mut acknowledged =
            AcknowledgedBytes::new(self.size, STORE_DELAY + rtt * STORE_ROUND_TRIPS);
        let mut sums: Vec<(String, u64)> = Vec::new();
        let mut summed = 0;
        while summed < self.size {
            let is_final = *ended.borrow();
            let end = match is_final {
                true => self.size,
                false => self.size.min(acknowledged.count(Instant::now(), count())),
            };
            // The last range is asked for before the 226 arrives.
            if !is_final && end < self.size.min(summed + MIN_RANGE) {
                // An error means that the transfer has failed, which ends this future, too.
                let _ = tokio::time::timeout(COUNT_INTERVAL, ended.changed()).await;
                continue;
            }
            let length = match is_final {
                true => end - summed,
                false => (end - summed).min(MAX_RANGE),
            };
            let (own, stored) = self.checksums(session, summed, length).await.ok()?;
            if is_final || own.eq_ignore_ascii_case(&stored) {
                sums.push((stored, length));
                summed += length;
            } else {
                acknowledged.wait_longer();
            }
        }
        let sums = sums.iter().map(|(sum, length)| (sum.as_str(), *length));
        combine_checksums(self.algorithm, sums)
    }

    /// The checksums of a range at the source and at the server.
    async fn checksums(
        &self,
        session: &mut dyn Storage,
        offset: u64,
        length: u64,
    ) -> Result<(String, String), Failure> {
        let (source, start) = (Arc::clone(&self.source), self.origin + offset);
        tokio::try_join!(
            checksum_local(self.algorithm, source, start, Some(length)),
            session.checksum(self.algorithm, offset, Some(length), &self.path)
        )
    }
}

/// Bytes that were sent and that the peer has acknowledged. With several streams they are not always the first
/// ones of the file.
fn acknowledged_bytes(control: &TransferControl) -> u64 {
    let streams = control.sample_streams();
    let outstanding: u64 = streams.iter().map(|s| s.unsent + s.unacked).sum();
    control.bytes().saturating_sub(outstanding)
}

/// The bytes that the peer had acknowledged a while ago.
struct AcknowledgedBytes {
    /// Bytes of the copy. When all are acknowledged, the server has only to store the last ones.
    all: u64,
    delay: Duration,
    counts: VecDeque<(Instant, u64)>,
    /// The latest count that is old enough.
    settled: u64,
}

impl AcknowledgedBytes {
    fn new(all: u64, delay: Duration) -> Self {
        Self {
            all,
            delay,
            counts: VecDeque::new(),
            settled: 0,
        }
    }

    /// Takes the bytes acknowledged `now`, and returns those of at least the delay ago.
    fn count(&mut self, now: Instant, acknowledged: u64) -> u64 {
        if acknowledged >= self.all {
            return acknowledged;
        }
        self.counts.push_back((now, acknowledged));
        while let Some((at, count)) = self.counts.front().copied()
            && now.duration_since(at) >= self.delay
        {
            self.settled = count;
            self.counts.pop_front();
        }
        self.settled
    }

    /// The server stores later than was assumed.
    fn wait_longer(&mut self) {
        self.delay = (self.delay * 2).min(MAX_STORE_DELAY);
        self.settled = 0;
        self.all = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use data::store::memory::MemorySource;

    use super::*;
    use crate::storage::memory::{MemoryStorage, MemoryStore};

    const SIZE: usize = 48 << 20;

    fn content() -> Vec<u8> {
        (0..SIZE >> 10)
            .flat_map(|n| [n.to_le_bytes()[0]; 1 << 10])
            .collect()
    }

    fn range_sums(name: &str) -> (RangeSums, MemoryStorage, Arc<MemoryStore>) {
        let sums = RangeSums {
            algorithm: ChecksumAlgorithm::Adler32,
            source: Arc::new(MemorySource::new(content(), "source")),
            origin: 0,
            path: b"/f".to_vec(),
            size: SIZE as u64,
            control: Arc::new(TransferControl::new()),
        };
        (sums, MemoryStorage::open(name), MemoryStore::named(name))
    }

    async fn whole_sum(sums: &RangeSums) -> Option<String> {
        let source = Arc::clone(&sums.source);
        checksum_local(sums.algorithm, source, 0, None).await.ok()
    }

    #[tokio::test]
    async fn the_ranges_of_a_correct_copy_give_the_checksum_of_the_source() {
        let (sums, mut session, store) = range_sums("range-sums-right");
        store.put("/f", &content(), 0);
        let (_end, ended) = watch::channel(true);
        let sum = sums.sum(&mut session, ended, || 0).await;
        assert!(sum.is_some());
        assert_eq!(sum, whole_sum(&sums).await);
    }

    #[tokio::test]
    async fn a_wrong_byte_in_any_range_gives_another_checksum() {
        let (sums, mut session, store) = range_sums("range-sums-wrong");
        let mut wrong = content();
        wrong[40 << 20] ^= 1;
        store.put("/f", &wrong, 0);
        let (_end, ended) = watch::channel(true);
        let sum = sums.sum(&mut session, ended, || 0).await;
        assert!(sum.is_some());
        assert_ne!(sum, whole_sum(&sums).await);
    }

    #[tokio::test]
    async fn a_range_that_is_not_stored_yet_is_asked_for_again() {
        let (sums, mut session, store) = range_sums("range-sums-early");
        store.put("/f", &content()[..SIZE / 2], 0);
        let (end, ended) = watch::channel(false);
        let whole = whole_sum(&sums).await;
        let counts = AtomicU64::new(0);
        // Everything counts as acknowledged, and the server has stored a half.
        let count = || {
            counts.fetch_add(1, Ordering::Relaxed);
            SIZE as u64
        };
        let finish = async {
            while counts.load(Ordering::Relaxed) < 10 {
                tokio::task::yield_now().await;
            }
            store.put("/f", &content(), 0);
            end.send_replace(true);
        };
        let (sum, ()) = tokio::join!(sums.sum(&mut session, ended, count), finish);
        assert_eq!(sum, whole);
    }

    #[test]
    fn bytes_count_when_they_were_acknowledged_long_enough_ago() {
        let mut acknowledged = AcknowledgedBytes::new(100, Duration::from_secs(1));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(acknowledged.count(at(0), 10), 0);
        assert_eq!(acknowledged.count(at(1), 20), 10);
        assert_eq!(acknowledged.count(at(1), 100), 100);
        acknowledged.wait_longer();
        assert_eq!(acknowledged.count(at(2), 100), 0);
        assert_eq!(acknowledged.count(at(3), 100), 20);
    }
}
