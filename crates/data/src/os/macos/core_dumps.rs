//! Keeps secrets in memory out of core files.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps passwords, tokens and keys out of core files (setrlimit(2), RLIMIT_CORE). Other processes of the same user are kept
/// out of this one's memory by the system (task_for_pid).
///
/// # Errors
/// The kernel refused.
pub fn forbid_core_dumps() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}
