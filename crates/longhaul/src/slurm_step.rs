//! The tasks of a step of Slurm (srun(1)) that run one command: the first one has the plan of the copy, and the others move files for it.
//! They meet in a directory that all of them see. If the task with the plan is lost, another one begins the same command there, and goes
//! on with the journal.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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
/// The file by which the task with the plan tells which command it runs, which task it is, and whether the command has ended.
const COMMAND: &str = "command";
/// Behind the command that has ended.
const ENDED: &str = " ended";
/// The file of the task with the plan, by which it shows that it is there, and how often it does.
const FIRST: &str = "first";
const SHOW_EVERY: Duration = Duration::from_secs(5);
/// A task that shows nothing for so long is lost.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// Beginning of the name of the file of whoever takes the place of a task.
const AFTER: &str = "after-";
/// The tasks that a task has lost, for its own next program: they had the plan one after the other.
const LOST_TASKS: &str = "LONGHAUL_LOST_TASKS";
/// Directories of steps that began longer ago are removed.
const MAX_STEP_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A step of a job that has several tasks.
pub(crate) struct SlurmStep {
    /// Position of this task.
    task: usize,
    tasks: usize,
    /// Tasks that had the plan and are gone.
    lost: Vec<usize>,
    /// Job and step.
    name: String,
}

/// The part of a task in the command that it runs.
pub(crate) enum StepRole {
    Lead(LedStep),
    Join(JoinedStep),
    /// This command has ended.
    Late,
    /// The first task runs something else.
    Alone,
}

/// The command of a task that has the plan. When this is dropped, the other tasks are told that it has ended.
pub(crate) struct LedStep {
    place: StepPlace,
    leader: usize,
    /// The other tasks.
    others: Vec<usize>,
    /// When it is dropped, nothing shows any more that this task is there.
    _shown: Sender<()>,
}

/// The command of the task that has the plan, for another one.
pub(crate) struct JoinedStep {
    place: StepPlace,
    leader: usize,
    task: usize,
}

/// Where the tasks of a step meet for one command.
struct StepPlace {
    /// Of the step.
    directory: PathBuf,
    command: String,
}

/// The words of [`COMMAND`].
#[derive(Debug, PartialEq, Eq)]
struct ToldCommand {
    command: String,
    leader: usize,
    has_ended: bool,
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
            lost: lost_tasks(),
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
        let place = StepPlace {
            directory: batches.join(&self.name),
            command: command_hash(),
        };
        if self.task == 0 {
            remove_old_steps(&batches);
            return self.lead(place).map(StepRole::Lead);
        }
        self.follow(place)
    }

    /// Waits until the task with the plan tells which command it runs. If it is one that this task has lost, the first task to
    /// notice takes its place.
    fn follow(&self, place: StepPlace) -> Result<StepRole, Failure> {
        let until = Instant::now() + FIRST_TASK;
        loop {
            let told = place.told();
            match &told {
                Ok(told) if told.command == place.command => {
                    let leader = told.leader;
                    if told.has_ended {
                        return Ok(StepRole::Late);
                    }
                    if !self.lost.contains(&leader) {
                        let task = self.task;
                        let step = JoinedStep {
                            place,
                            leader,
                            task,
                        };
                        return Ok(StepRole::Join(step));
                    }
                    if File::create_new(place.own().join(format!("{AFTER}{leader}"))).is_ok() {
                        print_to_stderr(&format!(
                            "longhaul: task {leader} is lost, which had the plan of the copy; task {} goes on with its journal",
                            self.task
                        ));
                        return self.lead(place).map(StepRole::Lead);
                    }
                    if Instant::now() >= until {
                        return Err(Failure::new(
                            FailureKind::Interrupted,
                            format!(
                                "task {leader} of this step is lost, which had the plan of the copy, and no other has taken its \
                                 place: give the same command again, and it goes on"
                            ),
                        ));
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                // It would have ended, if this task were only ahead of it.
                Ok(told) if !told.has_ended => {
                    let command = place.directory.join(&told.command);
                    decline(&links_of(&command, told.leader).join(self.task.to_string()));
                    return Ok(StepRole::Alone);
                }
                _ if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                Ok(_) => {
                    print_to_stderr(&format!(
                        "longhaul: task 0 of this step runs something else; task {} copies by itself",
                        self.task
                    ));
                    return Ok(StepRole::Alone);
                }
                Err(error) => {
                    return Err(Failure::local(format!(
                        "task 0 of this step has not begun a copy within {} s ({}: {error}): if it runs something else, use \
                         --nodes off; if the machines do not share that directory, set LONGHAUL_BATCHES to one that they share",
                        FIRST_TASK.as_secs(),
                        place.directory.display()
                    )));
                }
            }
        }
    }

    /// Has the plan from now on.
    fn lead(&self, place: StepPlace) -> Result<LedStep, Failure> {
        let links = links_of(&place.own(), self.task);
        make_directory(&links)?;
        let first = links.join(FIRST);
        // With mpirun below srun, several processes are task 0.
        File::create_new(&first).map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::AlreadyExists => format!(
                    "another process is task {} of this step, too: use --nodes off",
                    self.task
                ),
                _ => error.to_string(),
            };
            Failure::about(FailureKind::Local, links.display(), reason)
        })?;
        let others = (0..self.tasks).filter(|task| *task != self.task && !self.lost.contains(task));
        let (shown, until) = channel();
        std::thread::spawn(move || show_task(&first, &until));
        let step = LedStep {
            place,
            leader: self.task,
            others: others.collect(),
            _shown: shown,
        };
        for files in step.links() {
            make_directory(&files)?;
        }
        // Last: now the others may look.
        let directory = &step.place.directory;
        step.tell(false)
            .map_err(|error| Failure::about(FailureKind::Local, directory.display(), error))?;
        Ok(step)
    }
}

