//! Stripes of a transfer: each data node carries one, at a data address of its own (GFD.20 §3, SPAS and
//! SPOR). A transfer without striping has a single stripe.

use std::net::SocketAddr;

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
