//! `longhaul demo`.

use std::process::{Command, Stdio};

use crate::harness::{LabTestGuard, directory, longhaul, stderr, stdout};
use crate::unprivileged::{TunDeviceState, as_nobody};

/// Parses `stock X Mb/s, longhaul Y Mb/s: Zx (stock was limited by ...)`.
fn rates(line: &str) -> (f64, f64, f64) {
    let read = || {
        let rest = line.strip_prefix("stock ")?;
        let (stock, rest) = rest.split_once(" Mb/s, longhaul ")?;
        let (longhaul, rest) = rest.split_once(" Mb/s: ")?;
        let (times, rest) = rest.split_once("x (stock was limited by ")?;
        rest.strip_suffix(')').filter(|limit| !limit.is_empty())?;
        Some((
            stock.parse().ok()?,
            longhaul.parse().ok()?,
            times.parse().ok()?,
        ))
    };
    read().unwrap_or_else(|| panic!("'{line}'"))
}

/// Beginning of the last line on a machine that was too busy.
const CAVEAT: &str =
    "This is what the demo saw, not a measurement, since the machine was too busy: ";

/// Output of a run, and its result line.
fn output_and_result(place: &str) -> (String, String) {
    // Stock FTP would need much longer for a larger file.
    let output = Command::new(longhaul())
        .args(["demo", "--size", "8M", "--dir", place])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output_text = stdout(&output);
    assert!(
        output.status.success(),
        "{output_text}\n{}",
        stderr(&output)
    );
    let mut lines: Vec<&str> = output_text.lines().collect();
    lines.retain(|line| !line.starts_with(CAVEAT));
    let result = lines.last().copied().unwrap_or_default().to_owned();
    (output_text, result)
}

#[test]
fn the_demo_compares_stock_ftp_with_longhaul_over_a_long_path() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let place = directory.path().to_str().unwrap();
    let (output_text, result) = output_and_result(place);
    // On a machine that is too busy, nothing is said of how the two compare.
    let is_valid = !output_text.contains(CAVEAT);
    assert!(
        !is_valid || result.ends_with("limited by its 64 KB receive window)"),
        "{output_text}"
    );
    let progress = |line: &&str| line.contains(" s   stock FTP: ") && line.contains("longhaul: ");
    assert!(
        output_text.lines().any(|line| progress(&line)),
        "{output_text}"
    );
    let (stock, longhaul, times) = rates(&result);
    assert!(stock > 0.0 && longhaul > 0.0, "{output_text}");
    assert!(!is_valid || longhaul > stock, "{output_text}");
    // All three numbers are rounded.
    assert!(
        (times - longhaul / stock).abs() <= 0.6 + 0.05 * times,
        "{output_text}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are left");
}

#[test]
fn without_a_network_the_demo_says_why_and_uses_loopback() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Closed,
        "$LONGHAUL demo --size 20M --dir \"$PWD\"",
    );
    let output_text = stdout(&output);
    assert!(
        output.status.success(),
        "{output_text}\n{}",
        stderr(&output)
    );
    assert!(
        output_text.contains("The long path is missing") && output_text.contains("/dev/net/tun"),
        "{output_text}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are left");
}
