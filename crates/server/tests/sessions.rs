//! Sessions over real sockets: a server in this process, and clients that speak raw TCP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "everything in this crate is a test"
)]

mod serving;
mod session;
