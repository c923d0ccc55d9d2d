//! Tuners that see a transfer as a sequence of chunks: the three modes of Ito, Ohsaki and Imase (2008),
//! "On Automatic Parameter Configuration Mechanism for Data Transfer Protocol GridFTP", and `auto`'s
//! way where the sender cannot be looked at.
//!
//! Whoever drives one transfers the [`Chunk`] that it asks for and tells what came of it
//! ([`ChunkResult`]). The paper leaves open how a chunk is shared by its streams; ours take the next
//! block as they become free, until nothing is left of the chunk.

mod modes;
mod parameters;
mod probe;
mod size;

use std::time::Duration;

pub use parameters::{ChunkParameters, Optimum, ParameterError, RttCommands};

/// One of the paper's modes (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChunkTuningMode {
    /// Multiplicative increase.
    Mi,
    /// Multiplicative increase, then the number that the model calls best.
    MiPlus,
    /// Additive increase, multiplicative decrease.
    Aimd,
}

impl ChunkTuningMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mi, Self::MiPlus, Self::Aimd];

    /// The name in options and traces: `mi`, `mi+`, `aimd`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mi => "mi",
            Self::MiPlus => "mi+",
            Self::Aimd => "aimd",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// A chunk to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N: streams to use, at least 1.
    pub streams: u32,
    /// X: its size, bytes, at least 1.
    pub bytes: u64,
}

/// A chunk that was transferred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkResult {
    /// N: streams that it had, which may be fewer than were asked for.
    pub streams: u32,
    /// X, bytes.
    pub bytes: u64,
    /// T: response time of its command. Where chunks overlap, the time since the end of the one
    /// before.
    pub time: Duration,
    /// W: the smaller of both ends' socket buffers, bytes; 0: not known.
    pub window: u64,
    /// R: running average of the round trips of commands; zero: none was measured.
    pub rtt: Duration,
}

impl ChunkResult {
    /// G = X/T, bytes per second; `None`: nothing was measured.
    pub fn goodput(&self) -> Option<f64> {
        let goodput = self.bytes as f64 / self.time.as_secs_f64();
        (self.bytes > 0 && goodput.is_finite()).then_some(goodput)
    }
}

/// Decides chunk after chunk.
pub trait ChunkTuner: Send {
    /// The next chunk, after the one that was `last` to end; `None` while none has ended. It may be
    /// asked for the next one before the one that it asked for last has ended.
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk;

    /// Why it is of that kind, in plain words.
    fn reason(&self) -> String;

    /// The number of streams will not change any more, as far as is known.
    fn is_settled(&self) -> bool;
}

/// R of §3.3: `R ← R(1−ρ) + R_i·ρ`; the first sample is taken as it is.
#[derive(Debug, Clone, Copy)]
pub struct RttAverage {
    rho: f64,
    average: Option<f64>,
}

impl RttAverage {
    /// Nothing measured yet; ρ above 0, below 1.
    pub fn new(rho: f64) -> Self {
        let rho = ChunkParameters {
            rho,
            ..ChunkParameters::default()
        }
        .bounded()
        .rho;
        Self { rho, average: None }
    }

    /// A command was answered after `sample`. One that TCP had to send again must not be given: with
    /// the second that the retry waited in R, the modes never find an end.
    pub fn on_sample(&mut self, sample: Duration) {
        if sample.is_zero() {
            return;
        }
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

/// The tuner of a mode. `window` (W, bytes) and `rtt` (R) size the first chunk (eq. 14); 0: not known.
/// Parameters beyond their ranges count as the nearest that is in them.
pub fn mode_tuner(
    mode: ChunkTuningMode,
    parameters: ChunkParameters,
    window: u64,
    rtt: Duration,
) -> Box<dyn ChunkTuner> {
    Box::new(modes::ModeTuner::new(
        mode,
        parameters.bounded(),
        window,
        rtt,
    ))
}

/// `auto` where only chunks can be measured, and the sender is somebody else's. Begins with `first`
/// streams of at most `most`; `rtt` (zero: not known) tells how long the first chunks have to be.
///
/// Doubles the streams while that brings 15 % or more, settles at the fewest that give about as much
/// as the most did, tries whether fewer do as well, and looks again when the goodput falls to less
/// than three quarters of that, or after long.
pub fn probe_tuner(first: u32, most: u32, rtt: Duration) -> Box<dyn ChunkTuner> {
    Box::new(probe::ProbeTuner::new(first, most, rtt))
}

/// As [`probe_tuner`], with never fewer than `least` streams: where several chunks are on their way at a
/// time, each has one.
pub fn probe_tuner_with_min(
    least: u32,
    first: u32,
    most: u32,
    rtt: Duration,
) -> Box<dyn ChunkTuner> {
    Box::new(probe::ProbeTuner::new(first, most, rtt).with_min_streams(least))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_round_trip_is_taken_as_it_is() {
        let mut rtt = RttAverage::new(0.1);
        assert_eq!(rtt.average(), None);
        rtt.on_sample(Duration::from_millis(20));
        assert_eq!(rtt.average(), Some(Duration::from_millis(20)));
        rtt.on_sample(Duration::from_millis(120));
        assert_eq!(rtt.average(), Some(Duration::from_millis(30)));
        rtt.on_sample(Duration::ZERO);
        assert_eq!(rtt.average(), Some(Duration::from_millis(30)));
    }

    #[test]
    fn modes_have_names() {
        for mode in ChunkTuningMode::ALL {
            assert_eq!(ChunkTuningMode::parse(mode.name()), Some(mode));
        }
        assert_eq!(ChunkTuningMode::parse("auto"), None);
    }

    #[test]
    fn goodput_of_nothing_is_not_known() {
        let chunk = ChunkResult {
            streams: 1,
            bytes: 10,
            time: Duration::from_secs(2),
            window: 0,
            rtt: Duration::ZERO,
        };
        assert_eq!(chunk.goodput(), Some(5.0));
        let no_bytes = ChunkResult { bytes: 0, ..chunk };
        let no_time = ChunkResult {
            time: Duration::ZERO,
            ..chunk
        };
        assert_eq!((no_bytes.goodput(), no_time.goodput()), (None, None));
    }

    proptest! {
        #[test]
        fn the_average_is_between_the_samples(
            rho: f64, samples in prop::collection::vec(1_u64..1 << 40, 1..50),
        ) {
            let mut rtt = RttAverage::new(rho);
            for sample in &samples {
                rtt.on_sample(Duration::from_nanos(*sample));
            }
            let average = rtt.average().unwrap().as_nanos() as f64;
            let least = samples.iter().min().copied().unwrap_or_default() as f64;
            let largest = samples.iter().max().copied().unwrap_or_default() as f64;
            prop_assert!(average >= least * 0.999 - 1.0 && average <= largest * 1.001 + 1.0);
        }
    }
}
