//! Copies against longhaul's own server, in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at the first surprise"
)]

mod chunked;
mod confirmation;
mod failures;
mod flights;
mod integrity;
mod liar;
mod moves;
mod owners;
mod resume;
mod right_sizing;
mod support;
mod trees;
mod verbs;
mod verdicts;
