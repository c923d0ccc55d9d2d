//! The nodes of a copy: `--nodes`, and the tasks of a step of Slurm (srun(1)), of which the first one has the plan and the others
//! move files for it.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use command_line::log::{LogFormat, log_to_stderr};
use copy::{
    BatchJournalLocation, CopyInterrupt, CopyNode, CopyNodes, CopyOptions, Exit, Failure,
    FailureKind, NodeBeginning, NodeLines, NodeLink,
};
use ftp::FarProgram;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CopyFlags, Verb};
use crate::output::print_to_stderr;
use crate::settings;

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
/// Longest wait of a task for the first one of its step.
const FIRST_TASK: Duration = Duration::from_secs(60);
/// Beginning of the names of directories of steps.
const STEP: &str = "slurm-";
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The file by which the first task of a step tells which command it runs, and whether that has ended.
const COMMAND: &str = "command";
/// Behind the command that has ended.
const ENDED: &str = " ended";
/// Directories of steps that began longer ago are removed.
const MAX_STEP_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The part of this process in a copy.
pub(crate) enum NodeRole {
    /// It has the plan. Without nodes it also moves the files.
    Plan(CopyNodes),
    /// It moves files for the process that shares this directory with it.
    Node(PathBuf),
    /// That process has done everything.
    Late,
}

impl NodeRole {
    /// The part of this process, by its flags and by what Slurm says.
    ///
    /// # Errors
    /// `Usage`: the name of a node is none. `Local`: the tasks of a step share no directory.
    pub(crate) fn of(flags: &CopyFlags) -> Result<Self, Failure> {
        let names = flags.nodes.as_slice();
        let step = SlurmStep::of_environment();
        let nodes = match (names, step) {
            ([only], _) if only == OFF => Vec::new(),
            ([], _) if flags.dry_run => Vec::new(),
            ([], Some(step)) => match step.join()? {
                Some(role) => return Ok(role),
                None => Vec::new(),
            },
            (names, _) => {
                let (ssh, far) = flags.security.ssh_programs();
                let program = far.cloned().or_else(this_program);
                let nodes = names.iter().map(|name| node(name, &ssh, program.as_ref()));
                nodes.collect::<Result<_, _>>()?
            }
        };
        Ok(Self::Plan(CopyNodes {
            nodes,
            words: words(),
        }))
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

/// A step of a job of Slurm that has several tasks.
struct SlurmStep {
    /// Position of this task.
    task: usize,
    tasks: usize,
    /// Job and step.
    name: String,
}

impl SlurmStep {
    /// The step whose task this process is (srun(1), "OUTPUT ENVIRONMENT VARIABLES").
    fn of_environment() -> Option<Self> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let (job, step) = (number("SLURM_JOB_ID")?, number("SLURM_STEP_ID")?);
        let tasks = usize::try_from(number("SLURM_STEP_NUM_TASKS")?).ok()?;
        let task = usize::try_from(number("SLURM_PROCID")?).ok()?;
        (tasks > 1 && task < tasks).then(|| Self {
            task,
            tasks,
            name: format!("{STEP}{job}.{step}"),
        })
    }

    /// Finds the other tasks. `None`: they run other commands.
    fn join(&self) -> Result<Option<NodeRole>, Failure> {
        let directory = self.directory()?;
        let command = command_hash();
        match self.task {
            0 => self.lead(&directory, &command).map(Some),
            _ => self.follow(&directory, &command),
        }
    }

    /// The directory that the tasks share.
    fn directory(&self) -> Result<PathBuf, Failure> {
        match BatchJournalLocation::of_user() {
            BatchJournalLocation::Directory(batches) => Ok(batches.join(&self.name)),
            _ => Err(Failure::usage(
                "the tasks of a step share no directory: set LONGHAUL_BATCHES to one that all machines see, or use --nodes off",
            )),
        }
    }

    /// The first task has the plan, and is a node, too.
    fn lead(&self, directory: &Path, command: &str) -> Result<NodeRole, Failure> {
        remove_old_steps(directory);
        let mut nodes = vec![CopyNode {
            name: "task 0".to_owned(),
            link: NodeLink::Program(own_node()?),
        }];
        for task in 1..self.tasks {
            let files = directory.join(task.to_string());
            make_directory(&files)?;
            nodes.push(CopyNode {
                name: format!("task {task}"),
                link: NodeLink::Files(files),
            });
        }
        // Last: now the others may look.
        tell_command(directory, command)
            .map_err(|error| Failure::about(FailureKind::Local, directory.display(), error))?;
        Ok(NodeRole::Plan(CopyNodes {
            nodes,
            words: words(),
        }))
    }

    /// Another task waits for the first one.
    fn follow(&self, directory: &Path, command: &str) -> Result<Option<NodeRole>, Failure> {
        let path = directory.join(COMMAND);
        let until = Instant::now() + FIRST_TASK;
        loop {
            match fs::read_to_string(&path) {
                Ok(first) => {
                    let files = directory.join(self.task.to_string());
                    let (first, has_ended) = match first.strip_suffix(ENDED) {
                        Some(first) => (first, true),
                        None => (first.as_str(), false),
                    };
                    return Ok(match (first == command, has_ended) {
                        (true, true) => Some(NodeRole::Late),
                        (true, false) => Some(NodeRole::Node(files)),
                        (false, true) => None,
                        (false, false) => {
                            decline(&files);
                            None
                        }
                    });
                }
                Err(_) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                Err(error) => {
                    return Err(Failure::local(format!(
                        "task 0 of this step has not begun a copy within {} s ({}: {error}): if it runs something else, use --nodes \
                         off; if the machines do not share that directory, set LONGHAUL_BATCHES to one that they share",
                        FIRST_TASK.as_secs(),
                        path.display()
                    )));
                }
            }
        }
    }
}

/// Equal for equal commands in one directory.
fn command_hash() -> String {
    let mut hasher = DefaultHasher::new();
    for word in std::env::args_os().skip(1) {
        word.hash(&mut hasher);
    }
    std::env::current_dir().ok().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Failure::about(FailureKind::Local, path.display(), error))
}

