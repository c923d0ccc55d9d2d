//! The terminal's foreground: an interactive shell in the lab takes it for itself and, being the
//! last process of its namespace, cannot give it back.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;

/// Gives the terminal back to this process's group when it goes, if it had it before.
#[derive(Debug)]
pub(super) struct Foreground(Option<Pid>);

impl Foreground {
    pub(super) fn remember() -> Self {
        let group = rustix::process::getpgrp();
        let in_front = rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|g| g == group);
        Self(in_front.then_some(group))
    }
}

impl Drop for Foreground {
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
