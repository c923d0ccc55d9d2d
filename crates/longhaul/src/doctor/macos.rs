//! Parts of the report that Linux has.

use super::report::{Finding, MachineReport};
use crate::args::DoctorArgs;

/// None: there is no server here.
pub(super) fn examine_server_files(_args: &DoctorArgs) -> Result<Option<Vec<Finding>>, String> {
    Ok(None)
}

/// None: see [`examine_kernel`].
pub(super) fn examine_machine(_args: &DoctorArgs) -> Option<MachineReport> {
    None
}

/// Says that nothing of this machine itself is examined.
pub(super) fn examine_kernel() -> Vec<Finding> {
    let text = "not examined: longhaul knows the network settings of Linux alone";
    vec![Finding::note("this machine", text)]
}
