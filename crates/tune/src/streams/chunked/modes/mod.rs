//! MI, MI+ and AIMD (§3.4).

use std::time::Duration;

use units::show;

use super::size::ChunkSizer;
use super::{Chunk, ChunkParameters, ChunkResult, ChunkTuner, ChunkTuningMode, Optimum};
use crate::streams::model::{self, ModelPath};

/// The payload of a full segment, bytes: the packets of the model.
const SEGMENT: f64 = 1460.0;

/// One of the three modes at work.
#[derive(Debug)]
pub(super) struct ModeTuner {
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    sizes: ChunkSizer,
    /// N of the next chunk.
    streams: u32,
    /// The algorithm has terminated.
    terminated: bool,
    /// More could not be had.
    refused: Option<u32>,
    reason: String,
}

/// The inequality G > η NW/R of a chunk (eqs. 4, 7, 10).
#[derive(Debug, Clone, Copy, PartialEq)]
struct WindowTest {
    /// G, bytes per second.
    goodput: f64,
    /// NW/R, bytes per second.
    windows: f64,
    /// The windows are the bottleneck.
    limited: bool,
}

impl ModeTuner {
    /// `parameters` within their ranges.
    pub(super) fn new(
        mode: ChunkTuningMode,
        parameters: ChunkParameters,
        window: u64,
        rtt: Duration,
    ) -> Self {
        Self {
            mode,
            parameters,
            sizes: ChunkSizer::new(parameters.delta, parameters.initial_streams, window, rtt),
            streams: parameters.initial_streams,
            terminated: false,
            refused: None,
            reason: format!("{} to begin with", streams(parameters.initial_streams)),
        }
    }

    fn on_chunk(&mut self, chunk: &ChunkResult) {
        let Some(goodput) = chunk.goodput().filter(|_| chunk.streams > 0) else {
            "nothing was measured: the same again".clone_into(&mut self.reason);
            return;
        };
        self.sizes.on_chunk(chunk.streams, goodput);
        if chunk.streams < self.streams {
            // Whoever opens streams could not have more: they are ruled out.
            self.refused = Some(chunk.streams);
            self.streams = chunk.streams;
        }
        if self.terminated {
            return;
        }
        let Some(test) = self.test(chunk, goodput) else {
            let lacking = if chunk.window == 0 {
                "window"
            } else {
                "round trip"
            };
            self.reason = format!("no {lacking} is known: {} again", streams(self.streams));
            return;
        };
        let (next, what) = if test.limited {
            self.increase(chunk.streams)
        } else {
            self.end_or_decrease(chunk, goodput)
        };
        self.streams = next;
        self.reason = format!("{test} at {}: {what}", show::time(chunk.rtt));
    }

    fn test(&self, chunk: &ChunkResult, goodput: f64) -> Option<WindowTest> {
        if chunk.window == 0 || chunk.rtt.is_zero() {
            return None;
        }
        let windows = f64::from(chunk.streams) * chunk.window as f64 / chunk.rtt.as_secs_f64();
        Some(WindowTest {
            goodput,
            windows,
            limited: goodput > self.parameters.eta * windows,
        })
    }

    /// Steps (iv): N ← γN (eqs. 5, 8), or N + α (eq. 11).
    fn increase(&mut self, now: u32) -> (u32, String) {
        let most = self
            .parameters
            .max_streams
            .min(self.refused.unwrap_or(u32::MAX));
        if now >= most {
            self.terminated = self.mode != ChunkTuningMode::Aimd;
            return (
                most,
                format!("the windows limit, {} is the most", streams(most)),
            );
        }
        let n = f64::from(now);
        let next = match self.mode {
            ChunkTuningMode::Mi | ChunkTuningMode::MiPlus => n * self.parameters.gamma,
            ChunkTuningMode::Aimd => n + self.parameters.alpha,
        };
        let next = count(next.round()).clamp(now + 1, most);
        (next, format!("the windows limit, {}", streams(next)))
    }

    /// Steps (v): the end of MI and MI+, N ← N(1 − β) (eq. 12) in AIMD.
    fn end_or_decrease(&mut self, chunk: &ChunkResult, goodput: f64) -> (u32, String) {
        let limit = "the windows do not limit";
        match self.mode {
            ChunkTuningMode::Mi => {
                self.terminated = true;
                let next = chunk.streams.min(self.parameters.max_streams);
                (next, format!("{limit}, {} stay", streams(next)))
            }
            ChunkTuningMode::MiPlus => {
                self.terminated = true;
                let (next, bandwidth) = self.optimum(chunk, goodput);
                let path = show::bits(bandwidth);
                (
                    next,
                    format!(
                        "{limit}, {} by the model of a path of {path}",
                        streams(next)
                    ),
                )
            }
            ChunkTuningMode::Aimd => {
                let less = f64::from(chunk.streams) * (1.0 - self.parameters.beta);
                let next = count(less).clamp(1, self.parameters.max_streams);
                (next, format!("{limit}, back to {}", streams(next)))
            }
        }
    }

    /// The number that the model calls best, and the bandwidth that it was reckoned with, bit/s.
    fn optimum(&self, chunk: &ChunkResult, goodput: f64) -> (u32, u64) {
        let rtt = chunk.rtt.as_secs_f64();
        let bandwidth = model::bandwidth(goodput / SEGMENT, chunk.streams, rtt);
        let path = ModelPath {
            bandwidth,
            rtt,
            window: chunk.window as f64 / SEGMENT,
        };
        let most = self
            .parameters
            .max_streams
            .min(self.refused.unwrap_or(u32::MAX));
        let best = match self.parameters.optimum {
            Optimum::BothTerms => path.best_connections(most),
            // It falls with N (see `model`).
            Optimum::SecondTerm => 1,
        };
        (best, rate(bandwidth * SEGMENT * 8.0))
    }
}

impl ChunkTuner for ModeTuner {
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk {
        if let Some(chunk) = last {
            self.on_chunk(chunk);
        }
        Chunk {
            streams: self.streams,
            bytes: self.sizes.next(self.streams),
        }
    }

    fn reason(&self) -> String {
        self.reason.clone()
    }

    fn is_settled(&self) -> bool {
        self.terminated
    }
}

impl std::fmt::Display for WindowTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (goodput, windows) = (rate(self.goodput * 8.0), rate(self.windows * 8.0));
        write!(
            f,
            "{} of the windows' {}",
            show::bits(goodput),
            show::bits(windows)
        )
    }
}

/// `4 streams`.
pub(super) fn streams(n: u32) -> String {
    match n {
        1 => "1 stream".to_owned(),
        n => format!("{n} streams"),
    }
}

/// A number of streams; casts saturate, and of no number make 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn count(streams: f64) -> u32 {
    streams as u32
}

/// A rate to be shown; casts saturate, and of no number make 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
pub(super) fn rate(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests;
