//! `longhaul queue` and `longhaul worker` through the programs, on a real PostgreSQL and with a real server. A machine without
//! PostgreSQL prints `SKIPPED`; with `LONGHAUL_REQUIRE_PEERS=1` the tests fail there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

mod away;
mod deaths;
mod harness;
mod orders;
mod verbs;
