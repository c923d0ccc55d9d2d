//! Misfortunes of packets at random: one stream of random numbers for each kind of misfortune, so
//! that turning one on changes none of the others.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::splitmix::GAMMA;

use super::{Conditions, Loss};

/// The random streams of one link.
#[derive(Debug)]
pub(super) struct Impairments {
    loss: LossProcess,
    reorder: Pcg64Mcg,
    duplicate: Pcg64Mcg,
    corrupt: Pcg64Mcg,
}

/// Misfortunes of one packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketImpairments {
    pub(super) lost: bool,
    pub(super) held_back: bool,
    pub(super) doubled: bool,
    /// Where to change it.
    pub(super) corrupt: Option<u64>,
}

impl Impairments {
    pub(super) fn new(seed: u64) -> Self {
        let stream = |purpose: u64| {
            // Seeds of different links may be neighbours; multiples of GAMMA are far from each other.
            Pcg64Mcg::seed_from_u64(seed.wrapping_add(purpose.wrapping_mul(GAMMA)))
        };
        Self {
            loss: LossProcess {
                numbers: stream(1),
                bad: false,
            },
            reorder: stream(2),
            duplicate: stream(3),
            corrupt: stream(4),
        }
    }

    /// Draws for the next packet that got through the queue. Every kind draws for every packet,
    /// also for a lost one, so that loss does not shift the others.
    pub(super) fn next(&mut self, conditions: &Conditions, loss: Option<f64>) -> PacketImpairments {
        let reorder = conditions
            .reorder
            .map_or(0.0, |reorder| reorder.probability);
        PacketImpairments {
            lost: match loss {
                Some(probability) => self.loss.is_lost(Loss::Independent(probability)),
                None => self.loss.is_lost(conditions.loss),
            },
            held_back: happens(&mut self.reorder, reorder),
            doubled: happens(&mut self.duplicate, conditions.duplicate),
            corrupt: happens(&mut self.corrupt, conditions.corrupt)
                .then(|| self.corrupt.next_u64()),
        }
    }
}

/// Decides about losses.
#[derive(Debug)]
struct LossProcess {
    numbers: Pcg64Mcg,
    /// The Gilbert-Elliott model is in its bad state.
    bad: bool,
}

impl LossProcess {
    fn is_lost(&mut self, loss: Loss) -> bool {
        match loss {
            Loss::Never => false,
            Loss::Independent(probability) => happens(&mut self.numbers, probability),
            Loss::Bursty {
                to_bad,
                to_good,
                in_good,
                in_bad,
            } => {
                let leave = if self.bad { to_good } else { to_bad };
                self.bad ^= happens(&mut self.numbers, leave);
                let here = if self.bad { in_bad } else { in_good };
                happens(&mut self.numbers, here)
            }
        }
    }
}

/// Whether something of this probability happens now. What cannot happen costs no number: a link
/// has it or has it not, and keeps to it.
fn happens(numbers: &mut Pcg64Mcg, probability: f64) -> bool {
    probability > 0.0 && numbers.random::<f64>() < probability
}
