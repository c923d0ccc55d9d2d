//! Kernel settings such as `net.ipv4.tcp_rmem`, read and written through `/proc/sys`.
//!
//! A file below `/proc/sys/net` belongs to the network namespace of the *thread* that opens it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::LabError;

/// The TCP congestion control of a namespace.
pub(super) const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Where a value was set, or must be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SysctlScope {
    /// Set in this thread's network namespace.
    Namespace,
    /// Not set: the setting exists once per machine.
    Machine,
    /// Not set: the machine has this congestion control but does not allow it to every user.
    Restricted,
}

/// Sets `key` in this thread's network namespace, if it belongs to the namespace.
///
/// # Errors
/// [`LabError::Usage`]: the key is not a network setting, or the kernel refuses the value;
/// [`LabError::Refused`]: `/proc/sys` is read-only.
pub(super) fn set_in_namespace(key: &str, value: &str) -> Result<SysctlScope, LabError> {
    let path = path(key)?;
    let file = match open(&path) {
        Ok(file) => file,
        // Machine-wide settings are missing below a namespace's /proc/sys/net, or not writable.
        Err(Errno::ENOENT | Errno::EACCES) => return Ok(SysctlScope::Machine),
        Err(error) => return Err(refusal(key, value, error)),
    };
    match write(file, value) {
        Ok(()) => {}
        // Only the initial network namespace may select a restricted one as its default.
        Err(Errno::EPERM) if key == CONGESTION_CONTROL => return Ok(SysctlScope::Restricted),
        Err(error) => return Err(refusal(key, value, error)),
    }
    check(key, value, &path)?;
    Ok(SysctlScope::Namespace)
}

/// Sets `key` for the whole machine.
///
/// # Errors
/// As [`set_in_namespace`]; also [`LabError::Refused`] without root.
pub(super) fn set_machine(key: &str, value: &str) -> Result<(), LabError> {
    let path = path(key)?;
    let file = open(&path).map_err(|error| match error {
        Errno::EACCES | Errno::EPERM => LabError::Refused(format!(
            "{key} exists once for the whole machine, and only root may change it: run as root, or \
             set it before with `sudo sysctl -w {key}='{value}'`"
        )),
        Errno::ENOENT => unknown(key),
        error => refusal(key, value, error),
    })?;
    write(file, value).map_err(|error| refusal(key, value, error))?;
    check(key, value, &path)
}

/// Reads `key` in this thread's network namespace; words are separated by one space.
///
/// # Errors
/// [`LabError::Usage`]: this kernel has no such setting.
pub(super) fn read(key: &str) -> Result<String, LabError> {
    let text = std::fs::read_to_string(path(key)?).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => unknown(key),
        _ => LabError::system(format!("cannot read {key}"), e),
    })?;
    Ok(normalized(&text))
}

/// The machine-wide setting that allows these congestion controls to namespaces, in addition to those
/// allowed already; `None` if there are no names.
///
/// # Errors
/// The kernel's lists of congestion controls cannot be read.
pub(super) fn setting_to_allow<'n>(
    names: impl Iterator<Item = &'n String>,
) -> Result<Option<(String, String)>, LabError> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let key = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = read(key)?;
    // In the order of the available ones, which is also that of the allowed ones, so that an unchanged
    // value compares equal.
    let available = read("net.ipv4.tcp_available_congestion_control")?;
    let wanted: Vec<&str> = available
        .split(' ')
        .filter(|name| names.contains(name) || allowed.split(' ').any(|a| a == *name))
        .collect();
    Ok(Some((key.to_owned(), wanted.join(" "))))
}

/// The value with one space between words: the kernel separates them by tabs, users by spaces.
pub(super) fn normalized(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file of a key. As in sysctl(8), components are separated by dots, or by slashes if the first
/// separator is a slash.
fn path(key: &str) -> Result<PathBuf, LabError> {
    let slashes = key
        .find(['.', '/'])
        .is_some_and(|at| key[at..].starts_with('/'));
    let separator = if slashes { '/' } else { '.' };
    let parts: Vec<&str> = key.split(separator).collect();
    let sound = |part: &&str| {
        !part.is_empty()
            && !matches!(*part, "." | "..")
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    // "..", empty components and other characters could lead to files outside of /proc/sys/net.
    if parts.len() < 2 || parts[0] != "net" || !parts.iter().all(sound) {
        return Err(LabError::Usage(format!(
            "'{key}' is not a network setting; these begin with `net.`, such as net.ipv4.tcp_rmem"
        )));
    }
    Ok(Path::new("/proc/sys").join(parts.join("/")))
}

fn open(path: &Path) -> Result<File, Errno> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|e| errno(&e))
}

