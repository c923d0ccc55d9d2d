//! A server that gave up root: what its account may do, and what clients see of that.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

mod closed_directories;
mod harness;
mod new_directories;
