//! Stripes of a transfer: each data node carries one, at a data address of its own (GFD.20 §3, SPAS and
//! SPOR). A transfer without striping has a single stripe.

use std::net::SocketAddr;

use crate::ranges::{ByteRange, RangeSet};

/// Most stripes accepted in one SPOR command or SPAS reply.
pub const MAX_STRIPES: usize = 256;

/// One stripe of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stripe {
    number: u32,
    count: u32,
}

impl Stripe {
    /// The stripe of a transfer without striping.
    pub const SINGLE: Self = Self {
        number: 0,
        count: 1,
    };

    /// Stripe `number`, from 0, of `count`; `None` if there is no such stripe.
    pub fn new(number: u32, count: u32) -> Option<Self> {
        (number < count).then_some(Self { number, count })
    }

    /// Number of the stripe, from 0.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Number of stripes of the transfer, at least 1.
    pub const fn count(self) -> u32 {
        self.count
    }
}

/// Which stripe sends which bytes (GFD.20 §3.6, `OPTS RETR StripeLayout`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StripeLayout {
    /// The client asked for none: a stripe that is free takes the next bytes, so that a slow one delays nobody.
    #[default]
    Free,
    /// Contiguous parts of equal size, in the order of the stripes.
    Partitioned,
    /// Block k goes to stripe k modulo their number.
    Blocked {
        /// Length of a block, bytes, at least [`MIN_STRIPE_BLOCK`].
        block: u64,
    },
}

/// Block size of [`StripeLayout::Blocked`] if the client names none (that of globus-gridftp-server), bytes.
pub const STRIPE_BLOCK: u64 = 1 << 20;
/// Smallest block of [`StripeLayout::Blocked`], bytes: each block is a range of its own.
pub const MIN_STRIPE_BLOCK: u64 = 4 << 10;

impl StripeLayout {
    /// The next bytes of `stripe` in a file of `size` bytes: those at `from` or behind it that the layout gives to the stripe,
    /// as one range. `None`: there are none. All bytes belong to every stripe of [`StripeLayout::Free`].
    pub fn next_range(self, stripe: Stripe, size: u64, from: u64) -> Option<ByteRange> {
        let count = u64::from(stripe.count());
        let number = u64::from(stripe.number());
        let (start, end) = match self {
            Self::Free => (0, size),
            Self::Partitioned => {
                let part = size.div_ceil(count);
                let start = part.saturating_mul(number);
                (start, start.saturating_add(part))
            }
            Self::Blocked { block } => {
                let block = block.max(1);
                let at = from / block;
                // The first block of the stripe that does not end before `from`.
                let behind = (number + count - at % count) % count;
                let start = at.saturating_add(behind).saturating_mul(block);
                (start, start.saturating_add(block))
            }
        };
        ByteRange::new(start.max(from), end.min(size))
    }

    /// The bytes of `wanted` that a stripe sends, from `from` on, of its next `blocks` blocks; and where the rest begins, if any
    /// is left to look at.
    pub fn share(
        self,
        stripe: Stripe,
        wanted: &RangeSet,
        from: u64,
        blocks: usize,
    ) -> (RangeSet, Option<u64>) {
        let mut share = RangeSet::new();
        let mut from = from;
        for _ in 0..blocks {
            // Blocks without a wanted byte are passed over: a file may have billions of them.
            let own = wanted.next_from(from);
            let own = own.and_then(|at| self.next_range(stripe, wanted.end(), at));
            let Some(own) = own else {
                return (share, None);
            };
            share.extend(&wanted.within(own.start, own.end));
            from = own.end;
        }
        (share, Some(from))
    }
}

/// Data addresses of the stripes of a transfer, in order: 1..=[`MAX_STRIPES`] addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeAddresses(Vec<SocketAddr>);

