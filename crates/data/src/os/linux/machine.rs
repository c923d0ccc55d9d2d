//! Facts about this machine.

use std::fs;

/// Holds an ID that changes with every boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A text that changes with every boot; `None` if the system does not tell (`/proc` is not mounted).
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string(BOOT_ID).ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}
