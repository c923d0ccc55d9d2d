use std::sync::atomic::{AtomicUsize, Ordering};

use proto::checksum::ChecksumAlgorithm;
use units::splitmix::SplitMix64;

use super::*;
use crate::checksum::ChecksumHasher;
use crate::store::memory::{MemorySink, MemorySource};

/// An origin that returns few bytes at a time, pauses, and may fail.
#[derive(Debug)]
struct SlowOrigin {
    bytes: Vec<u8>,
    readers: AtomicUsize,
    /// A read beyond this offset fails.
    breaks_at: u64,
}

impl SlowOrigin {
    fn new(len: usize) -> Self {
        Self {
            bytes: content(len),
            readers: AtomicUsize::new(0),
            breaks_at: u64::MAX,
        }
    }
}

impl RangeOrigin for SlowOrigin {
    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(SlowRangeReader {
            origin: self,
            at: 0,
            end: 0,
            pause: false,
        }))
    }
}

struct SlowRangeReader<'o> {
    origin: &'o SlowOrigin,
    at: usize,
    end: usize,
    pause: bool,
}

impl RangeReader for SlowRangeReader<'_> {
    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        let len = self.origin.bytes.len();
        let bound = |offset: u64| usize::try_from(offset).unwrap_or(len).min(len);
        (self.at, self.end) = (bound(start), end.map_or(len, bound));
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.pause = !self.pause;
        if self.pause {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let n = buf.len().min(self.end - self.at).min(700);
        if (self.at + n) as u64 > self.origin.breaks_at {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        buf[..n].copy_from_slice(&self.origin.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

fn content(len: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(7);
    (0..len)
        .map(|_| random.next_u64().to_le_bytes()[0])
        .collect()
}

fn ranges(text: &str) -> RangeSet {
    RangeSet::parse(text).unwrap()
}

fn plan(missing: Option<&str>, origin: u64) -> PullPlan {
    PullPlan {
        origin,
        missing: missing.map(ranges),
        piece: 4096,
        view: None,
    }
}

fn settings(streams: usize, algorithm: Option<ChecksumAlgorithm>) -> TransferSettings {
    TransferSettings {
        streams,
        checksum: algorithm,
        ..TransferSettings::default()
    }
}

fn digest(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut digest = ChecksumHasher::new(algorithm);
    digest.update(bytes);
    digest.finish()
}

fn sink() -> (MemorySink, Arc<dyn Sink>) {
    let sink = MemorySink::new(1 << 20, "sink");
    let shared: Arc<dyn Sink> = Arc::new(sink.clone());
    (sink, shared)
}

#[test]
fn several_readers_pull_exactly_the_missing_ranges() {
    let origin = SlowOrigin::new(100_000);
    let (memory, shared) = sink();
    let control = Arc::new(TransferControl::new());
    let plan = plan(Some("0-30000,50000-90000"), 1000);
    let report = run(&origin, &shared, &plan, &settings(3, None), &control).unwrap();
    assert_eq!(report.evidence.bytes, 70_000);
    assert_eq!(report.stored, ranges("0-30000,50000-90000"));
    assert_eq!(origin.readers.load(Ordering::Relaxed), 3);
    let bytes = memory.bytes();
    assert_eq!(bytes[..30_000], origin.bytes[1000..31_000]);
    assert!(bytes[30_000..50_000].iter().all(|b| *b == 0));
    assert_eq!(bytes[50_000..90_000], origin.bytes[51_000..91_000]);
}

#[test]
fn every_kind_of_checksum_matches_the_bytes() {
    let origin = SlowOrigin::new(60_000);
    for algorithm in [
        ChecksumAlgorithm::Crc32c,
        ChecksumAlgorithm::Md5,
        ChecksumAlgorithm::Blake3,
    ] {
        for streams in [1, 4] {
            let (_, shared) = sink();
            let plan = PullPlan {
                view: shared.open_reader().map(|view| (view, 0)),
                ..plan(Some("0-60000"), 0)
            };
            let settings = settings(streams, Some(algorithm));
            let report = run(&origin, &shared, &plan, &settings, &Arc::default()).unwrap();
            let wanted = digest(algorithm, &origin.bytes);
            assert_eq!(report.checksum, Some(wanted), "{algorithm:?} {streams}");
        }
    }
}

#[test]
fn a_pull_without_an_end_reads_to_the_end_of_the_origin() {
    let origin = SlowOrigin::new(10_000);
    let (memory, shared) = sink();
    let settings = settings(8, Some(ChecksumAlgorithm::Crc32c));
    let report = run(&origin, &shared, &plan(None, 0), &settings, &Arc::default()).unwrap();
    assert_eq!(memory.take(), origin.bytes);
    assert_eq!(report.evidence.bytes, 10_000);
    assert_eq!(origin.readers.load(Ordering::Relaxed), 1);
}

#[test]
fn a_short_or_broken_origin_fails_and_the_stored_ranges_are_recorded() {
    let short = SlowOrigin::new(10_000);
    let (_, shared) = sink();
    let control = Arc::new(TransferControl::new());
    let failed = run(
        &short,
        &shared,
        &plan(Some("0-20000"), 0),
        &settings(1, None),
        &control,
    );
    assert!(
        matches!(failed, Err(DataError::Shrunk { at: 10_000, .. })),
        "{failed:?}"
    );
    assert_eq!(control.stored(), ranges("0-10000"));
    let broken = SlowOrigin {
        breaks_at: 5000,
        ..SlowOrigin::new(10_000)
    };
    let failed = run(
        &broken,
        &shared,
        &plan(Some("0-10000"), 0),
        &settings(2, None),
        &Arc::default(),
    );
    assert!(matches!(failed, Err(DataError::Read { .. })), "{failed:?}");
}

#[test]
fn a_silent_origin_is_a_stall_and_a_cancel_is_an_abort() {
    #[derive(Debug)]
    struct SilentOrigin;
    impl RangeOrigin for SilentOrigin {
        fn name(&self) -> String {
            "silent".to_owned()
        }
        fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
            Ok(Box::new(Self))
        }
    }
    impl RangeReader for SilentOrigin {
        fn request(&mut self, _: u64, _: Option<u64>) -> io::Result<()> {
            Ok(())
        }
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(5));
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
    let (_, shared) = sink();
    let mut hasty = settings(2, None);
    hasty.options.stall = Duration::from_millis(50);
    let failed = run(
        &SilentOrigin,
        &shared,
        &plan(Some("0-9000"), 0),
        &hasty,
        &Arc::default(),
    );
    assert!(
        matches!(failed, Err(DataError::Stalled { .. })),
        "{failed:?}"
    );
    let control = Arc::new(TransferControl::new());
    control.cancel();
    let failed = run(
        &SilentOrigin,
        &shared,
        &plan(Some("0-9000"), 0),
        &settings(1, None),
        &control,
    );
    assert!(matches!(failed, Err(DataError::Aborted)), "{failed:?}");
}

#[test]
fn a_file_copied_by_the_kernel_or_through_memory_has_the_same_bytes() {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use crate::store::file::{FileSink, FileSource};

    let bytes = content(300_000);
    let mut from = tempfile::tempfile().unwrap();
    from.write_all(&bytes).unwrap();
    let source: Arc<dyn Source> = Arc::new(FileSource::new(from, "from").unwrap());
    for algorithm in [
        None,
        Some(ChecksumAlgorithm::Crc32c),
        Some(ChecksumAlgorithm::Sha256),
    ] {
        let to = tempfile::tempfile().unwrap();
        let sink: Arc<dyn Sink> = Arc::new(FileSink::new(to.try_clone().unwrap(), "to").unwrap());
        let plan = PullPlan {
            view: Some((Arc::clone(&source), 10_000)),
            ..plan(Some("0-290000"), 10_000)
        };
        let report = run(
            &FileOrigin(Arc::clone(&source)),
            &sink,
            &plan,
            &settings(2, algorithm),
            &Arc::default(),
        );
        let mut copy = vec![0; 290_000];
        to.read_exact_at(&mut copy, 0).unwrap();
        assert_eq!(copy, bytes[10_000..]);
        let wanted = algorithm.map(|algorithm| digest(algorithm, &copy));
        assert_eq!(report.unwrap().checksum, wanted);
    }
}

#[test]
fn a_pull_of_one_step_reports_no_safe_ranges() {
    use crate::store::durability::SyncPolicy;
    use crate::store::file::FileSink;

    let source = MemorySource::new(content(9000), "m");
    let to = FileSink::new(tempfile::tempfile().unwrap(), "to").unwrap();
    let sink: Arc<dyn Sink> = Arc::new(to.with_policy(SyncPolicy::File, None));
    let control = Arc::new(TransferControl::new());
    let from = FileOrigin(Arc::new(source));
    let plan = plan(Some("0-9000"), 0);
    run(&from, &sink, &plan, &settings(1, None), &control).unwrap();
    assert_eq!(control.stored().to_string(), "0-9000");
    assert!(control.safe().is_empty());
}

#[test]
fn a_file_that_cannot_be_cloned_is_unchanged() {
    let source = MemorySource::new(&b"abc"[..], "m");
    let sink = MemorySink::new(10, "m");
    let control = TransferControl::new();
    assert!(clone_file(&source, &sink, 3, &control).unwrap().is_none());
    assert!(control.stored().is_empty());
    assert!(sink.take().is_empty());
}

/// An origin that accepts only one connection.
struct SingleConnectionOrigin(SlowOrigin);

impl RangeOrigin for SingleConnectionOrigin {
    fn name(&self) -> String {
        "busy".to_owned()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        let number = self.0.readers.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(RefusingReader {
            inner: SlowRangeReader {
                origin: &self.0,
                at: 0,
                end: 0,
                pause: false,
            },
            refused: number > 0,
        }))
    }

    fn is_networked(&self) -> bool {
        true
    }

    fn min_piece(&self) -> u64 {
        1 << 20
    }
}

struct RefusingReader<'o> {
    inner: SlowRangeReader<'o>,
    refused: bool,
}

