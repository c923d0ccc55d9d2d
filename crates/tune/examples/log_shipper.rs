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

use tune::sample::TcpSample;
use tune::streams::auto::{AutoLimits, AutoTuner, TransferSample, TransferSetting};

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

    fn looks(&self) -> Vec<TcpSample> {
        let look = |stream| TcpSample {
            stream,
            at: self.now,
            bytes: self.answered / self.connections,
            smoothed_rtt: self.round_trip(),
            min_rtt: ANSWER,
            unsent: CREDIT,
            in_flight: CREDIT,
            cwnd: CREDIT,
            peer_window: CREDIT,
            busy_time: self.now,
            rwnd_limited: self.held,
            ..TcpSample::default()
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
    let limits = AutoLimits {
        min_streams: 1,
        max_streams: 32,
        congestion_controls: Vec::new(),
        may_pace: false,
    };
    let mut auto = AutoTuner::new(limits, 1);
    let mut due = Duration::ZERO;
    while shipper.now < Duration::from_secs(30) {
        shipper.pass();
        if shipper.now < due {
            continue;
        }
        let decisions = auto.on_sample(&TransferSample {
            at: shipper.now,
            bytes_moved: shipper.answered,
            bytes_left: None,
            streams: &shipper.looks(),
            streams_opening: 0,
            congestion_control: "credit",
            rate_limit: None,
        });
        for decision in decisions {
            if let Some(TransferSetting::Streams(connections)) = decision.setting {
                shipper.connections = connections.into();
            }
            println!("{:6.2} s  {}", decision.at.as_secs_f64(), decision.reason);
        }
        due = shipper.now + auto.next_sample_in();
    }
    let verdict = auto.verdict();
    println!(
        "{} connections; limited by the {}; {}",
        verdict.streams,
        verdict.limiter,
        verdict.remedy.unwrap_or_default()
    );
}
