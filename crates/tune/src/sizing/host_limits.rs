//! A host's limits on buffer sizes.

use crate::sample::window_of_buffer;

/// Largest buffer that a privileged process takes, bytes as reported. It is enough for 10 Gbit/s over
/// 130 ms. The kernel would grant 2 GB, but socket memory is never swapped.
pub const FORCED_LARGEST: u64 = 256 << 20;

/// Divisor of the machine's memory: no buffer of a privileged process is larger than the quotient. That is
/// twice the bound of the kernel's own autotuning (a 128th, `tcp_init` in net/ipv4/tcp.c).
pub const FORCED_PART: u64 = 64;

/// Buffer limits of one host and process, bytes as SO_MEMINFO reports buffers (twice the value given to
/// setsockopt).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBufferLimits {
    /// Largest send buffer by autotuning (`net.ipv4.tcp_wmem`, third value).
    pub max_autotuned_send: u64,
    /// Largest send buffer by SO_SNDBUF, or by SO_SNDBUFFORCE if this process may use it.
    pub max_settable_send: u64,
    /// Largest receive buffer by autotuning (`net.ipv4.tcp_rmem`, third value).
    pub max_autotuned_receive: u64,
    /// Largest receive buffer by SO_RCVBUF, or by SO_RCVBUFFORCE if this process may use it.
    pub max_settable_receive: u64,
    /// Largest receive buffer by SO_RCVBUF alone: twice `net.core.rmem_max`.
    pub max_unforced_receive: u64,
    /// Whether receive buffers are autotuned (`net.ipv4.tcp_moderate_rcvbuf`).
    pub receive_autotuning: bool,
    /// Whether this process may exceed `net.core.wmem_max` and `rmem_max` (CAP_NET_ADMIN).
    pub may_force: bool,
    /// First two values of `net.ipv4.tcp_wmem`, which advice to raise the third keeps.
    pub wmem_first_two: [u64; 2],
    /// First two values of `net.ipv4.tcp_rmem`; the second is the initial buffer of every connection.
    pub rmem_first_two: [u64; 2],
}

impl Default for HostBufferLimits {
    /// The defaults of tcp(7) and socket(7), for hosts whose settings cannot be read.
    fn default() -> Self {
        Self {
            max_autotuned_send: 4 << 20,
            max_settable_send: 2 * 212_992,
            max_autotuned_receive: 6 << 20,
            max_settable_receive: 2 * 212_992,
            max_unforced_receive: 2 * 212_992,
            receive_autotuning: true,
            may_force: false,
            wmem_first_two: [4096, 16_384],
            rmem_first_two: [4096, 131_072],
        }
    }
}

impl HostBufferLimits {
    /// Largest send buffer of a connection, by autotuning or by setsockopt.
    pub fn max_send_buffer(&self) -> u64 {
        self.max_autotuned_send.max(self.max_settable_send)
    }

    /// Largest receive buffer of a connection, by autotuning or by setsockopt.
    pub fn max_receive_buffer(&self) -> u64 {
        self.max_unset_receive_buffer()
            .max(self.max_settable_receive)
    }

    /// Largest receive buffer of a connection on which the program sets none.
    pub fn max_unset_receive_buffer(&self) -> u64 {
        if self.receive_autotuning {
            self.max_autotuned_receive
        } else {
            self.rmem_first_two[1]
        }
    }

    /// Largest window that a connection can offer if no buffer was set before its handshake, bytes. It is
    /// bounded by the buffer and by the window scale. Linux chooses the scale for the larger of
    /// `net.ipv4.tcp_rmem`'s third value and `net.core.rmem_max` (`tcp_select_initial_window`).
    pub fn max_receive_window(&self) -> u64 {
        // The kernel compares with `rmem_max` itself, which SO_MEMINFO would report doubled.
        let space = self
            .max_autotuned_receive
            .max(self.max_unforced_receive / 2);
        // The kernel's formula in `tcp_select_initial_window`.
        let scale = space.max(1).ilog2().saturating_sub(15).min(LARGEST_SCALE);
        window_of_buffer(self.max_receive_buffer()).min(65_535 << scale)
    }
}

/// Largest window scale (RFC 7323 §2.3).
const LARGEST_SCALE: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_buffer_is_the_larger_of_autotuned_and_settable() {
        let limits = HostBufferLimits::default();
        assert_eq!(limits.max_send_buffer(), 4 << 20);
        assert_eq!(limits.max_receive_buffer(), 6 << 20);
        let fixed = HostBufferLimits {
            receive_autotuning: false,
            ..limits
        };
        assert_eq!(fixed.max_unset_receive_buffer(), 131_072);
        assert_eq!(fixed.max_receive_buffer(), 425_984);
    }

    /// Values measured on Linux 6.18 with `rmem_max` at 4 MB.
    #[test]
    fn the_window_scale_follows_tcp_rmem_and_rmem_max() {
        let forced = HostBufferLimits {
            max_settable_receive: FORCED_LARGEST,
            max_unforced_receive: 8 << 20,
            ..HostBufferLimits::default()
        };
        for (autotuned, scale) in [(1 << 20, 7), (6 << 20, 7), (32 << 20, 10), (64 << 20, 11)] {
            let limits = HostBufferLimits {
                max_autotuned_receive: autotuned,
                ..forced
            };
            assert_eq!(limits.max_receive_window(), 65_535 << scale);
        }
        let most = HostBufferLimits {
            max_autotuned_receive: u64::MAX,
            ..forced
        };
        assert_eq!(most.max_receive_window(), 65_535 << 14);
        let small = HostBufferLimits::default();
        assert_eq!(small.max_receive_window(), window_of_buffer(6 << 20));
    }
}
