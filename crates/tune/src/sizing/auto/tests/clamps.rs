//! Window clamps: when they are set and when they are lifted.

use super::*;
use crate::limiter::Role;

/// A receiver with a buffer of 32 MB over 20 ms, of which `queued` bytes of memory wait to be read.
fn reading(at: Duration, rate: u64, queued: u64) -> TcpSample {
    TcpSample {
        at,
        bytes_received: moved(rate, at),
        receiver_rtt: ms(20),
        min_rtt: ms(20),
        receive_buffer: 32 * MB,
        receive_queue_memory: queued,
        readable: queued / 4 * 3,
        receive_window: 2 * MB,
        max_receive_window: 65_535 << 10,
        ..TcpSample::default()
    }
}

fn windows(decisions: &[BufferDecision]) -> Vec<u64> {
    let windows = settings(decisions)
        .into_iter()
        .map(|setting| match setting {
            BufferSetting::WindowClamp(window) => window,
            other => panic!("{other:?}"),
        });
    windows.collect()
}

/// A reader at `rate` bytes per second on a path of 100 MB/s, with a kernel that honours the clamp. Returns
/// the decisions, and the unread bytes at every sample.
fn read_slowly(until: Duration, rate: impl Fn(Duration) -> u64) -> (Vec<BufferDecision>, Vec<u64>) {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let (mut at, mut bytes, mut queued, mut window) = (Duration::ZERO, 0, 16 * MB, 22 * MB);
    let (mut decisions, mut backlog) = (Vec::new(), Vec::new());
    while at < until {
        let free = (22 * MB).saturating_sub(queued / 4 * 3);
        let sample = TcpSample {
            bytes_received: bytes,
            receive_window: window.min(free),
            ..reading(at, 0, queued)
        };
        let decision = tuner.on_sample(&sample);
        if let Some(BufferSetting::WindowClamp(size)) = decision.as_ref().and_then(|d| d.setting) {
            window = size;
        }
        decisions.extend(decision);
        backlog.push(sample.readable);
        let step = tuner.next_sample_in();
        let arrives = moved((window.min(free) * 50).min(100_000_000), step).min(free);
        bytes += arrives;
        queued = (queued + arrives / 3 * 4).saturating_sub(moved(rate(at), step) / 3 * 4);
        at += step;
    }
    (decisions, backlog)
}

#[test]
fn a_slow_reader_catches_up_and_keeps_a_cushion() {
    let (decisions, backlog) = read_slowly(ms(20_000), |_| 20_000_000);
    // At first the buffer is full; in the second half the backlog is one to three cushions of 2 MB.
    let later = &backlog[backlog.len() / 2..];
    assert!(backlog.iter().max().unwrap() > &(20 * MB));
    assert!(
        later.iter().all(|waits| (MB..7 * MB).contains(waits)),
        "{later:?}"
    );
    assert!(decisions.len() < 40, "{decisions:#?}");
    assert!(
        decisions.iter().all(|d| d.limiter == Limiter::StoreWrite),
        "{decisions:#?}"
    );
    let first = decisions.iter().find(|d| d.setting.is_some()).unwrap();
    assert_eq!(first.limiter, Limiter::StoreWrite);
    assert!(first.at >= ms(1000), "{first:?}");
    assert!(
        first.reason.starts_with("the receiving program reads 1"),
        "{}",
        first.reason
    );
}

#[test]
fn the_clamp_is_lifted_when_a_slow_reader_becomes_fast() {
    let turned = ms(10_000);
    let rate = |at| if at < turned { 20_000_000 } else { 90_000_000 };
    let (decisions, _) = read_slowly(ms(14_000), rate);
    let last = decisions.iter().rfind(|d| d.setting.is_some()).unwrap();
    assert_eq!(
        last.setting,
        Some(BufferSetting::WindowClamp(65_535 << 10)),
        "{last:?}"
    );
    assert!(last.at < turned + ms(400), "{last:?}");
}

#[test]
fn a_pause_of_the_reader_sets_no_clamp() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(6000), |at| {
        let paused = at.as_millis() % 1000 < 600;
        reading(at, 20_000_000, if paused { 20 * MB } else { 0 })
    });
    assert_eq!(settings(&decisions), []);
}

