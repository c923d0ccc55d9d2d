//! Signals of a terminal to a lab: those that end it, taken one by one instead of at any moment, and whose
//! foreground it is.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::Pid;

use crate::LabError;

const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// While it lives, the calling thread, and threads it starts, are not ended by these signals; they
/// are to be asked for here.
#[derive(Debug)]
pub(super) struct CaughtSignals {
    descriptor: SignalFd,
    mask_before: SigSet,
}

impl CaughtSignals {
    /// Call it before any thread is started. Signals that are ignored (`nohup`) stay so.
    ///
    /// # Errors
    /// The system refuses the descriptor.
    pub(super) fn block_and_watch() -> Result<Self, LabError> {
        let caught = terminating_signals();
        let failed = |e| LabError::system("cannot catch signals", e);
        let descriptor =
            SignalFd::with_flags(&caught, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
                .map_err(failed)?;
        let mask_before = caught
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .map_err(failed)?;
        Ok(Self {
            descriptor,
            mask_before,
        })
    }

    /// The number of a signal that has come.
    pub(super) fn next_signal(&self) -> Option<u8> {
        let come = self.descriptor.read_signal().ok()??;
        u8::try_from(come.ssi_signo).ok()
    }
}

impl AsFd for CaughtSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for CaughtSignals {
    fn drop(&mut self) {
        if let Err(error) = self.mask_before.thread_set_mask() {
            tracing::warn!(%error, "cannot restore the signal mask");
        }
    }
}

/// Takes every signal again: a child of a process that holds some back inherits that.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn unblock_all() -> Result<(), LabError> {
    SigSet::empty()
        .thread_set_mask()
        .map_err(|errno| LabError::system("cannot take signals", errno))
}

/// The signals that end this process: those that are ignored (`nohup`) do not.
pub(crate) fn terminating_signals() -> SigSet {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let ignored = ignored(&status);
    ENDING
        .into_iter()
        .filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0)
        .collect()
}

/// Bit N - 1 of the `SigIgn` mask stands for signal N.
fn ignored(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Gives the terminal back to this process's group when it goes, if it had it before: an interactive shell
/// in the lab takes it for itself and, being the last process of its namespace, cannot give it back.
#[derive(Debug)]
pub(super) struct TerminalForeground(Option<Pid>);

impl TerminalForeground {
    pub(super) fn remember() -> Self {
        let group = rustix::process::getpgrp();
        let in_front = rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|g| g == group);
        Self(in_front.then_some(group))
    }
}

impl Drop for TerminalForeground {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        // A background process that takes the terminal is stopped unless it blocks this signal.
        let quiet = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        if let Err(error) = rustix::termios::tcsetpgrp(std::io::stdin(), group) {
            tracing::debug!(%error, "the terminal was not given back");
        }
        if let Ok(mask) = quiet
            && let Err(error) = mask.thread_set_mask()
        {
            tracing::warn!(%error, "cannot restore the signal mask");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_taken_not_suffered() {
        let signals = CaughtSignals::block_and_watch().unwrap();
        assert_eq!(signals.next_signal(), None);
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        assert_eq!(signals.next_signal(), Some(15));
        assert_eq!(signals.next_signal(), None);
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(
            ignored("Name:\tx\nSigIgn:\t0000000000001001\n"),
            1 | 1 << 12
        );
        assert_eq!(ignored(""), 0);
    }
}
