//! Results of ns-2: the committed table that the simulator is held against.

use std::time::Duration;

use sim::link::Loss;
use sim::tcp::HEADERS;

use super::outcome::SimPoint;
use super::request::{Flows, SimRequest};
use crate::LabError;
use crate::quoting::CsvRecord;

/// Largest relative deviation from ns-2 in goodput that counts as agreement.
pub const GOODPUT_TOLERANCE: f64 = 0.05;
/// The same for the mean round trip.
pub const RTT_TOLERANCE: f64 = 0.10;

/// The tables, as `crates/lab/validation/remake.sh` writes them.
const SWEEP: (&str, &str) = (
    "ns2-static-sweep.csv",
    include_str!("../../validation/ns2-static-sweep.csv"),
);
const LOSS: (&str, &str) = (
    "ns2-loss.csv",
    include_str!("../../validation/ns2-loss.csv"),
);

/// Names over the lines of [`Reference::beside`]. `host`: the sending host holds packets back for
/// up to so many microseconds. `loss`: the share of data packets lost at random.
pub const COLUMNS: &str = concat!(
    "   N host   loss  seed   goodput     ns-2          mean RTT     ns-2",
    "           drops   ns-2"
);

/// One simulation by ns-2; `static-sweep.tcl` says what its columns are.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Parallel connections.
    pub connections: u32,
    /// Largest random time in the sending host, microseconds.
    pub overhead_us: u32,
    /// Share of data packets lost at random behind the bottleneck.
    pub loss: f64,
    /// Most packets that a connection may have outstanding.
    pub window: u32,
    /// Seconds of warm-up.
    pub warm_up_s: u32,
    /// Seconds measured after it.
    pub measured_s: u32,
    /// Seed of the starts and of the random times.
    pub seed: u64,
    /// Payload that was acknowledged, Mbit/s.
    pub goodput_mbps: f64,
    /// Round trip at the mean queueing delay, milliseconds.
    pub mean_rtt_ms: f64,
    /// Packets dropped at the bottleneck.
    pub drops: u64,
    /// Retransmission timers that ran out.
    pub timeouts: u64,
    /// Jain's fairness index.
    pub jain: f64,
}

/// The sweep of the number of connections: with and without a random time in the sending host.
///
/// # Errors
/// [`LabError::Usage`]: a line that is not one of the table's, which names it.
pub fn sweep() -> Result<Vec<Reference>, LabError> {
    table(SWEEP)
}

/// Random loss and windows that do not limit.
///
/// # Errors
/// As [`sweep`].
pub fn losses() -> Result<Vec<Reference>, LabError> {
    table(LOSS)
}

fn table((name, text): (&str, &str)) -> Result<Vec<Reference>, LabError> {
    CsvRecord::all(text)
        .map(|record| {
            let unread = || format!("{name}: cannot be read: '{}'", record.line);
            reference(&record).ok_or_else(|| LabError::Usage(unread()))
        })
        .collect()
}

fn reference(record: &CsvRecord<'_>) -> Option<Reference> {
    Some(Reference {
        connections: record.value("connections")?,
        overhead_us: record.value("overhead_us")?,
        loss: record.value("loss")?,
        window: record.value("window")?,
        warm_up_s: record.value("warm_up_s")?,
        measured_s: record.value("measured_s")?,
        seed: record.value("seed")?,
        goodput_mbps: record.value("goodput_mbps")?,
        mean_rtt_ms: record.value("mean_rtt_ms")?,
        drops: record.value("drops")?,
        timeouts: record.value("timeouts")?,
        jain: record.value("jain")?,
    })
}

impl Reference {
    /// The same simulation in ours.
    pub fn request(&self) -> SimRequest {
        let setting = SimRequest::default();
        let payload = setting.packet - HEADERS;
        SimRequest {
            flows: Flows::Counts(vec![self.connections]),
            jitter: Duration::from_micros(self.overhead_us.into()),
            loss: if self.loss > 0.0 {
                Loss::Independent(self.loss)
            } else {
                Loss::Never
            },
            window: u64::from(self.window) * u64::from(payload),
            warm_up: Duration::from_secs(self.warm_up_s.into()),
            duration: Duration::from_secs(self.measured_s.into()),
            seed: self.seed,
            ..setting
        }
    }

    /// How far `ours` is from this: goodput and mean round trip, relative, positive when ours is
    /// larger.
    pub fn deviations(&self, ours: &SimPoint) -> (f64, f64) {
        let rtt = ours.mean_rtt_ms.unwrap_or(f64::NAN);
        (
            ours.goodput_mbps / self.goodput_mbps - 1.0,
            rtt / self.mean_rtt_ms - 1.0,
        )
    }

