//! Rules of the sender.

use super::*;
use crate::limiter::Role;
use crate::sample::max_in_flight;

/// A sender over 100 ms whose buffer is full: two thirds of it are sent every round trip.
fn full(at: Duration, buffer: u64) -> TcpSample {
    let rate = max_in_flight(buffer) * 10;
    TcpSample {
        at,
        bytes_acked: moved(rate, at),
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

fn sender(limits: HostBufferLimits) -> BufferTuner {
    BufferTuner::new(Role::Sender, limits)
}

#[test]
fn a_full_buffer_at_the_limit_of_autotuning_is_raised_within_two_round_trips() {
    let mut tuner = sender(shipped());
    let mut buffer = 4 * MB;
    let decisions = decisions_until(&mut tuner, ms(5000), |at| {
        if at > ms(200) {
            buffer = 8 * MB;
        }
        full(at, buffer)
    });
    assert_eq!(settings(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    assert!(decisions[0].at <= ms(150), "{:?}", decisions[0]);
    assert_eq!(
        decisions[0].reason,
        "send buffer 4.19 MB is the limit of autotuning (tcp_wmem) and keeps 2.80 MB in flight; set \
         to 8.39 MB"
    );
}

#[test]
fn a_limit_that_still_holds_at_the_end_is_remarked_on() {
    let mut tuner = sender(shipped());
    assert_eq!(tuner.remark(), None);
    decisions_until(&mut tuner, ms(5000), |at| full(at, 8 * MB));
    assert_eq!(
        tuner.remark().unwrap(),
        "limited by the send buffer of this host (8.39 MB: 5.59 MB in flight, 447 Mbit/s a stream at \
         100 ms); an administrator can allow up to 1.79 Gbit/s with `sysctl -w \
         net.ipv4.tcp_wmem=\"4096 16384 67108864\"`; more streams would also help"
    );
    let bound = tuner.host_bound().unwrap();
    assert_eq!(bound.limiter, Limiter::SendBuffer);
    assert_eq!(bound.max_in_flight, max_in_flight(8 * MB));
    assert!((440_000_000..450_000_000).contains(&bound.stream_bps));
}

#[test]
fn a_buffer_that_autotuning_can_still_raise_is_left_alone() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| full(at, 2 * MB));
    assert_eq!(settings(&decisions), []);
    assert_eq!(tuner.remark(), None);
    assert_eq!(tuner.host_bound(), None);
}

#[test]
fn nothing_is_set_if_autotuning_allows_more() {
    let mut tuner = sender(HostBufferLimits::default());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| full(at, 4 * MB));
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::SendBuffer]);
    assert!(tuner.remark().unwrap().contains("tcp_wmem"));
    assert!(tuner.host_bound().is_some());
}

#[test]
fn a_queue_means_a_full_path_and_the_buffer_stays() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        smoothed_rtt: ms(112),
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Link]);
    assert_eq!(tuner.remark(), None);
}

#[test]
fn queues_of_the_senders_own_bursts_do_not_mean_a_full_path() {
    // A whole buffer leaves at once every round trip, queues for 40 ms, and then the path is idle.
    let bursts = |at: Duration| {
        let rounds = u64::try_from(at.as_millis() / 100).unwrap();
        let within = u64::try_from(at.as_millis() % 100).unwrap().min(40);
        TcpSample {
            bytes_acked: max_in_flight(4 * MB) * (rounds * 40 + within) / 40,
            smoothed_rtt: ms(120),
            ..full(at, 4 * MB)
        }
    };
    let mut tuner = sender(shipped());
    let decisions = decisions_until(&mut tuner, ms(1000), bursts);
    assert_eq!(settings(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    // Losses cause gaps as well.
    let mut tuner = sender(shipped());
    let decisions = decisions_until(&mut tuner, ms(1000), |at| TcpSample {
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..bursts(at)
    });
    assert_eq!(settings(&decisions), []);
}

#[test]
fn a_paced_writer_counts_as_waiting_if_most_samples_show_it() {
    let mut tuner = sender(shipped());
    let decisions = decisions_until(&mut tuner, ms(500), |at| TcpSample {
        unsent: if at.as_millis() % 100 < 30 { MB } else { 0 },
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
}

#[test]
fn a_buffer_that_loss_recovery_fills_is_not_the_bottleneck() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        bytes_acked: moved(MB, at),
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Loss]);
}

#[test]
fn a_full_peer_window_does_not_count_as_a_full_buffer() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| {
        let sample = full(at, 4 * MB);
        TcpSample {
            peer_window: sample.in_flight,
            rwnd_limited: at / 2,
            ..sample
        }
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::ReceiveWindow]);
    assert!(decisions[0].reason.contains("receiver's window of 2.80 MB"));
}

#[test]
fn a_buffer_with_space_is_not_the_bottleneck() {
    let unsent = |at| TcpSample {
        unsent: MB,
        cwnd: 3 * MB,
        in_slow_start: true,
        ..full(at, 4 * MB)
    };
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), unsent);
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::CongestionWindow]);
}