impl RangeReader for RefusingReader<'_> {
    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        if self.refused {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.inner.request(start, end)
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf)
    }
}

#[test]
fn readers_that_cannot_start_return_their_pieces() {
    let busy = SingleConnectionOrigin(SlowOrigin::new(2_000_000));
    let memory = MemorySink::new(2_000_000, "memory");
    let sink: Arc<dyn Sink> = Arc::new(memory.clone());
    let mut missing = RangeSet::new();
    missing.insert(0, 2_000_000);
    let plan = PullPlan {
        origin: 0,
        missing: Some(missing),
        piece: 64 << 10,
        view: None,
    };
    let settings = TransferSettings {
        streams: 4,
        checksum: Some(ChecksumAlgorithm::Crc32c),
        ..TransferSettings::default()
    };
    let control = Arc::new(TransferControl::new());
    let report = run(&busy, &sink, &plan, &settings, &control);
    let digest = report.unwrap().checksum;
    assert!(memory.bytes() == busy.0.bytes);
    let mut whole = ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    whole.update(&busy.0.bytes);
    assert_eq!(digest, Some(whole.finish()));
    assert_eq!(control.stored().to_string(), "0-2000000");
}

#[test]
fn network_wait_time_is_reported() {
    #[derive(Debug)]
    struct DelayedOrigin;
    impl RangeOrigin for DelayedOrigin {
        fn name(&self) -> String {
            "far".to_owned()
        }
        fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
            Ok(Box::new(Self))
        }
        fn is_networked(&self) -> bool {
            true
        }
    }
    impl RangeReader for DelayedOrigin {
        fn request(&mut self, _: u64, _: Option<u64>) -> io::Result<()> {
            Ok(())
        }
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(5));
            buf[..100].fill(7);
            Ok(100)
        }
    }
    let (_, shared) = sink();
    let plan = plan(Some("0-1000"), 0);
    let report = run(
        &DelayedOrigin,
        &shared,
        &plan,
        &settings(1, None),
        &Arc::default(),
    )
    .unwrap();
    let evidence = report.evidence;
    assert!(
        evidence.wire_time >= Duration::from_millis(50),
        "{evidence:?}"
    );
    assert!(evidence.store_time < evidence.wire_time);
}
