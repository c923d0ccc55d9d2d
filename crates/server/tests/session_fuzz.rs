//! A stateful fuzz test of server sessions: random legal and illegal dialogues, with well-behaved and
//! faulty data connections, on a real file tree.
//!
//! Invariants: no file outside of the root is changed or read; no thread panics; every session ends
//! after its client sends QUIT and closes its data connections; descriptors, threads and memory are
//! released.
//!
//! The test suite runs it for some seconds. A longer campaign:
//! `LONGHAUL_FUZZ_SECONDS=600 cargo test --release -p server --test session_fuzz -- --nocapture`.
//! `LONGHAUL_FUZZ_SEED` repeats the dialogues of a run, except for the order of threads. The test is
//! alone in its process, because it counts descriptors, threads and memory of the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "everything in this crate is a test"
)]

mod fuzz;
mod serving;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use server::ReloadRequests;
use server::config::{Anonymous, ServerConfig};

use fuzz::dialogue::FuzzDialogue;
use fuzz::tree::FuzzTree;

/// Number of concurrent clients.
const CLIENTS: u64 = 12;

/// Duration of the run in the test suite.
const DEFAULT_DURATION: Duration = Duration::from_secs(5);

/// Longest time in which the server must release its resources after the last client has left.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Resident memory that may remain after the run, bytes: allocator arenas and idle threads.
const MEMORY_TOLERANCE: usize = 256 << 20;

/// Number of descriptors and of threads that may remain: idle threads of the runtime.
const THREAD_TOLERANCE: usize = 80;

static PANICS: AtomicU64 = AtomicU64::new(0);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A seed for a run without `LONGHAUL_FUZZ_SEED`.
fn seed_from_clock() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Resident memory of this process, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

fn config(tree: &FuzzTree) -> ServerConfig {
    let mut config = ServerConfig {
        listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
        root: tree.root(),
        anonymous: Some(Anonymous::Rw),
        login_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(20),
        max_streams: 64,
        max_streams_per_transfer: 8,
        ..ServerConfig::default()
    };
    config.transfer.stall = Duration::from_millis(400);
    config
}

/// Installs a hook that counts panics of the server's threads. Panics of the test's own threads fail
/// the test anyway.
fn count_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
}

/// Number of replies received for each code.
type ReplyCodeCounts = BTreeMap<u16, u64>;

/// Runs dialogues until `end`; returns their number and the reply codes.
fn client(seed: u64, port: u16, tree: &FuzzTree, end: Instant) -> (u64, ReplyCodeCounts) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let (mut dialogues, mut codes) = (0, ReplyCodeCounts::new());
    while Instant::now() < end {
        let dialogue_seed = rng.random();
        let received = FuzzDialogue::new(dialogue_seed, port).run();
        assert!(
            !tree.leaked(&received),
            "dialogue {dialogue_seed:#x} read a file outside the root"
        );
        count_codes(&received, &mut codes);
        dialogues += 1;
    }
    (dialogues, codes)
}

fn count_codes(received: &[u8], codes: &mut ReplyCodeCounts) {
    for line in received.split(|b| *b == b'\n') {
        let (Some(code), Some(b' ')) = (line.get(..3), line.get(3)) else {
            continue;
        };
        let code = str::from_utf8(code).ok().and_then(|code| code.parse().ok());
        if let Some(code) = code {
            *codes.entry(code).or_default() += 1;
        }
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + RELEASE_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn random_dialogues_do_not_break_the_server() {
    count_panics();
    let seconds = setting("LONGHAUL_FUZZ_SECONDS").map_or(DEFAULT_DURATION, Duration::from_secs);
    let seed = setting("LONGHAUL_FUZZ_SEED").unwrap_or_else(seed_from_clock);
    println!("seed {seed}, {} s", seconds.as_secs());
    let tree = Arc::new(FuzzTree::new());
    let before = tree.outside();
    let (announcement, shutdown, server) =
        serving::start_server(config(&tree), ReloadRequests::never());
    let address = announcement.address;
    let (descriptors, memory) = (count("/proc/self/fd"), resident());

    let end = Instant::now() + seconds;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let tree = Arc::clone(&tree);
            let seed = seed.wrapping_add(n);
            std::thread::spawn(move || client(seed, address.port(), &tree, end))
        })
        .collect();
    let (mut dialogues, mut codes) = (0, ReplyCodeCounts::new());
    for client in clients {
        let (of_client, client_codes) = client.join().expect("a client's invariants hold");
        dialogues += of_client;
        for (code, times) in client_codes {
            *codes.entry(code).or_default() += times;
        }
    }
    println!("{dialogues} dialogues, replies {codes:?}");
    for code in [150, 213, 226, 250, 426, 500, 550] {
        assert!(codes.contains_key(&code), "the fuzz never gets to a {code}");
    }

    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread panicked");
    assert_eq!(tree.outside(), before, "something outside the root changed");
    eventually("descriptors are given back", || {
        count("/proc/self/fd") <= descriptors + THREAD_TOLERANCE
    });
    eventually("threads end", || {
        count("/proc/self/task") <= THREAD_TOLERANCE
    });
    eventually("memory is given back", || {
        resident() <= memory + MEMORY_TOLERANCE
    });
    let mut last = FuzzDialogue::new(seed, address.port());
    assert!(last.receives_greeting(), "the server serves on");
    drop(last);
    shutdown.request();
    server.join().unwrap().unwrap();
}
