//! Reproducible pseudo-random numbers.

use units::splitmix::SplitMix64;

/// A pseudo-random generator (SplitMix64), the same on every machine.
#[derive(Debug, Clone)]
pub struct SeededRandom(SplitMix64);

impl SeededRandom {
    /// A generator. Equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Fills `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}
