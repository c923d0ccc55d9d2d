//! The few system calls that no safe crate wraps, each with its SAFETY comment.
#![allow(unsafe_code, reason = "this is the one room for it")]

/// The fields of Linux `tcp_info` that longhaul uses; absent ones (older kernels) are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "named as in linux/tcp.h, without the tcpi_ prefix"
)]
pub struct TcpInfo {
    pub ca_state: u8,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub rcv_rtt_us: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub notsent_bytes: u32,
    pub min_rtt_us: u32,
    pub delivery_rate: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
}
