//! Results of ns-2 2.35 (`crates/lab/validation`), and the comparison of the simulator with them.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use link::Loss;
use sim::tcp::HEADERS;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use units::Rate;

use super::outcome::{SimMeasure, SimPoint};
use super::request::{FlowCounts, SimRequest, StreamFinder};
use crate::LabError;

/// Tolerated relative deviations of goodput and of mean RTT with a fixed number of connections.
pub const FIXED_TOLERANCE: (f64, f64) = (0.05, 0.10);
/// Tolerated relative deviation of goodput with a mode of Ito, Ohsaki and Imase (2008).
pub const MODE_TOLERANCE: f64 = 0.03;
/// Tolerated relative deviation of goodput with a mode at one-way delays of 100 ms and more, and at 1 Gbit/s. There the
/// windows with which the connections begin a chunk are together larger than the queue, and the order in which the
/// connections send them decides which ones lose packets.
pub const BURST_TOLERANCE: f64 = 0.06;

/// Heading of the lines of [`FixedNs2Run::comparison_line`]. `host`: largest random delay in the sending
/// host, microseconds. `loss`: share of data packets lost at random.
pub const FIXED_COLUMNS: &str = concat!(
    "   N host   loss  seed   goodput     ns-2          mean RTT     ns-2",
    "           drops   ns-2"
);
/// Heading of the lines of [`ModeNs2Run::comparison_line`]. `B`: bottleneck rate, Mbit/s. `tau`: one-way
/// delay, milliseconds.
pub const MODE_COLUMNS: &str = concat!(
    "mode     B   tau   eta seed    GB   goodput     ns-2          at the end     ns-2",
    "           N ns-2  settled  ns-2"
);

macro_rules! table {
    ($name:literal) => {
        ($name, include_str!(concat!("../../validation/", $name)))
    };
}

/// The runs over the number of connections, with and without random delay in the sending host.
///
/// # Errors
/// [`LabError::Usage`]: a line of the table cannot be read; the message contains it.
pub fn sweep() -> Result<Vec<FixedNs2Run>, LabError> {
    rows(table!("ns2-static-sweep.csv"))
        .map(|row| row.map(FixedNs2Run))
        .collect()
}

/// The runs with random loss and windows that do not limit.
///
/// # Errors
/// As [`sweep`].
pub fn losses() -> Result<Vec<FixedNs2Run>, LabError> {
    rows(table!("ns2-loss.csv"))
        .map(|row| row.map(FixedNs2Run))
        .collect()
}

/// The runs with the modes of Ito, Ohsaki and Imase (2008).
///
/// # Errors
/// As [`sweep`].
pub fn modes() -> Result<Vec<ModeNs2Run>, LabError> {
    rows(table!("ns2-autopar.csv"))
        .map(|row| row.map(ModeNs2Run))
        .collect()
}

/// Reads the lines of a table that `crates/lab/validation/remake.sh` or `remake-autopar.sh` wrote.
fn rows(
    (name, text): (&'static str, &'static str),
) -> impl Iterator<Item = Result<Ns2Row, LabError>> {
    let rows =
        csv::Reader::from_reader(text.as_bytes()).into_deserialize::<HashMap<String, String>>();
    rows.map(move |row| {
        let row = row.map_err(|error| LabError::Usage(format!("{name}: {error}")))?;
        // Every column holds a number, except those of names.
        let is_name = |column: &String| ["mode", "tcp"].contains(&column.as_str());
        let wrong = row
            .iter()
            .find(|(column, value)| !is_name(column) && value.parse::<f64>().is_err());
        match wrong {
            None => Ok(Ns2Row(row)),
            Some((column, value)) => Err(LabError::Usage(format!(
                "{name}: {column} is '{value}', not a number"
            ))),
        }
    })
}

/// One run of ns-2: column → value. `crates/lab/validation/static-sweep.tcl` and `autopar.tcl` explain the columns.
#[derive(Debug)]
struct Ns2Row(HashMap<String, String>);

impl Ns2Row {
    fn number<T: FromStr + Default>(&self, column: &str) -> T {
        self.0
            .get(column)
            .and_then(|value| value.parse().ok())
            .unwrap_or_default()
    }
}

/// Relative deviation of `ours` from `theirs`.
fn deviation(ours: f64, theirs: f64) -> f64 {
    ours / theirs - 1.0
}

/// A run of ns-2 with a fixed number of connections.
#[derive(Debug)]
pub struct FixedNs2Run(Ns2Row);

impl FixedNs2Run {
    /// Number of parallel connections.
    pub fn connections(&self) -> u32 {
        self.0.number("connections")
    }

