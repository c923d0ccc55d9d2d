//! The database of the advisor: the same cases on SQLite and on a real PostgreSQL, which the test starts. A
//! machine without PostgreSQL prints `SKIPPED`; with `LONGHAUL_REQUIRE_PEERS=1` the test fails there.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

mod cases;
mod servers;
mod trouble;
