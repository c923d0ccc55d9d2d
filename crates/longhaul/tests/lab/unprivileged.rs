//! Without root.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{LONGHAUL, LabTestGuard, directory, is_installed, skip, stderr, stdout};

/// State of `/dev/net/tun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunDeviceState {
    /// For everybody, its usual mode.
    Open,
    /// For root only.
    Closed,
    /// Not there.
    Missing,
}

/// Runs `script` as nobody in `place`; `$LONGHAUL` is the program. The device is one of our own, in
/// a mount namespace of our own.
pub(crate) fn as_nobody(place: &Path, device: TunDeviceState, script: &str) -> Output {
    let preparation = r#"
        set -e
        mount -t tmpfs -o mode=755 none /mnt
        : > /mnt/longhaul
        mount --bind "$2" /mnt/longhaul
        mount -t tmpfs -o mode=755 none /dev/net
        [ -z "$1" ] || mknod -m "$1" /dev/net/tun c 10 200
        export LONGHAUL=/mnt/longhaul HOME=/
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$3"
    "#;
    let mode = match device {
        TunDeviceState::Open => "666",
        TunDeviceState::Closed => "600",
        TunDeviceState::Missing => "",
    };
    Command::new("unshare")
        .args(["--mount", "sh", "-c", preparation, "sh"])
        .args([mode, LONGHAUL, script])
        .current_dir(place)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Whether nobody may make user namespaces here.
fn allowed() -> bool {
    let allowed = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["unshare", "--user", "--net", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    allowed || skip::<()>("users may not make user namespaces here").is_some()
}

#[test]
fn it_works_where_users_may_make_namespaces() {
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
        "$LONGHAUL lab net --wait --rtt 30ms --report report.json -- sh -c '
            id -u
            $LAB_PROGRAM lab exec a -- ping -q -c 3 -i 0.2 $LAB_B
            exit 5'",
    );
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(5), "{told}\n{}", stderr(&output));
    assert!(told.contains(" 0% packet loss"), "{told}");
    // `rtt min/avg/max/mdev = 30.4/...`: nothing comes early; a busy machine is late.
    let shortest = told
        .split(" = ")
        .nth(1)
        .and_then(|times| times.split('/').next());
    let shortest: f64 = shortest.unwrap().parse().unwrap();
    assert!((30.0..1000.0).contains(&shortest), "{told}");
    let report = directory.path().join("report.json");
    assert_eq!(report.metadata().unwrap().uid(), 65534);
}

#[test]
fn a_device_that_is_closed_or_missing_is_named_with_the_remedy() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    let directory = directory();
    for (device, remedy) in [
        (TunDeviceState::Closed, "sudo chmod 666 /dev/net/tun"),
        (TunDeviceState::Missing, "sudo modprobe tun"),
    ] {
        let output = as_nobody(directory.path(), device, "$LONGHAUL lab net --wait -- true");
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains(remedy), "{told}");
    }
}

#[test]
fn what_only_root_may_change_is_named() {
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
        "$LONGHAUL lab net --wait --sysctl net.core.rmem_max=1234567 -- true",
    );
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("`sudo sysctl -w net.core.rmem_max='1234567'`"),
        "{told}"
    );
    // What the machine has already needs nobody's permission.
    let output = as_nobody(
        directory.path(),
        TunDeviceState::Open,
        "$LONGHAUL lab net --wait --sysctl net.core.rmem_max=$(cat /proc/sys/net/core/rmem_max) -- true",
    );
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_switch_that_forbids_user_namespaces_is_named() {
    let Some(_turn) = LabTestGuard::acquire() else {
        return;
    };
    if !allowed() {
        return;
    }
    // Root of a user namespace below which there may be no other, and without the capability that
    // would make another unnecessary.
    let script = r#"
        echo 0 > /proc/sys/user/max_user_namespaces
        exec setpriv --bounding-set -sys_admin "$LONGHAUL" lab net --wait -- true"#;
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-ec", script])
        .env("LONGHAUL", LONGHAUL)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("sudo sysctl -w user.max_user_namespaces="),
        "{told}"
    );
}
