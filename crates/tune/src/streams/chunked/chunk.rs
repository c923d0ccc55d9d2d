//! Chunks of a transfer, and the interface of the tuners that choose them.

use std::time::Duration;

use super::marker_rate::RelativeRate;

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
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Mi, Self::MiPlus, Self::Aimd];

    /// Name in options and traces: `mi`, `mi+`, `aimd`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mi => "mi",
            Self::MiPlus => "mi+",
            Self::Aimd => "aimd",
        }
    }

    /// The mode with this [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// A chunk to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N: streams to use, at least 1.
    pub streams: u32,
    /// X: size of the chunk, bytes, at least 1.
    pub bytes: u64,
}

/// Measurements of a transferred chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkResult {
    /// N: streams that it used; possibly fewer than the tuner asked for.
    pub streams: u32,
    /// X: size of the chunk, bytes.
    pub bytes: u64,
    /// T: response time of its command; where chunks overlap, the time since the end of the chunk before.
    pub time: Duration,
    /// W: the smaller of both ends' socket buffers, bytes; 0 if unknown.
    pub window: u64,
    /// R: running average of the commands' response times; zero if none was measured.
    pub rtt: Duration,
}

impl ChunkResult {
    /// G = X/T, bytes per second; `None` if nothing was measured.
    pub fn goodput(&self) -> Option<f64> {
        let goodput = self.bytes as f64 / self.time.as_secs_f64();
        (self.bytes > 0 && goodput.is_finite()).then_some(goodput)
    }
}

/// Chooses the number of streams and the size of each chunk.
pub trait ChunkTuner: Send {
    /// The next chunk to transfer. `last` is the chunk that ended last, `None` while none has ended. The next
    /// chunk may be requested before the one before it has ended.
    fn next(&mut self, last: Option<&ChunkResult>) -> Chunk;

    /// Takes the rate of the running chunk.
    fn on_rate(&mut self, _rate: RelativeRate) {}

    /// Whether these rates have shown enough of the running chunk: the next range then begins the [`next`](Self::next)
    /// one, for which no result of this one is given.
    fn ends_chunk(&self) -> bool {
        false
    }

    /// Reason for the latest chunk, for people.
    fn reason(&self) -> String;

    /// The last search's finding about the limiter, for people; `None` if there is none.
    fn finding(&self) -> Option<String> {
        None
    }

    /// Whether the search for the number of streams has ended for now.
    fn is_settled(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_found_by_its_name() {
        for mode in ChunkTuningMode::ALL {
            assert_eq!(ChunkTuningMode::parse(mode.name()), Some(mode));
        }
        assert_eq!(ChunkTuningMode::parse("auto"), None);
    }

    #[test]
    fn goodput_without_bytes_or_time_is_unknown() {
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
}
