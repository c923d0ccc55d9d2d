//! Limits of this host on socket buffers, read from the kernel.

use tune::sizing::host_limits::HostBufferLimits;

use super::sysctl::number;

/// The limits that apply to this process now, bytes as Linux reports them: twice the size of a buffer. Values that cannot be
/// read are those of the kernel's documentation.
pub fn host_limits() -> HostBufferLimits {
    let twice = |name, otherwise: u64| number(name).unwrap_or(otherwise).saturating_mul(2);
    let settable = twice(c"kern.ipc.maxsockbuf", 8 << 20);
    HostBufferLimits {
        max_autotuned_send: twice(c"net.inet.tcp.autosndbufmax", 4 << 20),
        max_settable_send: settable,
        max_autotuned_receive: twice(c"net.inet.tcp.autorcvbufmax", 4 << 20),
        max_settable_receive: settable,
        max_unforced_receive: settable,
        receive_autotuning: number(c"net.inet.tcp.doautorcvbuf") != Some(0),
        may_force: false,
        ..HostBufferLimits::default()
    }
}
