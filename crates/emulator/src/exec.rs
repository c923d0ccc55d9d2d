//! `lab exec`, which runs a program on a host, and the exit codes for programs that cannot start.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use crate::LabError;

/// Environment variable with the names of the hosts, separated by spaces.
pub(super) const HOSTS_VARIABLE: &str = "LAB_HOSTS";
/// Environment variable with `HOST=FILE` for each host, separated by spaces. FILE is the host's network
/// namespace.
pub(super) const NAMESPACES_VARIABLE: &str = "LAB_NAMESPACES";
/// Environment variable with the path of the program that runs the lab.
pub(super) const PROGRAM_VARIABLE: &str = "LAB_PROGRAM";

/// Replaces this process by `command` on a host of the surrounding lab (`longhaul lab exec`).
///
/// # Errors
/// [`LabError::Usage`]: not inside a lab, or no such host; [`LabError::NotFound`]: no such program;
/// [`LabError::Program`]: the program cannot be executed. [`start_failure_code`] maps the last two to
/// the exit codes of a shell.
pub fn exec(host: &str, command: &[OsString]) -> Result<Infallible, LabError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(LabError::Usage("a program is missing".into()));
    };
    let table = std::env::var(NAMESPACES_VARIABLE).map_err(|_| {
        LabError::Usage(
            "this is not inside a lab; use it in the COMMAND of `longhaul lab net -- COMMAND`"
                .into(),
        )
    })?;
    let path = namespace_of(host, &table)?;
    enter(host, path)?;
    // exec(2) instead of a child: signals and the exit status need no forwarding.
    let error = Command::new(program).args(arguments).exec();
    Err(start_error(program, &error))
}

/// Exit code for a program that did not start, as with env(1) and shells: 127 if it was not found, 126 if
/// it cannot be executed. `None`: the error has another cause.
pub fn start_failure_code(error: &LabError) -> Option<u8> {
    match error {
        LabError::NotFound(_) => Some(127),
        LabError::Program(_) => Some(126),
        _ => None,
    }
}

/// The error for a program that did not start.
pub(super) fn start_error(program: &OsStr, error: &std::io::Error) -> LabError {
    let name = program.display();
    match error.kind() {
        // A separate error, because env(1) and shells distinguish 127 from 126.
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
                "there is no host '{host}' in this lab; the hosts are {}",
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
    fn the_table_gives_the_namespace_of_a_host() {
        assert_eq!(namespace_of("b", TABLE).unwrap(), "/proc/1/fd/5");
    }

    #[test]
    fn the_error_for_an_unknown_host_lists_the_known_ones() {
        let message = namespace_of("c", TABLE).unwrap_err().to_string();
        assert!(
            message.contains("'c'") && message.ends_with("a, b"),
            "{message}"
        );
    }

    #[test]
    fn start_failures_have_the_exit_codes_of_a_shell() {
        let code =
            |kind: ErrorKind| start_failure_code(&start_error(OsStr::new("x"), &kind.into()));
        assert_eq!(code(ErrorKind::NotFound), Some(127));
        assert_eq!(code(ErrorKind::PermissionDenied), Some(126));
        assert_eq!(start_failure_code(&LabError::Usage(String::new())), None);
    }
}
