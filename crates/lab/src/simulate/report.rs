//! What was simulated, as text for people, CSV, and JSON.

use std::fmt::Write;

use serde::Serialize;

use super::setting::Setting;
use super::tuned::{self, SimChunk};

/// Simulations of one setting, one for each number of connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimReport {
    /// What was simulated.
    pub setting: Setting,
    /// What came of it, in the order that was asked for.
    pub points: Vec<SimPoint>,
}

/// One simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimPoint {
    /// Parallel connections; where the number is found on the way, of the last chunk that was not
    /// just what was left.
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
    /// The last chunk that was not just what was left of the file.
    #[serde(skip)]
    pub end: Option<SimChunk>,
    /// Of a file in chunks, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<SimChunk>,
}

/// What an experiment takes from a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// `goodput`: payload that arrived in order, Mbit/s.
    Goodput,
    /// `mean_rtt`: mean round trip, milliseconds.
    MeanRtt,
    /// `streams`: connections at the end.
    Streams,
    /// `end_goodput`: of the last chunk that was not just what was left, Mbit/s.
    EndGoodput,
    /// `end_queueing`: mean wait of its packets in the bottleneck's queue, milliseconds.
    EndQueueing,
    /// `settled`: when the number of connections had been found, seconds.
    Settled,
}

impl Measure {
    /// The measure of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Goodput,
        Self::MeanRtt,
        Self::Streams,
        Self::EndGoodput,
        Self::EndQueueing,
        Self::Settled,
    ];

    /// The name in an experiment's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::MeanRtt => "mean_rtt",
            Self::Streams => "streams",
            Self::EndGoodput => "end_goodput",
            Self::EndQueueing => "end_queueing",
            Self::Settled => "settled",
        }
    }

    /// Its value at `point`; `None`: nothing arrived, or the number of connections was not to be found.
    pub fn of(self, point: &SimPoint) -> Option<f64> {
        match self {
            Self::Goodput => Some(point.goodput_mbps),
            Self::MeanRtt => point.mean_rtt_ms,
            Self::Streams => Some(point.flows.into()),
            Self::EndGoodput => point.end.as_ref().map(|end| end.goodput_mbps),
            Self::EndQueueing => point.end.as_ref().map(|end| end.queueing_ms),
            Self::Settled => tuned::settled(&point.chunks),
        }
    }

    /// `Mbit/s`, `ms`, `s`, or empty.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::EndGoodput => "Mbit/s",
            Self::MeanRtt | Self::EndQueueing => "ms",
            Self::Streams => "",
            Self::Settled => "s",
        }
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
        for p in self.points.iter().filter(|p| !p.chunks.is_empty()) {
            text.push_str(&tuned::table(&p.chunks));
        }
        text
    }

    /// One line a point, or of a file in chunks a chunk, under a line of names; no quoting is needed.
    pub fn to_csv(&self) -> String {
        if let Some(point) = self.points.iter().find(|p| !p.chunks.is_empty()) {
            return tuned::csv(&point.chunks, self.setting.seed);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::SimRequest;

    fn point(flows: u32) -> SimPoint {
        SimPoint {
            flows,
            goodput_mbps: 85.125,
            mean_rtt_ms: Some(24.174),
            drops: 1,
            losses: 2,
            retransmits: 3,
            timeouts: 4,
            fairness: 0.5,
            seconds: None,
            limited_by: "receive window".to_owned(),
            end: None,
            chunks: Vec::new(),
        }
    }

    fn report(request: &SimRequest, points: Vec<SimPoint>) -> SimReport {
        SimReport {
            setting: Setting::of(request),
            points,
        }
    }

    #[test]
    fn a_line_a_point() {
        let text = report(&SimRequest::default(), vec![point(4), point(64)]).to_text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 7, "{text}");
        let values = "85.125 24.17 1 2 3 4 0.500 receive window";
        assert_eq!(lines[5].join(" "), format!("4 {values}"));
        assert_eq!(lines[6].join(" "), format!("64 {values}"));
    }

    #[test]
    fn a_transfer_says_when_it_was_done() {
        let request = SimRequest {
            bytes: Some(1),
            ..SimRequest::default()
        };
        let done = SimPoint {
            seconds: Some(1.25),
            ..point(1)
        };
        let text = report(&request, vec![done, point(2)]).to_text();
        assert!(text.contains("0.500     1.250  receive window"), "{text}");
        assert!(text.contains("0.500  not done  receive window"), "{text}");
    }

    #[test]
    fn csv_has_as_many_values_as_names() {
        let nothing = SimPoint {
            mean_rtt_ms: None,
            ..point(2)
        };
        let csv = report(&SimRequest::default(), vec![point(1), nothing]).to_csv();
        let widths: Vec<usize> = csv.lines().map(|l| l.split(',').count()).collect();
        assert_eq!(widths, [11, 11, 11], "{csv}");
        assert!(
            csv.contains("\n1,85.125,24.174,1,2,3,4,0.500,,receive window,1\n"),
            "{csv}"
        );
    }

    #[test]
    fn json_reads_back() {
        let json = report(&SimRequest::default(), vec![point(1)]).to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["setting"]["rate_bps"], 100_000_000);
        assert_eq!(value["points"][0]["goodput_mbps"], 85.125);
        assert!(json.ends_with("}\n"));
    }
}
