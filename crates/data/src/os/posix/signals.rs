//! How the process reacts to signals.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Whether the process ignores `signal` (sigaction(2), `SIG_IGN`), as nohup(1) has SIGHUP ignored.
///
/// # Errors
/// There is no such signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    Ok(handler_of(signal)? == libc::SIG_IGN)
}

fn has_default_action(signal: i32) -> io::Result<bool> {
    Ok(handler_of(signal)? == libc::SIG_DFL)
}

fn handler_of(signal: i32) -> io::Result<libc::sighandler_t> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it writes one action into the space given.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so the action is written.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction)
}

/// Has the process go on after `signal`, unless it ignores or handles it already (sigaction(2)). Programs that it runs are
/// not concerned: execve(2) gives them back the default.
///
/// # Errors
/// There is no such signal, or none that can be survived.
pub fn survive(signal: i32) -> io::Result<()> {
    extern "C" fn go_on(_: libc::c_int) {}
    if !has_default_action(signal)? {
        return Ok(());
    }
    // SAFETY: all fields of the structure may be zero: an empty mask, no flags, no restorer.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = go_on as *const () as libc::sighandler_t;
    // Calls that the signal comes into are no failures.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does nothing, which is safe at any moment; the old action is not asked for.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_would_end_the_process_is_survived() {
        survive(libc::SIGUSR1).unwrap();
        assert!(!has_default_action(libc::SIGUSR1).unwrap());
        // SAFETY: the signal is handled.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        // Left as it is.
        survive(libc::SIGPIPE).unwrap();
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(survive(libc::SIGKILL).is_err());
    }

    #[test]
    fn ignored_signals_are_told_from_others_and_from_none() {
        // Rust programs ignore SIGPIPE from their start.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGTERM).unwrap());
        assert!(is_ignored(10_000).is_err());
    }
}
