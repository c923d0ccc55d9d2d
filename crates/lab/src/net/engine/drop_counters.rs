//! Packets that no direction counts.

use units::show;

use super::delivery_queue::MEMORY_LIMIT;
use super::sleeper::StallStats;

/// Counts of what went past the links.
#[derive(Debug, Default)]
pub(super) struct DropCounters {
    /// To nobody in the lab: multicast, broadcast, unknown addresses, IPv6.
    pub(super) stray: u64,
    /// Not carried because they break the rules of their format.
    pub(super) malformed: u64,
    /// Dropped because those under way take [`MEMORY_LIMIT`].
    pub(super) overflow: u64,
    /// Tries to deliver for which the kernel had no room.
    pub(super) retries: u64,
}

impl DropCounters {
    /// Why they spoil the run.
    pub(super) fn invalid_reason(&self) -> Option<String> {
        (self.overflow > 0).then(|| {
            format!(
                "{} packets were dropped because those under way took {} MiB of memory: \
                 the emulator was the bottleneck; give the path a smaller queue or a lower rate",
                self.overflow,
                MEMORY_LIMIT >> 20,
            )
        })
    }

    /// Notes worth reading. Stray packets are not: every kernel sends some.
    pub(super) fn notes(&self) -> Vec<String> {
        tracing::debug!(?self, "packets of no direction");
        let said = [
            (self.malformed, "malformed packets were dropped"),
            (
                self.retries,
                "deliveries had to be tried again because the kernel had no room",
            ),
        ];
        said.iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}

/// Note on a machine that did not wake the emulator in time.
pub(super) fn stalls_note(stalls: StallStats, has_precedence: bool) -> Option<String> {
    let advice = if has_precedence {
        ""
    } else {
        "; with root it would go before other programs"
    };
    (stalls.count > 0).then(|| {
        format!(
            "the emulator was kept waiting {} times, {} at most{advice}",
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
    fn only_what_matters_is_said() {
        let mut tallies = DropCounters {
            stray: 100,
            ..DropCounters::default()
        };
        assert_eq!((tallies.invalid_reason(), tallies.notes().len()), (None, 0));
        tallies.malformed = 3;
        assert_eq!(tallies.notes(), ["3 malformed packets were dropped"]);
        tallies.overflow = 2;
        let objection = tallies.invalid_reason().unwrap();
        assert!(
            objection.starts_with("2 packets were dropped because those under way took 1024 MiB")
        );
    }

    #[test]
    fn advice_is_for_those_who_can_take_it() {
        let stalls = StallStats {
            count: 2,
            longest: Duration::from_micros(4500),
        };
        let said = "the emulator was kept waiting 2 times, 4.5 ms at most";
        assert_eq!(stalls_note(stalls, true).as_deref(), Some(said));
        assert!(stalls_note(stalls, false).unwrap().contains("root"));
        assert_eq!(stalls_note(StallStats::default(), false), None);
    }
}
