//! What was simulated, as text for people, CSV, and JSON.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use sim::link::{Loss, Queue};

use super::request::{SimRequest, congestion_name};

/// Simulations of one setting, one for each number of connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimReport {
    /// What was simulated.
    pub setting: Setting,
    /// What came of it, in the order that was asked for.
    pub points: Vec<SimPoint>,
}

/// A request in plain numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Bottleneck, bit/s.
    pub rate_bps: u64,
    /// One-way propagation delay of the bottleneck, milliseconds.
    pub delay_ms: f64,
    /// One-way delay of each access link, milliseconds.
    pub access_delay_ms: f64,
    /// Access links, bit/s.
    pub access_rate_bps: u64,
    /// Round trip without queues, milliseconds.
    pub base_rtt_ms: f64,
    /// Drop-tail queue: `1000 packets`, `1500000 bytes`, `unlimited`.
    pub queue: String,
    /// Random loss: `none`, `0.5%`, or the four values of the Gilbert-Elliott model.
    pub loss: String,
    /// Socket buffer, bytes.
    pub window_bytes: u64,
    /// `newreno` or `cubic`.
    pub congestion: &'static str,
    /// Every other segment is acknowledged.
    pub delayed_ack: bool,
    /// Bytes of a full IP packet.
    pub packet_bytes: u32,
    /// Measured seconds, or the longest that a transfer may take.
    pub duration_s: f64,
    /// Seconds before that; `None`: a transfer, which is measured from its beginning.
    pub warm_up_s: Option<f64>,
    /// File size; `None`: endless.
    pub file_bytes: Option<u64>,
    /// Cross traffic, bit/s.
    pub cross_traffic_bps: u64,
    /// Largest random time in the sending host, microseconds.
    pub jitter_us: f64,
    /// Seed.
    pub seed: u64,
}

/// One simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimPoint {
    /// Parallel connections.
    pub flows: u32,
    /// Payload that arrived in order, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean of all round-trip samples, milliseconds; `None`: no sample.
    pub mean_rtt_ms: Option<f64>,
    /// Packets of these connections dropped at the full queue.
    pub drops: u64,
    /// Packets of these connections lost at random.
    pub losses: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Jain's index of the connections' goodputs, 1/N..=1; 1: all have the same.
    pub fairness: f64,
    /// How long the file took, seconds; `None`: endless, or not done in time.
    pub seconds: Option<f64>,
    /// What held the connections back, as `tune::limiter` judges it from the sender's accounts.
    pub limited_by: String,
}

/// What an experiment takes from a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// `goodput`: payload that arrived in order, Mbit/s.
    Goodput,
    /// `mean_rtt`: mean round trip, milliseconds.
    MeanRtt,
}

impl Measure {
    /// The measure of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "goodput" => Some(Self::Goodput),
            "mean_rtt" => Some(Self::MeanRtt),
            _ => None,
        }
    }

    /// Its value at `point`; `None`: nothing arrived.
    pub fn of(self, point: &SimPoint) -> Option<f64> {
        match self {
            Self::Goodput => Some(point.goodput_mbps),
            Self::MeanRtt => point.mean_rtt_ms,
        }
    }

    /// `Mbit/s` or `ms`.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput => "Mbit/s",
            Self::MeanRtt => "ms",
        }
    }
}

impl Setting {
    pub(super) fn of(request: &SimRequest) -> Self {
        Self {
            rate_bps: request.rate.as_bits_per_second(),
            delay_ms: milliseconds(request.delay),
            access_delay_ms: milliseconds(request.access_delay),
            access_rate_bps: request.access_rate.as_bits_per_second(),
            base_rtt_ms: milliseconds(request.base_rtt()),
            queue: queue(request.queue),
            loss: loss(request.loss),
            window_bytes: request.window,
            congestion: congestion_name(request.congestion),
            delayed_ack: request.delayed_ack,
            packet_bytes: request.packet,
            duration_s: request.duration.as_secs_f64(),
            warm_up_s: request
                .bytes
                .is_none()
                .then(|| request.warm_up.as_secs_f64()),
            file_bytes: request.bytes,
            cross_traffic_bps: request.cross_traffic.map_or(0, |r| r.as_bits_per_second()),
            jitter_us: request.jitter.as_secs_f64() * 1e6,
            seed: request.seed,
        }
    }

