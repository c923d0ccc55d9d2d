//! The few system calls that no safe crate wraps, each with its SAFETY comment.
#![allow(unsafe_code, reason = "this is the one room for it")]

pub mod caps;
pub mod congestion;
pub mod sockopt;
pub mod tcp_info;
pub mod wake;
pub(crate) mod writeback;
pub mod zerocopy;

/// Buffers of at least this size are mapped apart, bytes.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 4 << 20;

/// From now on large buffers (4 MiB and more) go back to the system when they are freed. Left to
/// itself glibc raises its bound with the first one that is freed, and keeps the next ones in the
/// arena of each thread: forty password checks leave hundreds of megabytes behind. Other C
/// libraries give them back by themselves.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers, touches no memory of ours, and locks the allocator.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED) };
}
