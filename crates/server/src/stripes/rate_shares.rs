//! How much of a limit of the rate each stripe gets: a decision without I/O.

/// Part of its share that a stripe must use to be taken for one that could use more.
const NEEDY: f64 = 0.8;
/// A stripe that uses less keeps this multiple of what it uses, so that it can become faster.
const ROOM: f64 = 1.25;
/// Least share, of an equal one.
const LEAST: f64 = 0.125;
/// Transfers that share the limit make room for each other: factor and step, for each time that shares are dealt.
const YIELD: f64 = 0.9;
const REGAIN: f64 = 0.05;
/// Least part of the whole limit.
const LEAST_SCALE: f64 = 0.05;

/// The shares of the stripes of one transfer.
#[derive(Debug, Clone)]
pub(crate) struct RateShares {
    /// Part of the limit that this transfer takes.
    scale: f64,
    /// Bytes per second of each stripe.
    shares: Vec<f64>,
}

impl RateShares {
    /// Equal parts of `limit` bytes per second.
    pub(crate) fn new(limit: u64, stripes: usize) -> Self {
        let equal = as_f64(limit) / as_f64(stripes.max(1) as u64);
        Self {
            scale: 1.0,
            shares: vec![equal; stripes],
        }
    }

    /// Bytes per second of a stripe, at least 1.
    pub(crate) fn of(&self, stripe: usize) -> u64 {
        let share = self.shares.get(stripe).copied().unwrap_or(1.0);
        whole(share).max(1)
    }

    /// Deals `limit` bytes per second anew: what slow stripes leave goes to the others. `used`: bytes per second that each stripe has moved.
    /// `is_overdrawn`: all that share the limit have moved more than it allows.
    pub(crate) fn deal(&mut self, limit: u64, used: &[f64], is_overdrawn: bool) {
        self.scale = match is_overdrawn {
            true => (self.scale * YIELD).max(LEAST_SCALE),
            false => (self.scale + REGAIN).min(1.0),
        };
        let count = as_f64(self.shares.len().max(1) as u64);
        let all = as_f64(limit) * self.scale;
        let equal = all / count;
        let is_needy = |share: f64, used: f64| used >= NEEDY * share;
        let pairs = || self.shares.iter().copied().zip(used.iter().copied());
        let needy = pairs().filter(|(share, used)| is_needy(*share, *used));
        let needy = as_f64(needy.count() as u64);
        if needy == 0.0 {
            self.shares.fill(equal);
            return;
        }
        let keeps = |(share, used): (f64, f64)| match is_needy(share, used) {
            true => 0.0,
            false => (used * ROOM).max(equal * LEAST).min(equal),
        };
        let rest = all - pairs().map(keeps).sum::<f64>();
        let dealt = pairs().map(|(share, used)| match is_needy(share, used) {
            true => rest / needy,
            false => keeps((share, used)),
        });
        self.shares = dealt.collect();
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and rates are not negative"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates above 2^53 bytes per second have no need of their last byte"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(shares: &RateShares) -> u64 {
        (0..shares.shares.len()).map(|n| shares.of(n)).sum()
    }

    #[test]
    fn what_a_slow_stripe_leaves_goes_to_the_others() {
        let mut shares = RateShares::new(900, 3);
        assert_eq!([0, 1, 2].map(|n| shares.of(n)), [300; 3]);
        shares.deal(900, &[300.0, 300.0, 80.0], false);
        assert_eq!([0, 1, 2].map(|n| shares.of(n)), [400, 400, 100]);
        // It becomes faster.
        for _ in 0..20 {
            let used = [shares.of(0), shares.of(1), shares.of(2)].map(as_f64);
            shares.deal(900, &used, false);
        }
        assert_eq!([0, 1, 2].map(|n| shares.of(n)), [300; 3]);
        // One that stands still keeps enough to show that it moves again.
        shares.deal(900, &[300.0, 300.0, 0.0], false);
        assert!(shares.of(2) > 30, "{shares:?}");
    }

    #[test]
    fn all_together_never_get_more_than_the_limit() {
        let mut shares = RateShares::new(1000, 4);
        for turn in 0..200_u32 {
            let used = [0, 1, 2, 3].map(|n: u8| {
                let part = f64::from((turn * 7 + u32::from(n) * 3) % 11) / 10.0;
                as_f64(shares.of(n.into())) * part
            });
            shares.deal(1000, &used, turn % 5 == 0);
            assert!(sum(&shares) <= 1000, "{shares:?}");
        }
    }

    #[test]
    fn a_transfer_leaves_room_for_others_that_share_the_limit_and_takes_it_back() {
        let mut shares = RateShares::new(1000, 2);
        for _ in 0..4 {
            shares.deal(1000, &[500.0, 500.0], true);
        }
        assert!(sum(&shares) < 700);
        for _ in 0..20 {
            shares.deal(1000, &[500.0, 500.0], false);
        }
        assert_eq!(sum(&shares), 1000);
    }
}
