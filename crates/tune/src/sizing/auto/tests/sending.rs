//! The sender's rules.

use super::*;
use crate::limiter::Role;
use crate::sample::max_in_flight;

/// A sender whose buffer of `buffer` is full, over 100 ms: two thirds of it every round trip.
fn full(at: Duration, buffer: u64) -> TcpSample {
    let rate = max_in_flight(buffer) * 10;
    TcpSample {
        at,
        bytes: moved(rate, at),
        smoothed_rtt: ms(100),
        min_rtt: ms(100),
        send_buffer: buffer,
        send_queue_memory: buffer / 4 * 3,
        in_flight: max_in_flight(buffer),
        cwnd: max_in_flight(buffer) * 2,
        peer_window: 1 << 30,
        busy_time: at,
        ..TcpSample::default()
    }
}

fn sender(caps: HostBufferLimits) -> BufferTuner {
    BufferTuner::new(Role::Sender, caps)
}

#[test]
fn a_full_buffer_at_autotunings_end_is_raised_within_two_round_trips() {
    let mut auto = sender(shipped());
    let mut buffer = 4 * MB;
    let decisions = watch(&mut auto, ms(5000), |at| {
        if at > ms(200) {
            buffer = 8 * MB;
        }
        full(at, buffer)
    });
    assert_eq!(changes(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    assert!(decisions[0].at <= ms(150), "{:?}", decisions[0]);
    assert_eq!(
        decisions[0].reason,
        "send buffer 4.19 MB is all that autotuning gives (tcp_wmem), it keeps 2.80 MB in flight; set \
         to 8.39 MB"
    );
}

#[test]
fn what_is_too_small_still_is_said_in_the_end() {
    let mut auto = sender(shipped());
    assert_eq!(auto.remark(), None);
    watch(&mut auto, ms(5000), |at| full(at, 8 * MB));
    assert_eq!(
        auto.remark().unwrap(),
        "limited by the send buffer of this host (8.39 MB: 5.59 MB in flight, 447 Mbit/s a stream at \
         100 ms); an administrator can allow up to 1.79 Gbit/s with `sysctl -w \
         net.ipv4.tcp_wmem=\"4096 16384 67108864\"`; more streams are the other way"
    );
    let bound = auto.host_bound().unwrap();
    assert_eq!(bound.limiter, Limiter::SendBuffer);
    assert_eq!(bound.max_in_flight, max_in_flight(8 * MB));
    assert!((440_000_000..450_000_000).contains(&bound.stream_bps));
}

#[test]
fn a_buffer_that_autotuning_can_still_raise_is_left_alone() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| full(at, 2 * MB));
    assert_eq!(changes(&decisions), []);
    assert_eq!(auto.remark(), None);
    assert_eq!(auto.host_bound(), None);
}

#[test]
fn where_less_can_be_set_than_autotuning_gives_nothing_is_set() {
    let mut auto = sender(HostBufferLimits::default());
    let decisions = watch(&mut auto, ms(5000), |at| full(at, 4 * MB));
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::SendBuffer]);
    assert!(auto.remark().unwrap().contains("tcp_wmem"));
    assert!(auto.host_bound().is_some());
}

#[test]
fn a_path_that_queues_is_full() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        smoothed_rtt: ms(112),
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::CongestionWindow]);
    assert_eq!(auto.remark(), None);
}

#[test]
fn a_senders_own_bursts_are_no_full_path() {
    // A buffer at once every round trip, which queues for 40 ms and then leaves the path idle.
    let bursts = |at: Duration| {
        let rounds = u64::try_from(at.as_millis() / 100).unwrap();
        let within = u64::try_from(at.as_millis() % 100).unwrap().min(40);
        TcpSample {
            bytes: max_in_flight(4 * MB) * (rounds * 40 + within) / 40,
            smoothed_rtt: ms(120),
            ..full(at, 4 * MB)
        }
    };
    let mut auto = sender(shipped());
    let decisions = watch(&mut auto, ms(1000), bursts);
    assert_eq!(changes(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    // Losses make gaps too.
    let mut auto = sender(shipped());
    let decisions = watch(&mut auto, ms(1000), |at| TcpSample {
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..bursts(at)
    });
    assert_eq!(changes(&decisions), []);
}

#[test]
fn a_writer_that_is_paced_waits_in_most_looks() {
    let mut auto = sender(shipped());
    let decisions = watch(&mut auto, ms(500), |at| TcpSample {
        unsent: if at.as_millis() % 100 < 30 { MB } else { 0 },
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
}

#[test]
fn a_buffer_that_loss_recovery_fills_is_no_limit() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        bytes: moved(MB, at),
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Loss]);
}

#[test]
fn a_full_window_of_the_peer_is_not_the_buffer() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| {
        let look = full(at, 4 * MB);
        TcpSample {
            peer_window: look.in_flight,
            rwnd_limited: at / 2,
            ..look
        }
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
    assert!(decisions[0].reason.contains("receiver's window of 2.80 MB"));
}

#[test]
fn a_writer_that_has_room_is_not_held_by_the_buffer() {
    let unsent = |at| TcpSample {
        unsent: MB,
        cwnd: 3 * MB,
        in_slow_start: true,
        ..full(at, 4 * MB)
    };
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), unsent);
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::CongestionWindow]);
}

