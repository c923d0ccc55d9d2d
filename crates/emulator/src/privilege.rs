//! Privileges for building a network: namespaces and the TUN device.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use rustix::thread::CapabilitySet;

use crate::LabError;

const TUN_DEVICE: &str = "/dev/net/tun";

/// Ensures that this process may create namespaces and devices in them. Without root's capabilities it
/// becomes root of a new user namespace.
///
/// # Errors
/// [`LabError::Refused`] names the restriction and how to lift it.
pub(super) fn acquire() -> Result<(), LabError> {
    // This check comes first, because a process cannot leave a user namespace again.
    check_tun_device()?;
    // Root in a container may lack these capabilities, so the user ID decides nothing.
    if !has_capabilities()? {
        enter_user_namespace()?;
    }
    Ok(())
}

fn has_capabilities() -> Result<bool, LabError> {
    let held = rustix::thread::capabilities(None)
        .map_err(|e| LabError::system("cannot read this process's capabilities", e))?;
    Ok(held
        .effective
        .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN))
}

/// Gives this process all capabilities in a new user namespace. Its user and group appear as 0; its
/// rights to files do not change (user_namespaces(7)).
fn enter_user_namespace() -> Result<(), LabError> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(CloneFlags::CLONE_NEWUSER).map_err(no_user_namespace)?;
    // An unprivileged process may write gid_map only after "deny" in setgroups (user_namespaces(7)).
    for (file, line) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        std::fs::write(file, line).map_err(|e| match e.raw_os_error() {
            Some(code) => no_user_namespace(Errno::from_raw(code)),
            None => LabError::system(format!("cannot write {file}"), e),
        })?;
    }
    Ok(())
}

/// The error for a refused user namespace. It names the restriction, as far as the system's settings
/// show it, and the command that lifts it.
fn no_user_namespace(error: Errno) -> LabError {
    let switched_off = |key: &str, off: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(key)).is_ok_and(|v| v.trim() == off)
    };
    let remedy = if switched_off("user/max_user_namespaces", "0") {
        "user.max_user_namespaces is 0: allow them with `sudo sysctl -w \
         user.max_user_namespaces=10000`, or run as root"
    } else if switched_off("kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone is 0: allow them with `sudo sysctl -w \
         kernel.unprivileged_userns_clone=1`, or run as root"
    } else if switched_off("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts them: allow them with `sudo sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
    } else if matches!(error, Errno::ENOSPC | Errno::EUSERS) {
        "user.max_user_namespaces is reached, or namespaces are nested too deeply: raise it with \
         `sudo sysctl -w user.max_user_namespaces=10000`, or run as root"
    } else if error == Errno::EINVAL {
        "this process has several threads, or the kernel was built without CONFIG_USER_NS"
    } else {
        "a container or a seccomp filter seems to forbid them: run outside it, as root, or in a \
         container with --privileged"
    };
    LabError::Refused(format!(
        "a network needs root or a user namespace, and the system allows neither ({}): {remedy}",
        error.desc()
    ))
}

/// The error for another kind of namespace, refused although this process has root's capabilities.
pub(super) fn no_namespace(kind: &str, limit: &str, error: Errno) -> LabError {
    match error {
        Errno::EPERM => LabError::Refused(format!(
            "the system refuses a {kind} namespace: a container, a seccomp filter or AppArmor \
             (kernel.apparmor_restrict_unprivileged_userns) forbids it; run outside it or as root"
        )),
        Errno::ENOSPC => LabError::Refused(format!(
            "no {kind} namespace is left: raise the limit with `sudo sysctl -w {limit}=10000`"
        )),
        Errno::EINVAL => {
            LabError::Refused(format!("this kernel was built without {kind} namespaces"))
        }
        error => LabError::system(format!("cannot create a {kind} namespace"), error),
    }
}

fn check_tun_device() -> Result<(), LabError> {
    let device = OpenOptions::new().read(true).write(true).open(TUN_DEVICE);
    device
        .map(|_: File| ())
        .map_err(|e| no_tun_device(e.kind(), e))
}

fn no_tun_device(kind: ErrorKind, error: std::io::Error) -> LabError {
    let remedy = match (kind, error.raw_os_error().map(Errno::from_raw)) {
        (ErrorKind::NotFound, _) => {
            "it does not exist: `sudo modprobe tun`, or `sudo mkdir -p /dev/net && sudo mknod -m \
             666 /dev/net/tun c 10 200`"
        }
        (_, Some(Errno::EACCES)) => {
            "this user may not open it: `sudo chmod 666 /dev/net/tun` (that is its usual mode), or \
             run as root"
        }
        (_, Some(Errno::EPERM)) => {
            "a container forbids it: start the container with `--device /dev/net/tun`"
        }
        (_, Some(Errno::ENODEV | Errno::ENXIO)) => {
            "the kernel has no TUN driver loaded: `sudo modprobe tun`"
        }
        _ => return LabError::system(format!("cannot open {TUN_DEVICE}"), error),
    };
    LabError::Refused(format!("cannot open {TUN_DEVICE}, {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tun_device_error_names_its_remedy() {
        for (errno, remedy) in [
            (Errno::ENOENT, "modprobe tun"),
            (Errno::EACCES, "chmod 666"),
            (Errno::EPERM, "--device"),
            (Errno::ENODEV, "modprobe tun"),
        ] {
            let error = std::io::Error::from(errno);
            let message = no_tun_device(error.kind(), error).to_string();
            assert!(message.contains(remedy), "{errno}: {message}");
        }
    }

    #[test]
    fn an_unknown_error_is_not_reported_as_a_missing_privilege() {
        let error = std::io::Error::from(Errno::EIO);
        assert!(matches!(
            no_tun_device(error.kind(), error),
            LabError::System { .. }
        ));
        assert!(matches!(
            no_namespace("network", "user.max_net_namespaces", Errno::ENOMEM),
            LabError::System { .. }
        ));
    }

    #[test]
    fn the_error_for_a_reached_limit_names_the_limit() {
        let message = no_namespace("network", "user.max_net_namespaces", Errno::ENOSPC).to_string();
        assert!(message.contains("user.max_net_namespaces"), "{message}");
    }
}
