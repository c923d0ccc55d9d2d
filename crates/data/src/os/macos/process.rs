//! Facts about this process.

use rustix::fs::Mode;

/// The permission bits that new files of this process do not get. umask(2) cannot read the mask without changing it: a file
/// that another thread makes in this moment is its owner's alone, so this is asked once.
pub fn umask() -> Option<u32> {
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(mask);
    Some(mask.as_raw_mode().into())
}
