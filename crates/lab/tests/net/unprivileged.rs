//! Without root: in a user namespace, and the refusals that say what is missing.

use std::process::{Command, Output};

use super::support::{cannot_run, public_program, stderr, stdout};

/// A shell script as the user nobody, after `preparation` by root in a mount namespace of its own;
/// `$LAB` is the program.
fn as_nobody(preparation: &str, script: &str) -> Output {
    let (_directory, program) = public_program();
    let command = format!(
        "{preparation}\nexec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$SCRIPT\""
    );
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", &command])
        .env("SCRIPT", script)
        .env("LAB", program)
        .output()
        .unwrap()
}

/// A TUN device node that everybody may open, as on a desktop.
const OPEN_DEVICE: &str = "mount -t tmpfs none /dev/net; mknod -m 666 /dev/net/tun c 10 200";

fn no_user_namespaces() -> bool {
    let told = as_nobody(":", "unshare --user true");
    if !told.status.success() {
        eprintln!(
            "SKIPPED: this system forbids user namespaces: {}",
            stderr(&told)
        );
    }
    !told.status.success()
}

#[test]
fn a_lab_works_without_root() {
    if cannot_run() || no_user_namespaces() {
        return;
    }
    let told = as_nobody(
        OPEN_DEVICE,
        "$LAB --wait sh -c 'id -u; $LAB_PROGRAM lab exec b -- grep -c lab0 /proc/net/dev
         setsid sleep 86402 & exit 9'",
    );
    assert_eq!(stdout(&told), "0\n1", "{}", stderr(&told));
    assert_eq!(told.status.code(), Some(9), "{}", stderr(&told));
}

#[test]
fn files_are_the_callers() {
    if cannot_run() || no_user_namespaces() {
        return;
    }
    let told = as_nobody(
        OPEN_DEVICE,
        "d=$(mktemp -d); $LAB --wait touch $d/file; stat -c %u $d/file; rm -r $d",
    );
    assert_eq!(stdout(&told), "65534", "{}", stderr(&told));
}

#[test]
fn what_only_root_may_change_is_told_with_the_command() {
    if cannot_run() || no_user_namespaces() {
        return;
    }
    let told = as_nobody(
        OPEN_DEVICE,
        "$LAB --wait --sysctl net.core.rmem_max=12345678 true",
    );
    assert_eq!(told.status.code(), Some(1));
    let told = stderr(&told);
    assert!(
        told.contains("`sudo sysctl -w net.core.rmem_max='12345678'`"),
        "{told}"
    );
    // What the machine has already needs nobody's permission.
    let as_it_is = as_nobody(
        OPEN_DEVICE,
        "$LAB --wait --sysctl net.core.rmem_max=$(cat /proc/sys/net/core/rmem_max) true",
    );
    assert_eq!(as_it_is.status.code(), Some(0), "{}", stderr(&as_it_is));
}

#[test]
fn a_missing_or_closed_device_is_named_with_its_remedy() {
    if cannot_run() {
        return;
    }
    for (preparation, remedy) in [
        ("mount -t tmpfs none /dev/net", "sudo modprobe tun"),
        (
            "mount -t tmpfs none /dev/net; mknod -m 600 /dev/net/tun c 10 200",
            "sudo chmod 666 /dev/net/tun",
        ),
    ] {
        let told = as_nobody(preparation, "$LAB --wait true");
        assert_eq!(told.status.code(), Some(1));
        assert!(stderr(&told).contains(remedy), "{}", stderr(&told));
    }
}

#[test]
fn forbidden_user_namespaces_are_told_with_the_switch() {
    if cannot_run() || no_user_namespaces() {
        return;
    }
    let (_directory, program) = public_program();
    // Root of a user namespace that allows no other below it, without the capability that would
    // make one unnecessary.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces
                  exec setpriv --bounding-set -sys_admin $LAB --wait true";
    let told = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-ec", script])
        .env("LAB", program)
        .output()
        .unwrap();
    assert!(
        stderr(&told).contains("sudo sysctl -w user.max_user_namespaces="),
        "{}",
        stderr(&told)
    );
}
