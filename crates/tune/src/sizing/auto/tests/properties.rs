//! Properties that hold for arbitrary samples.

use proptest::prelude::*;

use super::*;
use crate::limiter::Role;

/// Samples that a kernel could show, and many that it could not.
fn any_sample() -> impl Strategy<Value = TcpSample> {
    let size = || prop_oneof![Just(0_u64), 1_u64..100 * MB];
    let rtt = || (0_u64..3_000_000).prop_map(Duration::from_micros);
    let sizes = (
        size(),
        size(),
        size(),
        size(),
        size(),
        size(),
        size(),
        size(),
        size(),
        size(),
    );
    (sizes, rtt(), rtt(), any::<bool>(), 0_u64..100).prop_map(
        |(sizes, rtt, min_rtt, slow_start, retransmits)| TcpSample {
            send_buffer: sizes.0,
            send_queue_memory: sizes.1,
            unsent: sizes.2,
            in_flight: sizes.3,
            cwnd: sizes.4,
            peer_window: sizes.5,
            receive_buffer: sizes.6,
            receive_queue_memory: sizes.7,
            receive_window: sizes.8,
            readable: sizes.9,
            max_receive_window: 65_535 << 9,
            smoothed_rtt: rtt,
            receiver_rtt: rtt,
            min_rtt,
            in_slow_start: slow_start,
            retransmits,
            ..TcpSample::default()
        },
    )
}

/// Samples, bytes per sample, and repetitions: stable enough for the rules to act.
fn any_run() -> impl Strategy<Value = Vec<(TcpSample, u64, usize)>> {
    prop::collection::vec((any_sample(), 0_u64..10 * MB, 1_usize..60), 1..12)
}

fn any_caps() -> impl Strategy<Value = HostBufferLimits> {
    (
        1_u64..64,
        1_u64..64,
        1_u64..64,
        1_u64..64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(sa, ss, ra, rs, receive_autotunes, forced)| HostBufferLimits {
                max_autotuned_send: sa * MB,
                max_settable_send: ss * MB,
                max_autotuned_receive: ra * MB,
                max_settable_receive: rs * MB,
                receive_autotuning: receive_autotunes,
                may_force: forced,
                ..HostBufferLimits::default()
            },
        )
}

proptest! {
    /// Buffers are never made smaller, never set where autotuning allows more, and never beyond the host's
    /// limits. Reasons and remarks stay short.
    #[test]
    fn no_decision_is_worse_than_the_kernels_autotuning(samples in any_run(), limits in any_caps(), send: bool) {
        let role = if send { Role::Sender } else { Role::Receiver };
        let mut tuner = BufferTuner::new(role, limits);
        let (mut at, mut bytes, mut decision_count) = (Duration::ZERO, 0, 0_u32);
        for (sample, step, times) in samples {
            for _ in 0..times {
                let sample = TcpSample { at, bytes_acked: bytes, bytes_received: bytes, busy_time: at, ..sample };
                if let Some(decision) = tuner.on_sample(&sample) {
                    decision_count += 1;
                    match decision.setting {
                        Some(BufferSetting::SendBuffer(size)) => {
                            prop_assert!(send && size >= sample.send_buffer / 2);
                            prop_assert!(size <= limits.max_settable_send / 2);
                            prop_assert!(limits.max_settable_send > limits.max_autotuned_send);
                        }
                        Some(BufferSetting::ReceiveBuffer(size)) => {
                            prop_assert!(!send && size >= sample.receive_buffer / 2);
                            prop_assert!(size <= limits.max_settable_receive / 2);
                        }
                        Some(BufferSetting::WindowClamp(window)) => prop_assert!(!send && window >= 14_600),
                        Some(BufferSetting::RestoreAutotuning(_)) => prop_assert!(!send && limits.receive_autotuning),
                        None => {}
                    }
                    prop_assert!((5..300).contains(&decision.reason.len()), "{}", decision.reason);
                }
                let due = tuner.next_sample_in();
                prop_assert!(due >= ms(10) && due <= ms(250), "{:?}", due);
                at += due;
                bytes += step;
            }
        }
        // Noise causes at most a few decisions per second.
        prop_assert!(f64::from(decision_count) <= 8.0 + 4.0 * at.as_secs_f64(), "{decision_count} in {at:?}");
        if let Some(remark) = tuner.remark() {
            prop_assert!(remark.len() < 400 && !remark.contains('\n'));
        }
    }

    /// Samples in any order are harmless.
    #[test]
    fn samples_in_any_order_are_survived(samples in prop::collection::vec((any_sample(), 0_u64..2000, any::<u64>()), 0..60)) {
        let mut tuner = BufferTuner::new(Role::Receiver, privileged());
        for (sample, at, bytes) in samples {
            tuner.on_sample(&TcpSample { at: ms(at), bytes_acked: bytes, bytes_received: bytes, busy_time: ms(at), ..sample });
        }
    }
}
