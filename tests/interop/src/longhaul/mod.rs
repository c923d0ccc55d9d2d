//! The programs under test: `longhaul serve`, `longhaul cp` and the file verbs.

pub mod binary;
pub mod copy;
pub mod rows;
pub mod serve;
pub mod unfinished;
