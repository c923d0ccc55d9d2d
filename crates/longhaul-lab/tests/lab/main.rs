//! Tests of the emulator through the program: rate, delay, loss, order, corruption, traces, hosts,
//! cleanup and refusals.
//!
//! Only one lab can run on a machine, so the tests take turns ([`harness::LabTestGuard`]). A test that
//! cannot run prints `SKIPPED` and the reason; with `LONGHAUL_REQUIRE_PEERS=1` it fails.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod arrivals;
mod chunks;
mod cleanup;
mod corruption;
mod delay;
mod demo;
#[cfg(test)]
mod disturbed;
mod experiment;
mod harness;
mod hosts;
mod killed;
mod loss;
mod order;
mod probe;
mod queue;
mod rate;
mod refusals;
mod report;
mod routers;
mod server;
mod shared;
mod statistics;
mod trace;
mod two_labs;
mod unprivileged;
mod verbs;

/// The part of the tests that runs on hosts of a lab; does nothing if started directly.
#[test]
#[ignore = "started by the other tests, on a host of a lab"]
fn probe_on_a_host() {
    probe::run();
}
