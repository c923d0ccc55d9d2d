//! The emulator: network namespaces joined by TUN devices, and the loop that carries the packets.
//!
//! [`run`] builds the network, runs a command in a process namespace of its own, carries packets
//! until the command ends, and takes everything down. Whatever the command left running ends with
//! it; if this process is killed, the kernel takes all of it down the same.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::LabError;
use crate::topology::Topology;

pub mod engine;
mod packet;
pub mod report;
mod validity;

pub use report::NetReport;

/// What to run over which network.
#[derive(Debug)]
pub struct NetRequest {
    /// The network.
    pub topology: Topology,
    /// Program and arguments; the caller's own network namespace, files and standard streams.
    pub command: Vec<OsString>,
    /// Wait for another lab to end instead of refusing.
    pub wait: bool,
    /// More environment for the command.
    pub environment: Vec<(String, OsString)>,
    /// Where `longhaul` is, for `lab exec` inside; `None`: this executable.
    pub program: Option<PathBuf>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// The command's exit code; 128 + N when signal N ended it.
    pub code: u8,
    /// What the network did.
    pub report: NetReport,
}

/// Builds the network, runs the command in it, and takes it down.
///
/// Call it from a process that has no other thread yet: without root it enters a user namespace.
///
/// # Errors
/// [`LabError`]: nothing of the lab is left behind then.
pub fn run(request: NetRequest) -> Result<Outcome, LabError> {
    let _ = request;
    todo!()
}

/// Becomes `command` on a host of the surrounding lab (`longhaul lab exec`).
///
/// # Errors
/// [`LabError::Usage`]: not inside a lab, or no such host; [`LabError::NotFound`]: no such program.
pub fn exec(host: &str, command: &[OsString]) -> Result<std::convert::Infallible, LabError> {
    let _ = (host, command);
    todo!()
}

/// The first process of a lab's process namespace (`longhaul lab init`, not for users): starts the
/// command, reaps what is orphaned, ends when the lab does.
///
/// # Errors
/// The command cannot be started.
pub fn init(arguments: &[OsString]) -> Result<u8, LabError> {
    let _ = arguments;
    todo!()
}
