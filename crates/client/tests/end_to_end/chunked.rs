//! Files in chunks against our own server: one session or two, from what is there already, beside
//! what is there already.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::location::Location;
use client::session::Session;
use client::transfer::{self, Attempt, Chunks, TransferSpec};
use client::{CopyOptions, Exit, ModeChoice, Parallelism};
use data::job::Control;
use data::store::memory::{MemorySink, MemorySource};
use proto::checksum::Algorithm;
use proto::ranges::RangeSet;
use tune::streams::chunked::{Mode, Parameters, RoundTrips};

use crate::support::{Server, copy, limited, noise, options};

/// Enough for several chunks.
const SIZE: usize = 28 << 20;

/// Slow enough for them to take their time: bytes per second of a chunk.
const RATE: u64 = 128 << 20;

async fn open(server: &Server, path: &str) -> Session {
    let Location::Remote { server, .. } = Location::parse(&server.user_url(path)).unwrap() else {
        unreachable!("a URL");
    };
    Session::open(&server, Duration::from_secs(60))
        .await
        .unwrap()
}

fn spec(chunks: Chunks, size: usize) -> TransferSpec {
    TransferSpec {
        size: Some(size as u64),
        part: None,
        place: None,
        chunks: Some(chunks),
        have: RangeSet::new(),
        streams: 2,
        most_streams: 8,
        adapt: false,
        mode: ModeChoice::Auto,
        sum: Some(Algorithm::Crc32c),
        remote_sum: None,
        options: limited(RATE),
        begun: Arc::default(),
        marked: Arc::new(Mutex::new(RangeSet::new())),
        said: Arc::default(),
        data_ports: None,
    }
}

fn mode(mode: Mode, round_trips: RoundTrips) -> Chunks {
    let parameters = Parameters {
        first: 2,
        delta: Duration::from_millis(100),
        most: 8,
        round_trips,
        ..Parameters::default()
    };
    Chunks::Mode(mode, parameters)
}

fn sum(bytes: &[u8]) -> Option<String> {
    let mut digest = data::digest::Digest::new(Algorithm::Crc32c);
    digest.update(bytes);
    Some(digest.finish())
}

