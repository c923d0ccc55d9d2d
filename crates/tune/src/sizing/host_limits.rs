//! How far a host lets buffers grow.

use crate::sample::window_of_buffer;

/// The largest buffer that a privileged process gives itself, bytes as reported: in flight it
/// carries 10 Gbit/s over 130 ms. The kernel would grant 2 GB, of memory that is not swapped.
pub const FORCED_LARGEST: u64 = 256 << 20;

/// Of a machine's memory, a privileged process lets no buffer exceed this part: twice what the
/// kernel's own autotuning may (a 128th, `tcp_init` in net/ipv4/tcp.c).
pub const FORCED_PART: u64 = 64;

/// The limits of one host and process, bytes as SO_MEMINFO shows buffers (twice what is asked for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBufferLimits {
    /// The largest send buffer that autotuning makes (`net.ipv4.tcp_wmem`, third value).
    pub max_autotuned_send: u64,
    /// The largest that SO_SNDBUF, or SO_SNDBUFFORCE if this process may, can set.
    pub max_settable_send: u64,
    /// The largest receive buffer that autotuning makes (`net.ipv4.tcp_rmem`, third value).
    pub max_autotuned_receive: u64,
    /// The largest that SO_RCVBUF or SO_RCVBUFFORCE can set.
    pub max_settable_receive: u64,
    /// The largest that SO_RCVBUF without force can set, which is twice `net.core.rmem_max`.
    pub max_unforced_receive: u64,
    /// Receive buffers are autotuned at all (`net.ipv4.tcp_moderate_rcvbuf`).
    pub receive_autotuning: bool,
    /// This process may exceed `net.core.wmem_max` and `rmem_max` (CAP_NET_ADMIN).
    pub may_force: bool,
    /// The first two values of `net.ipv4.tcp_wmem`: what is kept when the third is raised.
    pub wmem_first_two: [u64; 2],
    /// The first two values of `net.ipv4.tcp_rmem`; the second is every connection's first buffer.
    pub rmem_first_two: [u64; 2],
}

impl Default for HostBufferLimits {
    /// The defaults that tcp(7) and socket(7) document, and that most kernels in use have: a
    /// host that does not tell is taken for one of those.
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
    /// The largest send buffer that a connection can have, by autotuning or set.
    pub fn max_send_buffer(&self) -> u64 {
        self.max_autotuned_send.max(self.max_settable_send)
    }

    /// The largest receive buffer, likewise.
    pub fn max_receive_buffer(&self) -> u64 {
        self.max_unset_receive_buffer()
            .max(self.max_settable_receive)
    }

    /// The largest receive buffer of a connection that is left alone.
    pub fn max_unset_receive_buffer(&self) -> u64 {
        if self.receive_autotuning {
            self.max_autotuned_receive
        } else {
            self.rmem_first_two[1]
        }
    }

    /// The largest window that a connection can offer, bytes, when nothing was set before its
    /// handshake: by its buffer, and by the window scale, which Linux chooses for the larger of
    /// `net.ipv4.tcp_rmem`'s third value and `net.core.rmem_max` (`tcp_select_initial_window`).
    pub fn max_receive_window(&self) -> u64 {
        let space = self
            .max_autotuned_receive
            .max(self.max_unforced_receive / 2);
        let scale = space.max(1).ilog2().saturating_sub(15).min(LARGEST_SCALE);
        window_of_buffer(self.max_receive_buffer()).min(65_535 << scale)
    }
}

/// RFC 7323 §2.3.
const LARGEST_SCALE: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reachable_is_the_larger_of_autotuned_and_set() {
        let caps = HostBufferLimits::default();
        assert_eq!(caps.max_send_buffer(), 4 << 20);
        assert_eq!(caps.max_receive_buffer(), 6 << 20);
        let fixed = HostBufferLimits {
            receive_autotuning: false,
            ..caps
        };
        assert_eq!(fixed.max_unset_receive_buffer(), 131_072);
        assert_eq!(fixed.max_receive_buffer(), 425_984);
    }

    /// As was measured on Linux 6.18 with `rmem_max` at 4 MB.
    #[test]
    fn the_window_scale_follows_what_an_administrator_allows() {
        let forced = HostBufferLimits {
            max_settable_receive: FORCED_LARGEST,
            max_unforced_receive: 8 << 20,
            ..HostBufferLimits::default()
        };
        for (autotuned, scale) in [(1 << 20, 7), (6 << 20, 7), (32 << 20, 10), (64 << 20, 11)] {
            let caps = HostBufferLimits {
                max_autotuned_receive: autotuned,
                ..forced
            };
            assert_eq!(caps.max_receive_window(), 65_535 << scale);
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
