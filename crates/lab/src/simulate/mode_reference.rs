//! Results of ns-2 for the modes of Ito, Ohsaki and Imase (2008): the committed table that the
//! simulator, with the tuners that ship, is held against.

use std::time::Duration;

use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use units::Rate;

use super::outcome::{Measure, SimPoint};
use super::request::{Flows, SimRequest, Tuned};

use crate::LabError;
use crate::quoting::CsvRecord;

/// Largest relative deviation from ns-2 in goodput that counts as agreement.
pub const GOODPUT_TOLERANCE: f64 = 0.03;
/// The same from this delay on, where the windows that every chunk begins with are together more than
/// the queue holds.
pub const BURST_TOLERANCE: f64 = 0.05;
/// One-way delay of the bottleneck, milliseconds.
const BURST_DELAY_MS: u64 = 100;
/// From this η on, luck decides the number of connections.
const NEAR_THING: f64 = 0.9;

/// The table, as `crates/lab/validation/remake-autopar.sh` writes it.
const TABLE: &str = include_str!("../../validation/ns2-autopar.csv");

/// Names over the lines of [`ModeReference::beside`].
pub const COLUMNS: &str = concat!(
    "mode     B   tau   eta seed    GB   goodput     ns-2          at the end     ns-2",
    "           N ns-2  settled  ns-2"
);

/// One transfer in ns-2; `autopar.tcl` says what its columns are.
#[derive(Debug, Clone, PartialEq)]
pub struct ModeReference {
    /// The mode; `None`: one connection.
    pub mode: Option<ChunkTuningMode>,
    /// Bottleneck, Mbit/s.
    pub rate_mbps: u64,
    /// Access links, Mbit/s.
    pub access_mbps: u64,
    /// One-way delay of the bottleneck, milliseconds.
    pub delay_ms: u64,
    /// W, bytes.
    pub window: u64,
    /// η.
    pub eta: f64,
    /// Seed.
    pub seed: u64,
    /// The file, 10⁹ bytes.
    pub gigabytes: f64,
    /// Of the whole file, Mbit/s.
    pub goodput_mbps: f64,
    /// Connections of the last chunk that the mode sized itself.
    pub streams: u32,
    /// Its goodput, Mbit/s; 0: there was none.
    pub end_goodput_mbps: f64,
    /// When the mode had ended, seconds; 0: it had not.
    pub settled_s: f64,
    /// Largest random time in the sending host, microseconds.
    pub overhead_us: u64,
}

/// The table.
///
/// # Errors
/// [`LabError::Usage`]: a line that is not one of the table's, which names it.
pub fn modes() -> Result<Vec<ModeReference>, LabError> {
    CsvRecord::all(TABLE)
        .map(|record| {
            let unread = || format!("ns2-autopar.csv: cannot be read: '{}'", record.line);
            reference(&record).ok_or_else(|| LabError::Usage(unread()))
        })
        .collect()
}

fn reference(record: &CsvRecord<'_>) -> Option<ModeReference> {
    let mode = record.text("mode")?;
    Some(ModeReference {
        mode: match mode.parse::<u32>() {
            Ok(_) => None,
            Err(_) => Some(ChunkTuningMode::parse(mode)?),
        },
        rate_mbps: record.value("rate_mbps")?,
        access_mbps: record.value("access_mbps")?,
        delay_ms: record.value("delay_ms")?,
        window: record.value("window")?,
        eta: record.value("eta")?,
        seed: record.value("seed")?,
        gigabytes: record.value("gigabytes")?,
        goodput_mbps: record.value("goodput_mbps")?,
        streams: record.value("streams")?,
        end_goodput_mbps: record.value("whole_goodput_mbps")?,
        settled_s: record.value("settled_s")?,
        overhead_us: record.value("overhead_us")?,
    })
}

