//! The network-advice service: tests of the paths from a data server to its clients, their history, and
//! advice for any program (Tierney et al., "Enabling Network-Aware Applications", HPDC 2001).

#![forbid(unsafe_code)]

pub mod aggregation;
pub mod check;
pub mod chosen_tests;
pub mod clock;
pub mod config;
pub mod enforce;
pub mod hosts;
pub mod http;
pub mod import;
pub mod log_reader;
pub mod measurement;
pub mod notify;
pub mod path_table;
pub mod path_test;
mod processor_ticks;
pub mod program;
pub mod scheduler;
mod sender_limits;
pub mod service;
pub mod store;

/// Entrances to private parsers, for the fuzz targets alone.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::path_test::{echo_again, message_in_ipv4};
}