    /// A line of the comparison, under [`COLUMNS`].
    pub fn beside(&self, ours: &SimPoint) -> String {
        let (goodput, rtt) = self.deviations(ours);
        format!(
            "{:>4} {:>4} {:>5}%  {:>4}  {:>8.3} {:>8.3} {:>+6.2}%  {:>8.3} {:>8.3} {:>+6.2}%  {:>6} {:>6}",
            self.connections,
            self.overhead_us,
            self.loss * 100.0,
            self.seed,
            ours.goodput_mbps,
            self.goodput_mbps,
            goodput * 100.0,
            ours.mean_rtt_ms.unwrap_or(f64::NAN),
            self.mean_rtt_ms,
            rtt * 100.0,
            ours.drops,
            self.drops
        )
    }

    /// Both deviations are within the tolerance.
    pub fn agrees(&self, ours: &SimPoint) -> bool {
        let (goodput, rtt) = self.deviations(ours);
        goodput.abs() <= GOODPUT_TOLERANCE && rtt.abs() <= RTT_TOLERANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;
    use crate::simulate::{Flows, Measure};

    const COMPARISON: &str = include_str!("../../validation/comparison.txt");
    const GOODPUT_EXPERIMENT: &str = include_str!("../../experiments/ns2-static.toml");
    const RTT_EXPERIMENT: &str = include_str!("../../experiments/ns2-static-rtt.toml");

    /// Where windows limit, where the queue is nearly full, where it overflows, and the end.
    const FEW: [u32; 5] = [1, 4, 16, 29, 64];

    #[test]
    fn the_table_has_every_number_of_connections() {
        let table = sweep().unwrap();
        for overhead in [0, 120] {
            for connections in 1..=64 {
                assert!(
                    table.iter().any(|r| r.connections == connections
                        && r.overhead_us == overhead
                        && r.seed == 1),
                    "{connections} {overhead}"
                );
            }
        }
        assert!(
            table
                .iter()
                .all(|r| r.jain <= 1.0 && r.goodput_mbps < 100.0)
        );
    }

    #[test]
    fn a_damaged_line_is_named() {
        for table in ["connections\n1", "\n\n"] {
            assert!(CsvRecord::all(table).all(|record| reference(&record).is_none()));
        }
    }

    #[test]
    fn a_deviation_beyond_tolerance_is_no_agreement() {
        let reference = &sweep().unwrap()[0];
        let mut ours = simulate::run(&reference.request())
            .unwrap()
            .points
            .remove(0);
        assert!(reference.agrees(&ours));
        let rtt = ours.mean_rtt_ms;
        ours.mean_rtt_ms = rtt.map(|ms| ms * 1.11);
        assert!(!reference.agrees(&ours));
        ours.mean_rtt_ms = None;
        assert!(!reference.agrees(&ours));
        ours.mean_rtt_ms = rtt;
        ours.goodput_mbps *= 0.94;
        assert!(!reference.agrees(&ours));
    }

    #[track_caller]
    fn hold_against_ns2(table: Vec<Reference>, chosen: impl Fn(&Reference) -> bool) {
        for reference in table.into_iter().filter(chosen) {
            let ours = simulate::run(&reference.request())
                .unwrap()
                .points
                .remove(0);
            assert!(reference.agrees(&ours), "{ours:?} against {reference:?}");
            let line = reference.beside(&ours);
            assert!(
                COMPARISON.lines().any(|kept| kept == line),
                "comparison.txt is out of date (examples/ns2-comparison.rs makes it): {line}"
            );
        }
    }

    #[test]
    fn agrees_with_ns2_at_a_few_points() {
        hold_against_ns2(sweep().unwrap(), |r| {
            r.seed == 1 && FEW.contains(&r.connections)
        });
    }

    #[test]
    fn agrees_with_ns2_under_loss() {
        hold_against_ns2(losses().unwrap(), |r| r.loss >= 0.01 && r.connections <= 8);
    }

    /// Ito, Ohsaki and Imase (2008), section 4: where MI and MI+ end, 32 and 25 connections, the
    /// goodput is "approximately 97 Mbit/s".
    #[test]
    fn agrees_with_the_papers_goodput() {
        let report = super::super::run(&SimRequest {
            flows: Flows::Counts(vec![25, 32]),
            duration: Duration::from_secs(20),
            ..SimRequest::default()
        })
        .unwrap();
        for point in &report.points {
            let goodput = Measure::Goodput.of(point).unwrap();
            assert!((96.0..98.0).contains(&goodput), "{point:?}");
        }
    }

    #[test]
    fn the_experiments_show_this_table() {
        let table = sweep().unwrap();
        let jittered = || table.iter().filter(|r| r.overhead_us == 120);
        let goodput: Vec<f64> = jittered().map(|r| r.goodput_mbps).collect();
        let rtt: Vec<f64> = jittered().map(|r| r.mean_rtt_ms).collect();
        for (experiment, expected) in [(GOODPUT_EXPERIMENT, goodput), (RTT_EXPERIMENT, rtt)] {
            let experiment: toml::Table = experiment.parse().unwrap();
            let paper = experiment["paper"]["values"].as_array().unwrap();
            let shown: Vec<f64> = paper.iter().map(|v| v.as_float().unwrap()).collect();
            assert_eq!(shown, expected);
        }
    }
}
