//! Interrupted and killed experiments: what they leave, and what the next command removes.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{LONGHAUL_LAB, directory, read};

const PATIENCE: Duration = Duration::from_secs(60);

/// Its client never ends. It records its PID, and starts a child in another session.
const EXPERIMENT: &str = r#"
title = "Endless"
kind = "loopback"
measure = "seconds"
unit = "s"
higher_is_better = false
programs = { full = ["endless"], quick = ["endless"] }
repetitions = { full = 1, quick = 1 }
bytes = { full = "1B", quick = "1B" }
limit = { full = 600, quick = 600 }
[across]
key = "p"
label = "streams"
full = ["1"]
quick = ["1"]
"#;

struct EndlessExperiment {
    run: Child,
    directory: TempDir,
    /// `/proc` directories of the client and its child.
    processes: Vec<PathBuf>,
}

impl Drop for EndlessExperiment {
    fn drop(&mut self) {
        // Only a test that failed early gets here with a running experiment.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `longhaul lab` command with its files in `place`, which does not ignore SIGINT even if the tests do.
fn lab_command(directory_path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM,HUP", LONGHAUL_LAB])
        .args(arguments)
        .current_dir(directory_path)
        .env("TMPDIR", directory_path.join("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl EndlessExperiment {
    fn start() -> Self {
        let directory = directory();
        let directory_path = directory.path();
        std::fs::create_dir(directory_path.join("tmp")).unwrap();
        std::fs::write(directory_path.join("endless-run.toml"), EXPERIMENT).unwrap();
        let ready = directory_path.join("ready");
        let script = format!(
            "setsid sleep 86400 & echo $! > new; echo $$ >> new; mv new {}; exec sleep 86400",
            ready.display()
        );
        let program =
            format!("label = 'Endless'\n[client]\nhost = 'a'\nargv = ['sh', '-c', '{script}']\n");
        std::fs::write(directory_path.join("endless.toml"), program).unwrap();
        let run = lab_command(directory_path, &["run", "./endless-run.toml"])
            .spawn()
            .unwrap();
        let mut experiment = Self {
            run,
            directory,
            processes: Vec::new(),
        };
        wait_until("the client runs", || ready.exists());
        let proc = Path::new("/proc");
        let numbers = read(&ready);
        experiment.processes = numbers.lines().map(|pid| proc.join(pid)).collect();
        assert!(experiment.processes.iter().all(|process| process.exists()));
        experiment
    }

    /// Ends the run with a signal.
    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.run), signal).unwrap();
        self.run.wait().unwrap()
    }

    fn files(&self) -> usize {
        let directory_path = self.directory.path().join("tmp");
        std::fs::read_dir(directory_path).unwrap().count()
    }
}

#[test]
fn an_interrupted_experiment_leaves_no_files_and_no_processes() {
    let mut experiment = EndlessExperiment::start();
    assert_eq!(experiment.files(), 1);
    assert_eq!(experiment.end(Signal::INT).signal(), Some(2));
    assert_eq!(experiment.files(), 0);
    let ended = |process: &PathBuf| !process.exists();
    wait_until("all processes end", || {
        experiment.processes.iter().all(ended)
    });
}

#[test]
fn the_next_command_removes_what_a_killed_experiment_left() {
    let mut experiment = EndlessExperiment::start();
    assert_eq!(experiment.end(Signal::KILL).signal(), Some(9));
    assert_eq!(experiment.files(), 1);
    let next = lab_command(experiment.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(experiment.files(), 0);
    wait_until("all processes end", || {
        experiment.processes.iter().all(|process| !process.exists())
    });
}

#[test]
fn the_next_command_does_not_touch_a_running_experiment() {
    let mut experiment = EndlessExperiment::start();
    let next = lab_command(experiment.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(experiment.files(), 1);
    assert!(experiment.processes.iter().all(|process| process.exists()));
    experiment.end(Signal::KILL);
    let next = lab_command(experiment.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
}
