//! A file system of a few megabytes, for one process.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::peer::is_root;

/// Words that run the command after them with a tmpfs of `megabytes` on `folder`, in a mount
/// namespace of its own.
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

/// Whether this machine lets the tests mount anything.
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
        Err("cannot mount a tmpfs here, not even in unshare".into())
    }
}

fn namespace() -> &'static [&'static str] {
    if is_root() {
        &["unshare", "-m"]
    } else {
        &["unshare", "-Urm"]
    }
}
