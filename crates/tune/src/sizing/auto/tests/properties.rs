//! Whatever is seen.

use proptest::prelude::*;

use super::*;
use crate::limiter::Role;

/// Anything that a kernel could show, and much that it could not.
fn any_look() -> impl Strategy<Value = TcpSample> {
    let size = || prop_oneof![Just(0_u64), 1_u64..100 * MB];
    let trip = || (0_u64..3_000_000).prop_map(Duration::from_micros);
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
    (sizes, trip(), trip(), any::<bool>(), 0_u64..100).prop_map(
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
            min_rtt,
            in_slow_start: slow_start,
            retransmits,
            ..TcpSample::default()
        },
    )
}

/// Looks that stay much the same for a while, so that rules come to act.
fn any_run() -> impl Strategy<Value = Vec<(TcpSample, u64, usize)>> {
    prop::collection::vec((any_look(), 0_u64..10 * MB, 1_usize..60), 1..12)
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
    /// Buffers are never made smaller, nor asked for where autotuning gives more, nor beyond what
    /// can be set; what is said stays readable.
    #[test]
    fn never_worse(run in any_run(), caps in any_caps(), send: bool) {
        let role = if send { Role::Sender } else { Role::Receiver };
        let mut auto = BufferTuner::new(role, caps);
        let (mut at, mut bytes, mut told) = (Duration::ZERO, 0, 0_u32);
        for (look, step, times) in run {
            for _ in 0..times {
                let look = TcpSample { at, bytes, busy_time: at, ..look };
                if let Some(decision) = auto.on_sample(&look) {
                    told += 1;
                    match decision.setting {
                        Some(BufferSetting::SendBuffer(size)) => {
                            prop_assert!(send && size >= look.send_buffer / 2);
                            prop_assert!(size <= caps.max_settable_send / 2);
                            prop_assert!(caps.max_settable_send > caps.max_autotuned_send);
                        }
                        Some(BufferSetting::ReceiveBuffer(size)) => {
                            prop_assert!(!send && size >= look.receive_buffer / 2);
                            prop_assert!(size <= caps.max_settable_receive / 2);
                        }
                        Some(BufferSetting::WindowClamp(window)) => prop_assert!(!send && window >= 14_600),
                        Some(BufferSetting::RestoreAutotuning(_)) => prop_assert!(!send && caps.receive_autotuning),
                        None => {}
                    }
                    prop_assert!((5..300).contains(&decision.reason.len()), "{}", decision.reason);
                }
                let due = auto.next_sample_in();
                prop_assert!(due >= ms(10) && due <= ms(250), "{:?}", due);
                at += due;
                bytes += step;
            }
        }
        // Noise is not news: a few decisions a second at most.
        prop_assert!(f64::from(told) <= 8.0 + 4.0 * at.as_secs_f64(), "{told} in {at:?}");
        if let Some(remark) = auto.remark() {
            prop_assert!(remark.len() < 400 && !remark.contains('\n'));
        }
    }

    /// Looks in any order do no harm.
    #[test]
    fn time_may_go_back(looks in prop::collection::vec((any_look(), 0_u64..2000, any::<u64>()), 0..60)) {
        let mut auto = BufferTuner::new(Role::Receiver, privileged());
        for (look, at, bytes) in looks {
            auto.on_sample(&TcpSample { at: ms(at), bytes, busy_time: ms(at), ..look });
        }
    }
}
