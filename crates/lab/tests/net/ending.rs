//! However a lab ends, nothing of it is left.

use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, Signal, kill_process};

use super::support::{Lasting, cannot_run, script, stderr, wait_until};

/// One value serves the whole machine.
const SETTING: &str = "/proc/sys/net/core/rmem_max";

fn setting() -> u64 {
    let text = std::fs::read_to_string(SETTING).unwrap();
    text.trim().parse().unwrap()
}

/// Does `work` while a lab has changed a setting of the whole machine; the setting must be as
/// before afterwards.
fn with_changed_setting(work: impl FnOnce(&mut Lasting)) {
    // The lock that orders labs does not order a look at the setting before one.
    static ORDER: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _order = ORDER
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = setting();
    let option = format!("net.core.rmem_max={}", before + 4096);
    let mut lasting = Lasting::start(&["--sysctl", &option]);
    assert_eq!(setting(), before + 4096);
    work(&mut lasting);
    wait_until("the setting is as before", || setting() == before);
    let record = std::path::Path::new("/run/longhaul-lab.sysctls");
    wait_until("nothing is on record", || !record.exists());
}

#[test]
fn what_the_command_leaves_ends_with_it() {
    if cannot_run() {
        return;
    }
    let marker = format!("86401.{}", std::process::id());
    let told = script(&[], &format!("setsid sleep {marker} & echo started"));
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    let left = std::process::Command::new("pgrep")
        .args(["-f", &marker])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

#[test]
fn a_signal_ends_it_and_is_its_exit_code() {
    if cannot_run() {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        with_changed_setting(|lasting| {
            kill_process(lasting.pid(), signal).unwrap();
            assert_eq!(lasting.lab.wait().unwrap().code(), Some(code));
            lasting.traces.vanish();
        });
    }
}

#[test]
fn being_killed_ends_all_of_it() {
    if cannot_run() {
        return;
    }
    with_changed_setting(|lasting| {
        kill_process(lasting.pid(), Signal::KILL).unwrap();
        assert_eq!(lasting.lab.wait().unwrap().signal(), Some(9));
        lasting.traces.vanish();
    });
}

#[test]
fn losing_its_first_process_ends_all_of_it() {
    if cannot_run() {
        return;
    }
    with_changed_setting(|lasting| {
        kill_process(first_process(lasting), Signal::KILL).unwrap();
        assert_eq!(lasting.lab.wait().unwrap().code(), Some(137));
        lasting.traces.vanish();
    });
}

#[test]
fn the_next_lab_puts_back_what_a_killed_one_could_not() {
    if cannot_run() {
        return;
    }
    with_changed_setting(|lasting| {
        let first = first_process(lasting);
        kill_process(lasting.pid(), Signal::STOP).unwrap();
        kill_process(first, Signal::KILL).unwrap();
        kill_process(lasting.pid(), Signal::KILL).unwrap();
        lasting.lab.wait().unwrap();
        lasting.traces.vanish();
        assert_eq!(script(&[], "true").status.code(), Some(0));
    });
}

/// The lab's only child.
fn first_process(lasting: &Lasting) -> Pid {
    let lab = lasting.pid().as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{lab}/task")).unwrap();
    let children: String = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .collect();
    let pid = children.split_whitespace().next().unwrap();
    Pid::from_raw(pid.parse().unwrap()).unwrap()
}
