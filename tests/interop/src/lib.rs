//! Harness of the interoperability tests: starts the programs of other projects and longhaul on loopback,
//! copies files between them, and compares the copies.
//!
//! Every process belongs to a value that kills it when dropped, even after a panic. Every listener has a
//! loopback address and a free port. Every file is in a [`scratch::ScratchFolder`]. Contents are seeded,
//! so that failures can be repeated.
//!
//! `cargo test -p interop` runs all tests; `tests/install-peers` installs the programs. Environment
//! variables:
//!
//! * `LONGHAUL_BIN`: use this binary instead of building one with cargo;
//! * `LONGHAUL_PEERS`: directory where `tests/install-peers` unpacked the servers that it does not
//!   install;
//! * `LONGHAUL_REQUIRE_PEERS=1`: a missing program is a failure instead of `SKIPPED`.
//!
//! The test files (120 MB) stay in the system's temporary directory for the next run.

pub mod cells;
pub mod failing_directory;
pub mod http_relay;
pub mod longhaul;
pub mod matrix;
pub mod net;
pub mod network_cut;
pub mod peer;
pub mod pki;
pub mod power;
pub mod prerequisite;
pub mod process;
pub mod proxy;
pub mod run;
pub mod scratch;
pub mod seeded_random;
pub mod set_clock;
pub mod stalling_view;
pub mod test_files;
pub mod tiny_disk;
pub mod tree;
pub mod volume;
pub mod wire_tap;
