//! How far a host lets buffers grow.

use crate::look::offered;

/// The largest buffer that a privileged process gives itself, bytes as reported: in flight it
/// carries 10 Gbit/s over 130 ms. The kernel would grant 2 GB, of memory that is not swapped.
pub const FORCED_LARGEST: u64 = 256 << 20;

/// Of a machine's memory, a privileged process lets no buffer exceed this part: twice what the
/// kernel's own autotuning may (a 128th, `tcp_init` in net/ipv4/tcp.c).
pub const FORCED_PART: u64 = 64;

/// The limits of one host and process, bytes as SO_MEMINFO shows buffers (twice what is asked for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The largest send buffer that autotuning makes (`net.ipv4.tcp_wmem`, third value).
    pub send_autotuned: u64,
    /// The largest that SO_SNDBUF, or SO_SNDBUFFORCE if this process may, can set.
    pub send_settable: u64,
    /// The largest receive buffer that autotuning makes (`net.ipv4.tcp_rmem`, third value).
    pub receive_autotuned: u64,
    /// The largest that SO_RCVBUF or SO_RCVBUFFORCE can set.
    pub receive_settable: u64,
    /// The largest that SO_RCVBUF without force can set, which is twice `net.core.rmem_max`.
    pub receive_unforced: u64,
    /// Receive buffers are autotuned at all (`net.ipv4.tcp_moderate_rcvbuf`).
    pub receive_autotunes: bool,
    /// This process may exceed `net.core.wmem_max` and `rmem_max` (CAP_NET_ADMIN).
    pub forced: bool,
    /// The first two values of `net.ipv4.tcp_wmem`: what is kept when the third is raised.
    pub send_first: [u64; 2],
    /// The first two values of `net.ipv4.tcp_rmem`; the second is every connection's first buffer.
    pub receive_first: [u64; 2],
}

impl Default for Caps {
    /// The defaults that tcp(7) and socket(7) document, and that most kernels in use have: a
    /// host that does not tell is taken for one of those.
    fn default() -> Self {
        Self {
            send_autotuned: 4 << 20,
            send_settable: 2 * 212_992,
            receive_autotuned: 6 << 20,
            receive_settable: 2 * 212_992,
            receive_unforced: 2 * 212_992,
            receive_autotunes: true,
            forced: false,
            send_first: [4096, 16_384],
            receive_first: [4096, 131_072],
        }
    }
}

impl Caps {
    /// The largest send buffer that a connection can have, by autotuning or set.
    pub fn send_reachable(&self) -> u64 {
        self.send_autotuned.max(self.send_settable)
    }

    /// The largest receive buffer, likewise.
    pub fn receive_reachable(&self) -> u64 {
        self.receive_untouched().max(self.receive_settable)
    }

    /// The largest receive buffer of a connection that is left alone.
    pub fn receive_untouched(&self) -> u64 {
        if self.receive_autotunes {
            self.receive_autotuned
        } else {
            self.receive_first[1]
        }
    }

    /// The largest window that a connection can offer, bytes, when nothing was set before its
    /// handshake: by its buffer, and by the window scale, which Linux chooses for the larger of
    /// `net.ipv4.tcp_rmem`'s third value and `net.core.rmem_max` (`tcp_select_initial_window`).
    pub fn receive_window(&self) -> u64 {
        let space = self.receive_autotuned.max(self.receive_unforced / 2);
        let scale = space.max(1).ilog2().saturating_sub(15).min(LARGEST_SCALE);
        offered(self.receive_reachable()).min(65_535 << scale)
    }
}

/// RFC 7323 §2.3.
const LARGEST_SCALE: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reachable_is_the_larger_of_autotuned_and_set() {
        let caps = Caps::default();
        assert_eq!(caps.send_reachable(), 4 << 20);
        assert_eq!(caps.receive_reachable(), 6 << 20);
        let fixed = Caps {
            receive_autotunes: false,
            ..caps
        };
        assert_eq!(fixed.receive_untouched(), 131_072);
        assert_eq!(fixed.receive_reachable(), 425_984);
    }

    /// As was measured on Linux 6.18 with `rmem_max` at 4 MB.
    #[test]
    fn the_window_scale_follows_what_an_administrator_allows() {
        let forced = Caps {
            receive_settable: FORCED_LARGEST,
            receive_unforced: 8 << 20,
            ..Caps::default()
        };
        for (autotuned, scale) in [(1 << 20, 7), (6 << 20, 7), (32 << 20, 10), (64 << 20, 11)] {
            let caps = Caps {
                receive_autotuned: autotuned,
                ..forced
            };
            assert_eq!(caps.receive_window(), 65_535 << scale);
        }
        let most = Caps {
            receive_autotuned: u64::MAX,
            ..forced
        };
        assert_eq!(most.receive_window(), 65_535 << 14);
        let small = Caps::default();
        assert_eq!(small.receive_window(), offered(6 << 20));
    }
}
