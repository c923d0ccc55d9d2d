//! Rules of the receiver.

use super::*;
use crate::limiter::Role;
use crate::sample::window_of_buffer;

/// A receiver over 100 ms with this buffer, which gets a full window every round trip.
fn full(at: Duration, buffer: u64) -> TcpSample {
    let window = window_of_buffer(buffer);
    TcpSample {
        at,
        bytes_received: moved(window * 10, at),
        receiver_rtt: ms(100),
        min_rtt: ms(100),
        receive_buffer: buffer,
        receive_window: window,
        max_receive_window: 65_535 << 10,
        ..TcpSample::default()
    }
}

fn receiver(limits: HostBufferLimits) -> BufferTuner {
    BufferTuner::new(Role::Receiver, limits)
}

/// Default `tcp_rmem` and a raised `rmem_max`.
fn raised() -> HostBufferLimits {
    HostBufferLimits {
        max_settable_receive: 32 * MB,
        ..HostBufferLimits::default()
    }
}

#[test]
fn autotuning_ahead_of_the_path_is_left_alone() {
    let mut tuner = receiver(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        // Half of the rate that the window allows.
        bytes_received: moved(window_of_buffer(32 * MB) * 5, at),
        ..full(at, 32 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ServerCap]);
    assert_eq!(tuner.remark(), None);
}

#[test]
fn a_full_window_at_the_limit_of_autotuning_raises_the_buffer() {
    let mut tuner = receiver(raised());
    let mut buffer = 6 * MB;
    let (mut at, mut bytes, mut sizes) = (Duration::ZERO, 0, Vec::new());
    while at < ms(5000) {
        let decision = tuner.on_sample(&TcpSample {
            bytes_received: bytes,
            ..full(at, buffer)
        });
        if let Some(BufferSetting::ReceiveBuffer(size)) = decision.as_ref().and_then(|d| d.setting)
        {
            if sizes.is_empty() {
                assert!(
                    at >= ms(200),
                    "not before the window was full for two round trips"
                );
                assert!(
                    decision
                        .unwrap()
                        .reason
                        .contains("autotuning has reached its limit (tcp_rmem)")
                );
            }
            buffer = size * 2;
            sizes.push(buffer);
        } else {
            assert_eq!(decision.and_then(|d| d.setting), None);
        }
        bytes += moved(window_of_buffer(buffer) * 10, tuner.next_sample_in());
        at += tuner.next_sample_in();
    }
    assert!(sizes.len() <= 3 && sizes.is_sorted(), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&(32 * MB)));
    assert!(tuner.remark().unwrap().contains("net.ipv4.tcp_rmem"));
}

#[test]
fn a_buffer_whose_window_does_not_follow_goes_back_to_autotuning() {
    let mut tuner = receiver(raised());
    let mut taken = false;
    let before = full(Duration::ZERO, 6 * MB).receive_window;
    let (mut at, mut decisions) = (Duration::ZERO, Vec::new());
    while at < ms(9000) {
        let sample = TcpSample {
            receive_buffer: if taken { 16 * MB } else { 6 * MB },
            ..full(at, 6 * MB)
        };
        let decision = tuner.on_sample(&sample);
        taken |= decision.as_ref().is_some_and(|d| d.setting.is_some());
        decisions.extend(decision);
        at += tuner.next_sample_in();
    }
    let [
        BufferSetting::ReceiveBuffer(_),
        BufferSetting::RestoreAutotuning(window),
    ] = settings(&decisions)[..]
    else {
        panic!("{decisions:?}");
    };
    assert_eq!(window, before);
}

#[test]
fn nothing_is_set_if_autotuning_allows_more() {
    for limits in [HostBufferLimits::default(), shipped()] {
        let mut tuner = receiver(limits);
        let decisions = decisions_until(&mut tuner, ms(5000), |at| {
            full(at, limits.max_autotuned_receive)
        });
        assert_eq!(settings(&decisions), [], "{limits:?}");
        assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
        let remark = tuner.remark().unwrap();
        assert!(remark.contains("net.ipv4.tcp_rmem"), "{remark}");
        assert_eq!(tuner.host_bound().unwrap().limiter, Limiter::ReceiveWindow);
    }
}

