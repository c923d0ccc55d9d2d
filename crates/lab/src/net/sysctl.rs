//! Kernel settings: `net.ipv4.tcp_rmem` and its like, read and written through `/proc/sys`.
//!
//! A file below `/proc/sys/net` is that of the network namespace of the *thread* that opens it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::LabError;

/// The setting that names a namespace's TCP congestion control.
pub(super) const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Where a value took effect, or has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SysctlScope {
    /// Set in this thread's network namespace.
    Namespace,
    /// Not set: the namespace does not have it or cannot change it, one value serves the machine.
    Machine,
    /// Not set: the machine has this congestion control, and does not allow it to everybody.
    Restricted,
}

/// Sets `key` in this thread's network namespace, if it belongs to the namespace.
///
/// # Errors
/// [`LabError::Usage`]: the key is not a network setting, or the kernel does not take the value;
/// [`LabError::Refused`]: `/proc/sys` is read-only.
pub(super) fn set_in_namespace(key: &str, value: &str) -> Result<SysctlScope, LabError> {
    let path = path(key)?;
    let file = match open(&path) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::EACCES) => return Ok(SysctlScope::Machine),
        Err(error) => return Err(refusal(key, value, error)),
    };
    match write(file, value) {
        Ok(()) => {}
        Err(Errno::EPERM) if key == CONGESTION_CONTROL => return Ok(SysctlScope::Restricted),
        Err(error) => return Err(refusal(key, value, error)),
    }
    check(key, value, &path)?;
    Ok(SysctlScope::Namespace)
}

/// Sets `key` where this process runs, for the whole machine.
///
/// # Errors
/// As [`set_in_namespace`]; [`LabError::Refused`] also without root.
pub(super) fn set_machine(key: &str, value: &str) -> Result<(), LabError> {
    let path = path(key)?;
    let file = open(&path).map_err(|error| match error {
        Errno::EACCES | Errno::EPERM => LabError::Refused(format!(
            "{key} is one setting for the whole machine, and only root may change it: run as root, \
             or set it first with `sudo sysctl -w {key}='{value}'`"
        )),
        Errno::ENOENT => unknown(key),
        error => refusal(key, value, error),
    })?;
    write(file, value).map_err(|error| refusal(key, value, error))?;
    check(key, value, &path)
}

/// Its value in this thread's network namespace, words separated by one space.
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

/// The machine's setting that lets namespaces use these congestion controls besides those they may;
/// `None`: no names.
///
/// # Errors
/// The kernel does not tell which there are.
pub(super) fn setting_to_allow<'n>(
    names: impl Iterator<Item = &'n String>,
) -> Result<Option<(String, String)>, LabError> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let key = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = read(key)?;
    // In the order of this list, which is that of the allowed ones too.
    let available = read("net.ipv4.tcp_available_congestion_control")?;
    let wanted: Vec<&str> = available
        .split(' ')
        .filter(|name| names.contains(name) || allowed.split(' ').any(|a| a == *name))
        .collect();
    Ok(Some((key.to_owned(), wanted.join(" "))))
}

/// The kernel separates words by tabs, people by spaces.
pub(super) fn normalized(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As in sysctl(8): dots separate, or slashes if a slash comes first.
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
    if parts.len() < 2 || parts[0] != "net" || !parts.iter().all(sound) {
        return Err(LabError::Usage(format!(
            "'{key}' is not a network setting: they begin with `net.`, as net.ipv4.tcp_rmem"
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

/// Some settings are clipped to what the kernel can do without a word.
fn check(key: &str, value: &str, path: &Path) -> Result<(), LabError> {
    match std::fs::read_to_string(path) {
        Ok(text) if normalized(&text) != normalized(value) => Err(LabError::Usage(format!(
            "{key}: the kernel made '{}' of '{value}'",
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
                "there is no congestion control '{value}' in this kernel; there are {} (others may \
                 be modules: `sudo modprobe tcp_{value}`)",
                available.unwrap_or_else(|_| "none that it names".to_owned())
            ))
        }
        (_, Errno::EROFS) => LabError::Refused(format!(
            "{key} cannot be set, /proc/sys is read-only here: run outside the container or start \
             it with --privileged"
        )),
        (_, Errno::EINVAL | Errno::ERANGE | Errno::EFAULT) => LabError::Usage(format!(
            "{key}: the kernel does not take the value '{value}'"
        )),
        (_, error) => LabError::system(format!("cannot set {key} to '{value}'"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_those_of_sysctl() {
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
    fn other_keys_are_refused() {
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
    fn a_missing_setting_is_the_users_mistake() {
        assert!(matches!(
            read("net.ipv4.no_such_setting"),
            Err(LabError::Usage(_))
        ));
    }

    #[test]
    fn an_unknown_congestion_control_lists_the_known_ones() {
        let told = refusal(CONGESTION_CONTROL, "warp", Errno::ENOENT).to_string();
        let known = read("net.ipv4.tcp_available_congestion_control").unwrap();
        assert!(told.contains(&known), "{told}");
    }

    #[test]
    fn allowing_keeps_what_is_allowed() {
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
