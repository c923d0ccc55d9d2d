//! Which stripe sends which bytes: a decision without I/O.

use proto::ranges::RangeSet;
use proto::stripes::{Stripe, StripeLayout};

/// Smallest part that is dealt, bytes: a node asks for the next one meanwhile.
const MIN_DEAL: u64 = 1 << 20;
/// Most blocks of a layout that are dealt at a time: each is a range of its own.
const MAX_BLOCKS: usize = 4096;

/// Deals the bytes of a file to the stripes that send it.
#[derive(Debug)]
pub(crate) struct RangeDealer {
    layout: StripeLayout,
    stripes: u32,
    /// [`StripeLayout::Free`]: what was not dealt. Else: all that is sent.
    wanted: RangeSet,
    /// With a layout: what each stripe gets next.
    shares: Vec<StripeShare>,
}

/// The part of one stripe by a layout, as far as it was not dealt.
#[derive(Debug, Clone)]
struct StripeShare {
    /// Looked at already.
    ready: RangeSet,
    /// Where the rest begins; `None`: there is no more.
    next: Option<u64>,
}

impl RangeDealer {
    /// Deals `wanted`, file offsets, to `stripes` stripes.
    pub(crate) fn new(layout: StripeLayout, wanted: RangeSet, stripes: u32) -> Self {
        Self {
            layout,
            stripes,
            wanted,
            shares: vec![
                StripeShare {
                    ready: RangeSet::new(),
                    next: Some(0),
                };
                stripes as usize
            ],
        }
    }

    /// The next bytes of a stripe that could send about `bytes` soon; whether they are its last ones. Without a layout it gets at
    /// most half of its share of what is left, so that one that becomes slow keeps little from the others.
    pub(crate) fn deal(&mut self, stripe: Stripe, bytes: u64) -> (RangeSet, bool) {
        match self.layout {
            StripeLayout::Free => {
                let fair = self.wanted.byte_count() / (2 * u64::from(self.stripes.max(1)));
                let dealt = take(&mut self.wanted, bytes.min(fair).max(MIN_DEAL));
                (dealt, self.wanted.is_empty())
            }
            layout => {
                let Some(share) = self.shares.get_mut(stripe.number() as usize) else {
                    return (RangeSet::new(), true);
                };
                // A part of the layout may be stored already.
                while let Some(from) = share.next
                    && share.ready.is_empty()
                {
                    (share.ready, share.next) =
                        layout.share(stripe, &self.wanted, from, MAX_BLOCKS);
                }
                let dealt = take(&mut share.ready, u64::MAX);
                (dealt, share.ready.is_empty() && share.next.is_none())
            }
        }
    }
}

/// Takes the first `bytes` of a set, in at most [`MAX_BLOCKS`] ranges: as many as a message may have.
fn take(left: &mut RangeSet, bytes: u64) -> RangeSet {
    let mut taken = RangeSet::new();
    for range in left.iter() {
        let room = bytes - taken.byte_count();
        if room == 0 || taken.range_count() == MAX_BLOCKS {
            break;
        }
        taken.insert(range.start, range.end.min(range.start.saturating_add(room)));
    }
    for range in taken.iter() {
        left.remove(range.start, range.end);
    }
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_is_dealt_once(
            spans in prop::collection::vec((0u64..64 << 20, 1u64..8 << 20), 1..6),
            stripes in 1u32..6,
            wishes in prop::collection::vec((0u32..6, 0u64..16 << 20), 1..40),
            block in prop_oneof![Just(None), Just(Some(0)), (64u64 << 10..4 << 20).prop_map(Some)],
        ) {
            let mut wanted = RangeSet::new();
            for (start, len) in spans {
                wanted.insert(start, start + len);
            }
            let layout = match block {
                None => StripeLayout::Free,
                Some(0) => StripeLayout::Partitioned,
                Some(block) => StripeLayout::Blocked { block },
            };
            let mut dealer = RangeDealer::new(layout, wanted.clone(), stripes);
            let (mut dealt, mut bytes) = (RangeSet::new(), 0);
            let mut is_last = vec![false; stripes as usize];
            let turns = wishes.into_iter().map(|(n, wish)| (n % stripes, wish));
            let rest = (0..stripes).cycle().map(|n| (n, 1 << 30));
            for (number, wish) in turns.chain(rest) {
                let (part, last) = dealer.deal(Stripe::new(number, stripes).unwrap(), wish);
                bytes += part.byte_count();
                dealt.extend(&part);
                is_last[number as usize] |= last;
                if is_last.iter().all(|last| *last) {
                    break;
                }
            }
            prop_assert_eq!(bytes, wanted.byte_count());
            prop_assert_eq!(dealt, wanted);
        }
    }

    #[test]
    fn scattered_bytes_are_dealt_in_many_messages() {
        let mut wanted = RangeSet::new();
        for n in 0..30_000 {
            wanted.insert(n * 10, n * 10 + 1);
        }
        for layout in [StripeLayout::Free, StripeLayout::Partitioned] {
            let mut dealer = RangeDealer::new(layout, wanted.clone(), 2);
            let mut dealt = RangeSet::new();
            for number in [0, 1] {
                let stripe = Stripe::new(number, 2).unwrap();
                loop {
                    let (part, is_last) = dealer.deal(stripe, 1 << 30);
                    assert!(part.range_count() <= MAX_BLOCKS);
                    dealt.extend(&part);
                    if is_last {
                        break;
                    }
                }
            }
            assert_eq!(dealt, wanted);
        }
    }

    #[test]
    fn near_the_end_stripes_get_little() {
        let mut wanted = RangeSet::new();
        wanted.insert(0, 64 << 20);
        let mut dealer = RangeDealer::new(StripeLayout::Free, wanted, 4);
        let stripe = Stripe::new(0, 4).unwrap();
        let sizes: Vec<u64> = std::iter::from_fn(|| {
            let (part, _) = dealer.deal(stripe, 1 << 30);
            (!part.is_empty()).then(|| part.byte_count())
        })
        .collect();
        assert_eq!(sizes[0], 8 << 20);
        assert!(sizes.is_sorted_by(|a, b| a >= b));
        assert!(sizes.iter().rev().skip(1).all(|size| *size >= MIN_DEAL));
        assert!(sizes.len() < 60, "{sizes:?}");
    }
}
