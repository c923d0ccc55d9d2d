//! The emulator: network namespaces joined by TUN devices, and the loop that carries the packets.
//!
//! [`run`] builds the network, runs a command in a process namespace of its own, carries packets
//! until the command ends, and takes everything down. Whatever the command left running ends with
//! it; if this process is killed, the kernel takes all of it down the same.

use std::ffi::OsString;

use crate::LabError;
use crate::topology::Topology;

mod assessment;
mod command_environment;
mod cpu_load;
pub mod engine;
mod exec;
mod host;
mod init;
mod interface;
mod lab_command;
mod lab_lock;
mod machine_settings;
mod namespace;
mod packet;
mod privilege;
pub mod report;
mod report_text;
pub(crate) mod signals;
mod sysctl;
mod validity;

pub use exec::{exec, start_failure_code};
pub use init::init;
pub use report::NetReport;

use assessment::RunConditions;
use cpu_load::CpuTimes;
use engine::Engine;
use lab_command::{CommandExit, CommandStart};
use lab_lock::LabLock;
use namespace::HostNamespace;
use signals::CaughtSignals;

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
pub struct NetOutcome {
    /// The command's exit code; 128 + N when signal N ended it, or this process was told by signal
    /// N to end.
    pub code: u8,
    /// Report on the network.
    pub report: NetReport,
}

/// Puts back settings of the machine that a lab left changed which was killed with all its processes.
/// Does nothing while another lab runs, or without root.
pub fn recover() {
    if !machine_settings::has_record() {
        return;
    }
    if let Ok(_lock) = LabLock::acquire(None)
        && let Err(error) = machine_settings::recover()
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
pub fn run(request: NetRequest) -> Result<NetOutcome, LabError> {
    command_environment::refuse_nesting()?;
    if request.command.is_empty() {
        return Err(LabError::Usage("a command is missing".into()));
    }
    let program = command_environment::own_executable()?;
    // An experiment that starts this holds signals back, and a process inherits that.
    signals::unblock_all()?;
    // Later declarations are undone earlier: the lock goes last.
    let lock = LabLock::acquire(request.wait)?;
    machine_settings::recover()?;
    privilege::acquire()?;
    let _foreground = signals::TerminalForeground::remember();
    let signals = CaughtSignals::block_and_watch()?;
    let topology = request.topology;
    let (namespaces, ports, borrowed) = host::build_hosts(&topology)?;
    let engine = Engine::start(&topology, ports)?;
    let start = CommandStart {
        environment: command_environment::variables(&topology, &program),
        program,
        command: &request.command,
        namespaces: &namespaces,
        changes: borrowed.changes(),
    };
    let observed = run_command(start, &namespaces, &lock, &signals);
    // An engine that broke down is why the rest went wrong.
    let engine_report = engine.stop()?;
    let (ended, circumstances) = observed?;
    Ok(NetOutcome {
        code: ended.code,
        report: assessment::assess(engine_report, circumstances),
    })
}

/// Runs the command to its end; what happened around it.
fn run_command(
    start: CommandStart<'_>,
    namespaces: &[HostNamespace],
    lock: &LabLock,
    signals: &CaughtSignals,
) -> Result<(CommandExit, RunConditions), LabError> {
    let before = CpuTimes::now()?;
    let ended = start.start(lock)?.wait(signals)?;
    let load = CpuTimes::now()?.since(&before);
    let mut overruns = 0;
    for namespace in namespaces {
        overruns += namespace.overruns()?;
    }
    let circumstances = RunConditions {
        load,
        overruns,
        signal: ended.signal,
    };
    Ok((ended, circumstances))
}
