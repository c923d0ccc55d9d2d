//! The tasks of a step of Slurm (srun(1)) that run one command: the first one has the plan of the copy, and the others move files for it.
//! They meet in a directory that all of them see.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use copy::{BatchJournalLocation, CopyNode, Failure, FailureKind, NodeLines, NodeLink};

use crate::nodes::runtime;
use crate::output::print_to_stderr;

/// Longest wait of a task for the first one of its step.
const FIRST_TASK: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Beginning of the names of directories of steps.
const STEP: &str = "slurm-";
/// The file by which the first task tells which command it runs, and whether that has ended.
const COMMAND: &str = "command";
/// Behind the command that has ended.
const ENDED: &str = " ended";
/// The file of whoever is the first task.
const FIRST: &str = "first";
/// Directories of steps that began longer ago are removed.
const MAX_STEP_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A step of a job that has several tasks.
pub(crate) struct SlurmStep {
    /// Position of this task.
    task: usize,
    tasks: usize,
    /// Job and step.
    name: String,
}

/// The part of a task in the command that it runs.
pub(crate) enum StepRole {
    Lead(LedStep),
    Join(JoinedStep),
    /// The first task has ended this command.
    Late,
    /// The first task runs something else.
    Alone,
}

/// The command of the first task. When this is dropped, the other tasks are told that it has ended.
pub(crate) struct LedStep {
    /// Of the step.
    directory: PathBuf,
    command: String,
    tasks: usize,
}

/// The command of the first task, for another one.
pub(crate) struct JoinedStep {
    directory: PathBuf,
    command: String,
    task: usize,
}

impl SlurmStep {
    /// The step whose task this process is (srun(1), "OUTPUT ENVIRONMENT VARIABLES").
    pub(crate) fn of_environment() -> Option<Self> {
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

    /// Finds the other tasks.
    ///
    /// # Errors
    /// `Usage`, `Local`: they share no directory, or two processes are the first task.
    pub(crate) fn join(&self) -> Result<StepRole, Failure> {
        let BatchJournalLocation::Directory(batches) = BatchJournalLocation::of_user() else {
            return Err(Failure::usage(
                "the tasks of a step share no directory: set LONGHAUL_BATCHES to one that all machines see, or use --nodes off",
            ));
        };
        let directory = batches.join(&self.name);
        match self.task {
            0 => {
                remove_old_steps(&batches);
                LedStep::begin(directory, command_hash(), self.tasks).map(StepRole::Lead)
            }
            task => follow(JoinedStep {
                directory,
                command: command_hash(),
                task,
            }),
        }
    }
}

/// Waits until the first task tells which command it runs.
fn follow(step: JoinedStep) -> Result<StepRole, Failure> {
    let until = Instant::now() + FIRST_TASK;
    loop {
        let told = told_command(&step.directory);
        match &told {
            Ok((command, has_ended)) if *command == step.command => {
                return Ok(match has_ended {
                    true => StepRole::Late,
                    false => StepRole::Join(step),
                });
            }
            // It would have ended, if this task were only ahead of it.
            Ok((command, false)) => {
                decline(&step.directory.join(command).join(step.task.to_string()));
                return Ok(StepRole::Alone);
            }
            _ if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            Ok(_) => {
                print_to_stderr(&format!(
                    "longhaul: task 0 of this step runs something else; task {} copies by itself",
                    step.task
                ));
                return Ok(StepRole::Alone);
            }
            Err(error) => {
                return Err(Failure::local(format!(
                    "task 0 of this step has not begun a copy within {} s ({}: {error}): if it runs something else, use --nodes \
                     off; if the machines do not share that directory, set LONGHAUL_BATCHES to one that they share",
                    FIRST_TASK.as_secs(),
                    step.directory.display()
                )));
            }
        }
    }
}

impl LedStep {
    fn begin(directory: PathBuf, command: String, tasks: usize) -> Result<Self, Failure> {
        let step = Self {
            directory,
            command,
            tasks,
        };
        let own = step.directory.join(&step.command);
        make_directory(&own)?;
        // With mpirun below srun, several processes are task 0.
        if let Err(error) = File::create_new(own.join(FIRST)) {
            let reason = match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "another process is task 0 of this step, too: use --nodes off".to_owned()
                }
                _ => error.to_string(),
            };
            // Dropped, it would end the step of the other one.
            std::mem::forget(step);
            return Err(Failure::about(FailureKind::Local, own.display(), reason));
        }
        for files in step.links() {
            make_directory(&files)?;
        }
        // Last: now the others may look.
        step.tell(&step.command)
            .map_err(|error| Failure::about(FailureKind::Local, step.directory.display(), error))?;
        Ok(step)
    }

    /// The other tasks.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = CopyNode> + use<'_> {
        self.links().enumerate().map(|(position, files)| CopyNode {
            name: format!("task {}", position + 1),
            link: NodeLink::Files(files),
        })
    }

    fn links(&self) -> impl Iterator<Item = PathBuf> + use<'_> {
        let own = self.directory.join(&self.command);
        (1..self.tasks).map(move |task| own.join(task.to_string()))
    }

    fn tell(&self, text: &str) -> io::Result<()> {
        let hidden = self.directory.join(format!("{COMMAND}~"));
        fs::write(&hidden, text)?;
        fs::rename(&hidden, self.directory.join(COMMAND))
    }
}

