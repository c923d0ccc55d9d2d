//! What held a transfer back, from the kernel's and the threads' own accounts.

use data::job::WireStats;

use crate::transfer_log::Direction;

/// The limiter in the project's words, or `None` where the figures do not tell.
///
/// A sender's kernel says how much of its busy time it waited for the peer's window or for its
/// own send buffer (TCP_INFO). Beside that, stream threads account for their time in the store
/// and in the socket; a side that took three quarters of it was the limit.
pub(crate) fn limiter(direction: Direction, wire: &WireStats) -> Option<&'static str> {
    let most_of = |part: u64, whole: u64| whole > 0 && part > whole / 2;
    let sending = direction != Direction::Store;
    if sending && most_of(wire.rwnd_limited_us, wire.busy_us) {
        return Some("receive window");
    }
    if sending && most_of(wire.sndbuf_limited_us, wire.busy_us) {
        return Some("send buffer");
    }
    let accounted = wire.store_us + wire.wire_us;
    if accounted == 0 {
        return None;
    }
    let three_quarters = accounted - accounted / 4;
    if wire.store_us >= three_quarters {
        return Some(if sending { "store read" } else { "store write" });
    }
    (wire.wire_us >= three_quarters).then_some("network")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_window_counts_only_for_a_sender() {
        let wire = WireStats {
            busy_us: 100,
            rwnd_limited_us: 60,
            ..WireStats::default()
        };
        assert_eq!(limiter(Direction::Retrieve, &wire), Some("receive window"));
        assert_eq!(limiter(Direction::Store, &wire), None);
    }

    #[test]
    fn a_slow_store_is_named_for_its_direction() {
        let wire = WireStats {
            store_us: 90,
            wire_us: 10,
            ..WireStats::default()
        };
        assert_eq!(limiter(Direction::Store, &wire), Some("store write"));
        assert_eq!(limiter(Direction::Retrieve, &wire), Some("store read"));
    }

    #[test]
    fn an_even_split_names_nobody() {
        let wire = WireStats {
            store_us: 50,
            wire_us: 50,
            ..WireStats::default()
        };
        assert_eq!(limiter(Direction::Store, &wire), None);
        assert_eq!(limiter(Direction::List, &WireStats::default()), None);
    }
}
