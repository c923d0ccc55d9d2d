//! Environment variables of the command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::exec::{HOSTS_VARIABLE, PROGRAM_VARIABLE};
use crate::topology::{self, Topology};

/// Refuses a lab inside a lab: it would wait for the outer one, or disturb its timing.
///
/// # Errors
/// [`LabError::Busy`]: this process is part of a lab.
pub(super) fn refuse_nesting() -> Result<(), LabError> {
    match std::env::var_os(HOSTS_VARIABLE) {
        Some(_) => Err(LabError::Busy(format!(
            "this is inside a lab already ({HOSTS_VARIABLE} is set); for more hosts use a topology file"
        ))),
        None => Ok(()),
    }
}

/// Path of this program, for `lab exec` and for `LAB_PROGRAM`.
///
/// # Errors
/// [`LabError::NotFound`]: it was removed or replaced while it ran.
pub(super) fn own_executable() -> Result<PathBuf, LabError> {
    let path = std::env::current_exe()
        .map_err(|e| LabError::system("cannot find this program's own file", e))?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(LabError::NotFound(format!(
            "{}: no such program",
            path.display()
        )))
    }
}

/// `LAB_A` and so on for the hosts' addresses, and the variables that `lab exec` needs.
pub(super) fn variables(topology: &Topology, program: &Path) -> Vec<(String, OsString)> {
    let mut variables: Vec<(String, OsString)> = Vec::new();
    for (index, host) in topology.hosts.iter().enumerate() {
        let address = Topology::address(index).to_string();
        variables.push((topology::address_variable(&host.name), address.into()));
    }
    for (index, name) in topology.routers.iter().enumerate() {
        let address = Topology::router_address(index).to_string();
        variables.push((topology::address_variable(name), address.into()));
    }
    let names: Vec<&str> = topology.hosts.iter().map(|h| h.name.as_str()).collect();
    variables.push((HOSTS_VARIABLE.to_owned(), names.join(" ").into()));
    variables.push((PROGRAM_VARIABLE.to_owned(), program.into()));
    variables
}
