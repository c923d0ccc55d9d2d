//! The queue on a real PostgreSQL, which the tests start. A machine without PostgreSQL prints `SKIPPED`; with
//! `LONGHAUL_REQUIRE_PEERS=1` the tests fail there.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

mod leases;
mod limits;
mod support;
