//! Sessions over real sockets: a server in this process, and clients that speak raw TCP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "everything in this crate is a test"
)]

#[path = "../serving/mod.rs"]
mod serving;

mod client;
mod data_port;
mod in_process_server;

mod abort;
mod addresses;
mod checksums;
mod extended;
mod hostile;
mod limits;
mod lines;
mod listings;
mod log_names;
mod login;
mod restart;
mod right_sizing;
mod shares;
mod shutdown;
mod stream_mode;
mod tuning;
mod upload_owners;
