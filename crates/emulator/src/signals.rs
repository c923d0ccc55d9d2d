//! Signals that end a lab, read from a signalfd instead of by handlers, and the terminal's foreground
//! process group.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::Pid;

use crate::LabError;

const TERMINATING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Blocked signals, read through a signalfd(2). While this value exists, they do not end the calling
/// thread or threads that it starts.
#[derive(Debug)]
pub(super) struct CaughtSignals {
    descriptor: SignalFd,
    mask_before: SigSet,
}

impl CaughtSignals {
    /// Blocks the signals and opens the signalfd. Call it before any thread is started, because threads
    /// inherit the mask. Ignored signals (`nohup`) stay ignored.
    ///
    /// # Errors
    /// signalfd(2) or the mask failed.
    pub(super) fn block_and_watch() -> Result<Self, LabError> {
        let caught = terminating_signals();
        let failed = |e| LabError::system("cannot catch signals", e);
        // Opened before the signals are blocked: if it fails, the mask is unchanged.
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

    /// The number of a pending signal, if there is one.
    pub(super) fn next_signal(&self) -> Option<u8> {
        let signal = self.descriptor.read_signal().ok()??;
        u8::try_from(signal.ssi_signo).ok()
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

/// Unblocks all signals. A child inherits the mask of its parent, which may have blocked some.
///
/// # Errors
/// The kernel refuses.
pub fn unblock_all() -> Result<(), LabError> {
    SigSet::empty()
        .thread_set_mask()
        .map_err(|errno| LabError::system("cannot unblock signals", errno))
}

/// The signals that end this process, without ignored ones (`nohup`).
pub fn terminating_signals() -> SigSet {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let ignored = parse_ignored_signals(&status);
    TERMINATING
        .into_iter()
        .filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0)
        .collect()
}

/// The `SigIgn` mask of `/proc/PID/status`; bit N - 1 stands for signal N.
fn parse_ignored_signals(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Makes this process group the terminal's foreground group again on drop, if it was before. An
/// interactive shell in the lab takes the foreground, and cannot return it to a process outside of its
/// PID namespace.
#[derive(Debug)]
pub(super) struct TerminalForeground(Option<Pid>);

impl TerminalForeground {
    pub(super) fn remember() -> Self {
        let group = rustix::process::getpgrp();
        let is_foreground = rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|g| g == group);
        Self(is_foreground.then_some(group))
    }
}

impl Drop for TerminalForeground {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        // A background process that calls tcsetpgrp(3) gets SIGTTOU and stops, unless it is blocked.
        let previous_mask = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        if let Err(error) = rustix::termios::tcsetpgrp(std::io::stdin(), group) {
            tracing::debug!(%error, "cannot restore the terminal's foreground group");
        }
        if let Ok(mask) = previous_mask
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
    fn a_blocked_signal_is_read_once() {
        let signals = CaughtSignals::block_and_watch().unwrap();
        assert_eq!(signals.next_signal(), None);
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        assert_eq!(signals.next_signal(), Some(15));
        assert_eq!(signals.next_signal(), None);
    }

    #[test]
    fn ignored_signals_are_read_from_proc_status() {
        assert_eq!(
            parse_ignored_signals("Name:\tx\nSigIgn:\t0000000000001001\n"),
            1 | 1 << 12
        );
        assert_eq!(parse_ignored_signals(""), 0);
    }
}