fn write(mut file: File, value: &str) -> Result<(), Errno> {
    file.write_all(value.as_bytes()).map_err(|e| errno(&e))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// Checks that the kernel took the value: it clips some settings to its limits without an error.
fn check(key: &str, value: &str, path: &Path) -> Result<(), LabError> {
    match std::fs::read_to_string(path) {
        Ok(text) if normalized(&text) != normalized(value) => Err(LabError::Usage(format!(
            "{key}: the kernel changed '{value}' to '{}'",
            normalized(&text)
        ))),
        // A trigger such as net.ipv4.route.flush cannot be read.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn unknown(key: &str) -> LabError {
    LabError::Usage(format!("{key}: this kernel has no such setting"))
}

fn refusal(key: &str, value: &str, error: Errno) -> LabError {
    match (key, error) {
        (CONGESTION_CONTROL, Errno::ENOENT) => {
            let available = read("net.ipv4.tcp_available_congestion_control");
            LabError::Usage(format!(
                "this kernel has no congestion control '{value}'; it has {} (others may be modules: \
                 `sudo modprobe tcp_{value}`)",
                available.unwrap_or_else(|_| "an unknown list".to_owned())
            ))
        }
        (_, Errno::EROFS) => LabError::Refused(format!(
            "{key} cannot be set, /proc/sys is read-only here: run outside the container or start \
             it with --privileged"
        )),
        (_, Errno::EINVAL | Errno::ERANGE | Errno::EFAULT) => {
            LabError::Usage(format!("{key}: the kernel refuses the value '{value}'"))
        }
        (_, error) => LabError::system(format!("cannot set {key} to '{value}'"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_with_dots_and_with_slashes_map_to_proc_sys() {
        let at = |key| path(key).map(|p| p.display().to_string()).ok();
        assert_eq!(
            at("net.ipv4.tcp_rmem").as_deref(),
            Some("/proc/sys/net/ipv4/tcp_rmem")
        );
        assert_eq!(
            at("net/ipv4/conf/eth0.1/mtu").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/mtu")
        );
    }

    #[test]
    fn keys_outside_of_the_network_settings_are_refused() {
        for key in [
            "",
            "net",
            "net.",
            ".net.x",
            "kernel.panic",
            "net..x",
            "net/../kernel/panic",
            "net/./x",
            "net.a b",
            "/net/x",
            "net.x/../../kernel",
        ] {
            assert!(matches!(path(key), Err(LabError::Usage(_))), "{key}");
        }
    }

    #[test]
    fn a_missing_setting_is_a_usage_error() {
        assert!(matches!(
            read("net.ipv4.no_such_setting"),
            Err(LabError::Usage(_))
        ));
    }

    #[test]
    fn the_error_for_an_unknown_congestion_control_lists_the_known_ones() {
        let message = refusal(CONGESTION_CONTROL, "warp", Errno::ENOENT).to_string();
        let known = read("net.ipv4.tcp_available_congestion_control").unwrap();
        assert!(message.contains(&known), "{message}");
    }

    #[test]
    fn allowed_congestion_controls_stay_allowed() {
        assert_eq!(setting_to_allow([].iter()).unwrap(), None);
        let allowed = read("net.ipv4.tcp_allowed_congestion_control").unwrap();
        let available = read("net.ipv4.tcp_available_congestion_control").unwrap();
        let all: Vec<String> = available.split(' ').map(str::to_owned).collect();
        let (_, none_new) = setting_to_allow([all[0].clone()].iter()).unwrap().unwrap();
        assert!(allowed.split(' ').all(|name| none_new.contains(name)));
        let (_, value) = setting_to_allow(all.iter()).unwrap().unwrap();
        assert_eq!(value, available);
    }

    proptest! {
        #[test]
        fn no_key_leaves_the_network_settings(key in "[a-z./]{0,24}") {
            if let Ok(path) = path(&key) {
                prop_assert!(path.starts_with("/proc/sys/net"));
                prop_assert!(!path.components().any(|c| c == std::path::Component::ParentDir));
            }
        }
    }
}