    /// Two lines for people.
    fn to_text(&self) -> String {
        let mut text = format!(
            "{} Mbit/s, {} ms round trip without queues, queue {}, loss {}",
            self.rate_bps as f64 / 1e6,
            self.base_rtt_ms,
            self.queue,
            self.loss,
        );
        if self.cross_traffic_bps > 0 {
            let _ = write!(
                text,
                ", cross traffic {} Mbit/s",
                self.cross_traffic_bps as f64 / 1e6
            );
        }
        let _ = write!(
            text,
            "\n{}, {} KiB buffers, {}-byte packets, {}",
            self.congestion,
            self.window_bytes as f64 / 1024.0,
            self.packet_bytes,
            if self.delayed_ack {
                "delayed ACKs"
            } else {
                "an ACK per packet"
            },
        );
        if self.jitter_us > 0.0 {
            let _ = write!(text, ", up to {} us in the sending host", self.jitter_us);
        }
        match (self.file_bytes, self.warm_up_s) {
            (Some(bytes), _) => {
                let _ = write!(
                    text,
                    "; file of {bytes} bytes, at most {} s",
                    self.duration_s
                );
            }
            (None, warm_up) => {
                let warm_up = warm_up.unwrap_or(0.0);
                let _ = write!(text, "; {} s measured after {warm_up} s", self.duration_s);
            }
        }
        let _ = writeln!(text, "; seed {}", self.seed);
        text
    }
}

impl SimReport {
    /// The setting and a table.
    pub fn to_text(&self) -> String {
        let transfer = self.setting.file_bytes.is_some();
        let mut text = self.setting.to_text();
        let _ = write!(
            text,
            "\n{:>4}  {:>9}  {:>8}  {:>7}  {:>7}  {:>10}  {:>8}  {:>8}",
            "N", "goodput", "mean RTT", "drops", "lost", "sent again", "timeouts", "fairness"
        );
        text.push_str(if transfer {
            "   seconds  limited by\n"
        } else {
            "  limited by\n"
        });
        let _ = writeln!(text, "{:>4}  {:>9}  {:>8}", "", "Mbit/s", "ms");
        for p in &self.points {
            let rtt = p
                .mean_rtt_ms
                .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
            let _ = write!(
                text,
                "{:>4}  {:>9.3}  {:>8}  {:>7}  {:>7}  {:>10}  {:>8}  {:>8.3}",
                p.flows,
                p.goodput_mbps,
                rtt,
                p.drops,
                p.losses,
                p.retransmits,
                p.timeouts,
                p.fairness
            );
            if transfer {
                let seconds = p
                    .seconds
                    .map_or_else(|| "not done".to_owned(), |s| format!("{s:.3}"));
                let _ = write!(text, "  {seconds:>8}");
            }
            let _ = writeln!(text, "  {}", p.limited_by);
        }
        text
    }

    /// One line a point under a line of names; no quoting is needed.
    pub fn to_csv(&self) -> String {
        let mut csv = String::from(
            "connections,goodput_mbps,mean_rtt_ms,drops,losses,retransmits,timeouts,jain,seconds,\
             limited_by,seed\n",
        );
        let optional = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
        for p in &self.points {
            let _ = writeln!(
                csv,
                "{},{:.3},{},{},{},{},{},{:.3},{},{},{}",
                p.flows,
                p.goodput_mbps,
                optional(p.mean_rtt_ms),
                p.drops,
                p.losses,
                p.retransmits,
                p.timeouts,
                p.fairness,
                optional(p.seconds),
                p.limited_by,
                self.setting.seed
            );
        }
        csv
    }

    /// One object, `{"setting": {...}, "points": [...]}`, with a final line end.
    #[allow(
        clippy::expect_used,
        reason = "numbers, strings and structs always have a JSON form"
    )]
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("a report has a JSON form");
        json.push('\n');
        json
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn queue(queue: Queue) -> String {
    match queue {
        Queue::Unlimited => "unlimited".to_owned(),
        Queue::Packets(n) => format!("{n} packets"),
        Queue::Bytes(n) => format!("{n} bytes"),
    }
}

fn loss(loss: Loss) -> String {
    match loss {
        Loss::Never => "none".to_owned(),
        Loss::Independent(p) => format!("{}%", p * 100.0),
        Loss::Bursty {
            to_bad,
            to_good,
            in_good,
            in_bad,
        } => format!(
            "bursty (to bad {to_bad}, to good {to_good}, in good {in_good}, in bad {in_bad})"
        ),
    }
}
