//! Kernel settings of hosts and of the machine.

use super::support::{cannot_run, script, stderr, stdout};

fn machine(key: &str) -> String {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn hosts_have_their_own_settings() {
    if cannot_run() {
        return;
    }
    let before = machine("net.ipv4.tcp_rmem");
    let told = script(
        &[
            "--sysctl",
            "net.ipv4.tcp_rmem=4096 87380 1000000",
            "--cc",
            "reno",
        ],
        "$LAB_PROGRAM lab exec b -- sh -c 'cd /proc/sys/net; cat ipv4/tcp_rmem
         cat ipv4/tcp_congestion_control ipv4/tcp_no_metrics_save'",
    );
    assert_eq!(
        stdout(&told),
        "4096\t87380\t1000000\nreno\n1",
        "{}",
        stderr(&told)
    );
    assert_eq!(machine("net.ipv4.tcp_rmem"), before);
}

#[test]
fn a_restricted_congestion_control_is_allowed_for_the_run() {
    if cannot_run() {
        return;
    }
    let key = "net.ipv4.tcp_allowed_congestion_control";
    let before = machine(key);
    let available = machine("net.ipv4.tcp_available_congestion_control");
    let Some(restricted) = available
        .split(' ')
        .find(|name| !before.split(' ').any(|allowed| allowed == *name))
    else {
        eprintln!("SKIPPED: every congestion control of this kernel is allowed to everybody");
        return;
    };
    let told = script(
        &["--cc", restricted],
        "$LAB_PROGRAM lab exec a -- cat /proc/sys/net/ipv4/tcp_congestion_control",
    );
    assert_eq!(stdout(&told), restricted, "{}", stderr(&told));
    assert_eq!(machine(key), before);
}

#[test]
fn wrong_settings_are_told_in_a_line() {
    if cannot_run() {
        return;
    }
    for (options, reason) in [
        (["--cc", "warp"], "no congestion control 'warp'"),
        (["--sysctl", "net.ipv4.nothing=1"], "no such setting"),
        (["--sysctl", "kernel.panic=1"], "not a network setting"),
        (
            ["--sysctl", "net.ipv4.tcp_rmem=much"],
            "does not take the value 'much'",
        ),
        (
            ["--sysctl", "net.core.rmem_max=much"],
            "does not take the value 'much'",
        ),
    ] {
        let told = script(&options, "echo not reached");
        assert_eq!(told.status.code(), Some(1), "{options:?}");
        assert_eq!(stdout(&told), "", "{options:?}");
        assert!(stderr(&told).contains(reason), "{}", stderr(&told));
        assert_eq!(stderr(&told).lines().count(), 1, "{}", stderr(&told));
    }
}
