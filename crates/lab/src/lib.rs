//! The WAN lab: an emulator, experiments and their report.
//!
//! [`topology`] says what network to build, [`net`] builds it from network namespaces, TUN devices
//! and a user-space emulator and runs a command in it. [`experiment`] runs programs over such
//! networks as a user would and keeps the results; [`report`] draws them.

#![forbid(unsafe_code)]

mod csv;
pub mod error;
pub mod experiment;
pub mod net;
pub mod report;
mod shell;
pub mod simulate;
pub mod topology;

pub use error::LabError;
