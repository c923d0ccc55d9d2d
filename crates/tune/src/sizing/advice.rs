//! Rates that one stream reaches under a host's buffer limits, and the sysctl that would raise them.

use std::fmt;
use std::time::Duration;

use units::{bytes_in, show};

use super::host_limits::HostBufferLimits;
use crate::sample::{max_in_flight, window_of_buffer};

/// A path as the user describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSpec {
    /// Rate of its bottleneck, bits per second.
    pub rate_bps: u64,
    /// Round trip without queues.
    pub rtt: Duration,
}

impl PathSpec {
    /// Bandwidth-delay product, bytes.
    pub fn bdp_bytes(&self) -> u64 {
        bytes_in(self.rate_bps / 8, self.rtt)
    }

    /// Buffer of each of several streams by the formula that users of GridFTP were taught, bytes: the
    /// bandwidth-delay product divided by the number of streams less one (BBC WHP 178, 2010, section 4, its
    /// reference 15). All streams together then have `streams / (streams - 1)` of the product. `None`: fewer than
    /// two streams, for which the formula has no value.
    pub fn taught_stream_buffer(&self, streams: u32) -> Option<u64> {
        let others = streams.checked_sub(1)?;
        self.bdp_bytes().checked_div(others.into())
    }

    /// Rate of one stream with so many bytes in flight, bits per second.
    fn rate_with(&self, in_flight: u64) -> u64 {
        let bits = u128::from(in_flight) * 8 * 1_000_000_000;
        let reached = bits.checked_div(self.rtt.as_nanos());
        reached.map_or(self.rate_bps, |bps| {
            u64::try_from(bps).unwrap_or(u64::MAX).min(self.rate_bps)
        })
    }
}

/// Rates that one stream of this host reaches on a path, at most the path's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachableRates {
    /// Sending with the largest send buffer, bits per second.
    pub send_bps: u64,
    /// Receiving with the largest receive buffer and the window scale of a connection whose buffer was set
    /// after the handshake, bits per second.
    pub receive_bps: u64,
    /// Settings that limit these rates, sending first; empty if none does.
    pub advice: Vec<SysctlAdvice>,
}

/// A sysctl to raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlAdvice {
    /// Name for sysctl(8).
    pub sysctl: &'static str,
    /// New value, as sysctl(8) takes it.
    pub value: String,
    /// Present value.
    pub now: String,
    /// Rate of one stream now, bits per second.
    pub from_bps: u64,
    /// Rate of one stream with the new value, bits per second.
    pub to_bps: u64,
}

impl fmt::Display for SysctlAdvice {
    /// `sysctl -w net.ipv4.tcp_wmem="4096 16384 33554432" (now 4096 16384 4194304): 447 Mbit/s
    /// a stream becomes up to 1.00 Gbit/s`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sysctl -w {}=\"{}\" (now {}): {} a stream becomes up to {}",
            self.sysctl,
            self.value,
            self.now,
            show::bits(self.from_bps),
            show::bits(self.to_bps),
        )
    }
}

/// Largest useful value of these settings, bytes: a TCP window is at most 1 GiB (RFC 7323 §2.3).
const LARGEST: u64 = 1 << 30;

/// Rates that one stream reaches over `path` from and to a host with these limits, if `auto` sizes its
/// buffers.
pub fn reachable_rates(limits: &HostBufferLimits, path: PathSpec) -> ReachableRates {
    ReachableRates {
        send_bps: path.rate_with(max_in_flight(limits.max_send_buffer())),
        receive_bps: path.rate_with(limits.max_receive_window()),
        advice: advise_sending(limits, path)
            .into_iter()
            .chain(advise_receiving(limits, path))
            .collect(),
    }
}

