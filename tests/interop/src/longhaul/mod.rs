//! Runs the programs under test: `longhaul serve` and `longhaul cp`.

pub mod binary;
pub mod copy;
pub mod rows;
pub mod running_copy;
pub mod serve;
