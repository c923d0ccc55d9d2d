//! Properties that hold for arbitrary samples.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn samples()(
        fields in proptest::collection::vec(
            (any::<[u64; 8]>(), any::<bool>(), 0_u64..6, 0_u64..1 << 40),
            0..6,
        )
    ) -> Vec<TcpSample> {
        fields.into_iter().map(|(n, slow_start, stream, us)| TcpSample {
            stream,
            at: Duration::from_micros(us),
            bytes_acked: n[0],
            smoothed_rtt: Duration::from_micros(n[1] >> 30),
            min_rtt: Duration::from_micros(n[2] >> 30),
            send_buffer: n[3],
            send_queue_memory: n[4],
            in_flight: n[5],
            cwnd: n[6],
            peer_window: n[7],
            retransmits: n[0] ^ n[7],
            mss: n[1] & 0xffff,
            busy_time: Duration::from_micros(n[2] >> 20),
            rwnd_limited: Duration::from_micros(n[3] >> 20),
            in_slow_start: slow_start,
            ..TcpSample::default()
        }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Samples that are zero, huge, stale or out of order, of streams that appear and vanish.
    #[test]
    fn limits_hold_for_arbitrary_samples(
        least in 0_u32..8,
        most in 0_u32..80,
        first_decisions: u32,
        scenes in proptest::collection::vec(
            (samples(), 0_u64..400_000, any::<u64>(), any::<Option<u64>>(), 0_u32..3, any::<Option<u64>>()),
            0..60,
        ),
        refused in 0_usize..60,
    ) {
        let mut tuner = AutoTuner::new(AutoLimits { min_streams: least, ..limits(most) }, first_decisions);
        let mut at = Duration::ZERO;
        let (least, mut most) = (least.max(1), most.max(least.max(1)));
        for (n, (samples, step, bytes_moved, bytes_left, in_opening, rate_limit)) in scenes.iter().enumerate() {
            // One sample in eight goes back in time.
            let step = Duration::from_micros(*step);
            at = if n % 8 == 7 { at.saturating_sub(step) } else { at + step };
            let decisions = tuner.on_sample(&TransferSample {
                at, bytes_moved: *bytes_moved, bytes_left: *bytes_left, streams: samples, streams_opening: *in_opening,
                congestion_control: "cubic", rate_limit: *rate_limit,
            });
            for decision in decisions {
                prop_assert!(!decision.reason.contains("NaN") && !decision.reason.contains("inf"));
                match decision.setting {
                    Some(TransferSetting::Streams(streams)) => {
                        prop_assert!(streams >= 1 && streams <= most, "{streams} of {most}");
                        prop_assert!(streams >= least.min(most));
                    }
                    Some(
                        TransferSetting::CongestionControl(name)
                        | TransferSetting::StreamCongestionControl { name, .. },
                    ) => {
                        prop_assert!(["cubic", "bbr"].contains(&name.as_str()));
                    }
                    Some(TransferSetting::PacingRate(_)) | None => {}
                }
            }
            let due = tuner.next_sample_in();
            prop_assert!(due >= ms(10) && due <= ms(250));
            if n == refused {
                tuner.on_stream_refused(1);
                most = 1;
            }
        }
        let verdict = tuner.verdict();
        prop_assert!(verdict.streams >= 1 && verdict.streams <= most.max(1));
    }
}