/// The limit to raise so that one sending stream fills the path; `None` if it does already, or if no
/// limit helps.
pub fn advise_sending(limits: &HostBufferLimits, path: PathSpec) -> Option<SysctlAdvice> {
    // Three times the bandwidth-delay product: two thirds of a buffer are in flight, and a congestion
    // window reaches twice the product before a loss.
    let enough = rounded_up(path.bdp_bytes().saturating_mul(3));
    let from_bps = path.rate_with(max_in_flight(limits.max_send_buffer()));
    let to_bps = path.rate_with(max_in_flight(enough));
    (to_bps > from_bps).then(|| SysctlAdvice {
        sysctl: "net.ipv4.tcp_wmem",
        value: triple(limits.wmem_first_two, enough),
        now: triple(limits.wmem_first_two, limits.max_autotuned_send),
        from_bps,
        to_bps,
    })
}

/// The limits to raise, all together, so that one receiving stream fills the path; empty if it does
/// already, or if no limit helps.
pub fn advise_receiving(limits: &HostBufferLimits, path: PathSpec) -> Vec<SysctlAdvice> {
    // Twice the bandwidth-delay product: at least half of a buffer is offered as window.
    let enough = rounded_up(path.bdp_bytes().saturating_mul(2));
    let from_bps = path.rate_with(limits.max_receive_window());
    let switch_on =
        !limits.receive_autotuning && limits.max_autotuned_receive > limits.max_receive_buffer();
    let to_bps = path.rate_with(window_of_buffer(if switch_on {
        limits.max_autotuned_receive
    } else {
        enough
    }));
    if from_bps >= path.rate_bps || to_bps <= from_bps {
        return Vec::new();
    }
    let raise = |sysctl, value, now| SysctlAdvice {
        sysctl,
        value,
        now,
        from_bps,
        to_bps,
    };
    if switch_on {
        let (on, off) = ("1".to_owned(), "0".to_owned());
        return vec![raise("net.ipv4.tcp_moderate_rcvbuf", on, off)];
    }
    let triple = |third| triple(limits.rmem_first_two, third);
    let autotuned = raise(
        "net.ipv4.tcp_rmem",
        triple(enough),
        triple(limits.max_autotuned_receive),
    );
    if limits.receive_autotuning {
        return vec![autotuned];
    }
    // Reported buffers are twice the value of the setting. Even for a buffer set by the program, Linux
    // bounds the growth of the window by tcp_rmem's third value (`__tcp_grow_window`).
    let half = |bytes: u64| (bytes / 2).to_string();
    let set = raise(
        "net.core.rmem_max",
        half(enough),
        half(limits.max_settable_receive),
    );
    vec![set, autotuned]
}

fn rounded_up(bytes: u64) -> u64 {
    bytes
        .clamp(1, LARGEST)
        .checked_next_power_of_two()
        .unwrap_or(LARGEST)
}

