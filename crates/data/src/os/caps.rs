//! How far this host lets socket buffers grow, asked of the kernel and not assumed.

use tune::sizing::caps::Caps;

/// The limits that hold for this process now. What cannot be read (`/proc` not mounted) is found
/// with a scratch socket, or taken from the kernel's documented defaults.
pub fn caps() -> Caps {
    todo!("caps")
}
