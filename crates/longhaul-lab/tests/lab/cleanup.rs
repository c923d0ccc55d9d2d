//! A lab leaves nothing behind, however it ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::{LONGHAUL_LAB, LabTestGuard, directory, read, stderr};

const PATIENCE: Duration = Duration::from_secs(60);
/// A setting that exists once per machine.
const MACHINE: &str = "/proc/sys/net/core/rmem_max";
const LOCK: &str = "/tmp/longhaul-lab.lock";

/// The lab lock, held by a test: while it exists, no lab can run on this machine.
struct HeldLabLock {
    _lock: File,
}

impl HeldLabLock {
    fn wait() -> Self {
        // fs.protected_regular forbids O_CREAT on another user's file in a sticky directory.
        let lock = File::open(LOCK)
            .or_else(|_| File::create_new(LOCK))
            .unwrap();
        let start = Instant::now();
        while lock.try_lock().is_err() {
            assert!(
                start.elapsed() < PATIENCE,
                "a lab holds {LOCK} and does not end"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { _lock: lock }
    }
}

fn machine_setting() -> u64 {
    read(Path::new(MACHINE)).trim().parse().unwrap()
}

/// Runs a lab, which restores the machine's settings if an earlier test was killed.
fn recover_machine_setting() {
    let status = Command::new(LONGHAUL_LAB)
        .args(["net", "--wait", "--quiet", "--", "true"])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Number of namespaces kept alive by a mount, as `ip netns` does.
fn namespace_mounts() -> usize {
    let mounts = read(Path::new("/proc/self/mountinfo"));
    mounts.matches(" - nsfs ").count()
}

/// A running lab that has changed a machine-wide setting, with processes on hosts and outside.
struct RunningLab {
    lab: Child,
    /// Text in the command line of each of its processes, and of no other process.
    mark: String,
    /// The hosts' network namespaces, as links of `/proc/PID/ns/net`.
    namespaces: Vec<PathBuf>,
    setting_before: u64,
    mounts_before: usize,
    directory: TempDir,
}

impl Drop for RunningLab {
    fn drop(&mut self) {
        // Only a test that failed early gets here with a running lab.
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

impl RunningLab {
    /// Starts the lab. `last` is what its command does after it has started the other processes.
    fn start(last: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("86400.{}{count:03}", std::process::id());
        let directory = directory();
        recover_machine_setting();
        let (setting_before, mounts_before) = {
            let _no_lab = HeldLabLock::wait();
            (machine_setting(), namespace_mounts())
        };
        let script = format!(
            "on() {{ $LAB_PROGRAM exec \"$@\"; }}
            on a -- setsid sleep {mark} >/dev/null 2>&1 &
            setsid sh -c 'trap \"\" TERM INT HUP; sleep {mark}; sleep {mark}' >/dev/null 2>&1 &
            on b -- sleep {mark} >/dev/null 2>&1 &
            for h in a b; do on $h -- readlink /proc/self/ns/net; done > new
            cat {MACHINE} >> new
            mv new ready
            while [ ! -e seen ]; do sleep 0.02; done
            {last}"
        );
        let new_value = setting_before + 4096;
        let mut lab = Self {
            lab: Self::spawn(directory.path(), new_value, &script),
            mark,
            namespaces: Vec::new(),
            setting_before,
            mounts_before,
            directory,
        };
        lab.wait_until_started(new_value);
        lab
    }

    fn spawn(place: &Path, new_value: u64, script: &str) -> Child {
        // In the background of a script SIGINT is ignored, under nohup(1) SIGHUP; children inherit that.
        Command::new("env")
            .args(["--default-signal=INT,TERM,HUP", LONGHAUL_LAB])
            .args(["net", "--wait", "--quiet", "--rtt", "10ms"])
            .args(["--sysctl", &format!("net.core.rmem_max={new_value}")])
            .args(["--", "sh", "-c", script])
            .current_dir(place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits until all processes run, checks the setting, and lets the command continue.
    fn wait_until_started(&mut self, new_value: u64) {
        let place = self.directory.path();
        let ready = place.join("ready");
        wait_until("the lab is ready", || ready.exists());
        wait_until("its processes run", || {
            processes_with_mark(&self.mark).len() >= 5
        });
        let text = read(&ready);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].parse(), Ok(new_value), "{MACHINE} in the lab");
        self.namespaces = lines[..2].iter().map(PathBuf::from).collect();
        File::create(place.join("seen")).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.lab), signal).unwrap();
    }

    /// The first process of its PID namespace, which is the lab's only child.
    fn first_process(&self) -> Pid {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.lab.id())).unwrap();
        let children: String = threads
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok())
            .collect();
        let pid = children.split_whitespace().next().unwrap();
        Pid::from_raw(pid.parse().unwrap()).unwrap()
    }

