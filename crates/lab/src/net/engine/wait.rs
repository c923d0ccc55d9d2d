//! The engine's clock, and how it sleeps until the next delivery.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;

/// How long before a delivery the engine gets up: about what a machine takes to wake it.
const EARLY: Duration = Duration::from_micros(60);
/// One part in this many of the time may be spent awake before deliveries.
const SHARE: u32 = 20;
/// The most of it that can be saved up.
const SAVED: Duration = Duration::from_millis(2);
/// A longer sleep than asked for by this much is a stall of the machine.
const STALL: Duration = Duration::from_millis(2);

/// Time since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Begins at 0 now.
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Since the start.
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Asks the kernel to wake the calling thread as promptly as it may.
pub(super) fn be_prompt() {
    // Neither is needed to work, and the measured lateness shows what came of it: the first may be
    // missing in a sandbox, the second is allowed with root only.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let _ = rustix::process::setpriority_process(None, -20);
}

/// Sleeps until a time or until a descriptor is ready.
///
/// A sleeping thread wakes some tens of microseconds late. So it gets up a little early and watches
/// the clock for the rest, as long as that costs a small share of the time only: a rare packet
/// arrives on time, and under load, where it would cost a core, the lateness is left as it is.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    /// Time that may be spent awake.
    allowance: Duration,
    earned_until: Duration,
    stalls: Stalls,
}

/// Times that the machine slept through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stalls {
    /// How many.
    pub(super) count: u64,
    /// The longest.
    pub(super) longest: Duration,
}

impl Sleeper {
    /// Returns at `until`, or before when one of `fds` is ready.
    ///
    /// # Errors
    /// The descriptors cannot be waited for.
    pub(super) fn sleep(
        &mut self,
        fds: &mut [PollFd<'_>],
        until: Duration,
        clock: Clock,
    ) -> io::Result<()> {
        let now = clock.now();
        let early = self.earn(now);
        let rest = until.saturating_sub(now);
        if ready(fds, rest.saturating_sub(early))? {
            return Ok(());
        }
        let awake = clock.now();
        if awake < until && until - awake <= EARLY {
            self.watch(fds, until, clock)?;
            self.allowance = self.allowance.saturating_sub(clock.now() - awake);
        } else if !rest.is_zero() {
            self.stalls.note(awake.saturating_sub(until));
        }
        Ok(())
    }

    /// Stalls so far.
    pub(super) fn stalls(&self) -> Stalls {
        self.stalls
    }

    /// Adds what the time since the last call earns; how early to get up.
    fn earn(&mut self, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.earned_until) / SHARE;
        self.earned_until = now;
        self.allowance = (self.allowance + earned).min(SAVED);
        if self.allowance < EARLY {
            Duration::ZERO
        } else {
            EARLY
        }
    }

    /// Stays awake until then.
    fn watch(&self, fds: &mut [PollFd<'_>], until: Duration, clock: Clock) -> io::Result<()> {
        while clock.now() < until && !ready(fds, Duration::ZERO)? {}
        Ok(())
    }
}

impl Stalls {
    fn note(&mut self, late: Duration) {
        if late > STALL {
            self.count += 1;
            self.longest = self.longest.max(late);
        }
    }
}

/// Waits at most `time`; whether a descriptor is ready.
fn ready(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    // The engine never sleeps longer than its chores allow, far below what a Timespec holds.
    let time = Timespec::try_from(time).unwrap_or(Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    });
    match poll(fds, Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_early_and_frugal() {
        let clock = Clock::start();
        let mut sleeper = Sleeper::default();
        let mut spent = Duration::ZERO;
        for i in 1..=100 {
            let until = Duration::from_micros(500) * i;
            let before = sleeper.allowance;
            sleeper.sleep(&mut [], until, clock).unwrap();
            assert!(clock.now() >= until);
            spent += before.saturating_sub(sleeper.allowance);
        }
        assert!(spent <= clock.now() / SHARE, "{spent:?}");
    }

    #[test]
    fn a_ready_descriptor_ends_it() {
        let flags = rustix::event::EventfdFlags::empty();
        let event = rustix::event::eventfd(1, flags).unwrap();
        let mut fds = [PollFd::new(&event, rustix::event::PollFlags::IN)];
        let clock = Clock::start();
        let until = Duration::from_secs(30);
        Sleeper::default().sleep(&mut fds, until, clock).unwrap();
        assert!(clock.now() < Duration::from_secs(10));
        assert!(!fds[0].revents().is_empty());
    }
}
