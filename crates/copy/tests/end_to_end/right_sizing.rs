//! `--buffer drs`, `drs2004` and `drs1` with longhaul's own server, for every kind of copy.

use data::rate::RateLimit;
use proto::sizing::SocketBuffers;
use std::path::{Path, PathBuf};
use std::time::Duration;

use copy::{CopyOptions, CopySummary, Exit, ModeChoice, Parallelism, VerifyMode};
use proto::checksum::ChecksumAlgorithm;
use proto::sizing::BufferSizing;
use serde_json::Value;

use crate::faulty_server::FaultyServer;
use crate::support::{EndToEndServer, copy, copy_and_interrupt, file_names, options, random_bytes};

/// Enough that buffer sizes are exchanged.
const SIZE: usize = 24 << 20;

/// Reason of a sender that follows a size announced by its receiver.
const FOLLOWED: &str = "the receiver's buffer has this size";

/// On loopback a transfer may end before a message arrives.
const TRIES: usize = 8;

fn options_with_sizing(sizing: BufferSizing, streams: u32) -> CopyOptions {
    let mut options = options().with(|o| o.streams.parallelism = Parallelism::Fixed(streams));
    options.streams.transfer.buffers = SocketBuffers::sized_by(sizing);
    options
}

/// A server with a transfer log.
struct SizingLoggedServer {
    server: EndToEndServer,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl SizingLoggedServer {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let to = log.clone();
        Self {
            server: EndToEndServer::with(|config| config.transfer_log = Some(to)).await,
            log,
            _directory: directory,
        }
    }

    /// The record of the last of `files` file transfers.
    async fn last(&self, files: usize) -> Value {
        self.sizings(files).await;
        lines(&self.log).pop().unwrap()
    }

    /// The `sizing` entries of the log for `files` file transfers.
    async fn sizings(&self, files: usize) -> Vec<String> {
        for _ in 0..3_000 {
            let sizings: Vec<String> = lines(&self.log)
                .iter()
                .filter(|line| line["direction"] != "list")
                .map(|line| line["sizing"].as_str().unwrap().to_owned())
                .collect();
            if sizings.len() >= files {
                return sizings;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the log has fewer than {files} records");
    }
}

/// Reads a file of JSON lines.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn assert_done(summary: &CopySummary, sizing: BufferSizing) {
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.buffer, sizing.name());
    assert!(summary.buffer_bytes_max > 0);
}

/// Whether a decision in a trace has the measurements of an echo.
fn has_measurement(trace: &Path) -> bool {
    let fields = ["echo", "rtt", "bandwidth"];
    let is_measured = |line: &Value| fields.iter().all(|field| line[*field].is_u64());
    let decisions = lines(trace).into_iter();
    decisions
        .filter(|line| line["sample"] == "decision")
        .any(|line| is_measured(&line))
}

