//! An experiment that is interrupted or killed: what it leaves, and what the next command removes.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{LONGHAUL, directory, read};

const PATIENCE: Duration = Duration::from_secs(60);

/// Its client, which never ends, notes its number and lets a child of its own live apart.
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
    /// Of the client and of its child.
    processes: Vec<PathBuf>,
}

impl Drop for EndlessExperiment {
    fn drop(&mut self) {
        // A test that failed early.
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

/// `longhaul lab` whose files are in `place`, and which takes interrupts even if the tests do not.
fn lab_command(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM,HUP", LONGHAUL, "lab"])
        .args(arguments)
        .current_dir(place)
        .env("TMPDIR", place.join("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl EndlessExperiment {
    fn start() -> Self {
        let directory = directory();
        let place = directory.path();
        std::fs::create_dir(place.join("tmp")).unwrap();
        std::fs::write(place.join("endless-run.toml"), EXPERIMENT).unwrap();
        let ready = place.join("ready");
        let script = format!(
            "setsid sleep 86400 & echo $! > new; echo $$ >> new; mv new {}; exec sleep 86400",
            ready.display()
        );
        let program =
            format!("label = 'Endless'\n[client]\nhost = 'a'\nargv = ['sh', '-c', '{script}']\n");
        std::fs::write(place.join("endless.toml"), program).unwrap();
        let run = lab_command(place, &["run", "./endless-run.toml"])
            .spawn()
            .unwrap();
        let mut endless = Self {
            run,
            directory,
            processes: Vec::new(),
        };
        wait_until("the client runs", || ready.exists());
        let proc = Path::new("/proc");
        let numbers = read(&ready);
        endless.processes = numbers.lines().map(|pid| proc.join(pid)).collect();
        assert!(endless.processes.iter().all(|process| process.exists()));
        endless
    }

    /// Ends the run with a signal.
    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.run), signal).unwrap();
        self.run.wait().unwrap()
    }

    fn files(&self) -> usize {
        let place = self.directory.path().join("tmp");
        std::fs::read_dir(place).unwrap().count()
    }
}

#[test]
fn an_interrupted_experiment_leaves_no_files_and_no_client() {
    let mut endless = EndlessExperiment::start();
    assert_eq!(endless.files(), 1);
    assert_eq!(endless.end(Signal::INT).signal(), Some(2));
    assert_eq!(endless.files(), 0);
    let ended = |process: &PathBuf| !process.exists();
    wait_until("all processes end", || endless.processes.iter().all(ended));
}

#[test]
fn what_a_killed_experiment_leaves_is_removed_by_the_next_command() {
    let mut endless = EndlessExperiment::start();
    assert_eq!(endless.end(Signal::KILL).signal(), Some(9));
    assert_eq!(endless.files(), 1);
    let next = lab_command(endless.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(endless.files(), 0);
    wait_until("all processes end", || {
        endless.processes.iter().all(|process| !process.exists())
    });
}

#[test]
fn a_living_experiment_is_not_touched_by_the_next_command() {
    let mut endless = EndlessExperiment::start();
    let next = lab_command(endless.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(endless.files(), 1);
    assert!(endless.processes.iter().all(|process| process.exists()));
    endless.end(Signal::KILL);
    let next = lab_command(endless.directory.path(), &["list"])
        .status()
        .unwrap();
    assert!(next.success());
}
