//! The rate that the processors of this host can receive: a cheap estimate that goes with a question.
//!
//! The work of a receiver is mostly that of its memory: the network card writes each byte, the kernel reads it and writes
//! it to the program, and the work for its packets costs about as much again. So a core receives about a quarter of what it
//! copies. A copy is measured once, for some milliseconds, and the cores that this process may use count. The estimate is
//! good to a factor of two: it tells a processor that is slow for its path from one that is not.

use std::hint::black_box;
use std::sync::OnceLock;
use std::thread::available_parallelism;
use std::time::Instant;

/// Cost of a byte received, in bytes copied.
const COPIES: u64 = 4;
/// Bytes of a copy: more than the caches of a core hold.
const PIECE: usize = 4 << 20;
/// Copies that are measured. The fastest one counts: another process may have taken the core in the others.
const ROUNDS: u32 = 8;
/// Bounds of what is believed of a core, bits per second.
const OF_CORE: (u64, u64) = (10_000_000, 400_000_000_000);

/// The rate that the processors of a host can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCapacity {
    /// Rate of all cores together, bits per second.
    pub bps: u64,
    /// Cores that this process may use.
    pub cores: u32,
}

impl HostCapacity {
    /// The estimate for this host. The first call of a process measures, for some milliseconds.
    pub fn of_this_host() -> Self {
        static FOUND: OnceLock<HostCapacity> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let cores = available_parallelism().map_or(1, usize::from);
            let cores = u32::try_from(cores).unwrap_or(u32::MAX);
            Self {
                bps: rate_of_core().saturating_mul(u64::from(cores)),
                cores,
            }
        })
    }
}

/// Bits per second that one core receives.
fn rate_of_core() -> u64 {
    let from = vec![1_u8; PIECE];
    let mut to = vec![2_u8; PIECE];
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    let bits = PIECE as f64 * 8.0 / fastest.max(1e-9);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    let copied = bits as u64;
    (copied / COPIES).clamp(OF_CORE.0, OF_CORE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_cached_and_within_its_bounds() {
        let found = HostCapacity::of_this_host();
        assert!(found.cores >= 1);
        let of_core = found.bps / u64::from(found.cores);
        assert!((OF_CORE.0..=OF_CORE.1).contains(&of_core), "{found:?}");
        assert_eq!(HostCapacity::of_this_host(), found);
    }
}
