//! How the process reacts to signals.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Whether the process ignores `signal` (sigaction(2), `SIG_IGN`), as nohup(1) has SIGHUP ignored.
///
/// # Errors
/// There is no such signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it writes one action into the space given.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so the action is written.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_told_from_others_and_from_none() {
        // Rust programs ignore SIGPIPE from their start.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGTERM).unwrap());
        assert!(is_ignored(10_000).is_err());
    }
}
