//! The nodes of a copy: those of `--nodes`, and the tasks of a step of Slurm.

use std::ffi::OsString;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use command_line::log::{LogFormat, log_to_stderr};
use copy::{
    CopyInterrupt, CopyNode, CopyNodes, CopyOptions, Exit, Failure, FailureKind, NodeBeginning,
    NodeLines, NodeLink,
};
use ftp::FarProgram;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CopyFlags, Verb};
use crate::output::print_to_stderr;
use crate::settings;
use crate::slurm_step::{JoinedStep, LedStep, SlurmStep, StepRole};

/// The word for no nodes.
const OFF: &str = "off";
/// This machine.
const LOCALHOST: &str = "localhost";
/// ssh asks for nothing, and notices within half a minute that a host is gone.
const SSH_OPTIONS: [&str; 3] = [
    "-oBatchMode=yes",
    "-oServerAliveInterval=10",
    "-oServerAliveCountMax=2",
];
/// The part of this process in a copy.
pub(crate) enum NodeRole {
    /// It has the plan. Without nodes it also moves the files. The step ends when it is dropped.
    Plan(CopyNodes, Option<LedStep>),
    /// It moves files for the task of its step that has the plan.
    Node(JoinedStep),
    /// Everything is done.
    Late,
}

impl NodeRole {
    /// The part of this process, by its flags and by what Slurm says.
    ///
    /// # Errors
    /// `Usage`: the name of a node is none. `Local`: the tasks of a step share no directory.
    pub(crate) fn of(flags: &CopyFlags) -> Result<Self, Failure> {
        let mut led = None;
        let nodes = match (flags.nodes.as_slice(), SlurmStep::of_environment()) {
            ([only], _) if only == OFF => Vec::new(),
            ([], Some(step)) if !flags.dry_run => match step.join()? {
                StepRole::Lead(step) => {
                    let own = CopyNode {
                        name: step.name(),
                        link: NodeLink::Program(own_node()?),
                    };
                    let nodes = [own].into_iter().chain(step.nodes()).collect();
                    led = Some(step);
                    nodes
                }
                StepRole::Join(step) => return Ok(Self::Node(step)),
                StepRole::Late => return Ok(Self::Late),
                StepRole::Alone => Vec::new(),
            },
            (names, _) => {
                let (ssh, far) = flags.security.ssh_programs();
                let program = far.cloned().or_else(this_program);
                let nodes = names.iter().map(|name| node(name, &ssh, program.as_ref()));
                nodes.collect::<Result<_, _>>()?
            }
        };
        let words = words();
        Ok(Self::Plan(CopyNodes { nodes, words }, led))
    }
}

/// The words of this command.
fn words() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// This program, as nodes with the same file systems have it.
fn this_program() -> Option<FarProgram> {
    let program = std::env::current_exe().ok()?;
    FarProgram::parse(program.to_str()?).ok()
}

fn node(name: &str, ssh: &[String], program: Option<&FarProgram>) -> Result<CopyNode, Failure> {
    let is_name = !name.is_empty()
        && !name.starts_with('-')
        && name != OFF
        && !name.chars().any(|c| c.is_whitespace() || c.is_control());
    if !is_name {
        return Err(Failure::usage(format!(
            "--nodes: '{name}' is no host: name each as HOST or USER@HOST, separated by commas, or use off alone"
        )));
    }
    let words = match name == LOCALHOST {
        true => own_node()?,
        false => {
            let program = program.map_or_else(|| "longhaul".to_owned(), FarProgram::quoted);
            let options = SSH_OPTIONS.into_iter().map(str::to_owned);
            let command = [name.to_owned(), format!("{program} node")];
            let words = ssh.iter().cloned().chain(options).chain(command);
            words.map(OsString::from).collect()
        }
    };
    Ok(CopyNode {
        name: format!("node {name}"),
        link: NodeLink::Program(words),
    })
}

/// The words that start a node on this machine.
fn own_node() -> Result<Vec<OsString>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::local(format!("cannot find this program: {error}")))?;
    Ok(vec![program.into(), "node".into()])
}

pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// `longhaul node`: orders come on standard input.
/// A failure is the last line on standard error, which the process that gives them may show.
pub(crate) fn serve_on_pipes() -> Result<Exit> {
    // No lock of the standard streams is held by the threads that read and write.
    let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    Ok(match serve(NodeLines::over(from, to), pending())? {
        ServedNode::Done => Exit::Done,
        ServedNode::PlanLost(failure) | ServedNode::Failed(failure) => told(&failure),
    })
}

/// How the work of a node has ended.
enum ServedNode {
    Done,
    /// The process that has the plan is gone.
    PlanLost(Failure),
    Failed(Failure),
}

/// Says why the work has ended; returns the exit code.
fn told(failure: &Failure) -> Exit {
    print_to_stderr(&format!("longhaul: {failure}"));
    failure.exit()
}

/// A task of a step that has not the plan. If the task with the plan is gone, this does not return: the program begins anew.
pub(crate) fn serve_in_step(step: &JoinedStep) -> Result<Exit> {
    match serve(step.lines()?, step.leader_gone())? {
        ServedNode::Done => {
            step.wait_for_end();
            Ok(Exit::Done)
        }
        ServedNode::Failed(failure) => Ok(told(&failure)),
        ServedNode::PlanLost(_) => Err(step.begin_anew()).context("cannot begin this program anew"),
    }
}

/// Moves files for another process, unless that is `gone` before its first word.
fn serve(mut lines: NodeLines, gone: impl Future<Output = ()>) -> Result<ServedNode> {
    log_to_stderr(LogFormat::Text, "error");
    let runtime = runtime()?;
    let interrupt = CopyInterrupt::default();
    let served = runtime.block_on(async {
        let (mut terminate, mut interrupted) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let (ending, ordered) = (interrupt.clone(), interrupt.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupted.recv() => {}
            }
            ending.trigger();
        });
        let served = async {
            let first = tokio::select! {
                line = lines.next() => line,
                () = gone => None,
            };
            let first = first
                .ok_or_else(|| Failure::new(FailureKind::Interrupted, "nothing was ordered"))?;
            let begun = NodeBeginning::parse(&first)?;
            // For relative names in flags. Without the directory, a file that such a flag names is missed and told.
            if let Err(error) = std::env::set_current_dir(&begun.directory) {
                tracing::debug!(%error, "the directory of the command is not here");
            }
            let options = options(begun)?.with(|options| options.interrupt = ordered);
            copy::serve_node(lines, options).await
        };
        Ok::<_, io::Error>(served.await)
    })?;
    // Nothing that still runs may keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let is_ended_here = interrupt.is_triggered();
    Ok(match served {
        Ok(()) => ServedNode::Done,
        Err(failure) if failure.kind() == FailureKind::Interrupted && !is_ended_here => {
            ServedNode::PlanLost(failure)
        }
        Err(failure) => ServedNode::Failed(failure),
    })
}

/// The options of a node, by the words of the command that has the plan.
fn options(begun: NodeBeginning) -> Result<CopyOptions, Failure> {
    let words = begun.words.into_iter().map(OsString::from).collect();
    let cli = settings::parse_arguments(words)?;
    let warn = Arc::new(|text: &str| print_to_stderr(&format!("longhaul: {text}")));
    match cli.verb {
        Verb::Cp(args) => args.on_node(begun.nodes).options(warn),
        Verb::Sync(args) => Ok(args.on_node(begun.nodes).options(warn)?.copy),
        _ => Err(Failure::protocol("the command of a node copies nothing")),
    }
}