#[test]
fn the_buffer_is_not_raised_beyond_the_window_scale() {
    let mut tuner = receiver(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        max_receive_window: window_of_buffer(32 * MB),
        ..full(at, 32 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
    assert_eq!(tuner.host_bound().unwrap().limiter, Limiter::ReceiveWindow);
    let remark = tuner.remark().unwrap();
    assert!(
        remark.contains("window scale") && remark.contains("tcp_rmem"),
        "{remark}"
    );
    // The window scale can express half as much again: no more is requested.
    let mut tuner = receiver(privileged());
    let ceiling = window_of_buffer(48 * MB);
    let decisions = decisions_until(&mut tuner, ms(600), |at| TcpSample {
        max_receive_window: ceiling,
        ..full(at, 32 * MB)
    });
    assert_eq!(
        settings(&decisions),
        [BufferSetting::ReceiveBuffer(ceiling)]
    );
    assert!(
        decisions[0].reason.contains("window scale"),
        "{decisions:?}"
    );
}

#[test]
fn a_size_that_was_not_granted_is_not_requested_again() {
    let limits = HostBufferLimits {
        receive_autotuning: false,
        ..raised()
    };
    let mut tuner = receiver(limits);
    let decisions = decisions_until(&mut tuner, ms(5000), |at| full(at, MB));
    assert!(
        matches!(settings(&decisions)[..], [BufferSetting::ReceiveBuffer(_)]),
        "{decisions:?}"
    );
    assert!(
        decisions.iter().any(|d| d.reason.contains("did not grant")),
        "{decisions:?}"
    );
}

#[test]
fn a_shrunk_buffer_is_repaired_a_limited_number_of_times() {
    let mut tuner = receiver(shipped());
    let decisions = decisions_until(&mut tuner, ms(20_000), |at| {
        // The kernel shrinks it every second; repairs restore it in between.
        let cut = at.as_millis() % 1000 >= 500;
        TcpSample {
            bytes_received: moved(MB, at),
            receive_buffer: if cut { MB / 4 } else { 6 * MB },
            receive_window: if cut { MB / 8 } else { 4 * MB },
            ..full(at, 6 * MB)
        }
    });
    assert_eq!(
        settings(&decisions),
        [BufferSetting::RestoreAutotuning(4 * MB); 4]
    );
    assert!(decisions.iter().any(|d| {
        d.reason
            .starts_with("the kernel shrank the receive buffer from 6.29 MB")
    }));
}

#[test]
fn a_buffer_that_shrank_while_backed_up_is_repaired_later() {
    let mut tuner = receiver(shipped());
    let decisions = decisions_until(&mut tuner, ms(3000), |at| {
        let cut = at >= ms(500);
        let buffer = if cut { MB / 4 } else { 6 * MB };
        // The kernel has shrunk the buffer to its unread contents.
        let queued = if cut && at < ms(900) { buffer } else { 0 };
        TcpSample {
            bytes_received: moved(MB, at),
            receive_buffer: buffer,
            receive_queue_memory: queued,
            readable: queued / 2,
            receive_window: if cut { MB / 8 } else { 4 * MB },
            ..full(at, 6 * MB)
        }
    });
    let repair = decisions.iter().find(|d| d.setting.is_some()).unwrap();
    assert_eq!(
        repair.setting,
        Some(BufferSetting::RestoreAutotuning(4 * MB))
    );
    assert!((ms(900)..ms(1000)).contains(&repair.at), "{repair:?}");
    // A buffer that the kernel has enlarged again needs no repair.
    let mut tuner = receiver(shipped());
    let decisions = decisions_until(&mut tuner, ms(3000), |at| {
        let cut = (ms(500)..ms(900)).contains(&at);
        let buffer = if cut { MB / 4 } else { 6 * MB };
        TcpSample {
            bytes_received: moved(MB, at),
            receive_buffer: buffer,
            receive_queue_memory: if cut { buffer } else { 0 },
            readable: if cut { buffer / 2 } else { 0 },
            receive_window: 4 * MB,
            ..full(at, 6 * MB)
        }
    });
    assert_eq!(settings(&decisions), []);
}

/// Settings for a stream whose buffer was raised at the limit of autotuning, and which then shows this
/// window and receives at `rate` bytes per second.
fn raised_then(window: u64, rate: u64) -> Vec<BufferSetting> {
    let mut tuner = receiver(raised());
    let (mut at, mut bytes, mut taken) = (Duration::ZERO, 0, false);
    let mut decisions = Vec::new();
    while at < ms(9000) {
        let before = full(at, 6 * MB);
        let sample = TcpSample {
            bytes_received: bytes,
            receive_buffer: if taken { 16 * MB } else { 6 * MB },
            receive_window: if taken { window } else { before.receive_window },
            ..before
        };
        let decision = tuner.on_sample(&sample);
        taken |= decision.as_ref().is_some_and(|d| d.setting.is_some());
        decisions.extend(decision);
        let rate = if taken {
            rate
        } else {
            before.receive_window * 10
        };
        bytes += moved(rate, tuner.next_sample_in());
        at += tuner.next_sample_in();
    }
    settings(&decisions)
}

#[test]
fn a_raised_buffer_is_kept_while_no_data_arrives() {
    let stays = full(Duration::ZERO, 6 * MB).receive_window;
    assert_eq!(raised_then(stays, 0).len(), 1);
    assert_eq!(raised_then(stays, stays * 10).len(), 2);
}

#[test]
fn a_raised_buffer_is_kept_if_the_kernel_shows_no_window() {
    let stays = full(Duration::ZERO, 6 * MB).receive_window;
    assert_eq!(raised_then(0, stays * 10).len(), 1);
}

#[test]
fn stuck_autotuning_is_repaired() {
    let mut tuner = receiver(shipped());
    let window = full(Duration::ZERO, MB).receive_window;
    let decisions = decisions_until(&mut tuner, ms(1200), |at| full(at, MB));
    assert_eq!(
        settings(&decisions),
        [BufferSetting::RestoreAutotuning(window * 2)]
    );
    assert!(decisions[0].at >= ms(400), "not before four round trips");
    // Autotuning that grows is not repaired.
    let mut tuner = receiver(shipped());
    let decisions = decisions_until(&mut tuner, ms(1200), |at| {
        full(
            at,
            MB + MB / 16 * (u64::try_from(at.as_millis()).unwrap() / 200),
        )
    });
    assert_eq!(settings(&decisions), []);
}

#[test]
fn without_autotuning_the_buffer_follows_the_path() {
    let limits = HostBufferLimits {
        receive_autotuning: false,
        max_autotuned_receive: 6 * MB,
        max_settable_receive: 32 * MB,
        rmem_first_two: [4096, 65_536],
        ..HostBufferLimits::default()
    };
    let mut tuner = receiver(limits);
    // 100 Mbit/s over 100 ms: a bandwidth-delay product of 1.25 MB.
    let line = 12_500_000;
    let (mut at, mut buffer, mut bytes, mut sizes) = (Duration::ZERO, 65_536, 0, vec![65_536]);
    while at < ms(3000) {
        let sample = TcpSample {
            bytes_received: bytes,
            ..full(at, buffer)
        };
        if let Some(BufferSetting::ReceiveBuffer(size)) =
            tuner.on_sample(&sample).and_then(|d| d.setting)
        {
            buffer = size * 2;
            sizes.push(buffer);
        }
        bytes += moved(
            line.min(window_of_buffer(buffer) * 10),
            tuner.next_sample_in(),
        );
        at += tuner.next_sample_in();
    }
    assert!(sizes.is_sorted() && sizes.len() <= 8, "{sizes:?}");
    let last = *sizes.last().unwrap();
    // The setting is twice the product, which is reported as four times, and no more.
    assert!((4_000_000..=5_200_000).contains(&last), "{sizes:?}");
}

#[test]
fn a_short_path_is_left_alone() {
    let mut tuner = receiver(raised());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        receiver_rtt: Duration::from_micros(200),
        min_rtt: Duration::from_micros(50),
        bytes_received: moved(2_000 * MB, at),
        ..full(at, 6 * MB)
    });
    assert_eq!(settings(&decisions), []);
}
