//! Copies against longhaul's own server, in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod advice;
mod batches;
mod bundle_repair;
mod bundles;
mod bundles_between;
mod changing_sources;
mod checksum_files;
mod chunked;
mod coarse_times;
mod confirmation;
mod continued_batches;
mod control_proxy;
mod destination_locks;
mod failures;
mod faulty_server;
mod huge_files;
mod incomplete_listings;
mod integrity;
mod interrupts;
mod kept_extras;
mod limiters;
mod listing_attacks;
mod listing_server;
mod lost_requests;
mod memory;
mod names;
mod patterns;
mod pipelining;
mod preserve;
mod protection;
mod resume;
mod right_sizing;
mod same_tree;
mod selection;
mod single_files;
mod stalled_series;
mod support;
mod swapped_names;
mod sync;
mod trees;
mod verbs;