#[test]
fn a_short_path_is_left_alone() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        smoothed_rtt: Duration::from_micros(900),
        min_rtt: Duration::from_micros(300),
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), []);
}

#[test]
fn a_privileged_sender_doubles_until_the_path_queues() {
    let mut tuner = sender(privileged());
    let path = 40 * MB;
    let (mut at, mut buffer, mut sizes) = (Duration::ZERO, 4 * MB, Vec::new());
    while at < ms(5000) {
        let sample = full(at, buffer);
        // Bytes in flight beyond the bandwidth-delay product wait in the queue and do not raise the rate.
        let rtt = ms(100).mul_f64((max_in_flight(buffer) as f64 / path as f64).max(1.0));
        let decision = tuner.on_sample(&TcpSample {
            smoothed_rtt: rtt,
            bytes_acked: moved(path * 10, at),
            ..sample
        });
        if let Some(BufferSetting::SendBuffer(size)) = decision.and_then(|d| d.setting) {
            buffer = size * 2;
            sizes.push(buffer / MB);
        }
        at += tuner.next_sample_in();
    }
    // Three times the product at once, since the rate is known; then no change.
    assert_eq!(sizes, [120]);
}

#[test]
fn the_buffer_doubles_while_it_limits_and_quadruples_in_slow_start() {
    let grown = |slow_start| {
        let mut tuner = sender(privileged());
        let (mut at, mut buffer, mut bytes) = (Duration::ZERO, 4 * MB, 0);
        let mut sizes = Vec::new();
        while at < ms(3000) {
            let sample = TcpSample {
                in_slow_start: slow_start,
                bytes_acked: bytes,
                ..full(at, buffer)
            };
            if let Some(BufferSetting::SendBuffer(size)) =
                tuner.on_sample(&sample).and_then(|d| d.setting)
            {
                buffer = size * 2;
                sizes.push(buffer / MB);
            }
            bytes += moved(max_in_flight(buffer) * 10, tuner.next_sample_in());
            at += tuner.next_sample_in();
        }
        sizes
    };
    assert_eq!(grown(true), [16, 64, 256]);
    assert_eq!(grown(false), [8, 16, 32, 64, 128, 256]);
}

#[test]
fn a_size_that_was_not_granted_is_not_requested_again() {
    let mut tuner = sender(shipped());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| full(at, 4 * MB));
    assert_eq!(settings(&decisions), [BufferSetting::SendBuffer(4 * MB)]);
    assert!(
        decisions[1].reason.contains("did not grant"),
        "{decisions:?}"
    );
    assert!(tuner.remark().is_some());
}

#[test]
fn a_program_that_writes_slowly_is_the_limiter() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        send_queue_memory: 100_000,
        in_flight: 80_000,
        busy_time: at / 2,
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::StoreRead]);
}

#[test]
fn losses_without_a_queue_are_the_limiter() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        send_queue_memory: 2 * MB,
        unsent: MB,
        in_flight: MB,
        cwnd: MB,
        retransmits: u64::try_from(at.as_millis()).unwrap() / 20,
        ..full(at, 4 * MB)
    });
    assert_eq!(settings(&decisions), []);
    assert_eq!(limiters(&decisions), [Limiter::Loss]);
}

#[test]
fn a_kernel_that_shows_few_fields_is_left_alone() {
    let mut tuner = sender(privileged());
    let decisions = decisions_until(&mut tuner, ms(5000), |at| TcpSample {
        at,
        bytes_acked: moved(10 * MB, at),
        ..TcpSample::default()
    });
    assert_eq!(settings(&decisions), []);
}

#[test]
fn a_known_send_buffer_is_set_at_the_first_sample() {
    let limits = HostBufferLimits {
        max_settable_send: 64 * MB,
        ..shipped()
    };
    let known = |bytes| sender(limits).with_known_buffer(Some(bytes));
    let first = |mut tuner: BufferTuner, buffer| tuner.on_sample(&full(ms(25), buffer));
    let decision = first(known(12 * MB), MB).unwrap();
    assert_eq!(decision.setting, Some(BufferSetting::SendBuffer(6 * MB)));
    assert_eq!(
        decision.reason,
        "send buffer of 12.6 MB by earlier knowledge of this path; it was 1.05 MB"
    );
    // Never more than may be set, and nothing that autotuning reaches or that is in force already.
    let most = first(known(1 << 40), MB).unwrap().setting;
    assert_eq!(
        most,
        Some(BufferSetting::SendBuffer(limits.max_settable_send / 2))
    );
    assert_eq!(first(known(limits.max_autotuned_send), MB), None);
    assert_eq!(first(known(5 * MB), 6 * MB), None);
    assert_eq!(first(sender(limits), MB), None);
    let receiver = BufferTuner::new(Role::Receiver, limits).with_known_buffer(Some(12 * MB));
    assert_eq!(first(receiver, MB), None);
}