#[test]
fn data_behind_a_lost_segment_sets_no_clamp() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(6000), |at| TcpSample {
        readable: 100_000,
        ..reading(at, 20_000_000, 20 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert!(!limiters(&decisions).contains(&Limiter::StoreWrite));
}

#[test]
fn release_lifts_a_clamp_in_force() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    assert_eq!(tuner.release(), None);
    decisions_until(&mut tuner, ms(500), |at| reading(at, 20_000_000, 20 * MB));
    assert_eq!(tuner.release(), None, "nothing was set yet");
    let decisions = decisions_until(&mut tuner, ms(4000), |at| {
        reading(at + ms(600), 20_000_000, 20 * MB)
    });
    assert!(!windows(&decisions).is_empty());
    assert_eq!(
        tuner.release(),
        Some(BufferSetting::WindowClamp(65_535 << 10))
    );
    assert_eq!(tuner.release(), None, "once");

    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(20_000), |at| modem(at, 125_000, ms(2400)));
    assert!(!windows(&decisions).is_empty());
    assert_eq!(
        tuner.release(),
        Some(BufferSetting::WindowClamp(65_535 << 10))
    );
}

#[test]
fn a_clamp_that_was_lifted_is_set_again_only_after_a_longer_time() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(60_000), |at| {
        let slow = at.as_millis() % 8000 < 4000;
        reading(at, 20_000_000, if slow { 20 * MB } else { 0 })
    });
    let windows = windows(&decisions);
    let lifts = windows.iter().filter(|w| **w > 32 * MB).count();
    // Each backlog lasts four seconds: enough for waits of 1 and 2 s, but not for 4 s and more.
    assert!((2..=3).contains(&lifts), "{windows:?}");
}

#[test]
fn a_clamp_that_the_kernel_dropped_is_set_again() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(4000), |at| TcpSample {
        receive_buffer: if at < ms(2500) { 24 * MB } else { 32 * MB },
        receive_window: 300_000,
        ..reading(at, 20_000_000, 16 * MB)
    });
    let windows = windows(&decisions);
    assert_eq!(windows.len(), 2, "{decisions:#?}");
    assert_eq!(windows[0], windows[1]);
}

/// A line of 1 Mbit/s over 150 ms whose queue makes the round trip `rtt`.
fn modem(at: Duration, rate: u64, rtt: Duration) -> TcpSample {
    TcpSample {
        at,
        bytes_received: moved(rate, at),
        receiver_rtt: rtt,
        min_rtt: ms(150),
        receive_buffer: MB,
        receive_window: 300_000,
        max_receive_window: 65_535 << 10,
        ..TcpSample::default()
    }
}

#[test]
fn a_modems_queue_is_drained_at_full_rate() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let (mut at, mut window, mut set) = (Duration::ZERO, 300_000, Vec::new());
    while at < ms(20_000) {
        let rtt = Duration::from_secs_f64(window as f64 / 125_000.0).max(ms(150));
        let sample = TcpSample {
            receive_window: window,
            ..modem(at, 125_000, rtt)
        };
        if let Some(BufferSetting::WindowClamp(size)) =
            tuner.on_sample(&sample).and_then(|d| d.setting)
        {
            window = size;
            set.push(size);
        }
        at += tuner.next_sample_in();
    }
    // Twice the bandwidth-delay product, set once.
    assert!(
        set.len() == 1 && (37_000..38_000).contains(&set[0]),
        "{set:?}"
    );
}

#[test]
fn a_clamp_is_never_below_ten_segments() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(20_000), |at| modem(at, 7_000, ms(2900)));
    assert_eq!(settings(&decisions)[0], BufferSetting::WindowClamp(14_600));
}

#[test]
fn a_queue_on_a_fast_path_sets_no_clamp() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let decisions = decisions_until(&mut tuner, ms(20_000), |at| modem(at, 300_000, ms(2900)));
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Link]);
}

#[test]
fn the_clamp_is_lifted_when_a_slow_path_becomes_fast() {
    let mut tuner = BufferTuner::new(Role::Receiver, shipped());
    let (mut at, mut bytes, mut clamped, mut last) = (Duration::ZERO, 0, false, None);
    while at < ms(30_000) {
        let fast = at > ms(10_000);
        let rtt = if clamped { ms(300) } else { ms(2400) };
        let sample = TcpSample {
            bytes_received: bytes,
            receiver_rtt: if fast { ms(150) } else { rtt },
            receive_window: if clamped { 37_500 } else { 300_000 },
            ..modem(at, 0, rtt)
        };
        if let Some(BufferSetting::WindowClamp(size)) =
            tuner.on_sample(&sample).and_then(|d| d.setting)
        {
            (clamped, last) = (size < 100_000, Some(size));
        }
        bytes += moved(
            if fast && clamped { 250_000 } else { 125_000 },
            tuner.next_sample_in(),
        );
        at += tuner.next_sample_in();
    }
    assert!(last.unwrap() > 300_000, "{last:?}");
}
