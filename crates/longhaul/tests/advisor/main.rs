//! `longhaul advisor` through the program: the service, its answers, and the programs that use them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod beside_server;
mod cp;
mod exec;
mod get;
mod hosts;
mod programs;
mod scripted;
mod serve;