    /// Largest random delay in the sending host, microseconds.
    pub fn overhead_us(&self) -> u64 {
        self.0.number("overhead_us")
    }

    /// The request for the same simulation in our simulator.
    pub fn request(&self) -> SimRequest {
        let setting = SimRequest::default();
        let payload = u64::from(setting.packet - HEADERS);
        let loss = self.0.number::<f64>("loss");
        SimRequest {
            flows: FlowCounts::Each(vec![self.connections()]),
            jitter: Duration::from_micros(self.overhead_us()),
            loss: if loss > 0.0 {
                Loss::Independent(loss)
            } else {
                Loss::Never
            },
            window: self.0.number::<u64>("window") * payload,
            warm_up: Duration::from_secs(self.0.number("warm_up_s")),
            duration: Duration::from_secs(self.0.number("measured_s")),
            seed: self.0.number("seed"),
            ..setting
        }
    }

    /// Relative deviations of goodput and mean RTT, positive if ours is larger.
    pub fn deviations(&self, ours: &SimPoint) -> (f64, f64) {
        let rtt = ours.mean_rtt_ms.unwrap_or(f64::NAN);
        let goodput = deviation(ours.goodput_mbps, self.0.number("goodput_mbps"));
        (goodput, deviation(rtt, self.0.number("mean_rtt_ms")))
    }

    /// Whether both deviations are within [`FIXED_TOLERANCE`].
    pub fn agrees(&self, ours: &SimPoint) -> bool {
        let (goodput, rtt) = self.deviations(ours);
        goodput.abs() <= FIXED_TOLERANCE.0 && rtt.abs() <= FIXED_TOLERANCE.1
    }

    /// A line of the comparison, with the columns of [`FIXED_COLUMNS`].
    pub fn comparison_line(&self, ours: &SimPoint) -> String {
        let (goodput, rtt) = self.deviations(ours);
        let number = |column| self.0.number::<f64>(column);
        format!(
            "{:>4} {:>4} {:>5}%  {:>4}  {}  {}  {:>6} {:>6}",
            self.connections(),
            self.overhead_us(),
            number("loss") * 100.0,
            number("seed"),
            ComparedNumbers(ours.goodput_mbps, number("goodput_mbps"), goodput),
            ComparedNumbers(
                ours.mean_rtt_ms.unwrap_or(f64::NAN),
                number("mean_rtt_ms"),
                rtt
            ),
            ours.drops,
            number("drops")
        )
    }
}

/// Our number, that of ns-2, and the relative deviation.
struct ComparedNumbers(f64, f64, f64);

impl fmt::Display for ComparedNumbers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:>8.3} {:>8.3} {:>+6.2}%",
            self.0,
            self.1,
            self.2 * 100.0
        )
    }
}

/// A transfer in ns-2 with a mode of Ito, Ohsaki and Imase (2008).
#[derive(Debug)]
pub struct ModeNs2Run(Ns2Row);

impl ModeNs2Run {
    /// The mode; `None`: the transfer has one connection throughout.
    pub fn mode(&self) -> Option<ChunkTuningMode> {
        ChunkTuningMode::parse(self.0.0.get("mode")?)
    }

    /// The number in the column of this name.
    pub fn number(&self, column: &str) -> f64 {
        self.0.number(column)
    }

