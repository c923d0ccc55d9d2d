//! Random numbers of the system.

use std::io;

/// Fills at most 256 bytes with numbers that nobody guesses.
///
/// # Errors
/// The system has none. More than 256 bytes: EIO.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the memory is valid for writes of its length, and the call writes no more.
    match unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
