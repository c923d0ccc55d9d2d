//! Power cuts: longhaul on a disk that loses, in part and in any order, what was not flushed.

pub mod campaign;
pub mod device;
pub mod machine;
pub mod thin;
