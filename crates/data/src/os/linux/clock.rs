//! The clock of file timestamps.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The clock that the kernel uses for file timestamps, the coarse one. It ticks every 1 to 10 ms.
pub fn file_clock() -> Timespec {
    clock_gettime(ClockId::RealtimeCoarse)
}
