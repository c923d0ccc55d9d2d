//! Labs with several hosts: each host has its own settings, and each pair its own path.

use std::path::Path;

use crate::harness::{
    LONGHAUL_LAB, LabScriptRun, LabTestGuard, TestLab, is_installed, not_applicable, read, stderr,
    stdout,
};
use crate::server;

const THREE: &str = r#"
cc = "cubic"

[hosts.a]
[hosts.b]
cc = "reno"
[hosts.c.sysctl]
"net.ipv4.tcp_rmem" = "4096 50000 600000"
"net.ipv4.tcp_sack" = 0

[default]
rtt = "10ms"

[[paths]]
between = ["a", "c"]
rtt = "60ms"

[[paths]]
between = ["b", "c"]
forward.delay = "5ms"
back.delay = "25ms"
"#;

/// Minimum round-trip time in the output of ping(8), milliseconds.
fn min_rtt(ping: &str) -> f64 {
    let (_, figures) = ping.split_once(" = ").unwrap_or_else(|| panic!("{ping}"));
    figures.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn each_pair_has_its_own_path_and_each_host_its_own_settings() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    if !is_installed("ping") {
        return;
    }
    let script = "
        echo $LAB_HOSTS $LAB_A $LAB_B $LAB_C > environment
        on a ping -q -c 4 -i 0.05 $LAB_B > ab
        on a ping -q -c 4 -i 0.05 $LAB_C > ac
        on c ping -q -c 4 -i 0.05 $LAB_B > cb
        for h in $LAB_HOSTS; do
            on $h cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_sack \
                /proc/sys/net/ipv4/tcp_rmem > settings.$h
        done";
    TestLab::topology(&turn, THREE).check(script, |run| {
        assert_addresses_and_settings(run);
        assert_paths(run);
    });
}

fn assert_addresses_and_settings(run: &LabScriptRun) {
    let environment = run.text("environment");
    assert_eq!(environment.trim(), "a b c 10.99.0.1 10.99.0.2 10.99.0.3");
    let settings = |host: &str| {
        let text = run.text(&format!("settings.{host}"));
        let lines = text.lines().map(|l| l.replace('\t', " "));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(settings("a")[..2], ["cubic", "1"]);
    assert_eq!(settings("b")[..2], ["reno", "1"]);
    assert_eq!(settings("c"), ["cubic", "0", "4096 50000 600000"]);
    assert_ne!(settings("a")[2], "4096 50000 600000");
}

fn assert_paths(run: &LabScriptRun) {
    for (pair, rtt) in [("ab", 10.0), ("ac", 60.0), ("cb", 30.0)] {
        let found = min_rtt(&run.text(pair));
        assert!((rtt..rtt + 2.0).contains(&found), "{pair}: {found} ms");
    }
    // No packet took the path of another pair.
    for (one, other) in [("a", "b"), ("a", "c"), ("b", "c")] {
        assert_eq!(run.direction(one, other).packets, 4, "{one} to {other}");
        assert_eq!(run.direction(other, one).packets, 4, "{other} to {one}");
    }
}

#[test]
fn options_apply_to_every_host() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::new(&turn, &["--cc", "reno", "--sysctl", "net.ipv4.tcp_sack=0"]).run(
        "for h in a b; do
            on $h cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_sack
        done > settings",
    );
    assert_eq!(run.text("settings"), "reno\n0\nreno\n0\n");
}

#[test]
fn exec_runs_a_program_on_the_named_host() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::new(&turn, &[]).run_to_any_end(
        "on b cat /proc/net/fib_trie | grep -q 10.99.0.2
        echo in | on a cat
        on a sh -c 'echo out >&2; exit 5'",
    );
    assert_eq!(run.output.status.code(), Some(5));
    assert_eq!(stdout(&run.output), "in");
    assert!(stderr(&run.output).starts_with("out"));
}

#[test]
fn hosts_have_separate_namespaces_and_the_command_is_in_neither() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::new(&turn, &[]).run(
        "on a readlink /proc/self/ns/net > namespaces
        on b readlink /proc/self/ns/net >> namespaces
        readlink /proc/self/ns/net >> namespaces
        grep -c lab0 /proc/net/dev > devices || true
        echo $LAB_PROGRAM > program",
    );
    let text = run.text("namespaces");
    let namespaces: Vec<&str> = text.lines().collect();
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(namespaces[0], namespaces[1]);
    assert_ne!(namespaces[0], namespaces[2]);
    assert_eq!(namespaces[2], outside.to_string_lossy());
    assert_eq!(run.text("devices").trim(), "0");
    assert_eq!(run.text("program").trim(), LONGHAUL_LAB);
}

#[test]
fn a_restricted_congestion_control_is_allowed_during_the_run() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let machine = |key: &str| {
        let path = format!("/proc/sys/net/ipv4/tcp_{key}_congestion_control");
        read(Path::new(&path)).trim().to_owned()
    };
    let (allowed, available) = (machine("allowed"), machine("available"));
    let is_allowed = |name: &&str| allowed.split(' ').any(|a| a == *name);
    let Some(restricted) = available.split(' ').find(|name| !is_allowed(name)) else {
        not_applicable("this kernel allows every congestion control to every user");
        return;
    };
    let run = TestLab::new(&turn, &["--cc", restricted])
        .run("on b cat /proc/sys/net/ipv4/tcp_congestion_control > cc");
    assert_eq!(run.text("cc").trim(), restricted);
    assert_eq!(machine("allowed"), allowed);
}

#[test]
fn a_third_party_copy_does_not_pass_through_the_client() {
    let Some(turn) = LabTestGuard::acquire() else {
        return;
    };
    let run = TestLab::topology(
        &turn,
        "[hosts.a]\n[hosts.b]\n[hosts.c]\n[default]\nrate = \"100mbit\"\nrtt = \"10ms\"\n",
    )
    .file("longhaul.sh", server::SCRIPT)
    .run(
        r#". ./longhaul.sh
        mkdir left right
        head -c 5000000 /dev/urandom > left/big.dat
        serve b left; serve c right
        on a "$LONGHAUL" cp --json -p 2 ftp://$USER@$B/big.dat ftp://$USER@$C/copy.dat > log
        cmp left/big.dat right/copy.dat"#,
    );
    let summary = run
        .text("log")
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["exit"], 0);
    assert_eq!(summary["bytes"], 5_000_000);
    // The bytes went from server to server, not through the client.
    assert!(run.direction("b", "c").delivered_bytes > 5_000_000);
    for (from, to) in [("b", "a"), ("a", "c")] {
        let direction = run.direction(from, to);
        assert!(direction.delivered_bytes < 200_000, "{direction:?}");
    }
}
