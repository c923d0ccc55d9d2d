//! Two labs at once.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{LONGHAUL, LabTestGuard, directory, longhaul, stderr};

/// A lab that runs until there is a file `end`.
fn holder(place: &Path) -> Child {
    let lab = Command::new(LONGHAUL)
        .args(["lab", "net", "--wait", "--quiet", "--", "sh", "-c"])
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
            "the lab does not start"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    lab
}

#[test]
fn the_second_is_refused_or_waits() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let place = directory.path();
    let mut first = holder(place);

    let refused = longhaul(&["lab", "net", "--", "true"]);
    let told = stderr(&refused);
    assert_eq!(refused.status.code(), Some(7), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let process = format!("process {},", first.id());
    assert!(told.contains(&process) && told.contains("--wait"), "{told}");

    let mut second = Command::new(LONGHAUL)
        .args([
            "lab", "net", "--wait", "--quiet", "--", "test", "-e", "ended",
        ])
        .current_dir(place)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(second.try_wait().unwrap().is_none(), "it did not wait");
    std::fs::write(place.join("end"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert_eq!(
        second.wait().unwrap().code(),
        Some(0),
        "it did not wait for the end"
    );
}
