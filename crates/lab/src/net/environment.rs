//! What the command finds in its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::exec::{HOSTS, PROGRAM};
use crate::LabError;
use crate::topology::Topology;

/// A lab inside a lab would wait for itself, or disturb itself.
///
/// # Errors
/// [`LabError::Busy`]: this process is part of a lab.
pub(super) fn refuse_nesting() -> Result<(), LabError> {
    match std::env::var_os(HOSTS) {
        Some(_) => Err(LabError::Busy(format!(
            "this is inside a lab already ({HOSTS} is set): a topology file can have more hosts"
        ))),
        None => Ok(()),
    }
}

/// Where `longhaul` is, as a path that holds in every directory.
///
/// # Errors
/// [`LabError::NotFound`]: not there.
pub(super) fn program(wanted: Option<PathBuf>) -> Result<PathBuf, LabError> {
    let path = match wanted {
        Some(path) => path,
        None => std::env::current_exe()
            .map_err(|e| LabError::system("cannot find this program's own file", e))?,
    };
    std::path::absolute(&path)
        .ok()
        .filter(|path| path.is_file())
        .ok_or_else(|| LabError::NotFound(format!("{}: no such program", path.display())))
}

/// `LAB_A` and so on, what `lab exec` needs, and what the caller adds.
pub(super) fn of(
    topology: &Topology,
    program: &Path,
    more: Vec<(String, OsString)>,
) -> Vec<(String, OsString)> {
    let mut variables: Vec<(String, OsString)> = more;
    for (index, host) in topology.hosts.iter().enumerate() {
        let address = Topology::address(index).to_string();
        variables.push((address_variable(&host.name), address.into()));
    }
    let names: Vec<&str> = topology.hosts.iter().map(|h| h.name.as_str()).collect();
    variables.push((HOSTS.to_owned(), names.join(" ").into()));
    variables.push((PROGRAM.to_owned(), program.into()));
    variables
}

fn address_variable(host: &str) -> String {
    format!("LAB_{}", host.to_ascii_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_variable_is_a_shells_identifier() {
        assert_eq!(address_variable("a"), "LAB_A");
        assert_eq!(address_variable("disk-2"), "LAB_DISK_2");
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        let missing = program(Some("/nowhere/longhaul".into()));
        assert!(matches!(missing, Err(LabError::NotFound(_))));
        assert!(program(None).unwrap().is_absolute());
    }
}