#[test]
fn nothing_is_done_on_a_short_path() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        smoothed_rtt: Duration::from_micros(900),
        min_rtt: Duration::from_micros(300),
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), []);
}

#[test]
fn a_privileged_sender_doubles_until_the_path_queues() {
    let mut auto = sender(privileged());
    let path = 40 * MB;
    let (mut at, mut buffer, mut sizes) = (Duration::ZERO, 4 * MB, Vec::new());
    while at < ms(5000) {
        let look = full(at, buffer);
        // In flight beyond the path's product is queue; the rate does not matter any more.
        let rtt = ms(100).mul_f64((max_in_flight(buffer) as f64 / path as f64).max(1.0));
        let decision = auto.on_sample(&TcpSample {
            smoothed_rtt: rtt,
            bytes: moved(path * 10, at),
            ..look
        });
        if let Some(BufferSetting::SendBuffer(size)) = decision.and_then(|d| d.setting) {
            buffer = size * 2;
            sizes.push(buffer / MB);
        }
        at += auto.next_sample_in();
    }
    // Three times the product at once, since the rate is known; then nothing.
    assert_eq!(sizes, [120]);
}

#[test]
fn it_doubles_while_it_stays_the_limit_and_four_times_in_slow_start() {
    let grown = |slow_start| {
        let mut auto = sender(privileged());
        let (mut at, mut buffer, mut bytes) = (Duration::ZERO, 4 * MB, 0);
        let mut sizes = Vec::new();
        while at < ms(3000) {
            let look = TcpSample {
                in_slow_start: slow_start,
                bytes,
                ..full(at, buffer)
            };
            if let Some(BufferSetting::SendBuffer(size)) =
                auto.on_sample(&look).and_then(|d| d.setting)
            {
                buffer = size * 2;
                sizes.push(buffer / MB);
            }
            bytes += moved(max_in_flight(buffer) * 10, auto.next_sample_in());
            at += auto.next_sample_in();
        }
        sizes
    };
    assert_eq!(grown(true), [16, 64, 256]);
    assert_eq!(grown(false), [8, 16, 32, 64, 128, 256]);
}

#[test]
fn what_is_not_granted_is_not_asked_for_again() {
    let mut auto = sender(shipped());
    let decisions = watch(&mut auto, ms(5000), |at| full(at, 4 * MB));
    assert_eq!(changes(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    assert!(decisions[1].reason.contains("not granted"), "{decisions:?}");
    assert!(auto.remark().is_some());
}

#[test]
fn a_program_that_writes_slowly_is_named() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        send_queue_memory: 100_000,
        in_flight: 80_000,
        busy_time: at / 2,
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::StoreRead]);
}

#[test]
fn losses_without_a_queue_are_named() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        send_queue_memory: 2 * MB,
        unsent: MB,
        in_flight: MB,
        cwnd: MB,
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..full(at, 4 * MB)
    });
    assert_eq!(changes(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Loss]);
}

#[test]
fn an_old_kernel_that_tells_little_is_left_alone() {
    let mut auto = sender(privileged());
    let decisions = watch(&mut auto, ms(5000), |at| TcpSample {
        at,
        bytes: moved(10 * MB, at),
        ..TcpSample::default()
    });
    assert_eq!(changes(&decisions), []);
}

#[test]
fn a_buffer_that_is_known_to_be_right_is_set_at_the_first_look() {
    let caps = HostBufferLimits {
        max_settable_send: 64 * MB,
        ..shipped()
    };
    let known = |bytes| sender(caps).with_known_buffer(Some(bytes));
    let first = |mut auto: BufferTuner, buffer| auto.on_sample(&full(ms(25), buffer));
    let decision = first(known(12 * MB), MB).unwrap();
    assert_eq!(decision.setting, Some(BufferSetting::SendBuffer(6 * MB)));
    assert_eq!(
        decision.reason,
        "a send buffer of 12.6 MB is known to be right for this path; it was 1.05 MB"
    );
    // Not more than may be set, not what autotuning gives by itself, not less than there is.
    let most = first(known(1 << 40), MB).unwrap().setting;
    assert_eq!(
        most,
        Some(BufferSetting::SendBuffer(caps.max_settable_send / 2))
    );
    assert_eq!(first(known(caps.max_autotuned_send), MB), None);
    assert_eq!(first(known(5 * MB), 6 * MB), None);
    assert_eq!(first(sender(caps), MB), None);
    let receiver = BufferTuner::new(Role::Receiver, caps).with_known_buffer(Some(12 * MB));
    assert_eq!(first(receiver, MB), None);
}
