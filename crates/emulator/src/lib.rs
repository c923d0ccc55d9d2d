//! The emulator: network namespaces with TUN devices, and a loop that forwards packets between them.
//!
//! A [`topology`] describes the network, and [`Link`](link::Link) decides the fate of each packet.
//! [`run`] builds the network, runs a command in its own PID namespace, forwards packets until the
//! command ends, and removes everything. Processes that the command left running end with it. If this
//! process is killed, the kernel removes the network and ends the processes.

#![forbid(unsafe_code)]

pub mod engine;
mod exec;
mod init;
mod interface;
mod lab_error;
mod machine_settings;
mod namespace;
mod network;
mod packet;
mod privilege;
pub mod report;
mod report_text;
pub mod signals;
mod sysctl;
pub mod topology;
mod validity;

pub use exec::{exec, start_failure_code};
pub use init::init;
pub use lab_error::LabError;
pub use network::{NetOutcome, NetRequest, machine_load_problem, recover, run};
pub use report::NetReport;
