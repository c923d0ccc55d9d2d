//! Transfers in chunks with longhaul's own server: over one session or two, resumed, and into
//! existing files.

use std::sync::Arc;
use std::time::Duration;

use copy::{Exit, ModeChoice, Parallelism};
use data::job::TransferControl;
use data::store::memory::{MemorySink, MemorySource};
use ftp::location::Location;
use ftp::session::ClientSession;
use ftp::transfer::{self, Chunking, RestartProof, TransferAttempt, TransferSpec};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode, RttCommands};

use crate::support::{EndToEndServer, copy, options, random_bytes, rate_limited};

/// Enough for several chunks.
const SIZE: usize = 28 << 20;

/// Rate limit of a chunk, bytes per second: low enough that several chunks run.
const RATE: u64 = 128 << 20;

async fn open(server: &EndToEndServer, path: &str) -> ClientSession {
    let Location::Remote { server, .. } = Location::parse(&server.user_url(path)).unwrap() else {
        unreachable!("a URL");
    };
    ClientSession::open(&server, Duration::from_secs(60))
        .await
        .unwrap()
}

fn spec(chunks: Chunking, size: usize) -> TransferSpec {
    TransferSpec {
        size: Some(size as u64),
        part: None,
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: Some(chunks),
        completed_ranges: RangeSet::new(),
        streams: 2,
        max_streams: 8,
        adapt: false,
        prior: tune::Prior::default(),
        mode: ModeChoice::Auto,
        checksum: Some(ChecksumAlgorithm::Crc32c),
        server_checksum: None,
        options: rate_limited(RATE),
        started: Arc::default(),
        stored_ranges: Arc::new(parking_lot::Mutex::new(RangeSet::new())),
        confirmation: Arc::default(),
        data_ports: None,
    }
}

fn mode(mode: ChunkTuningMode, round_trips: RttCommands) -> Chunking {
    let parameters = ChunkParameters {
        initial_streams: 2,
        delta: Duration::from_millis(100),
        max_streams: 8,
        rtt_commands: round_trips,
        ..ChunkParameters::default()
    };
    Chunking::Mode(mode, parameters)
}

fn sum(bytes: &[u8]) -> Option<String> {
    let mut digest = data::checksum::ChecksumHasher::new(ChecksumAlgorithm::Crc32c);
    digest.update(bytes);
    Some(digest.finish())
}

