//! Power cuts: longhaul on a disk that loses, in part and in any order, what was not flushed.

pub mod machine;
pub mod power_cut;
pub mod thin_volume;
pub mod volatile_disk;
