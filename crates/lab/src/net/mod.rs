//! The emulator: network namespaces joined by TUN devices, and the loop that carries the packets.
//!
//! [`run`] builds the network, runs a command in a process namespace of its own, carries packets
//! until the command ends, and takes everything down. Whatever the command left running ends with
//! it; if this process is killed, the kernel takes all of it down the same.

use std::ffi::OsString;

use crate::LabError;
use crate::topology::Topology;

mod command;
pub mod engine;
mod environment;
mod exec;
mod host;
mod init;
mod interface;
mod load;
mod lock;
mod machine;
mod namespace;
mod packet;
mod privilege;
pub mod report;
mod report_text;
pub(crate) mod signals;
mod sysctl;
mod validity;
mod verdict;

pub use exec::{exec, start_code};
pub use init::init;
pub use report::NetReport;

use command::{Ended, Start};
use engine::Engine;
use load::Load;
use lock::Lock;
use namespace::Namespace;
use signals::Signals;
use verdict::Circumstances;

/// Command to run, and its network.
#[derive(Debug)]
pub struct NetRequest {
    /// The network.
    pub topology: Topology,
    /// Program and arguments; the caller's own network namespace, files and standard streams.
    pub command: Vec<OsString>,
    /// Wait for another lab to end instead of refusing; hears who is waited for.
    pub wait: Option<fn(&str)>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// The command's exit code; 128 + N when signal N ended it, or this process was told by signal
    /// N to end.
    pub code: u8,
    /// Report on the network.
    pub report: NetReport,
}

/// Puts back settings of the machine that a lab left changed which was killed with all its processes.
/// Does nothing while another lab runs, or without root.
pub fn recover() {
    if !machine::is_recorded() {
        return;
    }
    if let Ok(_lock) = Lock::acquire(None)
        && let Err(error) = machine::recover()
    {
        tracing::warn!(%error, "settings of the machine could not be put back");
    }
}

/// Builds the network, runs the command in it, and takes it down.
///
/// Call it from a process that has no other thread yet: without root it enters a user namespace.
///
/// # Errors
/// [`LabError`]: nothing of the lab is left behind then.
pub fn run(request: NetRequest) -> Result<Outcome, LabError> {
    environment::refuse_nesting()?;
    if request.command.is_empty() {
        return Err(LabError::Usage("a command is missing".into()));
    }
    let program = environment::program()?;
    // An experiment that starts this holds signals back, and a process inherits that.
    signals::take_all()?;
    // What is declared later is undone earlier: the lock goes last.
    let lock = Lock::acquire(request.wait)?;
    machine::recover()?;
    privilege::acquire()?;
    let _foreground = signals::Foreground::remember();
    let signals = Signals::catch()?;
    let topology = request.topology;
    let (namespaces, ports, borrowed) = host::build(&topology)?;
    let engine = Engine::start(&topology, ports)?;
    let start = Start {
        environment: environment::of(&topology, &program),
        program,
        command: &request.command,
        namespaces: &namespaces,
        changes: borrowed.changes(),
    };
    let observed = observe(start, &namespaces, &lock, &signals);
    // An engine that broke down is why the rest went wrong.
    let engine_report = engine.stop()?;
    let (ended, circumstances) = observed?;
    Ok(Outcome {
        code: ended.code,
        report: verdict::report(engine_report, circumstances),
    })
}

/// Runs the command to its end; what happened around it.
fn observe(
    start: Start<'_>,
    namespaces: &[Namespace],
    lock: &Lock,
    signals: &Signals,
) -> Result<(Ended, Circumstances), LabError> {
    let before = Load::now()?;
    let ended = start.start(lock)?.wait(signals)?;
    let load = Load::now()?.since(&before);
    let mut overruns = 0;
    for namespace in namespaces {
        overruns += namespace.overruns()?;
    }
    let circumstances = Circumstances {
        load,
        overruns,
        signal: ended.signal,
    };
    Ok((ended, circumstances))
}
