//! `longhaul advisor` through the program: the service, its answers, and the programs that use them; and what monitors
//! see of a server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first surprise"
)]

mod beside_server;
mod bindings;
mod cp;
mod exec;
mod get;
mod hosts;
mod kept_running;
mod learning;
mod monitoring;
mod programs;
mod scripted;
mod serve;
