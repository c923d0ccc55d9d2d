//! The WAN lab: experiments in emulated networks, their report, and the simulator's answers.
//!
//! [`experiment`] runs programs over networks of the crate `emulator` as a user would and saves the
//! results. [`report`] turns them into tables and figures. [`simulate`] answers the same questions
//! without programs: it runs the simulator of the crate `sim`. [`league`] compares the tuner `auto` with fixed
//! settings over many paths in the fluid simulator of the same crate.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod league;
pub mod report;
pub mod simulate;

pub use emulator::LabError;
