//! Labs without root.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{
    LONGHAUL_LAB, LabTestGuard, directory, is_installed, longhaul, skip, stderr, stdout,
};

/// State of `/dev/net/tun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunDeviceState {
    /// Accessible to every user, the usual mode.
    Open,
    /// Accessible to root only.
    Closed,
    /// Missing.
    Missing,
}

/// Runs `script` as the user nobody in `place`; `$LONGHAUL` and `$LONGHAUL_LAB` are the programs. `/dev/net/tun` is replaced
/// in a separate mount namespace.
pub(crate) fn as_nobody(place: &Path, device: TunDeviceState, script: &str) -> Output {
    let preparation = r#"
        set -e
        mount -t tmpfs -o mode=755 none /mnt
        : > /mnt/longhaul
        : > /mnt/longhaul-lab
        mount --bind "$2" /mnt/longhaul
        mount --bind "$3" /mnt/longhaul-lab
        mount -t tmpfs -o mode=755 none /dev/net
        [ -z "$1" ] || mknod -m "$1" /dev/net/tun c 10 200
        export LONGHAUL=/mnt/longhaul LONGHAUL_LAB=/mnt/longhaul-lab HOME=/
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$4"
    "#;
    let mode = match device {
        TunDeviceState::Open => "666",
        TunDeviceState::Closed => "600",
        TunDeviceState::Missing => "",
    };
    Command::new("unshare")
        .args(["--mount", "sh", "-c", preparation, "sh"])
        .arg(mode)
        .arg(longhaul())
        .args([LONGHAUL_LAB, script])
        .current_dir(place)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Whether the user nobody may create user namespaces; if not, reports that the test is skipped.
fn allowed() -> bool {
    let allowed = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["unshare", "--user", "--net", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    allowed || skip::<()>("ordinary users may not create user namespaces here").is_some()
}

#[test]
fn a_lab_runs_without_root_if_user_namespaces_are_allowed() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    if !allowed() || !is_installed("ping") {
        return;
    }
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Open,
        "$LONGHAUL_LAB net --wait --rtt 30ms --report report.json -- sh -c '
            id -u
            $LAB_PROGRAM exec a -- ping -q -c 3 -i 0.2 $LAB_B
            exit 5'",
    );
    let message = stdout(&output);
    assert_eq!(
        output.status.code(),
        Some(5),
        "{message}\n{}",
        stderr(&output)
    );
    assert!(message.contains(" 0% packet loss"), "{message}");
    // `rtt min/avg/max/mdev = 30.4/...`: packets never arrive early, and late on a busy machine.
    let shortest = message
        .split(" = ")
        .nth(1)
        .and_then(|times| times.split('/').next());
    let shortest: f64 = shortest.unwrap().parse().unwrap();
    assert!((30.0..1000.0).contains(&shortest), "{message}");
    let report = directory.path().join("report.json");
    assert_eq!(report.metadata().unwrap().uid(), 65534);
}

#[test]
fn the_error_for_an_unusable_tun_device_contains_the_remedy() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    for (device, remedy) in [
        (TunDeviceState::Closed, "sudo chmod 666 /dev/net/tun"),
        (TunDeviceState::Missing, "sudo modprobe tun"),
    ] {
        let output = as_nobody(directory.path(), device, "$LONGHAUL_LAB net --wait -- true");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn a_machine_wide_setting_without_root_exits_with_3_and_a_command() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    if !allowed() {
        return;
    }
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Open,
        "$LONGHAUL_LAB net --wait --sysctl net.core.rmem_max=1234567 -- true",
    );
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("`sudo sysctl -w net.core.rmem_max='1234567'`"),
        "{message}"
    );
    // Setting the current value needs no privilege.
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Open,
        "$LONGHAUL_LAB net --wait --sysctl net.core.rmem_max=$(cat /proc/sys/net/core/rmem_max) -- true",
    );
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_error_names_the_setting_that_forbids_user_namespaces() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    if !allowed() {
        return;
    }
    // Root of a user namespace that allows no nested one, without CAP_SYS_ADMIN, with which the lab
    // would not need another one.
    let script = r#"
        echo 0 > /proc/sys/user/max_user_namespaces
        exec setpriv --bounding-set -sys_admin "$LONGHAUL_LAB" net --wait -- true"#;
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-ec", script])
        .env("LONGHAUL_LAB", LONGHAUL_LAB)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("sudo sysctl -w user.max_user_namespaces="),
        "{message}"
    );
}
