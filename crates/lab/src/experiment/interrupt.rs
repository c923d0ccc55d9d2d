//! Signals that end an experiment while it runs: what is done is kept.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::process::readable;
use crate::LabError;
use crate::net::signals::terminating_signals;

/// While it exists, signals that would end this process wait. Dropped, it lets one that came take its effect, so
/// that the caller's shell sees a program that ended by that signal.
///
/// It works on the calling thread: the process has no other, or none that would take the signal.
#[derive(Debug)]
pub(crate) struct Interrupts {
    pending: SignalFd,
    before: SigSet,
}

impl Interrupts {
    /// Holds the signals back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn hold() -> Result<Self, LabError> {
        let failed = |errno| LabError::system("cannot hold signals back", errno);
        let before = SigSet::thread_get_mask().map_err(failed)?;
        let held = terminating_signals();
        held.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let pending = SignalFd::with_flags(&held, flags).map_err(failed)?;
        Ok(Self { pending, before })
    }

    /// Readable once a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }

    /// Whether a signal has come.
    pub(crate) fn came(&self) -> bool {
        readable(&self.pending)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // Only an impossible set could be refused.
        let _ = self.before.thread_set_mask();
    }
}
