//! The engine's clock, and how it sleeps until the next delivery.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How long before a delivery the engine gets up: about what a machine takes to wake it.
const EARLY: Duration = Duration::from_micros(60);
/// Only from a sleep at least this long, so that being up early costs a small part of the time.
const DEEP: Duration = Duration::from_micros(400);
/// How long the engine leaves a flood alone between two looks at it.
const PAUSE: Duration = Duration::from_micros(50);
/// A flood is more than so many packets in [`SPAN`], on average.
const FLOOD: u64 = 30;
/// How often the packets are counted.
const SPAN: Duration = Duration::from_millis(1);
/// A longer sleep than asked for by this much is a stall of the machine.
const STALL: Duration = Duration::from_millis(2);

/// Time since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineClock(Instant);

impl EngineClock {
    /// Begins at 0 now.
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Since the start.
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Asks the kernel to wake the calling thread promptly and before others; whether it will.
///
/// Real-time priority needs root (or `RLIMIT_RTPRIO`). Without it a busy machine keeps the emulator
/// waiting for a scheduler's tick now and then, 4 ms with most kernels: a better nice value counts
/// only within the session.
pub(super) fn raise_thread_priority() -> bool {
    // Not needed to work, and the measured lateness shows what came of it.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let _ = rustix::process::setpriority_process(None, -20);
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

/// Sleeps until a time or until a descriptor is ready.
///
/// A sleeping thread wakes some tens of microseconds late. Where packets are rare, it gets up a
/// little early and watches the clock for the rest; in a busy stream, where that would cost a core,
/// the lateness is left as it is. In a flood of small packets it does not even look for more before
/// [`PAUSE`] has passed: else the emulator, and every program that receives, would be woken for each
/// single one, which costs more than the packets do.
#[derive(Debug, Default)]
pub(super) struct EngineSleeper {
    /// When it last woke.
    woke: Duration,
    flood: FloodDetector,
    stalls: StallStats,
}

/// Whether there are too many packets to look after each by itself.
#[derive(Debug, Default)]
struct FloodDetector {
    /// When the current measurement began, and the packets until then.
    began: (Duration, u64),
    is_on: bool,
}

/// Facts that the engine can tell before it sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SleepRequest {
    /// When it must be awake again.
    pub(super) until: Duration,
    /// Packets and super-packets read and handed over since the start.
    pub(super) frames_handled: u64,
    /// There is more to do now.
    pub(super) is_behind: bool,
}

/// Times that the machine slept through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StallStats {
    /// How many.
    pub(super) count: u64,
    /// The longest.
    pub(super) longest: Duration,
}

impl EngineSleeper {
    /// Returns in time, or before when one of `fds` is ready; the first of them ends a pause too.
    ///
    /// # Errors
    /// The descriptors cannot be waited for.
    pub(super) fn sleep(
        &mut self,
        fds: &mut [PollFd<'_>],
        rest: SleepRequest,
        clock: EngineClock,
    ) -> io::Result<()> {
        let now = clock.now();
        let pause = (self.woke + PAUSE).saturating_sub(now);
        if self.flood.is_on(now, rest.frames_handled) && !rest.is_behind && !pause.is_zero() {
            let first = fds.len().min(1);
            ready(&mut fds[..first], pause)?;
        }
        self.wait(fds, rest.until, clock)?;
        self.woke = clock.now();
        Ok(())
    }

    fn wait(
        &mut self,
        fds: &mut [PollFd<'_>],
        until: Duration,
        clock: EngineClock,
    ) -> io::Result<()> {
        let rest = until.saturating_sub(clock.now());
        let early = if rest < DEEP { Duration::ZERO } else { EARLY };
        if ready(fds, rest - early)? {
            return Ok(());
        }
        let awake = clock.now();
        if awake < until && until - awake <= EARLY {
            watch(fds, until, clock)?;
        } else if !rest.is_zero() {
            self.stalls.note(awake.saturating_sub(until));
        }
        Ok(())
    }

    /// Stalls so far.
    pub(super) fn stalls(&self) -> StallStats {
        self.stalls
    }
}

/// Stays awake until then, or until a descriptor is ready.
fn watch(fds: &mut [PollFd<'_>], until: Duration, clock: EngineClock) -> io::Result<()> {
    while clock.now() < until && !ready(fds, Duration::ZERO)? {}
    Ok(())
}

impl FloodDetector {
    /// Whether there is one, judged by the packets `work` counts since the start.
    fn is_on(&mut self, now: Duration, work: u64) -> bool {
        let (began, before) = self.began;
        let passed = now.saturating_sub(began);
        if passed >= SPAN {
            let spans = passed.as_nanos() / SPAN.as_nanos();
            self.is_on = u128::from(work - before) > u128::from(FLOOD) * spans;
            self.began = (now, work);
        }
        self.is_on
    }
}

impl StallStats {
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

    fn rest(until: Duration, work: u64) -> SleepRequest {
        SleepRequest {
            until,
            frames_handled: work,
            is_behind: false,
        }
    }

    #[test]
    fn never_early() {
        let clock = EngineClock::start();
        let mut sleeper = EngineSleeper::default();
        for i in 1..=100 {
            // Short and deep sleeps, with and without a flood.
            let until = clock.now() + Duration::from_micros(10) * i;
            let work = if i < 50 { 0 } else { 10_000 * u64::from(i) };
            sleeper.sleep(&mut [], rest(until, work), clock).unwrap();
            assert!(clock.now() >= until);
        }
    }

    #[test]
    fn a_ready_descriptor_ends_it() {
        let flags = rustix::event::EventfdFlags::empty();
        let event = rustix::event::eventfd(1, flags).unwrap();
        let mut fds = [PollFd::new(&event, rustix::event::PollFlags::IN)];
        let clock = EngineClock::start();
        let rest = rest(Duration::from_secs(30), 0);
        EngineSleeper::default()
            .sleep(&mut fds, rest, clock)
            .unwrap();
        assert!(clock.now() < Duration::from_secs(10));
        assert!(!fds[0].revents().is_empty());
    }

    #[test]
    fn a_flood_is_many_packets_in_little_time() {
        let mut flood = FloodDetector::default();
        let ms = Duration::from_millis;
        assert!(!flood.is_on(ms(1), FLOOD));
        assert!(flood.is_on(ms(2), FLOOD + FLOOD + 1));
        assert!(flood.is_on(ms(2), FLOOD + FLOOD + 1));
        assert!(!flood.is_on(ms(12), 12 * FLOOD));
    }
}
