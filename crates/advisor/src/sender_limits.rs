//! Limits of this host's kernel for the programs that send from it.

use std::fs;

use enable::processor::HostCapacity;
use tune::path::ProcessorCapacity;
use tune::sizing::host_limits::HostBufferLimits;

/// The settings of this kernel. Programs that ask for advice have no privileges, so that only what every
/// process may do counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderLimits {
    /// Limits on buffers.
    pub(crate) buffers: HostBufferLimits,
    /// Congestion controls that every process may choose.
    pub(crate) congestion_controls: Vec<String>,
    /// Capacity of the processors if nothing else runs; `None`: unknown.
    pub(crate) processor: Option<ProcessorCapacity>,
}

/// Share of the processors that a further transfer gets on a host that is busy: its scheduler is fair.
const LEAST_FREE: f64 = 0.125;

impl SenderLimits {
    /// Reads /proc/sys/net (tcp(7), socket(7)); values that cannot be read are the kernel's defaults.
    pub(crate) fn read() -> Self {
        let mut buffers = HostBufferLimits::default();
        if let Some([first, second, third]) = numbers("ipv4/tcp_wmem") {
            buffers.wmem_first_two = [first, second];
            buffers.max_autotuned_send = third;
        }
        if let Some([first, second, third]) = numbers("ipv4/tcp_rmem") {
            buffers.rmem_first_two = [first, second];
            buffers.max_autotuned_receive = third;
        }
        if let Some([switch]) = numbers("ipv4/tcp_moderate_rcvbuf") {
            buffers.receive_autotuning = switch != 0;
        }
        // The kernel grants twice of what is asked for.
        if let Some([most]) = numbers("core/wmem_max") {
            buffers.max_settable_send = most.saturating_mul(2);
        }
        if let Some([most]) = numbers("core/rmem_max") {
            buffers.max_settable_receive = most.saturating_mul(2);
            buffers.max_unforced_receive = most.saturating_mul(2);
        }
        let found = HostCapacity::of_this_host();
        let names = read("ipv4/tcp_allowed_congestion_control").unwrap_or_default();
        Self {
            buffers,
            congestion_controls: names.split_whitespace().map(str::to_owned).collect(),
            processor: Some(ProcessorCapacity {
                bps: found.bps,
                cores: found.cores,
            }),
        }
    }

    /// Capacity of the processors for a further transfer if the share `busy` of them is in use, 0 to 1.
    pub(crate) fn free_processor(&self, busy: f64) -> Option<ProcessorCapacity> {
        let free = (1.0 - busy).clamp(LEAST_FREE, 1.0);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "casts of floats saturate"
        )]
        let part = |number: f64| (number * free).ceil() as u64;
        let all = self.processor?;
        Some(ProcessorCapacity {
            bps: part(all.bps as f64),
            cores: u32::try_from(part(f64::from(all.cores))).unwrap_or(all.cores),
        })
    }
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/net/{name}")).ok()
}

/// Exactly `N` numbers.
fn numbers<const N: usize>(name: &str) -> Option<[u64; N]> {
    let text = read(name)?;
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_has_less_for_a_further_transfer_and_never_nothing() {
        let idle = ProcessorCapacity {
            bps: 80_000_000_000,
            cores: 8,
        };
        let limits = SenderLimits {
            processor: Some(idle),
            ..SenderLimits::default()
        };
        assert_eq!(limits.free_processor(0.0), Some(idle));
        let half = limits.free_processor(0.5).unwrap();
        assert_eq!((half.bps, half.cores), (40_000_000_000, 4));
        for busy in [1.0, 7.0] {
            let left = limits.free_processor(busy).unwrap();
            assert!(left.bps >= 10_000_000_000, "{busy}");
            assert!(left.cores >= 1, "{busy}");
        }
        assert_eq!(SenderLimits::default().free_processor(0.0), None);
    }
}
