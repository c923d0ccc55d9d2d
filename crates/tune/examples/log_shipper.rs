//! `tune::streams::auto` for a protocol that is neither FTP nor TCP: the number of connections from a log
//! shipper to its collector.
//!
//! The collector grants each connection 256 KB of unanswered records, as HTTP/2 grants flow-control credit
//! (RFC 9113 §5.2). It answers after 40 ms and processes 30 MB/s over all connections; faster records wait in
//! its inbox. After ten seconds its capacity doubles.
//!
//! The shipper translates its state for `auto`: unanswered bytes are in flight, the credit is the peer's
//! window, time without credit is time with a full window, and the time until an answer is the round trip.
//! `auto` answers with the number of connections. Nothing here waits or opens a socket: the collector is
//! simulated, with a clock of its own.
//!
//! ```text
//! cargo run -p tune --example log_shipper
//! ```

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use tune::sample::TcpSample;
use tune::streams::auto::{AutoLimits, AutoTuner, TransferSample, TransferSetting};

/// Largest number of unanswered bytes of a connection.
const CREDIT: u64 = 256_000;
/// Time until an answer from an idle collector.
const ANSWER: Duration = Duration::from_millis(40);
/// Step of the simulated clock.
const TICK: Duration = Duration::from_millis(5);

/// All connections and the collector.
struct Shipper {
    now: Duration,
    connections: u64,
    /// Records answered, bytes.
    answered: u64,
    /// Records in the collector's inbox, bytes.
    inbox: u64,
    /// Time for which the connections had no credit.
    without_credit: Duration,
}

impl Shipper {
    /// Rate at which the collector processes records, bytes per second.
    fn capacity(&self) -> u64 {
        if self.now < Duration::from_secs(10) {
            30_000_000
        } else {
            60_000_000
        }
    }

    /// Time until an answer, including the wait in the inbox.
    fn round_trip(&self) -> Duration {
        ANSWER + Duration::from_secs_f64(self.inbox as f64 / self.capacity() as f64)
    }

    /// Advances the clock by one step. Every connection sends its whole credit each round trip.
    fn advance(&mut self) {
        self.now += TICK;
        let per_tick = |rate: u64| rate / 1000 * 5;
        let offered = per_tick(self.connections * CREDIT * 1000 / 40);
        let processed = per_tick(self.capacity()).min(self.inbox + offered);
        // The inbox holds at most the credit that is not on its way.
        let most = (self.connections * CREDIT).saturating_sub(self.capacity() / 25);
        self.inbox = (self.inbox + offered - processed).min(most);
        self.answered += processed;
        if self.inbox == 0 {
            self.without_credit += TICK;
        }
    }

    fn samples(&self) -> Vec<TcpSample> {
        let sample = |stream| TcpSample {
            stream,
            at: self.now,
            bytes_acked: self.answered / self.connections,
            smoothed_rtt: self.round_trip(),
            min_rtt: ANSWER,
            unsent: CREDIT,
            in_flight: CREDIT,
            cwnd: CREDIT,
            peer_window: CREDIT,
            busy_time: self.now,
            rwnd_limited: self.without_credit,
            ..TcpSample::default()
        };
        (0..self.connections).map(sample).collect()
    }
}

fn main() {
    let mut shipper = Shipper {
        now: Duration::ZERO,
        connections: 1,
        answered: 0,
        inbox: 0,
        without_credit: Duration::ZERO,
    };
    let limits = AutoLimits {
        min_streams: 1,
        max_streams: 32,
        congestion_controls: Vec::new(),
        may_pace: false,
    };
    let mut tuner = AutoTuner::new(limits, 1);
    let mut due = Duration::ZERO;
    while shipper.now < Duration::from_secs(30) {
        shipper.advance();
        if shipper.now < due {
            continue;
        }
        let decisions = tuner.on_sample(&TransferSample {
            at: shipper.now,
            bytes_moved: shipper.answered,
            bytes_left: None,
            streams: &shipper.samples(),
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
        due = shipper.now + tuner.next_sample_in();
    }
    let verdict = tuner.verdict();
    println!(
        "{} connections; limited by the {}; {}",
        verdict.streams,
        verdict.limiter,
        verdict.remedy.unwrap_or_default()
    );
}
