//! A request in plain numbers, for reports.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use sim::link::{Loss, Queue};
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode, Optimum, RttCommands};
use units::Rate;

use super::request::{SimRequest, Tuned, congestion_name};

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
    /// Initial congestion window, segments.
    pub initial_window: u32,
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
    /// Who finds the number of connections, with which parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuned: Option<String>,
    /// Largest random time in the sending host, microseconds.
    pub jitter_us: f64,
    /// Seed.
    pub seed: u64,
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
            initial_window: request.effective_initial_window(),
            delayed_ack: request.delayed_ack,
            packet_bytes: request.packet,
            duration_s: request.duration.as_secs_f64(),
            warm_up_s: request
                .file()
                .is_none()
                .then_some(request.warm_up.as_secs_f64()),
            file_bytes: request.file(),
            cross_traffic_bps: request.cross_traffic.map_or(0, Rate::as_bits_per_second),
            tuned: request.tuned().map(|t| describe(t, &request.autopar)),
            jitter_us: request.jitter.as_secs_f64() * 1e6,
            seed: request.seed,
        }
    }

    /// Two lines for people.
    pub(super) fn to_text(&self) -> String {
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
            "\n{}, initial window {}, {} KiB buffers, {}-byte packets, {}",
            self.congestion,
            self.initial_window,
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
        if let Some(tuned) = &self.tuned {
            let _ = writeln!(text, "{tuned}");
        }
        text
    }
}

/// Who finds the number, in words, with the parameters that it uses.
fn describe(tuned: Tuned, parameters: &ChunkParameters) -> String {
    let p = parameters;
    let mut text = format!(
        "{}: N0 {}, at most {}",
        tuned.name(),
        p.initial_streams,
        p.max_streams
    );
    if tuned == Tuned::Probe {
        return text;
    }
    let _ = write!(text, ", eta {}", p.eta);
    let _ = match tuned {
        Tuned::Mode(ChunkTuningMode::Aimd) => write!(text, ", alpha {}, beta {}", p.alpha, p.beta),
        _ => write!(text, ", gamma {}", p.gamma),
    };
    let delta = p.delta.as_secs_f64();
    let _ = write!(text, ", delta {delta} s, rho {}", p.rho);
    text.push_str(match p.rtt_commands {
        RttCommands::DuringChunks => ", round trips while data flows",
        RttCommands::BetweenChunks => ", round trips between chunks",
    });
    if tuned == Tuned::Mode(ChunkTuningMode::MiPlus) {
        text.push_str(match p.optimum {
            Optimum::BothTerms => ", optimum of both terms",
            Optimum::SecondTerm => ", optimum of the second term",
        });
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &SimRequest) -> String {
        Setting::of(request).to_text()
    }

    #[test]
    fn the_papers_setting() {
        assert_eq!(
            text(&SimRequest::default()),
            "100 Mbit/s, 24 ms round trip without queues, queue 1000 packets, loss none\n\
             newreno, initial window 2, 64 KiB buffers, 1500-byte packets, an ACK per packet; \
             60 s measured after 20 s; seed 1\n"
        );
    }

    #[test]
    fn what_differs_is_said() {
        let text = text(&SimRequest {
            loss: Loss::Independent(0.005),
            queue: Queue::Bytes(12_500),
            cross_traffic: Some(Rate::bits_per_second(20_500_000)),
            delayed_ack: true,
            jitter: Duration::from_micros(120),
            bytes: Some(1_000_000),
            seed: 9,
            ..SimRequest::default()
        });
        for part in [
            "queue 12500 bytes, loss 0.5%, cross traffic 20.5 Mbit/s",
            "delayed ACKs, up to 120 us in the sending host",
            "file of 1000000 bytes, at most 60 s; seed 9",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn whoever_finds_the_number_is_told_with_the_parameters_it_uses() {
        let parameters = ChunkParameters::parse("rtt=between,optimum=second").unwrap();
        let words = |name: &str| describe(Tuned::named(name).unwrap(), &parameters);
        assert_eq!(words("probe"), "probe: N0 1, at most 256");
        assert!(
            words("aimd").contains("alpha 2, beta 0.5, delta 10 s, rho 0.1, round trips between")
        );
        assert!(words("mi+").ends_with("optimum of the second term"));
        assert!(Tuned::named("auto").is_none());
    }
}
