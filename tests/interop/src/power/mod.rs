//! Power cuts and disk errors: longhaul on a disk that loses unflushed data, or that reports errors late.

pub mod machine;
pub mod power_cut;
pub mod thin_volume;
pub mod volatile_disk;
