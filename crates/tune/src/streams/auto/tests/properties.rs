//! Properties that hold whatever the looks say.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn looks()(
        fields in proptest::collection::vec(
            (any::<[u64; 8]>(), any::<bool>(), 0_u64..6, 0_u64..1 << 40),
            0..6,
        )
    ) -> Vec<Look> {
        fields.into_iter().map(|(n, slow_start, stream, us)| Look {
            stream,
            at: Duration::from_micros(us),
            bytes: n[0],
            rtt: Duration::from_micros(n[1] >> 30),
            min_rtt: Duration::from_micros(n[2] >> 30),
            send_buffer: n[3],
            send_queued: n[4],
            in_flight: n[5],
            congestion_window: n[6],
            peer_window: n[7],
            retransmits: n[0] ^ n[7],
            segment: n[1] & 0xffff,
            busy: Duration::from_micros(n[2] >> 20),
            rwnd_limited: Duration::from_micros(n[3] >> 20),
            slow_start,
            ..Look::default()
        }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Zero, huge, stale, out of order, going back, appearing and vanishing.
    #[test]
    fn limits_hold_whatever_is_seen(
        least in 0_u32..8,
        most in 0_u32..80,
        first: u32,
        scenes in proptest::collection::vec(
            (looks(), 0_u64..400_000, any::<u64>(), any::<Option<u64>>(), 0_u32..3, any::<Option<u64>>()),
            0..60,
        ),
        refused in 0_usize..60,
    ) {
        let mut auto = Auto::new(Limits { least, ..limits(most) }, first);
        let mut at = Duration::ZERO;
        let (least, mut most) = (least.max(1), most.max(least.max(1)));
        for (n, (looks, step, moved, left, opening, rate_limit)) in scenes.iter().enumerate() {
            // One in eight goes back in time.
            let step = Duration::from_micros(*step);
            at = if n % 8 == 7 { at.saturating_sub(step) } else { at + step };
            let decisions = auto.on_scene(&Scene {
                at, moved: *moved, left: *left, looks, opening: *opening,
                congestion: "cubic", rate_limit: *rate_limit,
            });
            for decision in decisions {
                prop_assert!(!decision.reason.contains("NaN") && !decision.reason.contains("inf"));
                match decision.step {
                    Some(Step::Streams(streams)) => {
                        prop_assert!(streams >= 1 && streams <= most, "{streams} of {most}");
                        prop_assert!(streams >= least.min(most));
                    }
                    Some(Step::Congestion(name)) => {
                        prop_assert!(["cubic", "bbr"].contains(&name.as_str()));
                    }
                    Some(Step::Pace(_)) | None => {}
                }
            }
            let due = auto.due();
            prop_assert!(due >= ms(25) && due <= ms(250));
            if n == refused {
                auto.on_refused(1);
                most = 1;
            }
        }
        let verdict = auto.verdict();
        prop_assert!(verdict.streams >= 1 && verdict.streams <= most.max(1));
    }
}
