//! Whatever is seen.

use proptest::prelude::*;

use super::*;
use crate::limiter::Role;

/// Anything that a kernel could show, and much that it could not.
fn any_look() -> impl Strategy<Value = Look> {
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
        |(sizes, rtt, min_rtt, slow_start, retransmits)| Look {
            send_buffer: sizes.0,
            send_queued: sizes.1,
            unsent: sizes.2,
            in_flight: sizes.3,
            congestion_window: sizes.4,
            peer_window: sizes.5,
            receive_buffer: sizes.6,
            receive_queued: sizes.7,
            window: sizes.8,
            receive_readable: sizes.9,
            window_ceiling: 65_535 << 9,
            rtt,
            min_rtt,
            slow_start,
            retransmits,
            ..Look::default()
        },
    )
}

/// Looks that stay much the same for a while, so that rules come to act.
fn any_run() -> impl Strategy<Value = Vec<(Look, u64, usize)>> {
    prop::collection::vec((any_look(), 0_u64..10 * MB, 1_usize..60), 1..12)
}

fn any_caps() -> impl Strategy<Value = Caps> {
    (
        1_u64..64,
        1_u64..64,
        1_u64..64,
        1_u64..64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(sa, ss, ra, rs, receive_autotunes, forced)| Caps {
            send_autotuned: sa * MB,
            send_settable: ss * MB,
            receive_autotuned: ra * MB,
            receive_settable: rs * MB,
            receive_autotunes,
            forced,
            ..Caps::default()
        })
}

proptest! {
    /// Buffers are never made smaller, nor asked for where autotuning gives more, nor beyond what
    /// can be set; what is said stays readable.
    #[test]
    fn never_worse(run in any_run(), caps in any_caps(), send: bool) {
        let role = if send { Role::Sender } else { Role::Receiver };
        let mut auto = Auto::new(role, caps);
        let (mut at, mut bytes, mut told) = (Duration::ZERO, 0, 0_u32);
        for (look, step, times) in run {
            for _ in 0..times {
                let look = Look { at, bytes, busy: at, ..look };
                if let Some(decision) = auto.on_look(&look) {
                    told += 1;
                    match decision.change {
                        Some(Change::SendBuffer(size)) => {
                            prop_assert!(send && size >= look.send_buffer / 2);
                            prop_assert!(size <= caps.send_settable / 2);
                            prop_assert!(caps.send_settable > caps.send_autotuned);
                        }
                        Some(Change::ReceiveBuffer(size)) => {
                            prop_assert!(!send && size >= look.receive_buffer / 2);
                            prop_assert!(size <= caps.receive_settable / 2);
                        }
                        Some(Change::Window(window)) => prop_assert!(!send && window >= 14_600),
                        Some(Change::Regrow(_)) => prop_assert!(!send && caps.receive_autotunes),
                        None => {}
                    }
                    prop_assert!((5..300).contains(&decision.reason.len()), "{}", decision.reason);
                }
                let due = auto.due();
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
        let mut auto = Auto::new(Role::Receiver, privileged());
        for (look, at, bytes) in looks {
            auto.on_look(&Look { at: ms(at), bytes, busy: ms(at), ..look });
        }
    }
}
