//! `kill -9` of either end at seeded moments of a 200 MB transfer, then `--resume`.
//!
//! The file is right every time, never appears under its name before it is whole, and no more is
//! moved again than the unacknowledged tail. What counts as acknowledged:
//!
//! * a file that has its name: all of it;
//! * a put over one stream (MODE S): everything that the server has stored. Bytes are stored in
//!   order, so the length of the partial file is exact;
//! * gets: what the client called safe at least [`JOURNAL`] before the kill;
//! * puts over four streams (MODE E): the same, and [`MARKER`] earlier, because the client learns
//!   what is safe from the server's range markers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::cells::Cells;
use interop::longhaul::copy::{self, cp};
use interop::longhaul::rows::text;
use interop::longhaul::serve::{Serve, Server};
use interop::longhaul::unfinished::Unfinished;
use interop::matrix::{self, Store};
use interop::net::{HOST, free_port};
use interop::sample;
use interop::seed::Seed;

/// Bytes of the file.
const SIZE: u64 = 200_000_000;
/// 100 MB/s, in bits per second: the whole file takes two seconds.
const RATE: &str = "800M";
/// Kills fall within this many milliseconds of the start of the client.
const WINDOW: u64 = 2_000;
/// Moments for each of the four kinds of transfer: 52 in all.
const MOMENTS: u64 = 13;
/// A state is journalled at most this long after it was reached: 200 ms, and as much for a busy
/// machine.
const JOURNAL: Duration = Duration::from_millis(400);
/// Time between two range markers, as the server is configured here.
const MARKER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Direction {
    Get,
    Put,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Client,
    Server,
}

/// One transfer between a store and a local file.
struct Transfer {
    direction: Direction,
    streams: &'static str,
    source: PathBuf,
    destination: PathBuf,
    served: String,
}

impl Transfer {
    /// The arguments that both runs have in common.
    fn arguments(&self, server: &Server) -> Vec<String> {
        let url = server.url(&self.served);
        let ends = match self.direction {
            Direction::Get => [url, text(&self.destination)],
            Direction::Put => [text(&self.source), url],
        };
        let common = ["-p", self.streams, "--retries", "0", "--resume"].map(str::to_owned);
        common.into_iter().chain(ends).collect()
    }

    /// Bytes that no resumed run may move again.
    fn acknowledged(&self, copy: &Unfinished, killed: Instant) -> u64 {
        if self.destination.exists() {
            return SIZE;
        }
        let lag = match (self.direction, self.streams) {
            (Direction::Put, "1") => return settled_length(&partial(&self.destination)),
            (Direction::Put, _) => JOURNAL + MARKER,
            (Direction::Get, _) => JOURNAL,
        };
        copy.safe_before(killed, lag)
    }
}

fn partial(destination: &Path) -> PathBuf {
    let mut name = destination.as_os_str().to_owned();
    name.push(".longhaul-partial");
    name.into()
}

/// Length of a file once nobody writes to it any more; 0 if there is none.
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

fn serve(store: &Store, listen: &str) -> Result<Server> {
    let config = store
        .scratch()
        .file("serve.toml", b"range-marker-seconds = 1\n")?;
    Serve::anonymous(store.root())
        .listen(listen)
        .option("--config", &text(&config))
        .start()
}

/// One kill and what follows.
fn survive(store: &Store, transfer: &Transfer, victim: Victim, after: Duration) -> Result<()> {
    // A port that nothing else is given while no server has it.
    let mut server = serve(store, &format!("{HOST}:{}", free_port()?))?;
    let slow = ["--limit-rate".to_owned(), RATE.to_owned()];
    let arguments = [&slow[..], &transfer.arguments(&server)].concat();
    let mut client = Unfinished::start(copy::command(&arguments)?)?;
    std::thread::sleep(after);
    let killed = Instant::now();
    match victim {
        Victim::Client => client.kill(),
        Victim::Server => {
            server.guard().kill();
            let code = client.end()?.code();
            ensure!(
                code == Some(5) || whole(transfer),
                "exit code {code:?} instead of 5 after the server was killed"
            );
            let address = server.address().to_string();
            server = serve(store, &address)?;
        }
    }
    if transfer.destination.exists() {
        // Killed after the end of the transfer: what has the name is whole.
        sample::same(&transfer.source, &transfer.destination)?;
    }
    let acknowledged = transfer.acknowledged(&client, killed);
    let resumed = server.explain(cp(&transfer.arguments(&server)))?;
    let most = SIZE - acknowledged.min(SIZE);
    ensure!(
        resumed.bytes <= most,
        "{} bytes moved again, {acknowledged} of {SIZE} were acknowledged{}",
        resumed.bytes,
        if acknowledged == SIZE {
            " (the file was whole)"
        } else {
            ""
        }
    );
    sample::same(&transfer.source, &transfer.destination)?;
    ensure!(
        !partial(&transfer.destination).exists(),
        "the partial file is still there"
    );
    std::fs::remove_file(&transfer.destination)?;
    Ok(())
}

fn whole(transfer: &Transfer) -> bool {
    sample::same(&transfer.source, &transfer.destination).is_ok()
}

fn at_every_moment(direction: Direction, streams: &'static str, seed: u64) {
    let store = Store::new().unwrap();
    let source = store.path("src/big");
    sample::write(&source, SIZE, seed).unwrap();
    let mut random = Seed::new(seed);
    let mut cells = Cells::new(format!("{direction:?} -p {streams}"));
    for number in 0..MOMENTS {
        let after = Duration::from_millis(random.below(WINDOW));
        let victim = if number % 2 == 0 {
            Victim::Client
        } else {
            Victim::Server
        };
        let (served, destination) = match direction {
            Direction::Get => ("src/big".to_owned(), store.local()),
            Direction::Put => {
                let served = store.upload();
                let path = store.path(&served);
                (served, path)
            }
        };
        let transfer = Transfer {
            direction,
            streams,
            source: source.clone(),
            destination,
            served,
        };
        cells.check(format!("{victim:?} after {} ms", after.as_millis()), || {
            survive(&store, &transfer, victim, after)
        });
    }
    cells.finish();
    matrix::only(&store.path("up"), &[]).unwrap();
}

#[test]
fn get_over_one_stream() {
    at_every_moment(Direction::Get, "1", 101);
}

#[test]
fn get_over_four_streams() {
    at_every_moment(Direction::Get, "4", 102);
}

#[test]
fn put_over_one_stream() {
    at_every_moment(Direction::Put, "1", 103);
}

#[test]
fn put_over_four_streams() {
    at_every_moment(Direction::Put, "4", 104);
}
