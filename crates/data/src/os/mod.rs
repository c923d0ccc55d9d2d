//! The few system calls that no safe crate wraps, each with its SAFETY comment.
#![allow(
    unsafe_code,
    reason = "all unsafe code of the workspace is in this module"
)]

pub mod caps;
pub mod congestion;
pub mod core_dumps;
pub mod ktls;
pub mod pam;
pub mod privilege;
pub mod readable;
pub mod remote_key;
pub mod signals;
pub mod sockopt;
pub mod tcp_info;
pub(crate) mod tls_session;
pub mod tls_tickets;
pub mod wake;
pub(crate) mod writeback;
pub mod zerocopy;

/// Buffers of at least this size get their own mapping, bytes.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 4 << 20;

/// Makes large buffers (4 MiB and more) return to the system when they are freed. By default glibc
/// raises its mmap threshold with the first freed buffer, and keeps later ones in the arena of each
/// thread: forty password checks leave hundreds of megabytes behind (mallopt(3), M_MMAP_THRESHOLD).
/// Other C libraries return them without this.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers, touches no memory of ours, and locks the allocator.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD) };
}
