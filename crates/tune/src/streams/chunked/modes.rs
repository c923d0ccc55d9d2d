//! The modes MI, MI+ and AIMD (§3.4).

use std::time::Duration;

use units::show;

use super::chunk::{Chunk, ChunkResult, ChunkTuner, ChunkTuningMode};
use super::parameters::{ChunkParameters, Optimum};
use super::size::ChunkSizer;
use crate::streams::describe::whole_rate;
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
                show::count(parameters.initial_streams, "stream")
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
                show::count(self.streams, "stream")
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
                    show::count(most, "stream")
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
            format!("the windows limit, {}", show::count(next, "stream")),
        )
    }

    /// Steps (v): the end of MI and MI+, N ← N(1 − β) (eq. 12) in AIMD.
    fn end_or_decrease(&mut self, chunk: &ChunkResult, goodput: f64) -> (u32, String) {
        let limit = "the windows do not limit";
        match self.mode {
            ChunkTuningMode::Mi => {
                self.terminated = true;
                let next = chunk.streams.min(self.parameters.max_streams);
                (
                    next,
                    format!("{limit}, {} stay", show::count(next, "stream")),
                )
            }
            ChunkTuningMode::MiPlus => {
                self.terminated = true;
                let (next, bandwidth) = self.optimum(chunk, goodput);
                let path = show::bits(bandwidth);
                (
                    next,
                    format!(
                        "{limit}, {} by the model of a path of {path}",
                        show::count(next, "stream")
                    ),
                )
            }
            ChunkTuningMode::Aimd => {
                let less = f64::from(chunk.streams) * (1.0 - self.parameters.beta);
                // Eq. 12 has no lower bound; a transfer needs one stream.
                let next = whole_streams(less).clamp(1, self.parameters.max_streams);
                (
                    next,
                    format!("{limit}, back to {}", show::count(next, "stream")),
                )
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: u64 = 64 << 10;

    /// The paper's path by ns-2: windows of 64 KB fill 100 Mbit/s from five streams on. More windows wait in the
    /// queue, which is full with 27 streams.
    fn on_the_papers_path(asked: Chunk) -> ChunkResult {
        let windows = f64::from(asked.streams) * WINDOW as f64;
        let (empty, path) = (0.0241, 97.333e6 / 8.0);
        let rtt = (windows / path).clamp(empty, 0.1334);
        let goodput = (windows * 0.98 / rtt).min(path);
        ChunkResult {
            streams: asked.streams,
            bytes: asked.bytes,
            time: Duration::from_secs_f64(asked.bytes as f64 / goodput),
            window: WINDOW,
            rtt: Duration::from_secs_f64(rtt),
        }
    }

    /// Numbers of streams that a mode asks for until it terminates, for at most 20 chunks.
    fn numbers(mode: ChunkTuningMode, parameters: ChunkParameters) -> Vec<u32> {
        let mut tuner =
            super::super::mode_tuner(mode, parameters, WINDOW, Duration::from_millis(24));
        let mut numbers = Vec::new();
        let mut last = None;
        while numbers.len() < 20 {
            let chunk = tuner.next(last.as_ref());
            numbers.push(chunk.streams);
            if tuner.is_settled() {
                break;
            }
            last = Some(on_the_papers_path(chunk));
        }
        numbers
    }

    fn with(text: &str) -> ChunkParameters {
        ChunkParameters::parse(text).unwrap()
    }

    #[test]
    fn mi_ends_with_32_as_in_the_paper() {
        assert_eq!(
            numbers(ChunkTuningMode::Mi, ChunkParameters::default()),
            [1, 2, 4, 8, 16, 32, 32]
        );
    }

    #[test]
    fn mi_plus_ends_with_25_as_in_the_paper() {
        assert_eq!(
            numbers(ChunkTuningMode::MiPlus, ChunkParameters::default()),
            [1, 2, 4, 8, 16, 32, 25]
        );
    }

    #[test]
    fn the_second_term_alone_ends_with_one_stream() {
        let literal = numbers(ChunkTuningMode::MiPlus, with("optimum=second"));
        assert_eq!(literal.last(), Some(&1));
    }

    #[test]
    fn aimd_adds_two_streams_and_halves_them() {
        let numbers = numbers(ChunkTuningMode::Aimd, ChunkParameters::default());
        // With 31 streams the queue is full, and 0.8 NW/R is above the goodput of 97.5 Mbit/s.
        let up: Vec<u32> = (1..=31).step_by(2).collect();
        assert_eq!(numbers[..16], up);
        assert_eq!(numbers[16..], [15, 17, 19, 21]);
    }

    #[test]
    fn every_parameter_takes_effect() {
        assert_eq!(numbers(ChunkTuningMode::Mi, with("eta=1")), [1, 1]);
        assert_eq!(
            numbers(ChunkTuningMode::Mi, with("n0=3,gamma=1.5")),
            [3, 5, 8, 12, 18, 27, 41, 41]
        );
        assert_eq!(
            numbers(ChunkTuningMode::Mi, with("most=12")),
            [1, 2, 4, 8, 12, 12]
        );
        assert_eq!(
            numbers(ChunkTuningMode::MiPlus, with("most=12")),
            [1, 2, 4, 8, 12, 12]
        );
        let slow = numbers(ChunkTuningMode::Aimd, with("n0=40,beta=0.1,alpha=1"));
        assert_eq!(slow[..7], [40, 36, 32, 28, 29, 30, 31]);
        assert_eq!(slow[7..13], [27, 28, 29, 30, 31, 27]);
    }

    #[test]
    fn chunks_take_about_the_time_delta() {
        let mut tuner = super::super::mode_tuner(
            ChunkTuningMode::Mi,
            ChunkParameters::default(),
            WINDOW,
            Duration::from_millis(24),
        );
        let mut last = None;
        let mut times = Vec::new();
        for _ in 0..10 {
            let done = on_the_papers_path(tuner.next(last.as_ref()));
            times.push(done.time.as_secs_f64());
            last = Some(done);
        }
        // Eq. 13 extrapolates the last growth once more when the link becomes full.
        assert!((times[3] - 17.0).abs() < 2.0, "{times:?}");
        for time in [&times[..3], &times[5..]].concat() {
            assert!((time - 10.0).abs() < 0.5, "{times:?}");
        }
    }

    #[test]
    fn numbers_of_streams_that_were_refused_are_not_requested_again() {
        let mut tuner = super::super::mode_tuner(
            ChunkTuningMode::Mi,
            ChunkParameters::default(),
            WINDOW,
            Duration::from_millis(24),
        );
        let mut last = None;
        for _ in 0..6 {
            let mut chunk = tuner.next(last.as_ref());
            chunk.streams = chunk.streams.min(3);
            last = Some(on_the_papers_path(chunk));
        }
        assert_eq!(tuner.next(last.as_ref()).streams, 3);
        assert!(tuner.is_settled());
        assert!(
            tuner.reason().contains("3 streams is the maximum"),
            "{}",
            tuner.reason()
        );
    }

    #[test]
    fn an_unknown_window_or_round_trip_changes_nothing() {
        for (window, rtt, lacking) in [
            (0, 24, "the window is unknown"),
            (WINDOW, 0, "the round trip is unknown"),
        ] {
            let rtt = Duration::from_millis(rtt);
            let mut tuner = super::super::mode_tuner(
                ChunkTuningMode::Mi,
                ChunkParameters::default(),
                window,
                rtt,
            );
            let chunk = tuner.next(None);
            let done = ChunkResult {
                window,
                rtt,
                ..on_the_papers_path(chunk)
            };
            assert_eq!(tuner.next(Some(&done)).streams, 1);
            assert!(tuner.reason().starts_with(lacking), "{}", tuner.reason());
        }
    }

    #[test]
    fn reasons_contain_the_measured_figures() {
        let mut tuner = super::super::mode_tuner(
            ChunkTuningMode::MiPlus,
            ChunkParameters {
                initial_streams: 32,
                ..ChunkParameters::default()
            },
            WINDOW,
            Duration::from_millis(24),
        );
        let chunk = tuner.next(None);
        tuner.next(Some(&on_the_papers_path(chunk)));
        assert_eq!(
            tuner.reason(),
            "97.3 Mbit/s of the windows' 126 Mbit/s at 133 ms: the windows do not limit, 25 streams by \
         the model of a path of 97.4 Mbit/s"
        );
    }

    proptest! {
        #[test]
        fn a_mode_terminates_where_the_windows_stop_limiting(
            gamma in 1.1..4.0_f64, eta in 0.3..0.95_f64, first in 1_u32..8,
        ) {
            let parameters = ChunkParameters { gamma, eta, initial_streams: first, ..ChunkParameters::default() };
            let ends = numbers(ChunkTuningMode::Mi, parameters);
            if ends.len() < 20 && ends[ends.len() - 1] < parameters.max_streams {
                let end = on_the_papers_path(Chunk { streams: ends[ends.len() - 1], bytes: 1 << 30 });
                let windows = f64::from(end.streams) * WINDOW as f64 / end.rtt.as_secs_f64();
                prop_assert!(end.goodput().unwrap() <= eta * windows);
            }
            prop_assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "{ends:?}");
        }
    }
}