fn triple([first, second]: [u64; 2], third: u64) -> String {
    format!("{first} {second} {third}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gigabit(ms: u64) -> PathSpec {
        PathSpec {
            rate_bps: 1_000_000_000,
            rtt: Duration::from_millis(ms),
        }
    }

    /// Linux 6.18 as it ships.
    fn shipped() -> HostBufferLimits {
        HostBufferLimits {
            max_settable_send: 8 << 20,
            max_autotuned_receive: 32 << 20,
            max_settable_receive: 8 << 20,
            max_unforced_receive: 8 << 20,
            ..HostBufferLimits::default()
        }
    }

    #[test]
    fn the_taught_buffer_is_shared_by_one_stream_less() {
        let path = gigabit(100);
        assert_eq!(path.bdp_bytes(), 12_500_000);
        let taught = [0, 1, 2, 5, 12].map(|streams| path.taught_stream_buffer(streams));
        let expected = [
            None,
            None,
            Some(12_500_000),
            Some(3_125_000),
            Some(1_136_363),
        ];
        assert_eq!(taught, expected);
    }

    #[test]
    fn a_short_path_needs_no_advice() {
        let reach = reachable_rates(&shipped(), gigabit(20));
        assert_eq!(reach.send_bps, 1_000_000_000);
        assert_eq!(reach.receive_bps, 1_000_000_000);
        assert_eq!(reach.advice, []);
    }

    #[test]
    fn a_long_path_needs_a_larger_send_buffer() {
        let reach = reachable_rates(&shipped(), gigabit(100));
        // 5.6 MB in flight, and a round trip of 100 ms.
        assert!((440_000_000..450_000_000).contains(&reach.send_bps));
        assert_eq!(reach.receive_bps, 1_000_000_000);
        let [advice] = reach.advice.as_slice() else {
            panic!("{:?}", reach.advice);
        };
        assert_eq!(advice.sysctl, "net.ipv4.tcp_wmem");
        assert_eq!(advice.value, "4096 16384 67108864");
        assert_eq!(advice.now, "4096 16384 4194304");
        assert_eq!(advice.to_bps, 1_000_000_000);
        assert_eq!(
            advice.to_string(),
            "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 67108864\" (now 4096 16384 4194304): \
             447 Mbit/s a stream becomes up to 1.00 Gbit/s"
        );
    }

    #[test]
    fn a_host_with_old_defaults_needs_a_larger_receive_buffer() {
        let [advice] = &advise_receiving(&HostBufferLimits::default(), gigabit(100))[..] else {
            panic!();
        };
        assert_eq!(advice.sysctl, "net.ipv4.tcp_rmem");
        assert_eq!(advice.value, "4096 131072 33554432");
        assert!((320_000_000..340_000_000).contains(&advice.from_bps));
    }

    #[test]
    fn disabled_autotuning_is_enabled_first() {
        let off = HostBufferLimits {
            receive_autotuning: false,
            ..shipped()
        };
        let advice = advise_receiving(&off, gigabit(100));
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].sysctl, "net.ipv4.tcp_moderate_rcvbuf");
        let small = HostBufferLimits {
            max_autotuned_receive: 65_536,
            ..off
        };
        let [set, autotuned] = &advise_receiving(&small, gigabit(100))[..] else {
            panic!();
        };
        assert_eq!(set.sysctl, "net.core.rmem_max");
        assert_eq!(
            (set.now.as_str(), set.value.as_str()),
            ("4194304", "16777216")
        );
        // The window of a set buffer grows only as far as tcp_rmem allows.
        assert_eq!(autotuned.sysctl, "net.ipv4.tcp_rmem");
        assert_eq!(autotuned.value, "4096 131072 33554432");
    }

    #[test]
    fn forced_buffers_do_not_exceed_the_window_scale() {
        let old = HostBufferLimits {
            max_settable_receive: 256 << 20,
            may_force: true,
            ..HostBufferLimits::default()
        };
        let reach = reachable_rates(&old, gigabit(100));
        // A window of 8.4 MB every 100 ms.
        assert!((670_000_000..672_000_000).contains(&reach.receive_bps));
        let advice = reach.advice.last().unwrap();
        assert_eq!(advice.sysctl, "net.ipv4.tcp_rmem");
        assert_eq!(advice.value, "4096 131072 33554432");
        assert_eq!(advice.to_bps, 1_000_000_000);
    }

    #[test]
    fn a_zero_round_trip_limits_nothing() {
        let reach = reachable_rates(&shipped(), gigabit(0));
        assert_eq!(reach.send_bps, 1_000_000_000);
        assert_eq!(reach.advice, []);
    }

    proptest! {
        /// A host that follows the advice reaches the promised rate and gets no further advice.
        #[test]
        fn following_the_advice_is_enough(rate_bps in 1_u64..100_000_000_000, us in 1_u64..2_000_000) {
            let path = PathSpec { rate_bps, rtt: Duration::from_micros(us) };
            let mut limits = shipped();
            let before = reachable_rates(&limits, path);
            for advice in &before.advice {
                prop_assert!(advice.to_bps > advice.from_bps);
                let third = advice.value.rsplit(' ').next().unwrap().parse().unwrap();
                match advice.sysctl {
                    "net.ipv4.tcp_wmem" => limits.max_autotuned_send = third,
                    "net.ipv4.tcp_rmem" => limits.max_autotuned_receive = third,
                    other => panic!("{other}"),
                }
            }
            let after = reachable_rates(&limits, path);
            prop_assert_eq!(&after.advice, &[]);
            if path.bdp_bytes() < LARGEST / 3 {
                prop_assert_eq!(after.send_bps.min(after.receive_bps), path.rate_bps);
            }
        }
    }
}
