//! CPU time used by other programs and by the hypervisor during a run.

use std::time::Duration;

use nix::sys::resource::{Usage, UsageWho, getrusage};

use crate::LabError;

/// Shares of the CPU time of all processors during a run, 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct CpuShares {
    /// Used by processes outside the lab. Interrupt time is not counted, because the lab's own packets
    /// cause most of it.
    pub(super) other_programs: f64,
    /// Stolen by the hypervisor.
    pub(super) stolen: f64,
    /// Whether the run was long enough: the kernel counts in ticks of 10 ms.
    pub(super) is_reliable: bool,
}

/// Shortest run for reliable shares.
const MIN_RELIABLE_RUN: Duration = Duration::from_secs(1);

/// CPU times at one moment.
#[derive(Debug)]
pub(super) struct CpuTimes {
    machine: CpuTicks,
    own: Duration,
}

/// The first line of `/proc/stat`: clock ticks, summed over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTicks {
    busy: u64,
    stolen: u64,
    total: u64,
}

impl CpuTimes {
    /// Reads the counters of the machine and of this process.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read.
    pub(super) fn now() -> Result<Self, LabError> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|e| LabError::system("cannot read the machine's load", e))?;
        let machine = CpuTicks::parse(&text)
            .ok_or_else(|| LabError::Program("/proc/stat has no line of all processors".into()))?;
        Ok(Self {
            machine,
            own: processor_time(UsageWho::RUSAGE_SELF)?
                + processor_time(UsageWho::RUSAGE_CHILDREN)?,
        })
    }

    /// CPU shares since `start`. All processes of the lab must have been waited for, because
    /// getrusage(2) counts only those.
    pub(super) fn since(&self, start: &Self) -> CpuShares {
        shares(
            self.machine.minus(start.machine),
            self.own.saturating_sub(start.own),
            rustix::param::clock_ticks_per_second(),
            std::thread::available_parallelism().map_or(1, usize::from),
        )
    }
}

impl CpuTicks {
    /// Parses `cpu user nice system idle iowait irq softirq steal guest ...` (proc_stat(5)). Guest time
    /// is already included in user.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let [
            user,
            nice,
            system,
            _idle,
            _iowait,
            _irq,
            _softirq,
            stolen,
            ..,
        ] = fields[..]
        else {
            return None;
        };
        Some(Self {
            // irq and softirq are left out: the lab's own packets cause most of them.
            busy: user + nice + system,
            stolen,
            total: fields[..8].iter().sum(),
        })
    }

    fn minus(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            total: self.total.saturating_sub(earlier.total),
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "ticks since boot are far below 2^52"
)]
fn shares(machine: CpuTicks, own: Duration, ticks_per_second: u64, processors: usize) -> CpuShares {
    if machine.total == 0 {
        return CpuShares::default();
    }
    let total = machine.total as f64;
    let own = own.as_secs_f64() * ticks_per_second as f64;
    CpuShares {
        // Clamped: ticks and getrusage(2) have different resolutions, so the difference may be
        // negative.
        other_programs: ((machine.busy as f64 - own) / total).clamp(0.0, 1.0),
        stolen: (machine.stolen as f64 / total).clamp(0.0, 1.0),
        is_reliable: total
            >= MIN_RELIABLE_RUN.as_secs_f64() * ticks_per_second as f64 * processors as f64,
    }
}

fn processor_time(whose: UsageWho) -> Result<Duration, LabError> {
    let usage: Usage = getrusage(whose)
        .map_err(|e| LabError::system("cannot read this process's processor time", e))?;
    let part = |t: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        let micros = u64::try_from(t.tv_usec()).unwrap_or(0);
        Duration::from_micros(seconds * 1_000_000 + micros)
    };
    Ok(part(usage.user_time()) + part(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_from_the_line_of_all_processors() {
        let text = "cpu  10 20 30 400 5 6 7 8 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        assert_eq!(
            CpuTicks::parse(text),
            Some(CpuTicks {
                busy: 60,
                stolen: 8,
                total: 486
            })
        );
        assert_eq!(CpuTicks::parse("cpu0 1 2 3\n"), None);
        assert_eq!(CpuTicks::parse("cpu  1 2 x\n"), None);
    }

    #[test]
    fn the_labs_own_cpu_time_does_not_count_as_other_programs() {
        let machine = CpuTicks {
            busy: 150,
            stolen: 10,
            total: 200,
        };
        let result = shares(machine, Duration::from_millis(1100), 100, 1);
        assert!((result.other_programs - 0.2).abs() < 1e-9, "{result:?}");
        assert!((result.stolen - 0.05).abs() < 1e-9);
        assert!(result.is_reliable);
    }

    #[test]
    fn shares_of_a_short_run_are_not_reliable() {
        let machine = CpuTicks {
            busy: 9,
            stolen: 0,
            total: 10,
        };
        assert!(!shares(machine, Duration::ZERO, 100, 1).is_reliable);
        let nothing = CpuTicks {
            busy: 0,
            stolen: 0,
            total: 0,
        };
        assert_eq!(
            shares(nothing, Duration::ZERO, 100, 1),
            CpuShares::default()
        );
    }

    #[test]
    fn more_own_time_than_ticks_gives_a_share_of_0() {
        let machine = CpuTicks {
            busy: 50,
            stolen: 0,
            total: 200,
        };
        assert!(
            shares(machine, Duration::from_secs(1), 100, 1)
                .other_programs
                .abs()
                < 1e-9
        );
    }

    #[test]
    fn the_cpu_time_of_this_process_increases() {
        let start = CpuTimes::now().unwrap();
        let mut sum = 0_u64;
        while CpuTimes::now().unwrap().own <= start.own {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
    }
}
