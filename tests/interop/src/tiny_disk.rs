//! A file system of a few megabytes for one process.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::peer::is_root;

/// A command prefix that mounts a tmpfs of `megabytes` on `folder` in a new mount namespace and then runs
/// the rest of the command line there.
#[must_use]
pub fn wrapper_command(folder: &Path, megabytes: u32) -> Vec<String> {
    let script = format!(
        "mount -t tmpfs -o size={megabytes}m,mode=777 tmpfs '{}' && exec \"$@\"",
        folder.display()
    );
    let mut words: Vec<String> = namespace().iter().map(|&word| word.to_owned()).collect();
    words.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    words
}

/// Whether this machine allows the tests to mount a tmpfs.
pub fn is_supported() -> Result<(), String> {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    let possible = POSSIBLE.get_or_init(|| {
        let mut probe = Command::new(namespace()[0]);
        probe
            .args(&namespace()[1..])
            .args(["sh", "-c", "mount -t tmpfs tmpfs /mnt"]);
        probe.output().is_ok_and(|output| output.status.success())
    });
    if *possible {
        Ok(())
    } else {
        Err("cannot mount a tmpfs, not even in a new mount namespace".into())
    }
}

/// A command prefix for a new mount namespace.
pub(crate) fn namespace() -> &'static [&'static str] {
    if is_root() {
        &["unshare", "-m"]
    } else {
        // A user namespace gives the right to mount without root.
        &["unshare", "-Urm"]
    }
}
