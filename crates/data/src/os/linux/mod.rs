//! Calls of Linux.

pub mod attributes;
pub mod caps;
pub mod clock;
pub mod congestion;
pub mod core_dumps;
pub mod disk;
pub mod ktls;
pub mod lookup;
pub mod machine;
pub mod memory;
pub mod pam;
pub mod privilege;
pub mod process;
pub mod random;
pub mod sending;
pub mod sharing;
pub mod sockopt;
pub(crate) mod splice;
pub mod stat;
pub mod tcp_info;
pub mod wake;
pub(crate) mod writeback;
pub mod zerocopy;
