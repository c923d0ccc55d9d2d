//! Report of simulations, as text for people, CSV, and JSON.

use std::fmt::Write;

use serde::Serialize;

use super::outcome::{SimChunk, SimPoint};
use super::setting::Setting;
use crate::quoting::csv_values;

/// Simulations of one setting, one for each number of connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimReport {
    /// The setting that was simulated.
    pub setting: Setting,
    /// The outcomes, in the order that was asked for.
    pub points: Vec<SimPoint>,
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
            text.push_str(&chunk_table(&p.chunks));
        }
        text
    }

    /// One line a point, or of a file in chunks a chunk, under a line of names; no quoting is needed.
    pub fn to_csv(&self) -> String {
        if let Some(point) = self.points.iter().find(|p| !p.chunks.is_empty()) {
            return chunk_csv(&point.chunks, self.setting.seed);
        }
        let mut csv = String::from(
            "connections,goodput_mbps,mean_rtt_ms,drops,losses,retransmits,timeouts,jain,seconds,\
             limited_by,seed\n",
        );
        for p in &self.points {
            let values = [
                p.flows.to_string(),
                decimals(p.goodput_mbps),
                p.mean_rtt_ms.map(decimals).unwrap_or_default(),
                p.drops.to_string(),
                p.losses.to_string(),
                p.retransmits.to_string(),
                p.timeouts.to_string(),
                decimals(p.fairness),
                p.seconds.map(decimals).unwrap_or_default(),
                p.limited_by.to_string(),
                self.setting.seed.to_string(),
            ];
            csv += &csv_values(values.into_iter());
            csv.push('\n');
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

/// A line a chunk, for people.
fn chunk_table(chunks: &[SimChunk]) -> String {
    let mut text = format!(
        "\n{:>8}  {:>7}  {:>4}  {:>9}  {:>8}  {:>8}\n{:>8}  {:>7}  {:>4}  {:>9}  {:>8}  {:>8}\n",
        "time", "took", "N", "goodput", "R", "queueing", "s", "s", "", "Mbit/s", "ms", "ms"
    );
    for c in chunks {
        let _ = writeln!(
            text,
            "{:>8.1}  {:>7.2}  {:>4}  {:>9.3}  {:>8.1}  {:>8.1}  {}",
            c.time, c.seconds, c.streams, c.goodput_mbps, c.rtt_ms, c.queueing_ms, c.reason
        );
    }
    text
}

/// A value of a table, to three decimal places.
fn decimals(value: f64) -> String {
    format!("{value:.3}")
}

/// A line a chunk, comma-separated under a line of names.
fn chunk_csv(chunks: &[SimChunk], seed: u64) -> String {
    let mut csv =
        String::from("time,seconds,streams,bytes,goodput_mbps,rtt_ms,queueing_ms,settled,seed\n");
    for c in chunks {
        let values = [
            decimals(c.time),
            decimals(c.seconds),
            c.streams.to_string(),
            c.bytes.to_string(),
            decimals(c.goodput_mbps),
            decimals(c.rtt_ms),
            decimals(c.queueing_ms),
            c.settled.to_string(),
            seed.to_string(),
        ];
        csv += &csv_values(values.into_iter());
        csv.push('\n');
    }
    csv
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
