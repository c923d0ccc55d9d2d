//! The routers of one direction: which packets end at them, and which part of the path these have travelled.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::packet::RouterStop;
use crate::topology::{LabPath, LabRoute, Topology};

/// Time to live with which a router sends its answers, as Linux does.
const ROUTER_TTL: u8 = 64;

/// A router on a direction.
#[derive(Debug, Clone, Copy)]
struct RouterOnPath {
    /// `None`: it answers nothing.
    address: Option<Ipv4Addr>,
    /// Number of routers of the opposite direction before this router's answers join it.
    answer_skips: usize,
}

/// The routers of one direction, in the order of travel.
#[derive(Debug, Default)]
pub(super) struct DirectionRoute {
    routers: Vec<RouterOnPath>,
    /// The link with the bottleneck; link 1 leaves the sending host.
    bottleneck_link: usize,
}

/// The end of a packet at a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopAtRouter {
    /// Index of the router on the direction.
    pub(super) router: usize,
    /// Why the packet ends there.
    pub(super) stop: RouterStop,
}

/// Where an answer comes from, and from where on it travels the opposite direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerOrigin {
    /// The router's address.
    pub(super) address: Ipv4Addr,
    /// Routers of the opposite direction that it does not pass.
    pub(super) skips: usize,
}

impl DirectionRoute {
    /// The route of the forward or the back direction of a path.
    pub(super) fn new(path: &LabPath, is_back: bool) -> Self {
        let (own, opposite) = if is_back {
            (&path.back_route, &path.forward_route)
        } else {
            (&path.forward_route, &path.back_route)
        };
        let routers = own.routers.iter().enumerate();
        let routers = routers.map(|(place, router)| RouterOnPath {
            address: router.map(Topology::router_address),
            answer_skips: answer_skips(own, opposite, place),
        });
        Self {
            routers: routers.collect(),
            bottleneck_link: own.bottleneck_link,
        }
    }

    /// Number of routers.
    pub(super) fn hops(&self) -> u8 {
        u8::try_from(self.routers.len()).unwrap_or(u8::MAX)
    }

    /// The router at which a packet with this time to live ends, if it does not reach the host.
    pub(super) fn stop_of_ttl(&self, ttl: u8) -> Option<StopAtRouter> {
        // A host does not send a time to live of 0; such a packet would end at the first router.
        let router = usize::from(ttl).saturating_sub(1);
        (router < self.routers.len()).then_some(StopAtRouter {
            router,
            stop: RouterStop::Expired,
        })
    }

    /// The stop of a packet for one of the routers.
    pub(super) fn stop_at_address(&self, ttl: u8, address: Ipv4Addr) -> Option<StopAtRouter> {
        let mut routers = self.routers.iter();
        let router = routers.position(|router| router.address == Some(address))?;
        let addressed = StopAtRouter {
            router,
            stop: RouterStop::Addressed,
        };
        // It may expire before.
        let expired = self.stop_of_ttl(ttl).filter(|stop| stop.router < router);
        Some(expired.unwrap_or(addressed))
    }

    /// From where a router answers; `None`: it is silent.
    pub(super) fn answer_origin(&self, router: usize) -> Option<AnswerOrigin> {
        let router = self.routers.get(router)?;
        Some(AnswerOrigin {
            address: router.address?,
            skips: router.answer_skips,
        })
    }

    /// Whether a packet that ends at a router passes the bottleneck before it.
    pub(super) fn is_bottleneck_before(&self, router: usize) -> bool {
        self.bottleneck_link <= router + 1
    }

    /// Whether a packet that joins behind so many routers still passes the bottleneck.
    pub(super) fn is_bottleneck_after(&self, skips: usize) -> bool {
        self.bottleneck_link > skips
    }

    /// The part of a delay that is spent before a router.
    pub(super) fn delay_before(&self, router: usize, delay: Duration) -> Duration {
        self.share(delay, router + 1)
    }

    /// The part of a delay that is spent behind so many routers.
    pub(super) fn delay_after(&self, skips: usize, delay: Duration) -> Duration {
        delay.saturating_sub(self.share(delay, skips))
    }

    /// The time to live with which the answer of a router behind `skips` routers arrives.
    pub(super) fn answer_ttl(&self, skips: usize) -> u8 {
        let passed = u8::try_from(self.routers.len().saturating_sub(skips)).unwrap_or(u8::MAX);
        ROUTER_TTL.saturating_sub(passed).max(1)
    }

    /// The delay of the first `links` links. The links have equal delays.
    fn share(&self, delay: Duration, links: usize) -> Duration {
        let all = u32::from(self.hops()) + 1;
        let part = u32::try_from(links).unwrap_or(u32::MAX).min(all);
        delay * part / all
    }
}

/// Number of routers of the opposite direction that an answer of the router at `place` does not pass: those up
/// to this router itself where it is on both directions. Otherwise as many as make the way back as long as the way there.
fn answer_skips(own: &LabRoute, opposite: &LabRoute, place: usize) -> usize {
    let router = own.routers.get(place).copied().flatten();
    let both = router.and_then(|router| {
        let mut back = opposite.routers.iter();
        back.position(|other| *other == Some(router))
    });
    match both {
        Some(position) => position + 1,
        None => opposite.routers.len().saturating_sub(place),
    }
}
