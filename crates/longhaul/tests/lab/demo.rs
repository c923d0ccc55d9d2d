//! `longhaul demo`.

use crate::harness::{LabTestGuard, directory, longhaul, stderr, stdout};
use crate::unprivileged::{TunDeviceState, as_nobody};

/// `stock X Mb/s, longhaul Y Mb/s: Zx (stock was limited by ...)`
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

/// Output of the first of three runs that the machine was quiet enough for; `None` when other
/// programs kept it busy in all of them, which the demo must tell instead of a ratio.
fn told(place: &str) -> Option<String> {
    for _ in 0..3 {
        // Stock FTP needs a while for more than this.
        let output = longhaul(&["demo", "--size", "8M", "--dir", place]);
        let told = stdout(&output);
        assert!(output.status.success(), "{told}\n{}", stderr(&output));
        if !told.contains("No result, since this machine was too busy") {
            return Some(told);
        }
        assert!(!told.contains("stock was limited by"), "{told}");
    }
    None
}

#[test]
fn it_races_stock_settings_over_a_long_path() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let place = directory.path().to_str().unwrap();
    let Some(told) = told(place) else {
        return;
    };
    let last = told.lines().last().unwrap();
    assert!(
        last.ends_with("limited by its 64 KB receive window)"),
        "{told}"
    );
    let progress = |line: &&str| line.contains(" s   stock FTP: ") && line.contains("longhaul: ");
    assert!(told.lines().any(|line| progress(&line)), "{told}");
    let (stock, longhaul, times) = rates(last);
    assert!(stock > 0.0 && longhaul > stock, "{told}");
    // Each number is rounded.
    assert!(
        (times - longhaul / stock).abs() <= 0.6 + 0.05 * times,
        "{told}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are left");
}

#[test]
fn where_no_network_can_be_built_it_says_why_and_shows_loopback() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Closed,
        "$LONGHAUL demo --size 20M --dir \"$PWD\"",
    );
    let told = stdout(&output);
    assert!(output.status.success(), "{told}\n{}", stderr(&output));
    assert!(
        told.contains("/dev/net/tun") && told.contains("loopback"),
        "{told}"
    );
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "files are left");
}
