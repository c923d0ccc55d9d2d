//! Pseudo-random numbers by SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
//! Generators", 2014). They are the same on every machine, and committed results depend on them: the seeds of a network's
//! links, the files of an experiment's trees, and the jitter of `tune::streams::auto` in a simulated transfer.

/// Increment of the state per number: 2^64 divided by the golden ratio, made odd. Its multiples are far from
/// each other.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator. Equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        finalise(self.0)
    }

    /// Fills `buffer` with the bytes of the next numbers in little-endian order; the last number may be cut.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let number = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// The first `len` bytes of the sequence of `seed`. They cannot be compressed or deduplicated.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SplitMix64::new(seed).fill(&mut bytes);
    bytes
}

/// The first number of the sequence of `seed`, which is a hash of the seed.
pub const fn first(seed: u64) -> u64 {
    nth(seed, 0)
}

/// Number `index`, from 0, of the sequence of `seed`.
pub const fn nth(seed: u64, index: u64) -> u64 {
    finalise(seed.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1))))
}

const fn finalise(state: u64) -> u64 {
    // Constants of the published mix function (variant 13 of Stafford).
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_equal_those_of_the_published_generator() {
        // Numbers of the authors' implementation with seed 1234567.
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        let mut numbers = SplitMix64::new(1_234_567);
        for (index, number) in (0..).zip(published) {
            assert_eq!(numbers.next_u64(), number);
            assert_eq!(nth(1_234_567, index), number);
        }
        assert_eq!(first(1_234_567), published[0]);
        let [one, two, ..] = published.map(u64::to_le_bytes);
        assert_eq!(bytes(1_234_567, 11), [&one[..], &two[..3]].concat());
    }
}
