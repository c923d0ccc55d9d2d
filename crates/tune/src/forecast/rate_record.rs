//! The amount moved over time, in bounded memory.

use super::rate_model::{self, RateEstimate};

/// Time between two points of a new record, seconds.
const FIRST_STEP: f64 = 0.25;
/// Most points. When they are reached, every second one is dropped.
const MAX_POINTS: usize = 512;
/// Reports of servers arrive every 5 s. A longer silence is a pause of the transfer, seconds.
const LONGEST_REPORT_INTERVAL: f64 = 6.0;
/// Blocks into which the record is divided for a prediction.
const MAX_BLOCKS: usize = 24;
const MIN_BLOCKS: usize = 6;
/// Shortest block, seconds.
const SHORTEST_BLOCK: f64 = 0.5;
/// A rate above this part of the usual one is past its start.
const STARTED: f64 = 0.85;
/// Logarithm of the growth from one third of the time to the next that counts as a start-up.
const LEAST_RISE: f64 = 0.15;
/// Longest start-up, seconds.
const LONGEST_START: f64 = 60.0;

/// Amounts (bytes, or files) over time, from the first movement on.
#[derive(Debug, Clone, Default)]
pub(super) struct RateRecord {
    /// Time and amount of the first sample after which something moved.
    origin: Option<(f64, f64)>,
    /// Amount since the origin at multiples of `step`, the first at the origin.
    points: Vec<f64>,
    step: f64,
    /// Time and amount since the origin at the end.
    end: (f64, f64),
}

impl RateRecord {
    /// Takes the amount at a time, in seconds.
    pub(super) fn add(&mut self, at: f64, amount: f64) {
        let Some((first_at, first_amount)) = self.origin else {
            // Everything until now may have filled buffers on the way.
            if amount > 0.0 {
                self.origin = Some((at, amount));
                (self.points, self.step) = (vec![0.0], FIRST_STEP);
            }
            return;
        };
        let (at, amount) = (at - first_at, amount - first_amount);
        let (end_at, end_amount) = self.end;
        let is_silent = amount <= end_amount && at - end_at < LONGEST_REPORT_INTERVAL;
        if at <= end_at || is_silent {
            return;
        }
        let slope = (amount - end_amount).max(0.0) / (at - end_at);
        loop {
            let next = self.points.len() as f64 * self.step;
            if next > at {
                break;
            }
            self.points.push(end_amount + slope * (next - end_at));
            if self.points.len() > MAX_POINTS {
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.step *= 2.0;
            }
        }
        self.end = (at, amount.max(end_amount));
    }

    /// Time of the last sample that counts, seconds.
    pub(super) fn end(&self) -> Option<f64> {
        self.origin.map(|(first, _)| first + self.end.0)
    }

    /// The mean rate over the time in which `left` moves.
    pub(super) fn estimate(&self, left: f64) -> Option<RateEstimate> {
        let (length, amount) = self.end;
        if length <= 0.0 || amount <= 0.0 {
            return None;
        }
        let start = self.start(length);
        let blocks = self.blocks(start, length);
        let width = (length - start) / blocks.len() as f64;
        let estimate = rate_model::predict(&blocks, width, left, length)?;
        Some(match self.rise(length) {
            Some((now, rise)) => estimate.rising(now, rise),
            None => estimate,
        })
    }

    /// The rate now and the logarithm of its growth, if it has risen steadily from the start.
    fn rise(&self, length: f64) -> Option<(f64, f64)> {
        let sixths = self.parts(0.0, length, 6);
        let thirds = self.parts(0.0, length, 3);
        let rise = (thirds[2] / thirds[1]).ln();
        let is_steady = thirds[0] < thirds[1] && sixths[4] <= sixths[5];
        let rises = length < LONGEST_START && is_steady && rise > LEAST_RISE;
        (rises && rise.is_finite()).then_some((sixths[5], rise))
    }

    /// End of the start-up, during which windows grow and streams are added.
    fn start(&self, length: f64) -> f64 {
        let blocks = self.blocks(0.0, length);
        let mut sorted = blocks.clone();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted[sorted.len() / 2];
        let slow = blocks.iter().take(blocks.len() / 2);
        let slow = slow.take_while(|rate| **rate < STARTED * usual).count();
        slow as f64 * length / blocks.len() as f64
    }

    /// Mean rates of blocks of equal length.
    fn blocks(&self, from: f64, to: f64) -> Vec<f64> {
        let fits = |number: &usize| *number as f64 * SHORTEST_BLOCK <= to - from;
        let number = (MIN_BLOCKS..=MAX_BLOCKS).rev().find(fits);
        self.parts(from, to, number.unwrap_or(MIN_BLOCKS))
    }

    fn parts(&self, from: f64, to: f64, number: usize) -> Vec<f64> {
        let width = (to - from) / number as f64;
        let edge = |index: usize| self.amount_at(from + width * index as f64);
        (0..number)
            .map(|i| (edge(i + 1) - edge(i)) / width)
            .collect()
    }

    fn amount_at(&self, at: f64) -> f64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index, bounded"
        )]
        let index = ((at / self.step) as usize).min(self.points.len() - 1);
        let (from, before) = (index as f64 * self.step, self.points[index]);
        let (to, after) = match self.points.get(index + 1) {
            Some(next) => (from + self.step, *next),
            None => self.end,
        };
        match to > from {
            true => before + (after - before) * ((at - from) / (to - from)).min(1.0),
            false => before,
        }
    }
}
