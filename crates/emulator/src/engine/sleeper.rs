//! The engine's clock, and its sleep until the next delivery.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How long before a delivery the engine wakes: about the wake-up latency of a machine.
const WAKE_EARLY_BY: Duration = Duration::from_micros(60);
/// Shortest sleep after which it wakes early, so that busy waiting costs a small part of the time.
const LONG_SLEEP: Duration = Duration::from_micros(400);
/// Minimum time between two reads during a flood.
const FLOOD_PAUSE: Duration = Duration::from_micros(50);
/// More packets than this per [`FLOOD_INTERVAL`], on average, are a flood.
const FLOOD_PACKETS: u64 = 30;
/// Interval in which packets are counted.
const FLOOD_INTERVAL: Duration = Duration::from_millis(1);
/// A wake-up later than requested by more than this is a stall of the machine.
const STALL_THRESHOLD: Duration = Duration::from_millis(2);

/// Time since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct EngineClock(Instant);

impl EngineClock {
    /// A clock that starts at 0 now.
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Requests real-time priority and minimal timer slack for the calling thread; returns whether it has
/// real-time priority.
///
/// Real-time priority needs root (or `RLIMIT_RTPRIO`). Without it the emulator occasionally waits for a
/// scheduler tick on a busy machine, which is 4 ms with most kernels. A nice value helps only within
/// the session, because of autogrouping (sched(7)).
pub(super) fn raise_thread_priority() -> bool {
    // Errors are ignored: the engine works without these, and the lateness shows the effect.
    // The default timer slack lets a normal thread wake up to 50 us late (PR_SET_TIMERSLACK, prctl(2)).
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let _ = rustix::process::setpriority_process(None, -20);
    // The lowest real-time priority is enough: it is above that of every normal thread (sched(7)).
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

/// Sleeps until a given time or until a descriptor is ready.
///
/// A sleeping thread wakes some tens of microseconds late. If packets are rare, the thread wakes a
/// little early and polls the clock for the rest. With many packets that would cost a whole core, so it
/// accepts the lateness. In a flood of small packets it does not read again before [`FLOOD_PAUSE`] has
/// passed; otherwise each packet would wake the emulator and the receiving program, which costs more
/// than handling the packet.
#[derive(Debug, Default)]
pub(super) struct EngineSleeper {
    /// Time of the last wake-up.
    woke_at: Duration,
    flood: FloodDetector,
    stalls: StallStats,
}

/// Detects floods: too many packets to wake up for each one.
#[derive(Debug, Default)]
struct FloodDetector {
    /// Start of the current interval, and the number of packets until then.
    start: (Duration, u64),
    is_on: bool,
}

/// The engine's state before it sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct SleepRequest {
    /// Time at which it must be awake again.
    pub(super) until: Duration,
    /// Packets and super-packets read and delivered since the start.
    pub(super) frames_handled: u64,
    /// Whether there is more work now.
    pub(super) is_behind: bool,
}

/// Stalls: late wake-ups caused by the machine.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StallStats {
    /// Number of stalls.
    pub(super) count: u64,
    /// The longest stall.
    pub(super) longest: Duration,
}

