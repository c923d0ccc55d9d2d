//! The emulator through the program itself: rates, delays, losses, order, corruption, traces, hosts,
//! what is left behind and what is refused.
//!
//! One lab at a time on a machine, so the tests take turns ([`harness::LabTestGuard`]). What cannot run here
//! says `SKIPPED` and why; with `LONGHAUL_REQUIRE_PEERS=1` it fails.

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
mod server;
mod statistics;
mod trace;
mod two_labs;
mod unprivileged;
mod verbs;

/// The part of the tests that runs on the lab's hosts; does nothing by itself.
#[test]
#[ignore = "started by the other tests, on a host of a lab"]
fn probe_on_a_host() {
    probe::run();
}
