//! `longhaul demo`.

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

/// Output of the first valid run of three; `None` if the machine was too busy for all of them. In an
/// invalid run the demo must not print a ratio.
fn output_text(place: &str) -> Option<String> {
    for _ in 0..3 {
        // Stock FTP would need much longer for a larger file.
        let output = longhaul(&["demo", "--size", "8M", "--dir", place]);
        let output_text = stdout(&output);
        assert!(
            output.status.success(),
            "{output_text}\n{}",
            stderr(&output)
        );
        if !output_text.contains("No result, since this machine was too busy") {
            return Some(output_text);
        }
        assert!(
            !output_text.contains("stock was limited by"),
            "{output_text}"
        );
    }
    None
}

#[test]
fn the_demo_compares_stock_ftp_with_longhaul_over_a_long_path() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let place = directory.path().to_str().unwrap();
    let Some(output_text) = output_text(place) else {
        return;
    };
    let last = output_text.lines().last().unwrap();
    assert!(
        last.ends_with("limited by its 64 KB receive window)"),
        "{output_text}"
    );
    let progress = |line: &&str| line.contains(" s   stock FTP: ") && line.contains("longhaul: ");
    assert!(
        output_text.lines().any(|line| progress(&line)),
        "{output_text}"
    );
    let (stock, longhaul, times) = rates(last);
    assert!(stock > 0.0 && longhaul > stock, "{output_text}");
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
        output_text.contains("/dev/net/tun") && output_text.contains("loopback"),
        "{output_text}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are left");
}
