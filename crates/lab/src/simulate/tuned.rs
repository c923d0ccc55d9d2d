//! A file in chunks, with the number of connections found on the way: the modes of Ito, Ohsaki and
//! Imase (2008), and what longhaul does where it can only measure chunks.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use sim::chunked::{Chunked, Part, Start};
use tune::streams::chunked::{self, Mode, Optimum, Parameters, RoundTrips, Tuner};

use super::point;
use super::report::SimPoint;
use super::request::SimRequest;
use crate::LabError;

/// Who finds the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuned {
    /// One of the paper's modes: `mi`, `mi+`, `aimd`.
    Mode(Mode),
    /// `probe`: longhaul's own, of chunks from a sender that it cannot look at.
    Probe,
}

/// The file, if nobody says its size: the paper's 10 Gbyte.
pub(super) const FILE: u64 = 10_000_000_000;
/// What a connection takes of a chunk at a time: little, so that all end together.
const BLOCK: u64 = 16 << 10;
/// How often a command measures the round trip while data flows.
const TICK: Duration = Duration::from_millis(100);

impl Tuned {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        if name == "probe" {
            return Some(Self::Probe);
        }
        Mode::named(name).map(Self::Mode)
    }

    /// `mi`, `mi+`, `aimd`, `probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode.name(),
            Self::Probe => "probe",
        }
    }

    fn tuner(self, parameters: Parameters, start: Start) -> Box<dyn Tuner> {
        match self {
            Self::Mode(mode) => chunked::tuner(mode, parameters, start.window, start.rtt),
            Self::Probe => chunked::probe(parameters.first, parameters.most, start.rtt),
        }
    }

    /// In words, with the parameters that it uses.
    pub(super) fn describe(self, parameters: &Parameters) -> String {
        let p = parameters;
        let mut text = format!("{}: N0 {}, at most {}", self.name(), p.first, p.most);
        if self == Self::Probe {
            return text;
        }
        let _ = write!(text, ", eta {}", p.eta);
        let _ = match self {
            Self::Mode(Mode::Aimd) => write!(text, ", alpha {}, beta {}", p.alpha, p.beta),
            _ => write!(text, ", gamma {}", p.gamma),
        };
        let delta = p.delta.as_secs_f64();
        let _ = write!(text, ", delta {delta} s, rho {}", p.rho);
        text.push_str(match p.round_trips {
            RoundTrips::Flowing => ", round trips while data flows",
            RoundTrips::Between => ", round trips between chunks",
        });
        if self == Self::Mode(Mode::MiPlus) {
            text.push_str(match p.optimum {
                Optimum::BothTerms => ", optimum of both terms",
                Optimum::SecondTerm => ", optimum of the second term",
            });
        }
        text
    }
}

/// A chunk of a simulated transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimChunk {
    /// When it had arrived, seconds since the first command.
    pub time: f64,
    /// How long it took, with its command, seconds.
    pub seconds: f64,
    /// Connections.
    pub streams: u32,
    /// Its size.
    pub bytes: u64,
    /// Mbit/s.
    pub goodput_mbps: f64,
    /// The running average of the commands' round trips then, milliseconds.
    pub rtt_ms: f64,
    /// Mean wait of a packet in the bottleneck's queue, milliseconds.
    pub queueing_ms: f64,
    /// The number had been found when it was asked for.
    pub settled: bool,
    /// Why it had so many connections.
    pub reason: String,
}

/// Simulates the transfer of a file.
///
/// # Errors
/// [`LabError::Usage`]: not one chunk arrives in the time that is given.
pub(super) fn simulate(request: &SimRequest, tuned: Tuned) -> Result<SimPoint, LabError> {
    let parameters = request.autopar;
    let mut stream = point::flow(request);
    stream.tcp.unsent = stream.tcp.mss.into();
    let transfer = Chunked {
        bytes: request.file().unwrap_or(FILE),
        block: BLOCK,
        stream,
        round_trips: parameters.round_trips,
        tick: TICK,
        rho: parameters.rho,
        give_up: request.duration,
    };
    let outcome = transfer.run(&point::scenario(request), |start| {
        tuned.tuner(parameters, start)
    });
    let limiter = outcome.limited_by.limiter;
    if outcome.parts.is_empty() {
        return Err(LabError::Usage(format!(
            "--time: not one chunk of the file arrives in {} s, so that no number of connections can be \
             said; give it more time",
            request.duration.as_secs_f64()
        )));
    }
    let own = outcome.whole_parts().len();
    let chunks: Vec<SimChunk> = outcome.parts.iter().map(chunk).collect();
    let end = own.checked_sub(1).and_then(|last| chunks.get(last));
    Ok(SimPoint {
        flows: end.map_or(0, |end| end.streams),
        seconds: outcome.complete.then_some(outcome.elapsed.as_secs_f64()),
        end: end.cloned(),
        chunks,
        ..point::point(&outcome.flows, outcome.elapsed, limiter)
    })
}

fn chunk(part: &Part) -> SimChunk {
    SimChunk {
        time: part.at.as_secs_f64(),
        seconds: part.time.as_secs_f64(),
        streams: part.streams,
        bytes: part.bytes,
        goodput_mbps: part.goodput() / 1e6,
        rtt_ms: part.rtt.as_secs_f64() * 1e3,
        queueing_ms: part.wait.as_secs_f64() * 1e3,
        settled: part.settled,
        reason: part.reason.clone(),
    }
}

/// When the number of connections had been found, seconds; `None`: it never was.
pub(super) fn settled(chunks: &[SimChunk]) -> Option<f64> {
    let first = chunks.iter().position(|chunk| chunk.settled)?;
    let before = first.checked_sub(1)?;
    chunks.get(before).map(|chunk| chunk.time)
}

/// A line a chunk, for people.
pub(super) fn table(chunks: &[SimChunk]) -> String {
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

/// A line a chunk, comma-separated under a line of names.
pub(super) fn csv(chunks: &[SimChunk], seed: u64) -> String {
    let mut csv =
        String::from("time,seconds,streams,bytes,goodput_mbps,rtt_ms,queueing_ms,settled,seed\n");
    for c in chunks {
        let _ = writeln!(
            csv,
            "{:.3},{:.3},{},{},{:.3},{:.3},{:.3},{},{seed}",
            c.time,
            c.seconds,
            c.streams,
            c.bytes,
            c.goodput_mbps,
            c.rtt_ms,
            c.queueing_ms,
            c.settled
        );
    }
    csv
}

#[cfg(test)]
#[path = "tuned_tests.rs"]
mod tests;