impl StripeAddresses {
    /// Addresses of several stripes; `None` if there are none or too many.
    pub fn new(addresses: Vec<SocketAddr>) -> Option<Self> {
        let number = 1..=MAX_STRIPES;
        number.contains(&addresses.len()).then_some(Self(addresses))
    }

    /// Address of a single stripe.
    pub fn single(address: SocketAddr) -> Self {
        Self(vec![address])
    }

    /// All addresses, in the order of the stripes.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }

    /// Address of stripe 0, used in replies that hold a single address (PASV, EPSV).
    pub fn first(&self) -> SocketAddr {
        self.0[0]
    }

    /// Applies a function to every address.
    #[must_use]
    pub fn map(&self, change: impl FnMut(SocketAddr) -> SocketAddr) -> Self {
        Self(self.0.iter().copied().map(change).collect())
    }

    /// Each stripe with its address.
    pub fn iter(&self) -> impl Iterator<Item = (Stripe, SocketAddr)> {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let stripe = move |(number, address): (u32, &SocketAddr)| {
            let stripe = Stripe { number, count };
            (stripe, *address)
        };
        (0..).zip(&self.0).map(stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    /// Every byte that is wanted is in the share of exactly one stripe.
    #[test]
    fn layouts_divide_the_wanted_bytes() {
        let mut wanted = RangeSet::new();
        wanted.insert(3, 1000);
        wanted.insert(5000, 12_345);
        for layout in [
            StripeLayout::Partitioned,
            StripeLayout::Blocked { block: 1000 },
            StripeLayout::Blocked { block: 1 },
        ] {
            let (mut all, mut bytes) = (RangeSet::new(), 0);
            for number in 0..5 {
                let stripe = Stripe::new(number, 5).unwrap();
                let mut from = Some(0);
                while let Some(at) = from {
                    let (share, rest) = layout.share(stripe, &wanted, at, 7);
                    bytes += share.byte_count();
                    all.extend(&share);
                    from = rest;
                }
            }
            assert_eq!((&all, bytes), (&wanted, wanted.byte_count()), "{layout:?}");
        }
        let blocked = StripeLayout::Blocked { block: 100 };
        let second = Stripe::new(1, 3).unwrap();
        let range = |from| blocked.next_range(second, 1000, from);
        assert_eq!(range(0), ByteRange::new(100, 200));
        assert_eq!(range(150), ByteRange::new(150, 200));
        assert_eq!(range(200), ByteRange::new(400, 500));
        assert_eq!(range(800), None);
        let (all, _) = StripeLayout::Free.share(second, &wanted, 0, 7);
        assert_eq!(all, wanted);
    }

    #[test]
    fn a_stripe_number_is_below_the_count() {
        assert_eq!(Stripe::new(0, 1), Some(Stripe::SINGLE));
        assert_eq!((Stripe::new(0, 0), Stripe::new(3, 3)), (None, None));
        let last = Stripe::new(2, 3).unwrap();
        assert_eq!((last.number(), last.count()), (2, 3));
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        assert_eq!(StripeAddresses::new(Vec::new()), None);
        assert!(StripeAddresses::new(vec![at(1); MAX_STRIPES]).is_some());
        assert_eq!(StripeAddresses::new(vec![at(1); MAX_STRIPES + 1]), None);
        let one = StripeAddresses::new(vec![at(7)]).unwrap();
        assert_eq!(one, StripeAddresses::single(at(7)));
        assert_eq!(one.first(), at(7));
    }

    #[test]
    fn iter_pairs_each_address_with_its_stripe() {
        let two = StripeAddresses::new(vec![at(7), at(8)]).unwrap();
        let stripe = |number| Stripe::new(number, 2).unwrap();
        let expected = [(stripe(0), at(7)), (stripe(1), at(8))];
        assert_eq!(two.iter().collect::<Vec<_>>(), expected);
        assert_eq!(two.as_slice(), [at(7), at(8)]);
        let other = two.map(|address| at(address.port() + 1));
        assert_eq!(other.as_slice(), [at(8), at(9)]);
    }
}
