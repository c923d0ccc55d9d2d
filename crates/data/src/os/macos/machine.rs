//! Facts about this machine.

use super::sysctl;

/// A text that changes with every boot; `None` if the system does not tell.
pub fn boot_id() -> Option<String> {
    sysctl::text(c"kern.bootsessionuuid")
}
