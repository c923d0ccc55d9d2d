//! Where the bottleneck of a route lies, from the bandwidth up to each hop. Pure.

/// Bandwidth of the way from this host to a hop, bits per second; `None`: the hop does not answer trains.
pub(super) type HopBandwidth = Option<u64>;

/// The bandwidth behind the bottleneck is at most this many times that of the whole path.
const SAME: f64 = 1.5;

/// The hop before the bottleneck link: 0 is this host, 1 the first router. `hops` are the hops in order, the client
/// last. `None`: too little is known. Where routers before the bottleneck do not answer, the last answering one before
/// it counts.
pub(super) fn bottleneck_hop(hops: &[HopBandwidth]) -> Option<usize> {
    // The way to a hop is part of the way to the next one, so it is at least as fast: a lower figure is of a sender
    // that waited for its processor.
    let mut hops = hops.to_vec();
    let mut behind = 0;
    for bps in hops.iter_mut().rev().flatten() {
        behind = behind.max(*bps);
        *bps = behind;
    }
    let whole = hops.iter().flatten().min().copied()? as f64;
    let is_slow =
        |bandwidth: &HopBandwidth| bandwidth.is_some_and(|bps| bps as f64 <= whole * SAME);
    let slow = hops.iter().position(is_slow)?;
    let before = hops.get(..slow)?;
    if before.is_empty() {
        return Some(0);
    }
    // If no hop before it was measured, the bottleneck is any of the links up to it.
    before
        .iter()
        .rposition(Option::is_some)
        .map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const M: u64 = 1_000_000;

    #[test]
    fn the_bottleneck_is_behind_the_last_fast_hop() {
        let fast = Some(900 * M);
        let slow = Some(90 * M);
        assert_eq!(bottleneck_hop(&[fast, fast, slow, slow]), Some(2));
        assert_eq!(bottleneck_hop(&[fast, None, slow, Some(110 * M)]), Some(1));
        assert_eq!(bottleneck_hop(&[slow, slow]), Some(0));
        assert_eq!(bottleneck_hop(&[fast, slow]), Some(1));
        assert_eq!(bottleneck_hop(&[slow, None, fast, slow]), Some(3));
    }

    #[test]
    fn too_little_is_no_answer() {
        assert_eq!(bottleneck_hop(&[]), None);
        assert_eq!(bottleneck_hop(&[None, None]), None);
        assert_eq!(bottleneck_hop(&[None, Some(M)]), None);
    }

    proptest! {
        #[test]
        fn the_answer_is_a_hop_of_the_route(hops in prop::collection::vec(any::<HopBandwidth>(), 0..31)) {
            if let Some(hop) = bottleneck_hop(&hops) {
                prop_assert!(hop < hops.len());
            }
        }
    }
}
