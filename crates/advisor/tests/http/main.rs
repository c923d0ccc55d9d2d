//! The service over HTTP: its protocols, its page in a real browser, and clients that were written for other servers.
//!
//! Tests that need a program which is not installed print `SKIPPED`; with `LONGHAUL_REQUIRE_PEERS=1` they fail.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports by panicking"
)]

mod bad_input;
mod browser;
mod dashboard;
mod documentation;
mod harness;
mod interop;
mod json_api;
mod many_connections;
mod xml_rpc;
