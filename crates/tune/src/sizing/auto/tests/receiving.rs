//! The receiver's rules.

use super::*;
use crate::limiter::Role;
use crate::sample::window_of_buffer;

/// A receiver over 100 ms with so large a buffer, whose window comes in every round trip.
fn full(at: Duration, buffer: u64) -> TcpSample {
    let window = window_of_buffer(buffer);
    TcpSample {
        at,
        bytes: moved(window * 10, at),
        smoothed_rtt: ms(100),
        min_rtt: ms(100),
        receive_buffer: buffer,
        receive_window: window,
        max_receive_window: 65_535 << 10,
        ..TcpSample::default()
    }
}

fn receiver(caps: HostBufferLimits) -> BufferTuner {
    BufferTuner::new(Role::Receiver, caps)
}

/// Old `tcp_rmem` and a raised `rmem_max`.
fn raised() -> HostBufferLimits {
    HostBufferLimits {
        max_settable_receive: 32 * MB,
        ..HostBufferLimits::default()
    }
}

#[test]
fn autotuning_that_keeps_ahead_is_left_alone() {
    let mut auto = receiver(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        // Half of what the window would allow.
        bytes: moved(window_of_buffer(32 * MB) * 5, at),
        ..full(at, 32 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ServerCap]);
    assert_eq!(auto.remark(), None);
}

#[test]
fn it_is_taken_over_at_its_end_and_the_window_is_watched() {
    let mut auto = receiver(raised());
    let mut buffer = 6 * MB;
    let (mut at, mut bytes, mut sizes) = (Duration::ZERO, 0, Vec::new());
    while at < ms(5000) {
        let decision = auto.on_sample(&TcpSample {
            bytes,
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
                        .contains("all that autotuning gives (tcp_rmem)")
                );
            }
            buffer = size * 2;
            sizes.push(buffer);
        } else {
            assert_eq!(decision.and_then(|d| d.setting), None);
        }
        bytes += moved(window_of_buffer(buffer) * 10, auto.next_sample_in());
        at += auto.next_sample_in();
    }
    assert!(sizes.len() <= 3 && sizes.is_sorted(), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&(32 * MB)));
    assert!(auto.remark().unwrap().contains("net.ipv4.tcp_rmem"));
}

#[test]
fn a_window_that_does_not_follow_goes_back_to_the_kernel_once() {
    let mut auto = receiver(raised());
    let mut taken = false;
    let before = full(Duration::ZERO, 6 * MB).receive_window;
    let (mut at, mut decisions) = (Duration::ZERO, Vec::new());
    while at < ms(9000) {
        let look = TcpSample {
            receive_buffer: if taken { 16 * MB } else { 6 * MB },
            ..full(at, 6 * MB)
        };
        let decision = auto.on_sample(&look);
        taken |= decision.as_ref().is_some_and(|d| d.setting.is_some());
        decisions.extend(decision);
        at += auto.next_sample_in();
    }
    let [
        BufferSetting::ReceiveBuffer(_),
        BufferSetting::RestoreAutotuning(window),
    ] = changes(&decisions)[..]
    else {
        panic!("{decisions:?}");
    };
    assert_eq!(window, before);
}

#[test]
fn where_less_can_be_set_than_autotuning_gives_nothing_is_set() {
    for caps in [HostBufferLimits::default(), shipped()] {
        let mut auto = receiver(caps);
        let decisions = watch(&mut auto, ms(5000), |at| {
            full(at, caps.max_autotuned_receive)
        });
        assert_eq!(changes(&decisions), [], "{caps:?}");
        assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
        let remark = auto.remark().unwrap();
        assert!(remark.contains("net.ipv4.tcp_rmem"), "{remark}");
        assert_eq!(auto.host_bound().unwrap().limiter, Limiter::ReceiveWindow);
    }
}