/// Reasons of the decisions in a trace.
fn reasons(trace: &Path) -> Vec<String> {
    lines(trace)
        .iter()
        .filter(|line| line["sample"] == "decision")
        .map(|line| line["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drs_works_for_gets_and_puts_over_one_stream_and_several() {
    let logged = SizingLoggedServer::start().await;
    let server = &logged.server;
    let workdir = tempfile::tempdir().unwrap();
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    let trace = workdir.path().join("trace");
    let mut measured = false;
    for sizing in [BufferSizing::Drs, BufferSizing::Drs1, BufferSizing::Drs2004] {
        for streams in [1, 4] {
            let options =
                options_with_sizing(sizing, streams).with(|o| o.trace = Some(trace.clone()));
            let to = workdir.path().join("to");
            let (get, events) = copy(&[&server.url("f")], to.to_str().unwrap(), &options).await;
            assert_done(&get, sizing);
            assert_eq!(events.warnings(), Vec::<String>::new());
            assert!(std::fs::read(&to).unwrap() == bytes);
            let why = reasons(&trace);
            assert!(!why.is_empty(), "{sizing:?} over {streams}: no decision");
            measured |= sizing == BufferSizing::Drs2004 && has_measurement(&trace);

            let (put, events) = copy(&[to.to_str().unwrap()], &server.url("g"), &options).await;
            assert_done(&put, sizing);
            assert_eq!(events.warnings(), Vec::<String>::new());
            assert!(server.read("g") == bytes);
            // The size that the server announced arrived here and was followed.
            let why = reasons(&trace);
            assert!(
                why.iter().any(|why| why == FOLLOWED),
                "{sizing:?} over {streams}: {why:?}"
            );
        }
    }
    assert!(measured, "no echo of drs2004 was measured");
    let sizings = logged.sizings(12).await;
    let expected = ["drs", "drs1", "drs2004"].map(|name| [name; 4]).concat();
    assert_eq!(sizings, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_measures_its_round_trip_on_the_drs_channel() {
    let server = EndToEndServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let trace = workdir.path().join("trace");
    server.store("f", &random_bytes(SIZE));
    let options = options_with_sizing(BufferSizing::Drs, 1).with(|o| o.trace = Some(trace.clone()));
    let to = workdir.path().join("to");
    let mut why = Vec::new();
    for _ in 0..TRIES {
        let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &options).await;
        assert_done(&summary, BufferSizing::Drs);
        // Before the first echo, the round trip is that of the handshake.
        why = reasons(&trace);
        if why.iter().any(|why| why.ends_with(" ms, by echo")) {
            return;
        }
    }
    panic!("no echo in {why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_drs1_a_sending_server_follows_the_client() {
    let logged = SizingLoggedServer::start().await;
    let workdir = tempfile::tempdir().unwrap();
    let trace = workdir.path().join("trace");
    logged.server.store("f", &random_bytes(SIZE));
    let options =
        options_with_sizing(BufferSizing::Drs1, 1).with(|o| o.trace = Some(trace.clone()));
    let to = workdir.path().join("to");
    for n in 1..=TRIES {
        let url = logged.server.url("f");
        let (summary, _) = copy(&[&url], to.to_str().unwrap(), &options).await;
        assert_done(&summary, BufferSizing::Drs1);
        let grown = lines(&trace).iter().any(|line| {
            line["sample"] == "decision"
                && line["change"] == "receive buffer 262144"
                && line["reason"] != FOLLOWED
        });
        assert!(grown, "{:?}", reasons(&trace));
        let record = logged.last(n).await;
        if record["decision"] == FOLLOWED {
            // The kernel doubles the initial 64 KiB (socket(7)).
            assert!(record["buffer"].as_u64().unwrap() > 128 << 10, "{record}");
            return;
        }
    }
    panic!("the client's sizes were never followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_use_a_drs_channel_between_them() {
    let (a, b) = (
        SizingLoggedServer::start().await,
        SizingLoggedServer::start().await,
    );
    let bytes = random_bytes(SIZE);
    a.server.store("f", &bytes);
    let mut followed = false;
    for n in 1..=TRIES {
        let streams = if n % 2 == 0 { 4 } else { 1 };
        let (from, to) = (a.server.user_url("f"), b.server.user_url("g"));
        let (summary, events) = copy(
            &[&from],
            &to,
            &options_with_sizing(BufferSizing::Drs, streams),
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.buffer, "drs");
        assert_eq!(events.warnings(), Vec::<String>::new());
        assert!(b.server.read("g") == bytes);
        assert_eq!(a.sizings(n).await, vec!["drs"; n]);
        assert_eq!(b.sizings(n).await, vec!["drs"; n]);
        followed |= a.last(n).await["decision"] == FOLLOWED;
        if followed && n > 1 {
            return;
        }
    }
    panic!("the destination's sizes were never followed");
}

#[tokio::test(flavor = "multi_thread")]
async fn between_servers_drs1_is_replaced_by_auto() {
    let (a, b) = (
        SizingLoggedServer::start().await,
        SizingLoggedServer::start().await,
    );
    a.server.store("f", &random_bytes(100_000));
    let (from, to) = (a.server.user_url("f"), b.server.user_url("g"));
    let (summary, events) = copy(&[&from], &to, &options_with_sizing(BufferSizing::Drs1, 1)).await;
    assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
    assert_eq!(summary.buffer, "auto");
    assert_eq!(events.warnings().len(), 1, "{:?}", events.warnings());
    assert_eq!(a.sizings(1).await, ["auto"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_sizing_between_servers_needs_no_agreement() {
    let (a, b) = (
        SizingLoggedServer::start().await,
        SizingLoggedServer::start().await,
    );
    a.server.store("f", &random_bytes(100_000));
    let (from, to) = (a.server.user_url("f"), b.server.user_url("g"));
    let (summary, _) = copy(&[&from], &to, &options_with_sizing(BufferSizing::Kernel, 1)).await;
    assert_eq!((summary.exit, summary.buffer), (Exit::Done, "kernel"));
    assert_eq!(a.sizings(1).await, ["kernel"]);
    assert_eq!(b.sizings(1).await, ["kernel"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_reuse_sessions_and_connections() {
    for (sizing, streams) in [
        (BufferSizing::Drs, 1),
        (BufferSizing::Drs, 3),
        (BufferSizing::Drs1, 3),
    ] {
        let logged = SizingLoggedServer::start().await;
        let server = &logged.server;
        let workdir = tempfile::tempdir().unwrap();
        for n in 0..12 {
            let size = if n % 3 == 0 { 2 << 20 } else { 1_000 * n };
            server.store(&format!("tree/{}/{n}", n % 2), &random_bytes(size));
        }
        let options = options_with_sizing(sizing, streams).with(|o| {
            o.tree.recursive = true;
            o.concurrency = Some(2);
            // Each file by itself: bundles have checksums that combine.
            o.file.verify = VerifyMode::With(ChecksumAlgorithm::Blake3);
            o.streams.mode = if streams > 1 {
                ModeChoice::Extended
            } else {
                ModeChoice::Auto
            };
        });
        let to = workdir.path().join("tree");
        let (get, _) = copy(&[&server.url("tree")], to.to_str().unwrap(), &options).await;
        assert_done(&get, sizing);
        let (put, _) = copy(&[to.to_str().unwrap()], &server.url("back"), &options).await;
        assert_done(&put, sizing);
        for n in 0..12 {
            let name = format!("{}/{n}", n % 2);
            let bytes = server.read(&format!("tree/{name}"));
            assert!(server.read(&format!("back/{name}")) == bytes, "{name}");
        }
        let sizings = logged.sizings(24).await;
        assert!(
            sizings.iter().all(|name| *name == sizing.name()),
            "{sizings:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_transfers_are_resumed() {
    let server = EndToEndServer::start().await;
    let bytes = random_bytes(SIZE);
    server.store("f", &bytes);
    for (sizing, streams) in [
        (BufferSizing::Drs, 1),
        (BufferSizing::Drs, 4),
        (BufferSizing::Drs1, 1),
    ] {
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("t");
        let mut slow = options_with_sizing(sizing, streams);
        slow.streams.transfer.rate = Some(RateLimit::new(6 << 20));
        let interruption = (6 << 20, &*to.with_extension("longhaul-partial"));
        copy_and_interrupt(&server.url("f"), to.to_str().unwrap(), &slow, interruption).await;
        let resume = options_with_sizing(sizing, streams).with(|o| o.file.resume = true);
        let (summary, _) = copy(&[&server.url("f")], to.to_str().unwrap(), &resume).await;
        assert_done(&summary, sizing);
        assert!(
            summary.bytes > 0 && summary.bytes < 20 << 20,
            "{}",
            summary.bytes
        );
        assert!(std::fs::read(&to).unwrap() == bytes);
        assert_eq!(file_names(workdir.path()), ["t"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_server_gets_no_drs_commands_even_on_a_retry() {
    let bytes = random_bytes(5 << 20);
    for sizing in [BufferSizing::Drs, BufferSizing::Drs1] {
        let faulty = FaultyServer {
            size: bytes.len(),
            sent: bytes.clone(),
            interrupt_at: Some(3 << 20),
            ..FaultyServer::default()
        };
        let workdir = tempfile::tempdir().unwrap();
        let to = workdir.path().join("f");
        let url = format!("ftp://{}/f", faulty.start());
        let (summary, events) = copy(
            &[&url],
            to.to_str().unwrap(),
            &options_with_sizing(sizing, 1),
        )
        .await;
        assert_eq!(summary.exit, Exit::Done, "{:?}", summary.first_failure);
        assert_eq!(summary.buffer, "auto");
        assert!(std::fs::read(&to).unwrap() == bytes);
        let warnings = events.warnings();
        let about: Vec<_> = warnings
            .iter()
            .filter(|w| w.contains("does not support"))
            .collect();
        assert_eq!(about.len(), 1, "{warnings:?}");
        for verb in ["OPTS", "DPSV", "DPRT", "SBUF"] {
            assert_eq!(faulty.commands(verb), Vec::<String>::new());
        }
    }
}
