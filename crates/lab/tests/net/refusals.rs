//! A second lab is refused, or waits.

use super::support::{Lasting, cannot_run, lab, program, script, stderr, stdout, wait_until};
use rustix::process::{Signal, kill_process};

#[test]
fn a_second_lab_is_told_who_the_first_is() {
    if cannot_run() {
        return;
    }
    let mut first = Lasting::start(&[]);
    let second = std::process::Command::new(program())
        .arg("true")
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let told = stderr(&second);
    let holder = format!("process {}, `", first.lab.id());
    assert!(
        told.contains("another lab is running") && told.contains(&holder),
        "{told}"
    );

    let mut waiting = lab(&[], &["true"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(waiting.try_wait().unwrap(), None);
    kill_process(first.pid(), Signal::TERM).unwrap();
    first.lab.wait().unwrap();
    wait_until("the one that waited has run", || {
        waiting
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
    });
}

#[test]
fn a_lab_inside_a_lab_is_refused() {
    if cannot_run() {
        return;
    }
    let told = script(&[], "$LAB_PROGRAM --wait true; echo $?");
    assert_eq!(stdout(&told), "1");
    assert!(
        stderr(&told).contains("inside a lab already"),
        "{}",
        stderr(&told)
    );
}

#[test]
fn exec_and_init_are_of_no_use_outside() {
    let run = |arguments: &[&str]| {
        std::process::Command::new(program())
            .args(arguments)
            .env_remove("LAB_NAMESPACES")
            .output()
            .unwrap()
    };
    assert!(stderr(&run(&["lab", "exec", "a", "--", "true"])).contains("not inside a lab"));
    assert!(stderr(&run(&["lab", "init", "{}", "true"])).contains("alone to call"));
}
