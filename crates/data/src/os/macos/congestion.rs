//! The congestion controls that a process may set: none, since macOS chooses them for itself.

use std::io;

use socket2::Socket;

use super::unsupported;

/// None.
pub fn settable() -> Vec<String> {
    Vec::new()
}

/// # Errors
/// `Unsupported`: the system does not tell.
pub fn in_force(_socket: &Socket) -> io::Result<Vec<u8>> {
    Err(unsupported())
}

/// # Errors
/// `Unsupported`.
pub fn set(_socket: &Socket, _name: &[u8]) -> io::Result<()> {
    Err(unsupported())
}

/// Every refusal applies to every other socket, too.
pub fn is_lasting(_refusal: &io::Error) -> bool {
    true
}
