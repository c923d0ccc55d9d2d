//! How far a host lets buffers grow.

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
    /// Receive buffers are autotuned at all (`net.ipv4.tcp_moderate_rcvbuf`).
    pub receive_autotunes: bool,
    /// This process may exceed `net.core.wmem_max` and `rmem_max` (CAP_NET_ADMIN).
    pub forced: bool,
}