impl Drop for LedStep {
    fn drop(&mut self) {
        if let Err(error) = self.tell(&format!("{}{ENDED}", self.command)) {
            tracing::debug!(%error, "the other tasks are not told of the end");
        }
        // Files that stay do no harm: the next step has another name.
        let _ = fs::remove_dir_all(self.directory.join(&self.command));
    }
}

impl JoinedStep {
    /// The link with the first task.
    ///
    /// # Errors
    /// The file of replies cannot be made.
    pub(crate) fn lines(&self) -> io::Result<NodeLines> {
        let own = self.directory.join(&self.command);
        NodeLines::of_node(&own.join(self.task.to_string()))
    }

    /// Returns when the first task has told that the command has ended, so that the next command of this task is not ahead of it.
    pub(crate) fn wait_for_end(&self) {
        let until = Instant::now() + FIRST_TASK;
        while matches!(told_command(&self.directory), Ok((_, false))) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The command that the first task runs, and whether that has ended.
fn told_command(directory: &Path) -> io::Result<(String, bool)> {
    let text = fs::read_to_string(directory.join(COMMAND))?;
    Ok(match text.strip_suffix(ENDED) {
        Some(command) => (command.to_owned(), true),
        None => (text, false),
    })
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

/// Removes what steps have left that began long ago.
fn remove_old_steps(batches: &Path) {
    let steps = fs::read_dir(batches).into_iter().flatten().flatten();
    for step in steps {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(directory: &Path, command: &str) -> JoinedStep {
        JoinedStep {
            directory: directory.to_owned(),
            command: command.to_owned(),
            task: 1,
        }
    }

    #[test]
    fn tasks_join_their_own_command_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("slurm-1.0");
        let led = LedStep::begin(directory.clone(), "aa".to_owned(), 3).unwrap();
        assert_eq!(led.nodes().count(), 2);
        let again = LedStep::begin(directory.clone(), "aa".to_owned(), 3);
        assert!(again.is_err_and(|failure| failure.to_string().contains("--nodes off")));
        assert!(matches!(
            follow(joined(&directory, "aa")),
            Ok(StepRole::Join(_))
        ));
        assert!(matches!(
            follow(joined(&directory, "bb")),
            Ok(StepRole::Alone)
        ));
        drop(led);
        assert!(matches!(
            follow(joined(&directory, "aa")),
            Ok(StepRole::Late)
        ));
        // The next command of the same step.
        let next = std::thread::spawn({
            let directory = directory.clone();
            move || follow(joined(&directory, "bb"))
        });
        let led = LedStep::begin(directory, "bb".to_owned(), 2).unwrap();
        assert!(matches!(next.join().unwrap(), Ok(StepRole::Join(_))));
        drop(led);
    }
}
