//! The programs under test: `longhaul serve`, `longhaul cp` and the file verbs.

pub mod binary;
pub mod copy;
pub mod rows;
pub mod running_copy;
pub mod serve;
