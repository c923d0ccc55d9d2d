//! Harness of the interoperability tests: starts real peers and longhaul on loopback, moves files
//! between them, and compares what arrived.
//!
//! Every process belongs to a value that kills it when dropped, also on panic; every listener is
//! on a loopback address and a free port; every file is below one [`scratch::ScratchFolder`]. Contents
//! are seeded: a failing cell fails again.
//!
//! `cargo test -p interop` runs them all; `tests/install-peers` brings the peers. The environment:
//!
//! * `LONGHAUL_BIN`: this binary instead of one that cargo brings up to date;
//! * `LONGHAUL_PEERS`: where `tests/install-peers` unpacked the servers that it does not install;
//! * `LONGHAUL_REQUIRE_PEERS=1`: a missing peer is a failure, not `SKIPPED`.
//!
//! The samples (120 MB) stay in the system's temporary folder for the next run.

pub mod cells;
pub mod longhaul;
pub mod matrix;
pub mod need;
pub mod net;
pub mod peer;
pub mod power;
pub mod process;
pub mod proxy;
pub mod run;
pub mod scratch;
pub mod seeded_random;
pub mod test_files;
pub mod tiny_disk;
pub mod tree;
pub mod volume;
