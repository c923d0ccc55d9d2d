//! Two labs at the same time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{LONGHAUL_LAB, LabTestGuard, directory, lab, stderr};

/// Starts a lab that runs until the file `end` exists.
fn start_lab(place: &Path) -> Child {
    let lab = Command::new(LONGHAUL_LAB)
        .args(["net", "--wait", "--quiet", "--", "sh", "-c"])
        .arg(": > ready; while [ ! -e end ]; do sleep 0.02; done; : > ended")
        .current_dir(place)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !place.join("ready").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "the lab did not start"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    lab
}

#[test]
fn a_second_lab_is_refused_or_waits() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let place = directory.path();
    let mut first = start_lab(place);

    let refused = lab(&["net", "--", "true"]);
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(7), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    let process = format!("process {},", first.id());
    assert!(
        message.contains(&process) && message.contains("--wait"),
        "{message}"
    );

    let mut second = Command::new(LONGHAUL_LAB)
        .args(["net", "--wait", "--quiet", "--", "test", "-e", "ended"])
        .current_dir(place)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        second.try_wait().unwrap().is_none(),
        "the second lab did not wait"
    );
    std::fs::write(place.join("end"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert_eq!(
        second.wait().unwrap().code(),
        Some(0),
        "the second lab started before the first one ended"
    );
}