async fn get(server: &Server, spec: &TransferSpec, there: &[u8]) -> (Attempt, Vec<u8>, Control) {
    let mut session = open(server, "f").await;
    let sink = MemorySink::new(SIZE, "memory");
    data::store::Sink::write_at(&sink, 0, there).unwrap();
    let control = Arc::new(Control::new());
    let into = Arc::new(sink.clone());
    let attempt = transfer::get(&mut session, b"/f", into, spec, &control);
    let attempt = attempt.await.unwrap();
    session.close().await;
    (attempt, sink.take(), Arc::into_inner(control).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_bring_a_file_together() {
    let server = Server::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let (attempt, got, control) = get(&server, &spec(Chunks::Probe, SIZE), &[]).await;
    assert!(got == bytes);
    assert_eq!(
        (attempt.extended, attempt.report.evidence.bytes),
        (true, SIZE as u64)
    );
    assert_eq!(attempt.report.digest, sum(&bytes));
    assert_eq!((control.bytes(), control.streams()), (SIZE as u64, 0));
    assert!(control.stored().contains(0, SIZE as u64));
    assert!((2..=8).contains(&attempt.streams), "{}", attempt.streams);
    let decisions = control.stream_decisions();
    assert!(decisions.len() >= 2, "{decisions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_room_for_one_session_is_left_with_one() {
    let server = Server::with(|config| config.max_sessions = 1).await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    for chunks in [Chunks::Probe, mode(Mode::Mi, RoundTrips::Flowing)] {
        let (attempt, got, _) = get(&server, &spec(chunks, SIZE), &[]).await;
        assert!(got == bytes);
        assert_eq!(attempt.report.digest, sum(&bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_missing_comes() {
    let server = Server::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    for chunks in [Chunks::Probe, mode(Mode::Aimd, RoundTrips::Between)] {
        let mut spec = spec(chunks, SIZE);
        spec.sum = None;
        let mut there = bytes.clone();
        for (start, end) in [(0, 5 << 20), (15 << 20, 16 << 20), (SIZE - 7, SIZE)] {
            spec.have.insert(start as u64, end as u64);
        }
        for gap in spec.have.gaps(0, SIZE as u64).iter() {
            there[usize::try_from(gap.start).unwrap()..usize::try_from(gap.end).unwrap()].fill(0);
        }
        let (attempt, got, _) = get(&server, &spec, &there).await;
        assert!(got == bytes);
        assert_eq!(
            attempt.report.evidence.bytes,
            SIZE as u64 - spec.have.bytes()
        );
    }
}

async fn put(server: &Server, spec: &TransferSpec, bytes: &[u8]) -> Attempt {
    let mut session = open(server, "f").await;
    let source = Arc::new(MemorySource::new(bytes, "memory"));
    let control = Arc::new(Control::new());
    let attempt = transfer::put(&mut session, source, b"/f", spec, &control);
    let attempt = attempt.await.unwrap();
    session.close().await;
    attempt
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_begins_the_file_anew_with_its_first_chunk_only() {
    let server = Server::start().await;
    let bytes = noise(SIZE);
    server.store("f", &noise(SIZE + 1000));
    let spec = spec(mode(Mode::MiPlus, RoundTrips::Flowing), SIZE);
    let attempt = put(&server, &spec, &bytes).await;
    assert!(server.read("f") == bytes);
    assert_eq!(attempt.report.digest, sum(&bytes));
    // What the server told of each chunk counts from the chunk's place.
    let marked = spec.marked.lock().unwrap().clone();
    assert!(
        marked.end() <= SIZE as u64 && marked.bytes() > (SIZE / 2) as u64,
        "{marked}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_keeps_what_is_safe() {
    let server = Server::start().await;
    let bytes = noise(SIZE);
    let mut there = bytes.clone();
    there[..1 << 20].fill(0);
    server.store("f", &there);
    let mut spec = spec(mode(Mode::Mi, RoundTrips::Flowing), SIZE);
    spec.have.insert(1 << 20, 20 << 20);
    let attempt = put(&server, &spec, &bytes).await;
    assert!(server.read("f") == bytes);
    assert_eq!(attempt.report.evidence.bytes, (SIZE - (19 << 20)) as u64);
}

/// A part of a source, in chunks, to a destination of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_comes_in_chunks() {
    let server = Server::start().await;
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let (offset, length) = (3_000_001, 24_000_000);
    let mut spec = spec(Chunks::Probe, length);
    spec.part = Some((offset as u64, length as u64));
    let (_, got, _) = get(&server, &spec, &[]).await;
    assert!(got == bytes[offset..offset + length]);
}

#[tokio::test(flavor = "multi_thread")]
async fn between_servers_chunks_are_told_by_markers() {
    let (from, to) = (Server::start().await, Server::start().await);
    let bytes = noise(SIZE);
    from.store("f", &bytes);
    let told = std::sync::atomic::AtomicU64::new(0);
    for chunks in [Chunks::Probe, mode(Mode::Mi, RoundTrips::Flowing)] {
        let spec = spec(chunks, SIZE);
        // What is there already, and longer, is begun anew.
        to.store("g", &noise(SIZE + 1000));
        let (mut source, mut destination) = (open(&from, "f").await, open(&to, "f").await);
        let progress = |bytes| {
            told.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        };
        let attempt = transfer::third_party(
            &mut source,
            b"/f",
            &mut destination,
            b"/g",
            &spec,
            &progress,
        );
        let attempt = attempt.await.unwrap();
        assert_eq!(attempt.report.evidence.bytes, SIZE as u64);
        assert!(to.read("g") == bytes);
        assert_eq!(
            told.swap(0, std::sync::atomic::Ordering::Relaxed),
            SIZE as u64
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_modes_by_their_flag() {
    let server = Server::start().await;
    let here = tempfile::tempdir().unwrap();
    let bytes = noise(SIZE);
    server.store("f", &bytes);
    let to = here.path().join("to");
    let trace = here.path().join("trace");
    let options = CopyOptions {
        parallelism: Parallelism::Chunked(Mode::Mi),
        autopar: Parameters {
            first: 2,
            delta: Duration::from_millis(100),
            ..Parameters::default()
        },
        transfer: limited(RATE),
        trace: Some(trace.clone()),
        ..options()
    };
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
