//! Parts of the report that Linux has.

use super::report::{Finding, MachineReport};
use super::{kernel, machine::MachineSettings, server_files};
use crate::args::DoctorArgs;

/// The findings about the files of a server; `None`: the arguments name none.
///
/// # Errors
/// The settings file of the server cannot be used.
pub(super) fn examine_server_files(args: &DoctorArgs) -> Result<Option<Vec<Finding>>, String> {
    let config = args.server_files.config()?;
    Ok(config.as_ref().map(server_files::examine))
}

/// The settings of this machine.
pub(super) fn examine_machine(args: &DoctorArgs) -> Option<MachineReport> {
    Some(MachineSettings::read(args).report())
}

/// The findings about the kernel.
pub(super) fn examine_kernel() -> Vec<Finding> {
    kernel::examine()
}
