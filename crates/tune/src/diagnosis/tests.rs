use std::time::Duration;

use super::*;
use proptest::prelude::*;

fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

fn sender() -> Evidence {
    Evidence {
        bytes: 1_000_000_000,
        elapsed: seconds(10.0),
        streams: 1,
        min_rtt: Duration::from_millis(50),
        buffer_bytes: 4 << 20,
        busy_time: seconds(10.0),
        store_time: seconds(0.5),
        wire_time: seconds(9.0),
        ..Evidence::for_role(Role::Sender)
    }
}

#[test]
fn a_full_peer_window_is_the_limiter() {
    let mut m = sender();
    m.rwnd_limited = seconds(6.0);
    let v = dominant_limiter(&m);
    assert_eq!(v.limiter, Limiter::ReceiveWindow);
    assert!((v.share - 0.6).abs() < 1e-9);
    m.sndbuf_limited = seconds(8.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::SendBuffer);
}

#[test]
fn the_congestion_window_is_the_limiter_with_and_without_losses() {
    let mut m = sender();
    assert_eq!(dominant_limiter(&m).limiter, Limiter::CongestionWindow);
    m.retransmits = 3;
    assert_eq!(dominant_limiter(&m).limiter, Limiter::Loss);
}

#[test]
fn store_and_cpu_are_limiters_by_their_share_of_the_time() {
    let mut m = sender();
    m.store_time = seconds(8.0);
    m.wire_time = seconds(1.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::StoreRead);
    m.store_time = seconds(1.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::SenderCpu);
    m.role = Some(Role::Receiver);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ReceiverCpu);
    m.store_time = seconds(8.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::StoreWrite);
}

#[test]
fn a_receive_window_that_explains_the_rate_is_the_limiter() {
    let mut m = sender();
    m.role = Some(Role::Receiver);
    // 100 MB/s over 50 ms are 5 MB in flight, more than half of a buffer of 4 MiB.
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ReceiveWindow);
    m.buffer_bytes = 64 << 20;
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ServerCap);
}

#[test]
fn a_rate_limit_for_which_the_streams_sleep_is_the_limiter() {
    for role in [Role::Sender, Role::Receiver] {
        let mut m = sender();
        m.role = Some(role);
        (m.wire_time, m.throttle_time) = (seconds(1.0), seconds(8.0));
        let found = dominant_limiter(&m);
        assert_eq!(found.limiter, Limiter::RateLimit);
        assert!((found.share - 0.8).abs() < 1e-9, "{found:?}");
        (m.wire_time, m.throttle_time) = (seconds(8.0), seconds(1.0));
        assert_ne!(dominant_limiter(&m).limiter, Limiter::RateLimit);
    }
}

#[test]
fn time_after_a_stream_has_ended_does_not_count_as_cpu() {
    let m = Evidence {
        role: Some(Role::Receiver),
        streams: 16,
        buffer_bytes: 0,
        wire_time: seconds(24.0),
        store_time: seconds(1.0),
        ..sender()
    };
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ReceiverCpu);
    let open = seconds(25.0);
    assert_eq!(
        dominant_limiter(&Evidence {
            stream_time: open,
            ..m
        })
        .limiter,
        Limiter::ServerCap
    );
}

#[test]
fn windows_do_not_limit_where_round_trips_are_long() {
    let mut m = Evidence {
        buffer_bytes: 8 << 20,
        ..four(Role::Receiver)
    };
    m.bytes *= 4;
    m.long_rtt_time = seconds(15.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ReceiveWindow);
    m.long_rtt_time = seconds(30.0);
    assert_eq!(dominant_limiter(&m).limiter, Limiter::ServerCap);
    assert!((long_rtt_share(&m) - 30.0 / 38.0).abs() < 1e-9);
}

#[test]
fn a_long_round_trip_is_half_as_long_again_as_the_smallest() {
    let ms = Duration::from_millis;
    let is_long = |handshake, now| {
        has_long_round_trip(&TcpSample {
            smoothed_rtt: handshake,
            receiver_rtt: now,
            ..TcpSample::default()
        })
    };
    assert!(is_long(ms(20), ms(40)));
    assert!(!is_long(ms(20), ms(29)) && !is_long(ms(20), ms(0)));
    assert!(!is_long(Duration::from_micros(50), ms(40)));
}

