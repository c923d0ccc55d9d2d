//! Tuners that see a transfer as a sequence of chunks: the three modes of Ito, Ohsaki and Imase (2008),
//! "On Automatic Parameter Configuration Mechanism for Data Transfer Protocol GridFTP", and `auto`'s
//! way where the sender cannot be looked at.

use std::time::Duration;

/// One of the paper's modes (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Multiplicative increase.
    Mi,
    /// Multiplicative increase, then the number that the model calls best.
    MiPlus,
    /// Additive increase, multiplicative decrease.
    Aimd,
}

/// The paper's parameters, and its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// N0: streams of the first chunk, at least 1.
    pub first: u32,
    /// η, above 0 up to 1.
    pub eta: f64,
    /// γ, above 1.
    pub gamma: f64,
    /// α, at least 1.
    pub alpha: f64,
    /// β, above 0, below 1.
    pub beta: f64,
    /// Δ: how long a chunk should take.
    pub delta: Duration,
    /// ρ: weight of a new round trip in the running average, above 0, below 1.
    pub rho: f64,
    /// Never more streams.
    pub most: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            first: 1,
            eta: 0.8,
            gamma: 2.0,
            alpha: 2.0,
            beta: 0.5,
            delta: Duration::from_secs(10),
            rho: 0.1,
            most: 256,
        }
    }
}

/// A chunk to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N: streams to use.
    pub streams: u32,
    /// X: its size, bytes, at least 1.
    pub bytes: u64,
}

/// A chunk that was transferred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transferred {
    /// N.
    pub streams: u32,
    /// X, bytes.
    pub bytes: u64,
    /// T: response time of its command.
    pub time: Duration,
    /// W: the smaller of both ends' socket buffers, bytes; 0: not known.
    pub window: u64,
    /// R: running average of the round trips of commands; zero: none was measured.
    pub rtt: Duration,
}

/// Decides chunk after chunk.
pub trait Tuner: Send {
    /// The next chunk, after the one that was `last` to end; `None` before the first.
    fn next(&mut self, last: Option<&Transferred>) -> Chunk;

    /// Why it is of that kind, in plain words.
    fn reason(&self) -> String;

    /// The number of streams will not change any more.
    fn settled(&self) -> bool;
}

/// R of §3.3: `R ← R(1−ρ) + R_i·ρ`; the first sample is taken as it is.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip {
    rho: f64,
    average: Option<f64>,
}

impl RoundTrip {
    /// Nothing measured yet.
    pub fn new(rho: f64) -> Self {
        Self { rho, average: None }
    }

    /// A command was answered after `sample`. One that TCP had to send again must not be given.
    pub fn on_sample(&mut self, sample: Duration) {
        let sample = sample.as_secs_f64();
        self.average = Some(match self.average {
            Some(average) => average * (1.0 - self.rho) + sample * self.rho,
            None => sample,
        });
    }

    /// R; `None` before the first sample.
    pub fn average(&self) -> Option<Duration> {
        self.average
            .and_then(|s| Duration::try_from_secs_f64(s).ok())
    }
}

/// The tuner of a mode. `window` (W, bytes) and `rtt` (R) size the first chunk (eq. 14).
pub fn tuner(_mode: Mode, _parameters: Parameters, _window: u64, _rtt: Duration) -> Box<dyn Tuner> {
    todo!()
}

/// `auto` where only chunks can be measured, and the sender is somebody else's.
pub fn probe(_first: u32, _most: u32, _rtt: Duration) -> Box<dyn Tuner> {
    todo!()
}
