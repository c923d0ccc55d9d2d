//! How freed memory returns to the system.

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