#[test]
fn no_buffer_helps_beyond_the_window_scale() {
    let mut auto = receiver(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        max_receive_window: window_of_buffer(32 * MB),
        ..full(at, 32 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
    assert_eq!(auto.host_bound().unwrap().limiter, Limiter::ReceiveWindow);
    let remark = auto.remark().unwrap();
    assert!(
        remark.contains("window scale") && remark.contains("tcp_rmem"),
        "{remark}"
    );
    // Half as much again can be expressed: no more is asked for.
    let mut auto = receiver(privileged());
    let ceiling = window_of_buffer(48 * MB);
    let decisions = watch(&mut auto, ms(600), |at| TcpSample {
        max_receive_window: ceiling,
        ..full(at, 32 * MB)
    });
    assert_eq!(changes(&decisions), [BufferSetting::ReceiveBuffer(ceiling)]);
    assert!(
        decisions[0].reason.contains("window scale"),
        "{decisions:?}"
    );
}

#[test]
fn what_is_not_granted_is_not_asked_for_again() {
    let caps = HostBufferLimits {
        receive_autotuning: false,
        ..raised()
    };
    let mut auto = receiver(caps);
    let decisions = watch(&mut auto, ms(5000), |at| full(at, MB));
    assert!(
        matches!(changes(&decisions)[..], [BufferSetting::ReceiveBuffer(_)]),
        "{decisions:?}"
    );
    assert!(
        decisions.iter().any(|d| d.reason.contains("not granted")),
        "{decisions:?}"
    );
}

#[test]
fn a_buffer_that_fell_is_repaired_and_not_for_ever() {
    let mut auto = receiver(shipped());
    let decisions = watch(&mut auto, ms(20_000), |at| {
        // Cut every second, repaired in between.
        let cut = at.as_millis() % 1000 >= 500;
        TcpSample {
            bytes: moved(MB, at),
            receive_buffer: if cut { MB / 4 } else { 6 * MB },
            receive_window: if cut { MB / 8 } else { 4 * MB },
            ..full(at, 6 * MB)
        }
    });
    assert_eq!(
        changes(&decisions),
        [BufferSetting::RestoreAutotuning(4 * MB); 4]
    );
    assert!(
        decisions
            .iter()
            .any(|d| d.reason.starts_with("receive buffer fell from 6.29 MB"))
    );
}

#[test]
fn a_buffer_that_fell_while_it_was_full_is_repaired_later() {
    let mut auto = receiver(shipped());
    let decisions = watch(&mut auto, ms(3000), |at| {
        let cut = at >= ms(500);
        let buffer = if cut { MB / 4 } else { 6 * MB };
        // What waits is what the kernel cut it down to.
        let queued = if cut && at < ms(900) { buffer } else { 0 };
        TcpSample {
            bytes: moved(MB, at),
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
    // A buffer that the kernel has made good needs no repair.
    let mut auto = receiver(shipped());
    let decisions = watch(&mut auto, ms(3000), |at| {
        let cut = (ms(500)..ms(900)).contains(&at);
        let buffer = if cut { MB / 4 } else { 6 * MB };
        TcpSample {
            bytes: moved(MB, at),
            receive_buffer: buffer,
            receive_queue_memory: if cut { buffer } else { 0 },
            readable: if cut { buffer / 2 } else { 0 },
            receive_window: 4 * MB,
            ..full(at, 6 * MB)
        }
    });
    assert_eq!(changes(&decisions), []);
}

/// Decision on a stream whose buffer is raised at the end of autotuning, and then shows so
/// wide a window while it brings so many bytes per second.
fn raised_then(window: u64, rate: u64) -> Vec<BufferSetting> {
    let mut auto = receiver(raised());
    let (mut at, mut bytes, mut taken) = (Duration::ZERO, 0, false);
    let mut decisions = Vec::new();
    while at < ms(9000) {
        let before = full(at, 6 * MB);
        let look = TcpSample {
            bytes,
            receive_buffer: if taken { 16 * MB } else { 6 * MB },
            receive_window: if taken { window } else { before.receive_window },
            ..before
        };
        let decision = auto.on_sample(&look);
        taken |= decision.as_ref().is_some_and(|d| d.setting.is_some());
        decisions.extend(decision);
        let rate = if taken {
            rate
        } else {
            before.receive_window * 10
        };
        bytes += moved(rate, auto.next_sample_in());
        at += auto.next_sample_in();
    }
    changes(&decisions)
}

#[test]
fn a_window_is_not_given_up_while_nothing_comes_that_could_raise_it() {
    let stays = full(Duration::ZERO, 6 * MB).receive_window;
    assert_eq!(raised_then(stays, 0).len(), 1);
    assert_eq!(raised_then(stays, stays * 10).len(), 2);
}

#[test]
fn a_window_that_the_kernel_does_not_show_is_not_given_up() {
    let stays = full(Duration::ZERO, 6 * MB).receive_window;
    assert_eq!(raised_then(0, stays * 10).len(), 1);
}

#[test]
fn autotuning_that_stands_still_is_helped() {
    let mut auto = receiver(shipped());
    let window = full(Duration::ZERO, MB).receive_window;
    let decisions = watch(&mut auto, ms(1200), |at| full(at, MB));
    assert_eq!(
        changes(&decisions),
        [BufferSetting::RestoreAutotuning(window * 2)]
    );
    assert!(decisions[0].at >= ms(400), "four round trips are its due");
    // One that grows is not.
    let mut auto = receiver(shipped());
    let decisions = watch(&mut auto, ms(1200), |at| {
        full(
            at,
            MB + MB / 16 * (u64::try_from(at.as_millis()).unwrap() / 200),
        )
    });
    assert_eq!(changes(&decisions), []);
}

#[test]
fn without_autotuning_it_follows_the_path_by_itself() {
    let caps = HostBufferLimits {
        receive_autotuning: false,
        max_autotuned_receive: 6 * MB,
        max_settable_receive: 32 * MB,
        rmem_first_two: [4096, 65_536],
        ..HostBufferLimits::default()
    };
    let mut auto = receiver(caps);
    // 100 Mbit/s over 100 ms: a product of 1.25 MB.
    let line = 12_500_000;
    let (mut at, mut buffer, mut bytes, mut sizes) = (Duration::ZERO, 65_536, 0, vec![65_536]);
    while at < ms(3000) {
        let look = TcpSample {
            bytes,
            ..full(at, buffer)
        };
        if let Some(BufferSetting::ReceiveBuffer(size)) =
            auto.on_sample(&look).and_then(|d| d.setting)
        {
            buffer = size * 2;
            sizes.push(buffer);
        }
        bytes += moved(
            line.min(window_of_buffer(buffer) * 10),
            auto.next_sample_in(),
        );
        at += auto.next_sample_in();
    }
    assert!(sizes.is_sorted() && sizes.len() <= 8, "{sizes:?}");
    let last = *sizes.last().unwrap();
    // Twice the product as argument, four times as reported, and no more.
    assert!((4_000_000..=5_200_000).contains(&last), "{sizes:?}");
}

#[test]
fn a_short_path_is_left_alone() {
    let mut auto = receiver(raised());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        smoothed_rtt: Duration::from_micros(200),
        min_rtt: Duration::from_micros(50),
        bytes: moved(2_000 * MB, at),
        ..full(at, 6 * MB)
    });
    assert_eq!(changes(&decisions), []);
}