async fn get(
    server: &EndToEndServer,
    spec: &TransferSpec,
    stored: &[u8],
) -> (TransferAttempt, Vec<u8>, TransferControl) {
    let mut session = open(server, "f").await;
    let sink = MemorySink::new(SIZE, "memory");
    data::store::Sink::write_at(&sink, 0, stored).unwrap();
    let control = Arc::new(TransferControl::new());
    let into = Arc::new(sink.clone());
    let attempt = transfer::get(&mut session, b"/f", into, spec, &control);
    let attempt = attempt.await.unwrap();
    session.close().await;
    (attempt, sink.take(), Arc::into_inner(control).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_without_chunks_is_one_long_transfer() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let (attempt, received, control) = get(&server, &spec(Chunking::Probe, SIZE), &[]).await;
    assert!(received == bytes);
    assert_eq!(
        (attempt.extended_mode, attempt.report.evidence.bytes),
        (true, SIZE as u64)
    );
    assert_eq!(attempt.report.checksum, sum(&bytes));
    assert_eq!((control.bytes(), control.streams()), (SIZE as u64, 0));
    assert!(control.stored().contains(0, SIZE as u64));
    assert_eq!(attempt.streams, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_limit_of_one_is_respected() {
    let server = EndToEndServer::with(|config| config.max_sessions = 1).await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    for chunks in [
        Chunking::Probe,
        mode(ChunkTuningMode::Mi, RttCommands::DuringChunks),
    ] {
        let (attempt, received, _) = get(&server, &spec(chunks, SIZE), &[]).await;
        assert!(received == bytes);
        assert_eq!(attempt.report.checksum, sum(&bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_missing_ranges_are_transferred() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    for chunks in [
        Chunking::Probe,
        mode(ChunkTuningMode::Aimd, RttCommands::BetweenChunks),
        mode(ChunkTuningMode::Mi, RttCommands::OwnReplies),
    ] {
        let mut spec = spec(chunks, SIZE);
        spec.checksum = None;
        let mut stored = bytes.clone();
        for (start, end) in [(0, 5 << 20), (15 << 20, 16 << 20), (SIZE - 7, SIZE)] {
            spec.completed_ranges.insert(start as u64, end as u64);
        }
        for gap in spec.completed_ranges.gaps(0, SIZE as u64).iter() {
            stored[usize::try_from(gap.start).unwrap()..usize::try_from(gap.end).unwrap()].fill(0);
        }
        let (attempt, received, _) = get(&server, &spec, &stored).await;
        assert!(received == bytes);
        assert_eq!(
            attempt.report.evidence.bytes,
            SIZE as u64 - spec.completed_ranges.byte_count()
        );
    }
}

async fn put(server: &EndToEndServer, spec: &TransferSpec, bytes: &[u8]) -> TransferAttempt {
    let mut session = open(server, "f").await;
    let source = Arc::new(MemorySource::new(bytes, "memory"));
    let control = Arc::new(TransferControl::new());
    let attempt = transfer::put(&mut session, source, b"/f", spec, &control);
    let attempt = attempt.await.unwrap();
    session.close().await;
    attempt
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_chunk_of_a_put_truncates_the_file() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &random_bytes(SIZE + 1000));
    let spec = spec(
        mode(ChunkTuningMode::MiPlus, RttCommands::DuringChunks),
        SIZE,
    );
    let attempt = put(&server, &spec, &bytes).await;
    assert!(server.read("f") == bytes);
    assert_eq!(attempt.report.checksum, sum(&bytes));
    // The ranges reported for each chunk count from the chunk's offset.
    let marked = spec.stored_ranges.lock().clone();
    assert!(
        marked.end() <= SIZE as u64 && marked.byte_count() > (SIZE / 2) as u64,
        "{marked}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_keeps_completed_ranges() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    let mut stored = bytes.clone();
    stored[..1 << 20].fill(0);
    server.store("f", &stored);
    let mut spec = spec(mode(ChunkTuningMode::Mi, RttCommands::DuringChunks), SIZE);
    spec.completed_ranges.insert(1 << 20, 20 << 20);
    let attempt = put(&server, &spec, &bytes).await;
    assert!(server.read("f") == bytes);
    assert_eq!(attempt.report.evidence.bytes, (SIZE - (19 << 20)) as u64);
}

/// A part of a source is copied in chunks to a whole destination.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_transferred_in_chunks() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let (offset, length) = (3_000_001, 24_000_000);
    let mut spec = spec(Chunking::Probe, length);
    spec.part = Some((offset as u64, length as u64));
    let (_, received, _) = get(&server, &spec, &[]).await;
    assert!(received == bytes[offset..offset + length]);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_between_servers_report_progress_by_markers() {
    let (from, to) = (EndToEndServer::start().await, EndToEndServer::start().await);
    let bytes = random_bytes(SIZE);
    from.store("f", &bytes);
    let reported = std::sync::atomic::AtomicU64::new(0);
    for chunks in [
        Chunking::Probe,
        mode(ChunkTuningMode::Mi, RttCommands::DuringChunks),
    ] {
        let spec = spec(chunks, SIZE);
        // An existing, longer file is truncated.
        to.store("g", &random_bytes(SIZE + 1000));
        let (mut source, mut destination) = (open(&from, "f").await, open(&to, "f").await);
        let control = Arc::new(TransferControl::new());
        let progress = |bytes| {
            reported.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let attempt = transfer::third_party(
            &mut source,
            b"/f",
            &mut destination,
            b"/g",
            &spec,
            &control,
            &progress,
        );
        let attempt = attempt.await.unwrap();
        // Each chunk begins with one.
        assert!(!control.take_stream_decisions().is_empty());
        assert!(control.started_at().is_some());
        assert_eq!(attempt.report.evidence.bytes, SIZE as u64);
        assert!(to.read("g") == bytes);
        assert_eq!(
            reported.swap(0, std::sync::atomic::Ordering::Relaxed),
            SIZE as u64
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_tuning_mode_is_selected_by_parallelism() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let to = workdir.path().join("to");
    let trace = workdir.path().join("trace");
    let options = options().with(|o| {
        o.streams.parallelism = Parallelism::Chunked(ChunkTuningMode::Mi);
        o.streams.autopar = ChunkParameters {
            initial_streams: 2,
            delta: Duration::from_millis(100),
            ..ChunkParameters::default()
        };
        o.streams.transfer = rate_limited(RATE);
        o.trace = Some(trace.clone());
    });
    let (summary, recorder) = copy(&[&server.url("f")], to.to_str().unwrap(), &options).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.verified, "crc32c");
    assert_eq!(recorder.warnings(), Vec::<String>::new());
    assert!(std::fs::read(&to).unwrap() == bytes);
    let trace = std::fs::read_to_string(trace).unwrap();
    let decided = trace
        .lines()
        .filter(|line| line.contains("streams "))
        .count();
    assert!(decided >= 2, "{decided} decisions");
}