    /// Waits for the end of the lab and checks that nothing is left. Returns the exit code, `None` if a
    /// signal ended the lab.
    fn wait_and_check_cleanup(mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the lab ends", || {
            status = self.lab.try_wait().unwrap();
            status.is_some()
        });
        // Every process of a lab holds the lock, so all have ended when it is free.
        let _no_lab = HeldLabLock::wait();
        assert_eq!(
            processes_with_mark(&self.mark),
            Vec::<PathBuf>::new(),
            "are left"
        );
        let is_in_lab = |process: &PathBuf| {
            std::fs::read_link(process.join("ns/net"))
                .is_ok_and(|namespace| self.namespaces.contains(&namespace))
        };
        // A process that ends gives up its files, and so the lock, before its namespaces.
        wait_until("no process is in the lab's namespaces", || {
            !processes().any(|process| is_in_lab(&process))
        });
        assert_eq!(namespace_mounts(), self.mounts_before, "mounts");
        assert_eq!(
            machine_setting(),
            self.setting_before,
            "{MACHINE} afterwards"
        );
        status.and_then(|status| status.code())
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

/// Processes with this mark in their command line.
fn processes_with_mark(mark: &str) -> Vec<PathBuf> {
    let has = |process: &PathBuf| {
        std::fs::read(process.join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    processes().filter(has).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_left_after_a_command_that_succeeds() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_eq!(
        RunningLab::start("exit 0").wait_and_check_cleanup(),
        Some(0)
    );
}

#[test]
fn nothing_is_left_after_a_command_that_fails() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_eq!(
        RunningLab::start("exit 3").wait_and_check_cleanup(),
        Some(3)
    );
}

#[test]
fn nothing_is_left_after_a_command_that_is_killed() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    assert_eq!(
        RunningLab::start("kill -9 $$").wait_and_check_cleanup(),
        Some(128 + 9)
    );
}

#[test]
fn nothing_is_left_after_the_lab_is_interrupted() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let lab = RunningLab::start("sleep 86400");
        lab.signal(signal);
        assert_eq!(lab.wait_and_check_cleanup(), Some(128 + number));
    }
}

#[test]
fn nothing_is_left_after_the_lab_is_killed() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let lab = RunningLab::start("sleep 86400");
    lab.signal(Signal::KILL);
    assert_eq!(lab.wait_and_check_cleanup(), None);
}

#[test]
fn nothing_is_left_after_the_first_process_is_killed() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let lab = RunningLab::start("sleep 86400");
    kill_process(lab.first_process(), Signal::KILL).unwrap();
    assert_eq!(lab.wait_and_check_cleanup(), Some(128 + 9));
}

#[test]
fn the_next_lab_restores_the_setting_after_both_are_killed() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let lab = RunningLab::start("sleep 86400");
    let first_process = lab.first_process();
    // A stopped lab cannot restore the setting itself.
    lab.signal(Signal::STOP);
    kill_process(first_process, Signal::KILL).unwrap();
    lab.signal(Signal::KILL);
    let next = crate::harness::lab(&["net", "--wait", "--quiet", "--", "true"]);
    assert!(next.status.success(), "{}", stderr(&next));
    assert_eq!(lab.wait_and_check_cleanup(), None);
}