/// Tells the other tasks of the step which command the first one runs.
fn tell_command(directory: &Path, command: &str) -> io::Result<()> {
    let hidden = directory.join(format!("{COMMAND}~"));
    fs::write(&hidden, command)?;
    fs::rename(&hidden, directory.join(COMMAND))
}

/// Tells tasks that begin late that nothing is left to do, and removes the files between the others.
pub(crate) fn end_step(nodes: &CopyNodes) {
    let links = nodes.nodes.iter().filter_map(|node| match &node.link {
        NodeLink::Files(files) => Some(files),
        NodeLink::Program(_) => None,
    });
    for files in links {
        if let Some(directory) = files.parent()
            && let Err(error) = tell_command(directory, &format!("{}{ENDED}", command_hash()))
        {
            tracing::debug!(%error, "tasks that begin late are not told of the end");
        }
        // Files that stay do no harm: the next step has another name.
        let _ = fs::remove_dir_all(files);
    }
}

/// Removes what steps have left that began long ago.
fn remove_old_steps(of: &Path) {
    let steps = of.parent().and_then(|batches| fs::read_dir(batches).ok());
    for step in steps.into_iter().flatten().flatten() {
        let is_step = step.file_name().to_string_lossy().starts_with(STEP);
        let age = step.metadata().and_then(|found| found.modified());
        let age = age.ok().and_then(|begun| begun.elapsed().ok());
        if is_step && age.is_some_and(|age| age > MAX_STEP_AGE) {
            let _ = fs::remove_dir_all(step.path());
        }
    }
}

/// Tells the first task that this one copies something else.
fn decline(files: &Path) {
    let declined = runtime().and_then(|runtime| {
        let lines = NodeLines::of_node(files)?;
        runtime.block_on(copy::decline_as_node(lines));
        Ok(())
    });
    if let Err(error) = declined {
        tracing::debug!(%error, "task 0 was not told that this task copies something else");
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// `longhaul node`: orders come on standard input.
pub(crate) fn serve_on_pipes() -> Result<Exit> {
    // No lock of the standard streams is held by the threads that read and write.
    let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    serve(NodeLines::over(from, to))
}

/// A further task of a step.
pub(crate) fn serve_on_files(directory: &Path) -> Result<Exit> {
    serve(NodeLines::of_node(directory)?)
}

/// Moves files for another process. A failure is the last line on standard error, which that process may show.
fn serve(mut lines: NodeLines) -> Result<Exit> {
    log_to_stderr(LogFormat::Text, "error");
    let runtime = runtime()?;
    let interrupt = CopyInterrupt::default();
    let served = runtime.block_on(async {
        let (mut terminate, mut interrupted) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let ending = interrupt.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupted.recv() => {}
            }
            ending.trigger();
        });
        let served = async {
            let gone = || Failure::new(FailureKind::Interrupted, "nothing was ordered");
            let first = lines.next().await.ok_or_else(gone)?;
            let begun = NodeBeginning::parse(&first)?;
            // For relative names in flags. Without the directory, a file that such a flag names is missed and told.
            if let Err(error) = std::env::set_current_dir(&begun.directory) {
                tracing::debug!(%error, "the directory of the command is not here");
            }
            let options = options(begun)?.with(|options| options.interrupt = interrupt);
            copy::serve_node(lines, options).await
        };
        Ok::<_, io::Error>(served.await)
    })?;
    // Nothing that still runs may keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(match served {
        Ok(()) => Exit::Done,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {failure}"));
            failure.exit()
        }
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