impl EngineSleeper {
    /// Sleeps until the requested time, or until one of `fds` is ready. The first of them, which stops
    /// the engine, also ends the pause of a flood.
    ///
    /// # Errors
    /// poll(2) failed.
    pub(super) fn sleep(
        &mut self,
        fds: &mut [PollFd<'_>],
        request: SleepRequest,
        clock: EngineClock,
    ) -> io::Result<()> {
        let now = clock.now();
        let pause = (self.woke_at + FLOOD_PAUSE).saturating_sub(now);
        if self.flood.update(now, request.frames_handled) && !request.is_behind && !pause.is_zero()
        {
            let first = fds.len().min(1);
            poll_fds(&mut fds[..first], pause)?;
        }
        self.wait(fds, request.until, clock)?;
        self.woke_at = clock.now();
        Ok(())
    }

    fn wait(
        &mut self,
        fds: &mut [PollFd<'_>],
        until: Duration,
        clock: EngineClock,
    ) -> io::Result<()> {
        let remaining = until.saturating_sub(clock.now());
        let early = if remaining < LONG_SLEEP {
            Duration::ZERO
        } else {
            WAKE_EARLY_BY
        };
        if poll_fds(fds, remaining - early)? {
            return Ok(());
        }
        let awake = clock.now();
        if awake < until && until - awake <= WAKE_EARLY_BY {
            poll_clock(fds, until, clock)?;
        } else if !remaining.is_zero() {
            self.stalls.note(awake.saturating_sub(until));
        }
        Ok(())
    }

    /// Stalls so far.
    pub(super) fn stalls(&self) -> StallStats {
        self.stalls
    }
}

/// Polls without sleeping until the given time, or until a descriptor is ready.
fn poll_clock(fds: &mut [PollFd<'_>], until: Duration, clock: EngineClock) -> io::Result<()> {
    while clock.now() < until && !poll_fds(fds, Duration::ZERO)? {}
    Ok(())
}

impl FloodDetector {
    /// Judges the packets since the last interval; returns whether there is a flood. `work` is the number of packets since the start.
    fn update(&mut self, now: Duration, work: u64) -> bool {
        let (start, before) = self.start;
        let passed = now.saturating_sub(start);
        if passed >= FLOOD_INTERVAL {
            let intervals = passed.as_nanos() / FLOOD_INTERVAL.as_nanos();
            self.is_on = u128::from(work - before) > u128::from(FLOOD_PACKETS) * intervals;
            self.start = (now, work);
        }
        self.is_on
    }
}

impl StallStats {
    fn note(&mut self, late: Duration) {
        if late > STALL_THRESHOLD {
            self.count += 1;
            self.longest = self.longest.max(late);
        }
    }
}

/// Waits at most `time`; returns whether a descriptor is ready.
fn poll_fds(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<bool> {
    // Sleeps are at most 100 ms, the interval of the periodic work, so the conversion cannot fail.
    let time = Timespec::try_from(time).unwrap_or(Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    });
    match poll(fds, Some(&time)) {
        Ok(count) => Ok(count > 0),
        // The caller computes the remaining time again.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(until: Duration, work: u64) -> SleepRequest {
        SleepRequest {
            until,
            frames_handled: work,
            is_behind: false,
        }
    }

    #[test]
    fn the_sleeper_never_wakes_before_the_requested_time() {
        let clock = EngineClock::start();
        let mut sleeper = EngineSleeper::default();
        for i in 1..=100 {
            // Short and long sleeps, with and without a flood.
            let until = clock.now() + Duration::from_micros(10) * i;
            let work = if i < 50 { 0 } else { 10_000 * u64::from(i) };
            sleeper.sleep(&mut [], request(until, work), clock).unwrap();
            assert!(clock.now() >= until);
        }
    }

    #[test]
    fn a_ready_descriptor_ends_the_sleep() {
        let flags = rustix::event::EventfdFlags::empty();
        let event = rustix::event::eventfd(1, flags).unwrap();
        let mut fds = [PollFd::new(&event, rustix::event::PollFlags::IN)];
        let clock = EngineClock::start();
        let request = request(Duration::from_secs(30), 0);
        EngineSleeper::default()
            .sleep(&mut fds, request, clock)
            .unwrap();
        assert!(clock.now() < Duration::from_secs(25));
        assert!(!fds[0].revents().is_empty());
    }

    #[test]
    fn a_flood_is_detected_from_the_packets_per_millisecond() {
        let mut flood = FloodDetector::default();
        let ms = Duration::from_millis;
        assert!(!flood.update(ms(1), FLOOD_PACKETS));
        assert!(flood.update(ms(2), FLOOD_PACKETS + FLOOD_PACKETS + 1));
        assert!(flood.update(ms(2), FLOOD_PACKETS + FLOOD_PACKETS + 1));
        assert!(!flood.update(ms(12), 12 * FLOOD_PACKETS));
    }
}
