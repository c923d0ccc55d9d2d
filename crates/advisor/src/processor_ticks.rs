//! The use of this machine's processors. The load average says less: it counts processes that wait for a disk, and
//! those of a minute ago.

/// Clock ticks since the start of the machine, summed over all processors (proc_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessorTicks {
    used: u64,
    total: u64,
}

impl ProcessorTicks {
    /// The ticks now; `None`: the kernel does not tell.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `cpu user nice system idle iowait irq softirq steal ...`. What runs with less priority (nice) gives way,
    /// so it counts as idle.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // Behind these, time of guests, which is in user already.
        let fields = line.split_ascii_whitespace().take(8);
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [_, nice, _, idle, waiting, ..] = ticks[..] else {
            return None;
        };
        let total = ticks
            .iter()
            .try_fold(0, |sum: u64, ticks| sum.checked_add(*ticks))?;
        let used = total - nice - idle - waiting;
        Some(Self { used, total })
    }

    /// Share of the processors that was in use since `before`, 0 to 1; `None`: no tick has passed.
    pub(crate) fn used_since(self, before: Self) -> Option<f64> {
        let total = self
            .total
            .checked_sub(before.total)
            .filter(|ticks| *ticks > 0)?;
        let used = self.used.saturating_sub(before.used);
        Some((used as f64 / total as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_nice_time_is_free() {
        let before =
            ProcessorTicks::parse("cpu  100 10 50 800 40 0 0 0 7 7\ncpu0 1 2 3 4\n").unwrap();
        let after = ProcessorTicks::parse("cpu  130 30 60 820 60 2 3 5 9 9\n").unwrap();
        let used = after.used_since(before).unwrap();
        assert!((used - 50.0 / 110.0).abs() < 1e-9, "{used}");
        assert_eq!(after.used_since(after), None);
        assert_eq!(before.used_since(after), None);
    }

    #[test]
    fn other_text_is_no_time() {
        for text in ["", "cpu", "cpu 1 2 3", "cpu a b c d e", "cpu0 1 2 3 4 5"] {
            assert_eq!(ProcessorTicks::parse(text), None, "{text}");
        }
        let huge = format!("cpu {0} {0} {0} {0} {0}", u64::MAX);
        assert_eq!(ProcessorTicks::parse(&huge), None);
        assert!(ProcessorTicks::now().is_some());
    }
}