/// Four streams that were open for 38 s together.
fn four(role: Role) -> Evidence {
    Evidence {
        role: Some(role),
        streams: 4,
        stream_time: seconds(38.0),
        store_time: seconds(2.0),
        wire_time: seconds(34.0),
        ..sender()
    }
}

#[test]
fn limiter_and_share_of_recorded_evidence_stay_the_same() {
    let sent = || four(Role::Sender);
    let received = || four(Role::Receiver);
    let threads = |store, wire, all| Evidence {
        store_time: seconds(store),
        wire_time: seconds(wire),
        ..all
    };
    let limits = |rwnd, sndbuf| Evidence {
        rwnd_limited: seconds(rwnd),
        sndbuf_limited: seconds(sndbuf),
        ..sent()
    };
    let throttled = |wire, throttle, all| Evidence {
        wire_time: seconds(wire),
        throttle_time: seconds(throttle),
        ..all
    };
    let (mut lost, mut narrow, mut unopened) = (sent(), received(), sent());
    lost.retransmits = 3;
    narrow.buffer_bytes = 2 << 20;
    unopened.stream_time = Duration::ZERO;
    let cases = [
        (sent(), Limiter::CongestionWindow, 34.0 / 38.0),
        (lost, Limiter::Loss, 34.0 / 38.0),
        (limits(6.25, 0.0), Limiter::ReceiveWindow, 0.625),
        (limits(2.5, 5.0), Limiter::SendBuffer, 0.5),
        (limits(1.9, 0.0), Limiter::CongestionWindow, 34.0 / 38.0),
        (threads(30.0, 4.0, sent()), Limiter::StoreRead, 30.0 / 38.0),
        (threads(2.0, 6.0, sent()), Limiter::SenderCpu, 30.0 / 38.0),
        (
            threads(30.0, 4.0, received()),
            Limiter::StoreWrite,
            30.0 / 38.0,
        ),
        (
            threads(2.0, 6.0, received()),
            Limiter::ReceiverCpu,
            30.0 / 38.0,
        ),
        (received(), Limiter::ServerCap, 34.0 / 38.0),
        (narrow, Limiter::ReceiveWindow, 34.0 / 38.0),
        (unopened, Limiter::CongestionWindow, 0.85),
        (
            throttled(4.0, 30.0, received()),
            Limiter::RateLimit,
            30.0 / 38.0,
        ),
        (
            throttled(34.0, 1.0, sent()),
            Limiter::CongestionWindow,
            34.0 / 38.0,
        ),
        (Evidence { bytes: 0, ..sent() }, Limiter::Unknown, 0.0),
        (
            Evidence {
                role: None,
                ..sent()
            },
            Limiter::Unknown,
            0.0,
        ),
    ];
    for (n, (evidence, limiter, share)) in cases.into_iter().enumerate() {
        let judged = dominant_limiter(&evidence);
        assert_eq!(judged.limiter, limiter, "case {n}");
        assert!((judged.share - share).abs() < 1e-12, "case {n}: {judged:?}");
    }
}

proptest! {
    #[test]
    fn every_share_is_between_zero_and_one(
        bytes: u64, elapsed in 0_u64..1 << 40, streams in 0_u64..100,
        busy in 0_u64..1 << 40, store in 0_u64..1 << 40, wire in 0_u64..1 << 40,
        send: bool,
    ) {
        let us = Duration::from_micros;
        let m = Evidence {
            role: Some(if send { Role::Sender } else { Role::Receiver }),
            bytes, streams, elapsed: us(elapsed), busy_time: us(busy),
            rwnd_limited: us(busy / 2), sndbuf_limited: us(busy / 3),
            store_time: us(store), wire_time: us(wire),
            ..sender()
        };
        let v = dominant_limiter(&m);
        prop_assert!((0.0..=1.0).contains(&v.share), "{:?}", v);
    }
}
