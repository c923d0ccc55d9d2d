//! The clock of file timestamps.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The clock that the kernel uses for file timestamps. It has microseconds.
pub fn file_clock() -> Timespec {
    clock_gettime(ClockId::Realtime)
}
