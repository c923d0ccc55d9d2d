//! The modes MI, MI+ and AIMD (§3.4).

use std::time::Duration;

use units::show;

use super::chunk::{Chunk, ChunkResult, ChunkTuner, ChunkTuningMode};
use super::parameters::{ChunkParameters, Optimum};
use super::size::ChunkSizer;
use crate::streams::describe::{describe_streams, whole_rate};
use crate::streams::model::{self, ModelPath};

/// Payload of a full segment, bytes: the size of the model's packets.
const SEGMENT: f64 = 1460.0;

/// State of a transfer in one of the three modes.
#[derive(Debug)]
pub(super) struct ModeTuner {
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    sizes: ChunkSizer,
    /// N: streams of the next chunk.
    streams: u32,
    /// Whether the algorithm has terminated.
    terminated: bool,
    /// Largest number of streams that could be opened, once more were refused.
    stream_cap: Option<u32>,
    reason: String,
}

/// The test G > η NW/R of a chunk (eqs. 4, 7, 10).
#[derive(Debug, Clone, Copy, PartialEq)]
struct WindowTest {
    /// G, bytes per second.
    goodput: f64,
    /// NW/R, bytes per second.
    windows: f64,
    /// Whether the windows are the bottleneck.
    is_window_limited: bool,
}

impl ModeTuner {
    /// The state before the first chunk. `parameters` must be within their ranges.
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
            stream_cap: None,
            reason: format!(
                "{} to begin with",
                describe_streams(parameters.initial_streams)
            ),
        }
    }

    fn on_chunk(&mut self, chunk: &ChunkResult) {
        let Some(goodput) = chunk.goodput().filter(|_| chunk.streams > 0) else {
            "nothing was measured: the same number again".clone_into(&mut self.reason);
            return;
        };
        // The sizes follow goodput even after the search has terminated.
        self.sizes.on_chunk(chunk.streams, goodput);
        if chunk.streams < self.streams {
            // The caller could not open more streams.
            self.stream_cap = Some(chunk.streams);
            self.streams = chunk.streams;
        }
        if self.terminated {
            return;
        }
        let Some(window_test) = self.window_test(chunk, goodput) else {
            let unknown = if chunk.window == 0 {
                "window"
            } else {
                "round trip"
            };
            self.reason = format!(
                "the {unknown} is unknown: {} again",
                describe_streams(self.streams)
            );
            return;
        };
        let (next, action) = if window_test.is_window_limited {
            self.increase(chunk.streams)
        } else {
            self.end_or_decrease(chunk, goodput)
        };
        self.streams = next;
        self.reason = format!("{window_test} at {}: {action}", show::time(chunk.rtt));
    }

    fn window_test(&self, chunk: &ChunkResult, goodput: f64) -> Option<WindowTest> {
        if chunk.window == 0 || chunk.rtt.is_zero() {
            return None;
        }
        let windows = f64::from(chunk.streams) * chunk.window as f64 / chunk.rtt.as_secs_f64();
        Some(WindowTest {
            goodput,
            windows,
            is_window_limited: goodput > self.parameters.eta * windows,
        })
    }

    /// Steps (iv): N ← γN (eqs. 5, 8), or N + α (eq. 11).
    fn increase(&mut self, now: u32) -> (u32, String) {
        let most = self
            .parameters
            .max_streams
            .min(self.stream_cap.unwrap_or(u32::MAX));
        if now >= most {
            // AIMD never terminates: it decreases again once the windows stop limiting.
            self.terminated = self.mode != ChunkTuningMode::Aimd;
            return (
                most,
                format!(
                    "the windows limit, but {} is the maximum",
                    describe_streams(most)
                ),
            );
        }
        let n = f64::from(now);
        let next = match self.mode {
            ChunkTuningMode::Mi | ChunkTuningMode::MiPlus => n * self.parameters.gamma,
            ChunkTuningMode::Aimd => n + self.parameters.alpha,
        };
        // Rounding must not stop the growth for a small γ.
        let next = whole_streams(next.round()).clamp(now + 1, most);
        (
            next,
            format!("the windows limit, {}", describe_streams(next)),
        )
    }

    /// Steps (v): the end of MI and MI+, N ← N(1 − β) (eq. 12) in AIMD.
    fn end_or_decrease(&mut self, chunk: &ChunkResult, goodput: f64) -> (u32, String) {
        let limit = "the windows do not limit";
        match self.mode {
            ChunkTuningMode::Mi => {
                self.terminated = true;
                let next = chunk.streams.min(self.parameters.max_streams);
                (next, format!("{limit}, {} stay", describe_streams(next)))
            }
            ChunkTuningMode::MiPlus => {
                self.terminated = true;
                let (next, bandwidth) = self.optimum(chunk, goodput);
                let path = show::bits(bandwidth);
                (
                    next,
                    format!(
                        "{limit}, {} by the model of a path of {path}",
                        describe_streams(next)
                    ),
                )
            }
            ChunkTuningMode::Aimd => {
                let less = f64::from(chunk.streams) * (1.0 - self.parameters.beta);
                // Eq. 12 has no lower bound; a transfer needs one stream.
                let next = whole_streams(less).clamp(1, self.parameters.max_streams);
                (next, format!("{limit}, back to {}", describe_streams(next)))
            }
        }
    }

    /// The optimal number of streams by the model, and the bandwidth that the model estimates, bit/s.
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
            .min(self.stream_cap.unwrap_or(u32::MAX));
        let best = match self.parameters.optimum {
            Optimum::BothTerms => path.best_connections(most),
            // The second term falls with N (see `model`).
            Optimum::SecondTerm => 1,
        };
        (best, whole_rate(bandwidth * SEGMENT * 8.0))
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
        let (goodput, windows) = (
            whole_rate(self.goodput * 8.0),
            whole_rate(self.windows * 8.0),
        );
        write!(
            f,
            "{} of the windows' {}",
            show::bits(goodput),
            show::bits(windows)
        )
    }
}

/// A number of streams. The cast saturates, and NaN becomes 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn whole_streams(streams: f64) -> u32 {
    streams as u32
}

#[cfg(test)]
mod tests;
