//! Decisions of the queue, without I/O: the state of the fleet and times are arguments.

pub mod estimate;
pub mod fleet;
pub mod lease;
pub mod lease_watch;
pub mod retry;
