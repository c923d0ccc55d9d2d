//! `tune::streams::auto` for something that is neither FTP nor TCP: how many connections a log shipper
//! opens to a collector.
//!
//! The collector grants each connection 256 KB of unanswered records (as HTTP/2 grants flow-control
//! credit), answers after 40 ms, and takes 30 MB/s over all of them together; what comes faster waits in
//! its inbox. After ten seconds the collector gets a neighbour's half of the machine.
//!
//! The shipper tells `auto` what it sees, in `auto`'s words: unanswered bytes are in flight, the credit
//! is the peer's window, time without credit is time limited by that window, and the time until an
//! answer is the round trip. `auto` says how many connections there should be. Nothing here waits or
//! opens a socket: the collector is arithmetic on a clock of the program's own.
//!
//! ```text
//! cargo run -p tune --example log_shipper
//! ```

#![allow(clippy::print_stdout, reason = "it tells what it does")]

use std::time::Duration;

use tune::look::Look;
use tune::streams::auto::{Auto, Limits, Scene, Step};

/// Most bytes that a connection may have unanswered.
const CREDIT: u64 = 256_000;
/// Until an answer comes from a collector that has nothing else to do.
const ANSWER: Duration = Duration::from_millis(40);
/// The program's clock ticks so often.
const TICK: Duration = Duration::from_millis(5);

/// All connections and the collector behind them.
struct Shipper {
    now: Duration,
    connections: u64,
    /// Records answered, bytes.
    answered: u64,
    /// Records in the collector's inbox, bytes.
    inbox: u64,
    /// Time that the connections had no credit.
    held: Duration,
}

impl Shipper {
    /// Rate that the collector takes, bytes per second.
    fn capacity(&self) -> u64 {
        if self.now < Duration::from_secs(10) {
            30_000_000
        } else {
            60_000_000
        }
    }

    /// Time until an answer: the inbox comes first.
    fn round_trip(&self) -> Duration {
        ANSWER + Duration::from_secs_f64(self.inbox as f64 / self.capacity() as f64)
    }

    /// One tick: every connection sends all its credit each round trip.
    fn pass(&mut self) {
        self.now += TICK;
        let per_tick = |rate: u64| rate / 1000 * 5;
        let offered = per_tick(self.connections * CREDIT * 1000 / 40);
        let taken = per_tick(self.capacity()).min(self.inbox + offered);
        // No more can wait than the credit that no answer is on its way for.
        let most = (self.connections * CREDIT).saturating_sub(self.capacity() / 25);
        self.inbox = (self.inbox + offered - taken).min(most);
        self.answered += taken;
        if self.inbox == 0 {
            self.held += TICK;
        }
    }

    fn looks(&self) -> Vec<Look> {
        let look = |stream| Look {
            stream,
            at: self.now,
            bytes: self.answered / self.connections,
            rtt: self.round_trip(),
            min_rtt: ANSWER,
            unsent: CREDIT,
            in_flight: CREDIT,
            congestion_window: CREDIT,
            peer_window: CREDIT,
            busy: self.now,
            rwnd_limited: self.held,
            ..Look::default()
        };
        (0..self.connections).map(look).collect()
    }
}

fn main() {
    let mut shipper = Shipper {
        now: Duration::ZERO,
        connections: 1,
        answered: 0,
        inbox: 0,
        held: Duration::ZERO,
    };
    let limits = Limits {
        least: 1,
        most: 32,
        congestion: Vec::new(),
        pace: false,
    };
    let mut auto = Auto::new(limits, 1);
    let mut due = Duration::ZERO;
    while shipper.now < Duration::from_secs(30) {
        shipper.pass();
        if shipper.now < due {
            continue;
        }
        let decisions = auto.on_scene(&Scene {
            at: shipper.now,
            moved: shipper.answered,
            left: None,
            looks: &shipper.looks(),
            opening: 0,
            congestion: "credit",
            rate_limit: None,
        });
        for decision in decisions {
            if let Some(Step::Streams(connections)) = decision.step {
                shipper.connections = connections.into();
            }
            println!("{:6.2} s  {}", decision.at.as_secs_f64(), decision.reason);
        }
        due = shipper.now + auto.due();
    }
    let verdict = auto.verdict();
    println!(
        "{} connections; limited by the {}; {}",
        verdict.streams,
        verdict.limiter,
        verdict.remedy.unwrap_or_default()
    );
}
