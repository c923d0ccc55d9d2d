//! MI, MI+ and AIMD (§3.4).

use std::time::Duration;

use units::show;

use super::size::Sizes;
use super::{Chunk, Mode, Optimum, Parameters, Transferred, Tuner};
use crate::streams::model::{self, Path};

/// The payload of a full segment, bytes: the packets of the model.
const SEGMENT: f64 = 1460.0;

/// One of the three modes at work.
#[derive(Debug)]
pub(super) struct Modes {
    mode: Mode,
    parameters: Parameters,
    sizes: Sizes,
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
struct Test {
    /// G, bytes per second.
    goodput: f64,
    /// NW/R, bytes per second.
    windows: f64,
    /// The windows are the bottleneck.
    limited: bool,
}

impl Modes {
    /// `parameters` within their ranges.
    pub(super) fn new(mode: Mode, parameters: Parameters, window: u64, rtt: Duration) -> Self {
        Self {
            mode,
            parameters,
            sizes: Sizes::new(parameters.delta, parameters.first, window, rtt),
            streams: parameters.first,
            terminated: false,
            refused: None,
            reason: format!("{} to begin with", streams(parameters.first)),
        }
    }

    fn on_chunk(&mut self, chunk: &Transferred) {
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

    fn test(&self, chunk: &Transferred, goodput: f64) -> Option<Test> {
        if chunk.window == 0 || chunk.rtt.is_zero() {
            return None;
        }
        let windows = f64::from(chunk.streams) * chunk.window as f64 / chunk.rtt.as_secs_f64();
        Some(Test {
            goodput,
            windows,
            limited: goodput > self.parameters.eta * windows,
        })
    }

    /// Steps (iv): N ← γN (eqs. 5, 8), or N + α (eq. 11).
    fn increase(&mut self, now: u32) -> (u32, String) {
        let most = self.parameters.most.min(self.refused.unwrap_or(u32::MAX));
        if now >= most {
            self.terminated = self.mode != Mode::Aimd;
            return (
                most,
                format!("the windows limit, {} is the most", streams(most)),
            );
        }
        let n = f64::from(now);
        let next = match self.mode {
            Mode::Mi | Mode::MiPlus => n * self.parameters.gamma,
            Mode::Aimd => n + self.parameters.alpha,
        };
        let next = count(next.round()).clamp(now + 1, most);
        (next, format!("the windows limit, {}", streams(next)))
    }

    /// Steps (v): the end of MI and MI+, N ← N(1 − β) (eq. 12) in AIMD.
    fn end_or_decrease(&mut self, chunk: &Transferred, goodput: f64) -> (u32, String) {
        let limit = "the windows do not limit";
        match self.mode {
            Mode::Mi => {
                self.terminated = true;
                let next = chunk.streams.min(self.parameters.most);
                (next, format!("{limit}, {} stay", streams(next)))
            }
            Mode::MiPlus => {
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
            Mode::Aimd => {
                let less = f64::from(chunk.streams) * (1.0 - self.parameters.beta);
                let next = count(less).clamp(1, self.parameters.most);
                (next, format!("{limit}, back to {}", streams(next)))
            }
        }
    }

    /// The number that the model calls best, and the bandwidth that it was reckoned with, bit/s.
    fn optimum(&self, chunk: &Transferred, goodput: f64) -> (u32, u64) {
        let rtt = chunk.rtt.as_secs_f64();
        let bandwidth = model::bandwidth(goodput / SEGMENT, chunk.streams, rtt);
        let path = Path {
            bandwidth,
            rtt,
            window: chunk.window as f64 / SEGMENT,
        };
        let most = self.parameters.most.min(self.refused.unwrap_or(u32::MAX));
        let best = match self.parameters.optimum {
            Optimum::BothTerms => path.best(most),
            // It falls with N (see `model`).
            Optimum::SecondTerm => 1,
        };
        (best, rate(bandwidth * SEGMENT * 8.0))
    }
}

impl Tuner for Modes {
    fn next(&mut self, last: Option<&Transferred>) -> Chunk {
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

    fn settled(&self) -> bool {
        self.terminated
    }
}

impl std::fmt::Display for Test {
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