impl StepPlace {
    /// The directory of the command.
    fn own(&self) -> PathBuf {
        self.directory.join(&self.command)
    }

    fn told(&self) -> io::Result<ToldCommand> {
        let text = fs::read_to_string(self.directory.join(COMMAND))?;
        ToldCommand::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl ToldCommand {
    fn parse(text: &str) -> Option<Self> {
        let (text, has_ended) = match text.strip_suffix(ENDED) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (command, leader) = text.split_once(' ')?;
        Some(Self {
            command: command.to_owned(),
            leader: leader.parse().ok()?,
            has_ended,
        })
    }
}

/// The directory with the links of a task that has the plan of a command.
fn links_of(command: &Path, leader: usize) -> PathBuf {
    command.join(format!("of-{leader}"))
}

impl LedStep {
    /// The name of the task that this process is.
    pub(crate) fn name(&self) -> String {
        format!("task {}", self.leader)
    }

    /// Whether another task had the plan before.
    pub(crate) fn has_taken_over(&self) -> bool {
        self.leader != 0
    }

    /// The other tasks.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = CopyNode> + use<'_> {
        let nodes = self.others.iter().zip(self.links());
        nodes.map(|(task, files)| CopyNode {
            name: format!("task {task}"),
            link: NodeLink::Files(files),
        })
    }

    fn links(&self) -> impl Iterator<Item = PathBuf> + use<'_> {
        let links = links_of(&self.place.own(), self.leader);
        self.others
            .iter()
            .map(move |task| links.join(task.to_string()))
    }

    fn tell(&self, has_ended: bool) -> io::Result<()> {
        let directory = &self.place.directory;
        let hidden = directory.join(format!("{COMMAND}~"));
        let ended = if has_ended { ENDED } else { "" };
        let text = format!("{} {}{ended}", self.place.command, self.leader);
        fs::write(&hidden, text)?;
        fs::rename(&hidden, directory.join(COMMAND))
    }
}

impl Drop for LedStep {
    fn drop(&mut self) {
        // A task that stood still may have been taken for lost. The step is another's then.
        let is_own =
            |told: ToldCommand| told.command == self.place.command && told.leader == self.leader;
        if !self.place.told().is_ok_and(is_own) {
            return;
        }
        if let Err(error) = self.tell(true) {
            tracing::debug!(%error, "the other tasks are not told of the end");
        }
        // Files that stay do no harm: the next step has another name.
        let _ = fs::remove_dir_all(self.place.own());
    }
}

impl JoinedStep {
    /// The link with the task that has the plan.
    ///
    /// # Errors
    /// The file of replies cannot be made.
    pub(crate) fn lines(&self) -> io::Result<NodeLines> {
        let links = links_of(&self.place.own(), self.leader);
        NodeLines::of_node(&links.join(self.task.to_string()))
    }

    /// Returns when the task with the plan is lost, or has ended the command, or another one has taken its place.
    pub(crate) async fn leader_gone(&self) {
        let first = links_of(&self.place.own(), self.leader).join(FIRST);
        let mut shown = (fs::read(&first).ok(), Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = fs::read(&first).ok();
            if now != shown.0 {
                shown = (now, Instant::now());
            }
            let leads = |told: &ToldCommand| told.leader == self.leader && !told.has_ended;
            let is_over = self.place.told().is_ok_and(|told| !leads(&told));
            if is_over || shown.1.elapsed() > MAX_SILENCE {
                return;
            }
        }
    }

