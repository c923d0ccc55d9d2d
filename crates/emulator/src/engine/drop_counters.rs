//! Counters of packets that do not reach any link.

use units::show;

use super::delivery_queue::MEMORY_LIMIT;
use super::sleeper::StallStats;

/// Counters of packets outside of all directions.
#[derive(Debug, Default)]
pub(super) struct DropCounters {
    /// Packets to no host of the lab: multicast, broadcast, unknown addresses, IPv6.
    pub(super) stray: u64,
    /// Packets dropped because they are malformed.
    pub(super) malformed: u64,
    /// Packets dropped because those in flight use [`MEMORY_LIMIT`].
    pub(super) overflow: u64,
    /// Deliveries retried because the kernel had no room.
    pub(super) retries: u64,
}

impl DropCounters {
    /// The reason why the counters make the run invalid.
    pub(super) fn invalid_reason(&self) -> Option<String> {
        // The path would have forwarded these packets, so the results show the emulator's limit.
        (self.overflow > 0).then(|| {
            format!(
                "{} packets were dropped because those in flight used {} MiB of memory, so the \
                 emulator was the bottleneck; use a smaller queue or a lower rate",
                self.overflow,
                MEMORY_LIMIT >> 20,
            )
        })
    }

    /// Notes for the report. Stray packets give none, because every kernel sends some.
    pub(super) fn notes(&self) -> Vec<String> {
        tracing::debug!(?self, "packets of no direction");
        let counts = [
            (self.malformed, "malformed packets were dropped"),
            (
                self.retries,
                "deliveries were retried because the kernel had no room",
            ),
        ];
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}

/// A note if the machine did not wake the emulator in time.
pub(super) fn stalls_note(stalls: StallStats, has_real_time_priority: bool) -> Option<String> {
    // Real-time scheduling, which makes late wake-ups rare, needs root or RLIMIT_RTPRIO (sched(7)).
    let advice = if has_real_time_priority {
        ""
    } else {
        "; as root it would get real-time priority"
    };
    (stalls.count > 0).then(|| {
        format!(
            "the machine woke the emulator late {} times, by at most {}{advice}",
            stalls.count,
            show::time(stalls.longest),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stray_packets_are_not_reported_and_dropped_ones_are() {
        let mut counters = DropCounters {
            stray: 100,
            ..DropCounters::default()
        };
        assert_eq!(
            (counters.invalid_reason(), counters.notes().len()),
            (None, 0)
        );
        counters.malformed = 3;
        assert_eq!(counters.notes(), ["3 malformed packets were dropped"]);
        counters.overflow = 2;
        let reason = counters.invalid_reason().unwrap();
        assert!(reason.starts_with("2 packets were dropped because those in flight used 1024 MiB"));
    }

    #[test]
    fn advice_to_use_root_is_given_without_root_only() {
        let stalls = StallStats {
            count: 2,
            longest: Duration::from_micros(4500),
        };
        let expected = "the machine woke the emulator late 2 times, by at most 4.5 ms";
        assert_eq!(stalls_note(stalls, true).as_deref(), Some(expected));
        assert!(stalls_note(stalls, false).unwrap().contains("root"));
        assert_eq!(stalls_note(StallStats::default(), false), None);
    }
}
