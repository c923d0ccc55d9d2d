//! Without root.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{LONGHAUL, Turn, directory, skip, stderr, stdout};

/// Runs `script` as nobody in `place`; `$LONGHAUL` is the program. `mode`: of `/dev/net/tun`, which
/// is a node of our own in a mount namespace of our own.
pub(crate) fn as_nobody(place: &Path, mode: &str, script: &str) -> Output {
    let preparation = r#"
        set -e
        mount -t tmpfs -o mode=755 none /mnt
        mknod -m "$1" /mnt/tun c 10 200
        mount --bind /mnt/tun /dev/net/tun
        : > /mnt/longhaul
        mount --bind "$2" /mnt/longhaul
        export LONGHAUL=/mnt/longhaul HOME=/
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$3"
    "#;
    Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            preparation,
            "sh",
            mode,
            LONGHAUL,
            script,
        ])
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
    let Some(_turn) = Turn::take() else { return };
    if !allowed() {
        return;
    }
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        "666",
        "$LONGHAUL lab net --wait --rtt 30ms --report report.json -- sh -c '
            id -u
            $LAB_PROGRAM lab exec a -- ping -q -c 3 -i 0.2 $LAB_B
            exit 5'",
    );
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(5), "{told}\n{}", stderr(&output));
    assert!(told.contains(" 0% packet loss"), "{told}");
    assert!(told.contains(" = 30."), "{told}");
    assert!(directory.path().join("report.json").exists());
}

#[test]
fn a_device_that_is_closed_to_the_user_is_named() {
    let Some(_turn) = Turn::take() else { return };
    let directory = directory();
    let output = as_nobody(directory.path(), "600", "$LONGHAUL lab net --wait -- true");
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("/dev/net/tun") && told.contains("chmod 666"),
        "{told}"
    );
}

#[test]
fn what_only_root_may_change_is_named() {
    let Some(_turn) = Turn::take() else { return };
    if !allowed() {
        return;
    }
    let directory = directory();
    let output = as_nobody(
        directory.path(),
        "666",
        "$LONGHAUL lab net --wait --sysctl net.core.rmem_max=1234567 -- true",
    );
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(
        told.contains("net.core.rmem_max") && told.contains("root"),
        "{told}"
    );
}

#[test]
fn the_switch_that_forbids_user_namespaces_is_named() {
    let Some(_turn) = Turn::take() else { return };
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
