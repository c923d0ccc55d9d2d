//! Keeps secrets in memory out of core files.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keeps passwords, tokens and keys out of core files (setrlimit(2), RLIMIT_CORE), and other
/// processes of the same user out of this one's memory (PR_SET_DUMPABLE(2const)).
///
/// # Errors
/// The kernel refused one of the two; the other is in force.
pub fn forbid_core_dumps() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let limited = setrlimit(Resource::Core, none);
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    Ok(limited.and(hidden)?)
}
