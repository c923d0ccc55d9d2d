//! Random impairments of packets. Each kind has its own stream of random numbers, so enabling one
//! does not change the others.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::splitmix::GAMMA;

use super::{Conditions, Loss};

/// The random number streams of one link.
#[derive(Debug)]
pub(super) struct Impairments {
    loss: LossProcess,
    reorder: Pcg64Mcg,
    duplicate: Pcg64Mcg,
    corrupt: Pcg64Mcg,
}

/// The impairments of one packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketImpairments {
    pub(super) lost: bool,
    pub(super) reordered: bool,
    pub(super) duplicated: bool,
    /// Random number that selects the position of a changed byte.
    pub(super) corrupt: Option<u64>,
}

impl Impairments {
    pub(super) fn new(seed: u64) -> Self {
        let stream = |purpose: u64| {
            // Seeds of different links may be consecutive numbers; multiples of GAMMA keep the derived
            // seeds apart.
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

    /// Draws the impairments of the next packet behind the queue. Every enabled kind draws for every packet,
    /// even for a lost one, so that loss does not shift the other streams.
    pub(super) fn next(&mut self, conditions: &Conditions, loss: Option<f64>) -> PacketImpairments {
        let reorder = conditions
            .reorder
            .map_or(0.0, |reorder| reorder.probability);
        PacketImpairments {
            lost: match loss {
                Some(probability) => self.loss.draw_loss(Loss::Independent(probability)),
                None => self.loss.draw_loss(conditions.loss),
            },
            reordered: happens(&mut self.reorder, reorder),
            duplicated: happens(&mut self.duplicate, conditions.duplicate),
            corrupt: happens(&mut self.corrupt, conditions.corrupt)
                .then(|| self.corrupt.next_u64()),
        }
    }
}

/// The random process that decides which packets are lost.
#[derive(Debug)]
struct LossProcess {
    numbers: Pcg64Mcg,
    /// Whether the Gilbert-Elliott model is in its bad state.
    bad: bool,
}

impl LossProcess {
    /// Draws whether the next packet is lost, and advances the state of bursty loss.
    fn draw_loss(&mut self, loss: Loss) -> bool {
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

/// Whether an event of this probability happens now. Probability 0 draws no number, which shifts no other
/// kind, since each has its own stream.
fn happens(numbers: &mut Pcg64Mcg, probability: f64) -> bool {
    probability > 0.0 && numbers.random::<f64>() < probability
}