    /// Returns when the command is told to have ended, so that the next command of this task is not ahead of it.
    pub(crate) fn wait_for_end(&self) {
        let until = Instant::now() + FIRST_TASK;
        let is_running = || self.place.told().is_ok_and(|told| !told.has_ended);
        while is_running() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Begins this program anew, as a task that has lost the one with the plan. Nothing that moved for that one goes on.
    /// Returns only if that fails.
    pub(crate) fn begin_anew(&self) -> io::Error {
        let mut lost = lost_tasks();
        lost.push(self.leader);
        let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
        match std::env::current_exe() {
            Ok(program) => Command::new(program)
                .args(std::env::args_os().skip(1))
                .env(LOST_TASKS, lost.join(","))
                .exec(),
            Err(error) => error,
        }
    }
}

/// Changes a file until the sender of `until` is dropped.
fn show_task(file: &Path, until: &Receiver<()>) {
    let mut count: u64 = 0;
    while until.recv_timeout(SHOW_EVERY) == Err(RecvTimeoutError::Timeout) {
        count += 1;
        if let Err(error) = fs::write(file, count.to_string()) {
            tracing::debug!(%error, "the other tasks are not shown that this one is there");
        }
    }
}

fn lost_tasks() -> Vec<usize> {
    let words = std::env::var(LOST_TASKS).unwrap_or_default();
    words
        .split(',')
        .filter_map(|word| word.parse().ok())
        .collect()
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

    const HASH: &str = "aa";

    fn step(task: usize, tasks: usize, lost: &[usize]) -> SlurmStep {
        SlurmStep {
            task,
            tasks,
            lost: lost.to_vec(),
            name: "slurm-1.0".to_owned(),
        }
    }

    fn place(directory: &Path, command: &str) -> StepPlace {
        StepPlace {
            directory: directory.to_owned(),
            command: command.to_owned(),
        }
    }

    #[test]
    fn tasks_join_their_own_command_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |command| place(folder.path(), command);
        let led = step(0, 3, &[]).lead(at(HASH)).unwrap();
        assert_eq!(led.nodes().count(), 2);
        let again = step(0, 3, &[]).lead(at(HASH));
        assert!(again.is_err_and(|failure| failure.to_string().contains("--nodes off")));
        let follow = |command| step(1, 3, &[]).follow(at(command)).unwrap();
        assert!(matches!(follow(HASH), StepRole::Join(_)));
        assert!(matches!(follow("bb"), StepRole::Alone));
        drop(led);
        assert!(matches!(follow(HASH), StepRole::Late));
        // The next command of the same step.
        let directory = folder.path().to_owned();
        let next = std::thread::spawn(move || step(1, 2, &[]).follow(place(&directory, "bb")));
        let led = step(0, 2, &[]).lead(at("bb")).unwrap();
        assert!(matches!(next.join().unwrap(), Ok(StepRole::Join(_))));
        drop(led);
    }

    #[test]
    fn one_task_takes_the_place_of_one_that_is_lost_and_the_others_join_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = || place(folder.path(), HASH);
        let lost = step(0, 4, &[]).lead(at()).unwrap();
        let Ok(StepRole::Lead(second)) = step(2, 4, &[0]).follow(at()) else {
            panic!("task 2 does not take over");
        };
        assert!(second.has_taken_over());
        let nodes: Vec<String> = second.nodes().map(|node| node.name).collect();
        assert_eq!(nodes, ["task 1", "task 3"]);
        let joined = |task, lost: &[usize]| match step(task, 4, lost).follow(at()).unwrap() {
            StepRole::Join(joined) => joined.leader,
            _ => panic!("task {task} does not join"),
        };
        assert_eq!(joined(1, &[0]), 2);
        // The second one is lost, too. A task that has noticed only now, and was never with it.
        let Ok(StepRole::Lead(third)) = step(3, 4, &[0, 2]).follow(at()) else {
            panic!("task 3 does not take over");
        };
        assert_eq!(joined(1, &[0, 2]), 3);
        // The end of those that were taken for lost ends nothing.
        drop(lost);
        drop(second);
        assert_eq!(joined(1, &[0, 2]), 3);
        drop(third);
        assert!(matches!(
            step(1, 4, &[0, 2]).follow(at()),
            Ok(StepRole::Late)
        ));
    }
}
