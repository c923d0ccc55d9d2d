//! One network: it is built, runs a command, and is taken down again.

use std::ffi::OsString;

use crate::engine::Engine;
use crate::namespace::HostNamespace;
use crate::report::NetReport;
use crate::signals::{self, CaughtSignals};
use crate::topology::Topology;
use crate::{LabError, machine_settings, privilege};

mod assessment;
mod command_environment;
mod cpu_load;
mod host;
mod lab_command;
mod lab_lock;
mod machine_load;

use assessment::RunConditions;
use cpu_load::CpuTimes;
use lab_command::{CommandExit, CommandStart};
use lab_lock::LabLock;

pub use machine_load::machine_load_problem;

/// A command to run, and its network.
#[derive(Debug)]
pub struct NetRequest {
    /// The network.
    pub topology: Topology,
    /// Program and arguments. It runs in the caller's network namespace, with its standard streams.
    pub command: Vec<OsString>,
    /// Some: wait for another lab to end, after a call with a description of its process. None: refuse.
    pub wait: Option<fn(&str)>,
    /// The words with which this program, started again, calls [`init`](crate::init()) with the arguments behind them.
    pub first_process: &'static [&'static str],
}

/// Result of a run.
#[derive(Debug)]
pub struct NetOutcome {
    /// The command's exit code; 128 + N if signal N ended it, or this process received signal N.
    pub code: u8,
    /// Report on the network.
    pub report: NetReport,
}

/// Restores settings of the machine after a lab that was killed together with all its processes. Does
/// nothing while another lab is running, or without root.
pub fn recover() {
    if !machine_settings::has_record() {
        return;
    }
    if let Ok(_lock) = LabLock::acquire(None)
        && let Err(error) = machine_settings::recover()
    {
        tracing::warn!(%error, "cannot restore settings of the machine");
    }
}

/// Builds the network, runs the command in it, and removes the network.
///
/// The calling process must have no other thread: without root it enters a user namespace, which
/// unshare(2) allows only to single-threaded processes.
///
/// # Errors
/// Any [`LabError`]; nothing of the lab is left behind.
pub fn run(request: NetRequest) -> Result<NetOutcome, LabError> {
    command_environment::refuse_nesting()?;
    if request.command.is_empty() {
        return Err(LabError::Usage("a command is missing".into()));
    }
    let program = command_environment::own_executable()?;
    // An experiment that started this process has blocked signals, and the mask is inherited.
    signals::unblock_all()?;
    // Values drop in reverse order of declaration, so the lock is released last.
    let lock = LabLock::acquire(request.wait)?;
    machine_settings::recover()?;
    privilege::acquire()?;
    // Before the command starts: a shell in it takes the foreground.
    let _foreground = signals::TerminalForeground::remember();
    let signals = CaughtSignals::block_and_watch()?;
    let topology = request.topology;
    let (namespaces, ports, sysctls) = host::build_hosts(&topology)?;
    // After `block_and_watch`: the thread of the engine must inherit the blocked signals.
    let engine = Engine::start(&topology, ports)?;
    let start = CommandStart {
        environment: command_environment::variables(&topology, &program),
        program,
        first_process: request.first_process,
        command: &request.command,
        namespaces: &namespaces,
        changes: sysctls.changes(),
    };
    let outcome = run_command(start, &namespaces, &lock, &signals);
    // An engine error comes first, because it is the cause of errors of the command.
    let engine_report = engine.stop()?;
    let (ended, conditions) = outcome?;
    Ok(NetOutcome {
        code: ended.code,
        report: assessment::assess(engine_report, conditions),
    })
}

/// Runs the command to its end; returns its exit and the conditions of the run.
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
    let conditions = RunConditions {
        load,
        overruns,
        signal: ended.signal,
    };
    Ok((ended, conditions))
}