    /// The request for the same transfer in our simulator.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a file's size, rounded to bytes"
    )]
    pub fn request(&self) -> SimRequest {
        let megabits = |column| Rate::bits_per_second(self.0.number::<u64>(column) * 1_000_000);
        SimRequest {
            flows: match self.mode() {
                Some(mode) => FlowCounts::Found(StreamFinder::Mode(mode)),
                None => FlowCounts::Each(vec![1]),
            },
            window: self.0.number("window"),
            rate: megabits("rate_mbps"),
            access_rate: megabits("access_mbps"),
            shared_access: true,
            delay: Duration::from_millis(self.0.number("delay_ms")),
            bytes: Some((self.number("gigabytes") * 1e9).round() as u64),
            duration: Duration::from_secs(7200),
            jitter: Duration::from_micros(self.0.number("overhead_us")),
            initial_window: Some(2),
            seed: self.0.number("seed"),
            autopar: ChunkParameters {
                eta: self.number("eta"),
                ..ChunkParameters::default()
            },
            ..SimRequest::default()
        }
    }

    /// Relative deviations of the goodput of the whole file and of that of the last full chunk, positive if
    /// ours is larger. The second is 0 if there is no full chunk.
    pub fn deviations(&self, ours: &SimPoint) -> (f64, f64) {
        let end = ours.end.as_ref().map_or(f64::NAN, |end| end.goodput_mbps);
        let theirs = self.number("whole_goodput_mbps");
        let whole = deviation(ours.goodput_mbps, self.number("goodput_mbps"));
        // In the tables, 0 means that the file has no chunk of the mode's own size.
        let has_end = self.mode().is_some() && theirs > 0.0;
        (whole, if has_end { deviation(end, theirs) } else { 0.0 })
    }

    /// Whether the numbers of connections are equal or one step of the mode apart, and both goodputs are
    /// within the tolerance.
    ///
    /// A step of MI multiplies by γ = 2. With η near 1, small differences decide where it ends, so any
    /// number agrees. MI+ computes its number from round trips of the last commands of a chunk, during
    /// which the queue may still be full or already drained; that changes the number by up to a third. AIMD
    /// oscillates without end, so the last chunks of the two simulators may be before and after a decrease
    /// to a half.
    pub fn agrees(&self, ours: &SimPoint) -> bool {
        let mode = self.mode();
        let has_bursts = self.number("delay_ms") >= 100.0 || self.number("rate_mbps") >= 1000.0;
        let (whole, end) = self.deviations(ours);
        let tolerance = if has_bursts {
            BURST_TOLERANCE
        } else {
            MODE_TOLERANCE
        };
        let goodputs_agree = whole.abs() <= tolerance && end.abs() <= tolerance;
        let (a, b) = (f64::from(ours.flows), self.number("streams"));
        let ratio = (a / b).max(b / a);
        // Of few connections, a difference of one or two is already a large ratio.
        let close = (a - b).abs() <= 2.0;
        goodputs_agree
            && match mode {
                Some(ChunkTuningMode::Mi) if self.number("eta") >= 0.9 => true,
                Some(ChunkTuningMode::Mi) | None => ratio <= 2.0,
                Some(ChunkTuningMode::MiPlus) => close || ratio <= 1.34,
                Some(ChunkTuningMode::Aimd) => close || ratio <= 2.2,
            }
    }

    /// A line of the comparison, with the columns of [`MODE_COLUMNS`].
    pub fn comparison_line(&self, ours: &SimPoint) -> String {
        let (whole, end) = self.deviations(ours);
        let at_end = ours.end.as_ref().map_or(f64::NAN, |end| end.goodput_mbps);
        let settled = SimMeasure::named("settled").and_then(|measure| measure.of(ours));
        format!(
            "{:<4} {:>5} {:>5} {:>5} {:>4} {:>5}  {}  {}  {:>3} {:>4}  {:>6.1} {:>6.1}",
            self.mode().map_or("1", ChunkTuningMode::name),
            self.number("rate_mbps"),
            self.number("delay_ms"),
            self.number("eta"),
            self.number("seed"),
            self.number("gigabytes"),
            ComparedNumbers(ours.goodput_mbps, self.number("goodput_mbps"), whole),
            ComparedNumbers(at_end, self.number("whole_goodput_mbps"), end),
            ours.flows,
            self.number("streams"),
            settled.unwrap_or_default(),
            self.number("settled_s")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;

    const FIXED: &str = include_str!("../../validation/comparison.txt");
    const MODES: &str = include_str!("../../validation/comparison-autopar.txt");

    fn simulated(request: &SimRequest) -> SimPoint {
        simulate::run(request).unwrap().points.remove(0)
    }

    #[track_caller]
    fn assert_committed(line: &str, committed: &str) {
        let stale = "the committed comparison is out of date (examples/ns2-*.rs write it)";
        assert!(
            committed.lines().any(|known| known == line),
            "{stale}: {line}"
        );
    }

    #[track_caller]
    fn assert_agreement(table: Vec<FixedNs2Run>, chosen: impl Fn(&FixedNs2Run) -> bool) {
        for run in table.into_iter().filter(chosen) {
            let ours = simulated(&run.request());
            assert!(run.agrees(&ours), "{ours:?} against {run:?}");
            assert_committed(&run.comparison_line(&ours), FIXED);
        }
    }

    #[test]
    fn the_tables_are_complete_and_a_damaged_line_is_named() {
        let table = sweep().unwrap();
        for (overhead, connections) in [0, 120]
            .into_iter()
            .flat_map(|o| (1..=64).map(move |n| (o, n)))
        {
            let same =
                |r: &&FixedNs2Run| r.overhead_us() == overhead && r.connections() == connections;
            assert!(table.iter().any(|r| same(&r)), "{connections} {overhead}");
        }
        let table = modes().unwrap();
        for mode in ChunkTuningMode::ALL {
            let base = [("rate_mbps", 100.0), ("delay_ms", 10.0), ("eta", 0.8)];
            let is_base = |r: &&ModeNs2Run| base.iter().all(|(key, value)| r.number(key) == *value);
            let runs = table
                .iter()
                .filter(|r| r.mode() == Some(mode))
                .filter(is_base);
            assert!(runs.count() >= 3, "{mode:?}");
        }
        let lines = MODES.lines().filter(|line| line.contains('%')).count();
        assert_eq!(
            lines,
            table.len() + 1,
            "the heading has one line with a tolerance"
        );
        assert!(MODES.contains("0 points beyond"));
        let error = rows(("x.csv", "connections,seed\n1"))
            .next()
            .unwrap()
            .unwrap_err();
        assert!(error.to_string().contains("x.csv"), "{error}");
    }

    // The numbers are chosen so that windows limit, the queue is nearly full, and the queue overflows.
    #[test]
    fn fixed_numbers_agree_with_ns2() {
        let few = [1, 4, 16, 29, 64];
        let first = |r: &FixedNs2Run| r.request().seed == 1;
        assert_agreement(sweep().unwrap(), |r| {
            first(r) && few.contains(&r.connections())
        });
        let lossy = |r: &FixedNs2Run| r.0.number::<f64>("loss") >= 0.01;
        assert_agreement(losses().unwrap(), |r| lossy(r) && r.connections() <= 8);
    }

    #[test]
    fn the_modes_end_with_the_numbers_and_goodputs_of_ns2() {
        let table = modes().unwrap();
        let few = [("gigabytes", 1.0), ("seed", 1.0), ("delay_ms", 10.0)];
        let is_one = |r: &&ModeNs2Run| few.iter().all(|(key, value)| r.number(key) == *value);
        for run in table.iter().filter(is_one) {
            let ours = simulated(&run.request());
            let line = run.comparison_line(&ours);
            assert!(run.agrees(&ours), "{MODE_COLUMNS}\n{line}");
            assert_committed(&line, MODES);
        }
    }

    #[test]
    fn deviations_beyond_the_tolerance_do_not_agree() {
        let run = &sweep().unwrap()[0];
        let good = simulated(&run.request());
        let with = |goodput: f64, rtt: Option<f64>| SimPoint {
            goodput_mbps: good.goodput_mbps * goodput,
            mean_rtt_ms: rtt.and_then(|factor| Some(good.mean_rtt_ms? * factor)),
            ..good.clone()
        };
        assert!(run.agrees(&good) && !run.agrees(&with(1.0, Some(1.11))));
        assert!(!run.agrees(&with(1.0, None)) && !run.agrees(&with(0.94, Some(1.0))));
        let table = modes().unwrap();
        let mi =
            |r: &&ModeNs2Run| r.mode() == Some(ChunkTuningMode::Mi) && r.number("gigabytes") == 1.0;
        let run = table.iter().find(mi).unwrap();
        let good = simulated(&run.request());
        let mut many = good.clone();
        many.flows *= 4;
        let mut slow = good.clone();
        slow.goodput_mbps *= 0.96;
        assert!(run.agrees(&good) && !run.agrees(&many) && !run.agrees(&slow));
    }

    // Ito, Ohsaki and Imase (2008), section 4: with the 32 and 25 connections with which MI and MI+ end, the
    // goodput is "approximately 97 Mbit/s".
    #[test]
    fn goodput_with_25_and_32_connections_is_that_of_the_paper() {
        let report = simulate::run(&SimRequest {
            flows: FlowCounts::Each(vec![25, 32]),
            duration: Duration::from_secs(20),
            ..SimRequest::default()
        });
        for point in report.unwrap().points {
            assert!((96.0..98.0).contains(&point.goodput_mbps), "{point:?}");
        }
    }

    #[test]
    fn the_experiments_contain_the_values_of_the_table() {
        let table = sweep().unwrap();
        for (experiment, column) in [
            (
                include_str!("../../experiments/ns2-static.toml"),
                "goodput_mbps",
            ),
            (
                include_str!("../../experiments/ns2-static-rtt.toml"),
                "mean_rtt_ms",
            ),
        ] {
            let jittered = table.iter().filter(|r| r.overhead_us() == 120);
            let expected: Vec<f64> = jittered.map(|r| r.0.number(column)).collect();
            let experiment: toml::Table = experiment.parse().unwrap();
            let paper = experiment["paper"]["values"].as_array().unwrap();
            let shown: Vec<f64> = paper.iter().map(|v| v.as_float().unwrap()).collect();
            assert_eq!(shown, expected);
        }
    }
}
