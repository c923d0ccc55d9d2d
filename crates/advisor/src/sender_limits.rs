//! Limits of this host's kernel for the programs that send from it.

use std::fs;

use tune::sizing::host_limits::HostBufferLimits;

/// The settings of this kernel. Programs that ask for advice have no privileges, so that only what every
/// process may do counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderLimits {
    /// Limits on buffers.
    pub(crate) buffers: HostBufferLimits,
    /// Congestion controls that every process may choose.
    pub(crate) congestion_controls: Vec<String>,
}

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
        let names = read("ipv4/tcp_allowed_congestion_control").unwrap_or_default();
        Self {
            buffers,
            congestion_controls: names.split_whitespace().map(str::to_owned).collect(),
        }
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
