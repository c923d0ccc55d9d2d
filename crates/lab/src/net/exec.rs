//! Becoming a program on a host, and what a shell's exit codes say of programs that do not start.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use crate::LabError;

/// Environment: the hosts' names, separated by spaces.
pub(super) const HOSTS_VARIABLE: &str = "LAB_HOSTS";
/// Environment: `HOST=FILE` for each host, separated by spaces; FILE is its network namespace.
pub(super) const NAMESPACES_VARIABLE: &str = "LAB_NAMESPACES";
/// Environment: the path of `longhaul`.
pub(super) const PROGRAM_VARIABLE: &str = "LAB_PROGRAM";

/// Becomes `command` on a host of the surrounding lab (`longhaul lab exec`).
///
/// # Errors
/// [`LabError::Usage`]: not inside a lab, or no such host; [`LabError::NotFound`]: no such program;
/// [`LabError::Program`]: it cannot be executed ([`start_failure_code`] tells these from each other as a
/// shell does).
pub fn exec(host: &str, command: &[OsString]) -> Result<Infallible, LabError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(LabError::Usage("a program is missing".into()));
    };
    let table = std::env::var(NAMESPACES_VARIABLE).map_err(|_| {
        LabError::Usage(
            "this is not inside a lab: use it in the command of `longhaul lab net -- COMMAND`"
                .into(),
        )
    })?;
    let path = namespace_of(host, &table)?;
    enter(host, path)?;
    let error = Command::new(program).args(arguments).exec();
    Err(start_error(program, &error))
}

/// The exit code for a program that did not start, as env(1) and shells have it: 127 it was not
/// found, 126 it cannot be executed. `None`: it was not the program that was wrong.
pub fn start_failure_code(error: &LabError) -> Option<u8> {
    match error {
        LabError::NotFound(_) => Some(127),
        LabError::Program(_) => Some(126),
        _ => None,
    }
}

/// Why a program did not start.
pub(super) fn start_error(program: &OsStr, error: &std::io::Error) -> LabError {
    let name = program.display();
    match error.kind() {
        ErrorKind::NotFound => LabError::NotFound(format!("{name}: no such program")),
        _ => LabError::Program(format!("{name} cannot be executed: {error}")),
    }
}

fn namespace_of<'t>(host: &str, table: &'t str) -> Result<&'t str, LabError> {
    let hosts = || table.split(' ').filter_map(|entry| entry.split_once('='));
    hosts()
        .find_map(|(name, path)| (name == host).then_some(path))
        .ok_or_else(|| {
            let names: Vec<&str> = hosts().map(|(name, _)| name).collect();
            LabError::Usage(format!(
                "there is no host '{host}' in this lab; there are {}",
                names.join(", ")
            ))
        })
}

fn enter(host: &str, path: &str) -> Result<(), LabError> {
    let file = File::open(path)
        .map_err(|e| LabError::system(format!("cannot open host {host}'s namespace {path}"), e))?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|e| match e {
        Errno::EPERM => LabError::Refused(format!(
            "only the user who started the lab may enter host {host}"
        )),
        e => LabError::system(format!("cannot enter host {host}"), e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "a=/proc/1/fd/4 b=/proc/1/fd/5";

    #[test]
    fn a_host_has_its_namespace() {
        assert_eq!(namespace_of("b", TABLE).unwrap(), "/proc/1/fd/5");
    }

    #[test]
    fn an_unknown_host_lists_the_known_ones() {
        let told = namespace_of("c", TABLE).unwrap_err().to_string();
        assert!(told.contains("'c'") && told.ends_with("a, b"), "{told}");
    }

    #[test]
    fn shells_codes_tell_what_went_wrong() {
        let code =
            |kind: ErrorKind| start_failure_code(&start_error(OsStr::new("x"), &kind.into()));
        assert_eq!(code(ErrorKind::NotFound), Some(127));
        assert_eq!(code(ErrorKind::PermissionDenied), Some(126));
        assert_eq!(start_failure_code(&LabError::Usage(String::new())), None);
    }
}
