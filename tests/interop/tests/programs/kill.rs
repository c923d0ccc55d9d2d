//! SIGKILL of client or server at seeded moments of a 200 MB transfer, then `--resume`.
//!
//! The file must be correct every time, must not have its final name before it is complete, and only
//! unacknowledged data may be transferred again. Acknowledged data is:
//!
//! * for a file with its final name: all of it;
//! * for a put over one stream (MODE S): everything that the server has stored. It stores bytes in
//!   order, so this is the length of the partial file;
//! * for a get: the bytes that the client reported as safe at least [`JOURNAL`] before the kill;
//! * for a put over four streams (MODE E): the same, but [`MARKER`] earlier, because the client learns
//!   from the server's range markers which bytes are safe.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand};
use interop::matrix::{self, TestStore};
use interop::net::{HOST, free_port};
use interop::seeded_random::SeededRandom;
use interop::test_files;

/// Size of the file, bytes.
const SIZE: u64 = 200_000_000;
/// 100 MB/s, in bits per second: a copy takes two seconds.
const RATE: &str = "800M";
/// Kills happen within this many milliseconds after the start of the client.
const WINDOW: u64 = 2_000;
/// Number of kills for each of the four kinds of transfer, 52 in total.
const MOMENTS: u64 = 13;
/// Time after which safe bytes are in the journal: the client writes it every 200 ms; the rest is for a
/// busy machine.
const JOURNAL: Duration = Duration::from_millis(400);
/// Interval of range markers, as configured at the server.
const MARKER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq)]
enum CopyDirection {
    Get,
    Put,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum KillVictim {
    Client,
    Server,
}

/// A transfer that is killed and resumed.
struct KilledTransfer {
    direction: CopyDirection,
    streams: &'static str,
    source: PathBuf,
    destination: PathBuf,
    served: String,
}

impl KilledTransfer {
    /// The arguments of both runs.
    fn arguments(&self, server: &LonghaulServer) -> Vec<String> {
        let url = server.url(&self.served);
        let ends = match self.direction {
            CopyDirection::Get => [url, path_argument(&self.destination)],
            CopyDirection::Put => [path_argument(&self.source), url],
        };
        let common = ["-p", self.streams, "--retries", "0", "--resume"].map(str::to_owned);
        common.into_iter().chain(ends).collect()
    }

    /// Number of bytes that the resumed run must not transfer again.
    fn acknowledged(&self, copy: &RunningCopy, killed: Instant) -> u64 {
        if self.destination.exists() {
            return SIZE;
        }
        let lag = match (self.direction, self.streams) {
            (CopyDirection::Put, "1") => return settled_length(&partial_path(&self.destination)),
            (CopyDirection::Put, _) => JOURNAL + MARKER,
            (CopyDirection::Get, _) => JOURNAL,
        };
        copy.safe_before(killed, lag)
    }
}

fn partial_path(destination: &Path) -> PathBuf {
    let mut name = destination.as_os_str().to_owned();
    name.push(".longhaul-partial");
    name.into()
}

/// Length of a file when it has stopped growing; 0 if it does not exist.
fn settled_length(path: &Path) -> u64 {
    let length = || path.metadata().map_or(0, |metadata| metadata.len());
    let mut last = length();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = length();
        if now == last {
            return now;
        }
        last = now;
    }
}

fn serve(store: &TestStore, listen: &str) -> Result<LonghaulServer> {
    let config = store
        .scratch()
        .file("serve.toml", b"range-marker-seconds = 1\n")?;
    ServeCommand::anonymous(store.root())
        .listen(listen)
        .option("--config", &path_argument(&config))
        .start()
}

/// Kills one end of a transfer, resumes it and checks the result.
fn kill_and_resume(
    store: &TestStore,
    transfer: &KilledTransfer,
    victim: KillVictim,
    after: Duration,
) -> Result<()> {
    // A fixed port, so that the restarted server gets the same one.
    let mut server = serve(store, &format!("{HOST}:{}", free_port()?))?;
    let slow = ["--limit-rate".to_owned(), RATE.to_owned()];
    let arguments = [&slow[..], &transfer.arguments(&server)].concat();
    let mut client = RunningCopy::start(copy::command(&arguments)?)?;
    std::thread::sleep(after);
    let killed = Instant::now();
    match victim {
        KillVictim::Client => client.kill(),
        KillVictim::Server => {
            server.guard().kill();
            let code = client.wait_for_end()?.code();
            ensure!(
                code == Some(5) || is_complete(transfer),
                "exit code {code:?} instead of 5 after the server was killed"
            );
            let address = server.address().to_string();
            server = serve(store, &address)?;
        }
    }
    if transfer.destination.exists() {
        // A file with its final name must be complete.
        test_files::ensure_same(&transfer.source, &transfer.destination)?;
    }
    let acknowledged = transfer.acknowledged(&client, killed);
    let resumed = server.explain(cp(&transfer.arguments(&server)))?;
    let most = SIZE - acknowledged.min(SIZE);
    ensure!(
        resumed.bytes <= most,
        "{} bytes moved again, {acknowledged} of {SIZE} were acknowledged{}",
        resumed.bytes,
        if acknowledged == SIZE {
            " (the file was complete)"
        } else {
            ""
        }
    );
    test_files::ensure_same(&transfer.source, &transfer.destination)?;
    ensure!(
        !partial_path(&transfer.destination).exists(),
        "the partial file is still there"
    );
    std::fs::remove_file(&transfer.destination)?;
    Ok(())
}

fn is_complete(transfer: &KilledTransfer) -> bool {
    test_files::ensure_same(&transfer.source, &transfer.destination).is_ok()
}

fn kill_at_random_moments(direction: CopyDirection, streams: &'static str, seed: u64) {
    let store = TestStore::new().unwrap();
    let source = store.path("src/big");
    test_files::write(&source, SIZE, seed).unwrap();
    let mut random = SeededRandom::new(seed);
    let mut cells = MatrixRow::new(format!("{direction:?} -p {streams}"));
    for number in 0..MOMENTS {
        let after = Duration::from_millis(random.below(WINDOW));
        let victim = if number % 2 == 0 {
            KillVictim::Client
        } else {
            KillVictim::Server
        };
        let (served, destination) = match direction {
            CopyDirection::Get => ("src/big".to_owned(), store.local()),
            CopyDirection::Put => {
                let served = store.upload();
                let path = store.path(&served);
                (served, path)
            }
        };
        let transfer = KilledTransfer {
            direction,
            streams,
            source: source.clone(),
            destination,
            served,
        };
        cells.check(format!("{victim:?} after {} ms", after.as_millis()), || {
            kill_and_resume(&store, &transfer, victim, after)
        });
    }
    cells.finish();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}

#[test]
fn a_get_over_one_stream_survives_kills_at_any_moment() {
    kill_at_random_moments(CopyDirection::Get, "1", 101);
}

#[test]
fn a_get_over_four_streams_survives_kills_at_any_moment() {
    kill_at_random_moments(CopyDirection::Get, "4", 102);
}

#[test]
fn a_put_over_one_stream_survives_kills_at_any_moment() {
    kill_at_random_moments(CopyDirection::Put, "1", 103);
}

#[test]
fn a_put_over_four_streams_survives_kills_at_any_moment() {
    kill_at_random_moments(CopyDirection::Put, "4", 104);
}