impl ModeReference {
    /// The same transfer in ours.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a file's size, rounded to bytes"
    )]
    pub fn request(&self) -> SimRequest {
        let flows = match self.mode {
            Some(mode) => Flows::Tuned(Tuned::Mode(mode)),
            None => Flows::Counts(vec![1]),
        };
        SimRequest {
            flows,
            window: self.window,
            rate: Rate::bits_per_second(self.rate_mbps * 1_000_000),
            access_rate: Rate::bits_per_second(self.access_mbps * 1_000_000),
            delay: Duration::from_millis(self.delay_ms),
            bytes: Some((self.gigabytes * 1e9).round() as u64),
            duration: Duration::from_secs(7200),
            jitter: Duration::from_micros(self.overhead_us),
            initial_window: Some(2),
            seed: self.seed,
            autopar: ChunkParameters {
                eta: self.eta,
                ..ChunkParameters::default()
            },
            ..SimRequest::default()
        }
    }

    /// How far the goodput of `ours` is from this: of the whole file, and at the end; relative,
    /// positive when ours is larger.
    pub fn deviations(&self, ours: &SimPoint) -> (f64, f64) {
        let end = ours.end.as_ref().map_or(f64::NAN, |end| end.goodput_mbps);
        let at_end = if self.mode.is_some() && self.end_goodput_mbps > 0.0 {
            end / self.end_goodput_mbps - 1.0
        } else {
            0.0
        };
        (ours.goodput_mbps / self.goodput_mbps - 1.0, at_end)
    }

    /// The numbers of connections are equal or one step of the mode apart, and both goodputs within
    /// the tolerance.
    ///
    /// A step of MI is γ = 2; with η near 1 its end is luck. MI+ reckons with what the last commands of
    /// a chunk measured, the full path or the drained one, which moves its number by up to a third. AIMD
    /// never rests: the last chunk of both may stand on either side of a fall by half. At 100 ms a test
    /// that fails by half a per cent here and not in ns-2 decides its whole course, which is shown and
    /// not judged.
    pub fn agrees(&self, ours: &SimPoint) -> bool {
        let bursts = self.delay_ms >= BURST_DELAY_MS;
        if bursts && self.mode == Some(ChunkTuningMode::Aimd) {
            return true;
        }
        let (whole, end) = self.deviations(ours);
        let tolerance = if bursts {
            BURST_TOLERANCE
        } else {
            GOODPUT_TOLERANCE
        };
        let near = whole.abs() <= tolerance && end.abs() <= tolerance;
        let (a, b) = (f64::from(ours.flows), f64::from(self.streams));
        let ratio = (a / b).max(b / a);
        let close = (a - b).abs() <= 2.0;
        near && match self.mode {
            Some(ChunkTuningMode::Mi) if self.eta >= NEAR_THING => true,
            Some(ChunkTuningMode::Mi) | None => ratio <= 2.0,
            Some(ChunkTuningMode::MiPlus) => close || ratio <= 1.34,
            Some(ChunkTuningMode::Aimd) => close || ratio <= 2.2,
        }
    }

    /// A line of the comparison, under [`COLUMNS`].
    pub fn beside(&self, ours: &SimPoint) -> String {
        let (whole, end) = self.deviations(ours);
        let at_end = ours.end.as_ref().map_or(f64::NAN, |end| end.goodput_mbps);
        let settled = Measure::Settled.of(ours).unwrap_or_default();
        format!(
            "{:<4} {:>5} {:>5} {:>5} {:>4} {:>5}  {:>8.3} {:>8.3} {:>+6.2}%  {:>8.3} {:>8.3} {:>+6.2}%  {:>3} {:>4}  {:>6.1} {:>6.1}",
            self.mode.map_or("1", ChunkTuningMode::name),
            self.rate_mbps,
            self.delay_ms,
            self.eta,
            self.seed,
            self.gigabytes,
            ours.goodput_mbps,
            self.goodput_mbps,
            whole * 100.0,
            at_end,
            self.end_goodput_mbps,
            end * 100.0,
            ours.flows,
            self.streams,
            settled,
            self.settled_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate;

    const COMPARISON: &str = include_str!("../../validation/comparison-autopar.txt");

    fn ours(reference: &ModeReference) -> SimPoint {
        simulate::run(&reference.request())
            .unwrap()
            .points
            .remove(0)
    }

    #[test]
    fn the_table_has_the_papers_setting_for_each_mode() {
        let table = modes().unwrap();
        for mode in ChunkTuningMode::ALL {
            let base = |r: &&ModeReference| {
                r.mode == Some(mode) && r.rate_mbps == 100 && r.delay_ms == 10 && r.eta == 0.8
            };
            assert!(table.iter().filter(base).count() >= 3, "{mode:?}");
        }
        assert!(CsvRecord::all("mode\nmi").all(|record| reference(&record).is_none()));
    }

    #[test]
    fn every_point_is_kept_and_was_within_tolerance() {
        let lines = COMPARISON.lines().filter(|line| line.contains('%')).count();
        // One line more says the tolerance.
        assert_eq!(lines, modes().unwrap().len() + 1);
        assert!(COMPARISON.contains("0 points beyond"), "{COMPARISON}");
    }

    #[test]
    fn the_modes_end_as_in_ns2() {
        let table = modes().unwrap();
        let few = |r: &&ModeReference| r.gigabytes == 1.0 && r.seed == 1 && r.delay_ms == 10;
        for reference in table.iter().filter(few) {
            let ours = ours(reference);
            let line = reference.beside(&ours);
            assert!(reference.agrees(&ours), "{COLUMNS}\n{line}");
            assert!(
                COMPARISON.lines().any(|kept| kept == line),
                "comparison-autopar.txt is out of date (examples/ns2-autopar.rs makes it): {line}"
            );
        }
    }

    #[test]
    fn a_deviation_beyond_tolerance_is_no_agreement() {
        let table = modes().unwrap();
        let mi = table
            .iter()
            .find(|r| r.mode == Some(ChunkTuningMode::Mi) && r.gigabytes == 1.0);
        let reference = mi.unwrap();
        let good = ours(reference);
        assert!(reference.agrees(&good));
        let slow = SimPoint {
            goodput_mbps: good.goodput_mbps * 0.96,
            ..good.clone()
        };
        assert!(!reference.agrees(&slow));
        let many = SimPoint {
            flows: good.flows * 4,
            ..good
        };
        assert!(!reference.agrees(&many));
    }
}
