use std::io::Read;
use std::net::TcpStream;

use proto::sizing::BufferSizing;
use tune::limiter::Role;

use super::*;
use crate::control::TransferControl;
use crate::os::sockopt::max_pacing_rate;
use crate::sizing::fixtures::connected;

/// A transfer that is sent with these settings, and its streams.
struct TestSender {
    settings: TransferSettings,
    transfer: ActiveTransfer,
    streams: Vec<(Arc<DataStream>, TcpStream)>,
}

impl TestSender {
    fn new(settings: TransferSettings, streams: usize) -> Self {
        let transfer =
            ActiveTransfer::new(Role::Sender, &settings, &Arc::new(TransferControl::new()))
                .unwrap();
        let streams = (0..streams)
            .map(|_| connected(BufferSizing::Kernel))
            .collect();
        Self {
            settings,
            transfer,
            streams,
        }
    }

    fn steering(&self) -> StreamTuning<'_> {
        StreamTuning::for_transfer(&self.transfer, &self.settings, None).unwrap()
    }

    fn seen(&self, n: usize) -> Vec<SampledStream> {
        let seen = |(stream, _): &(Arc<DataStream>, _)| SampledStream {
            stream: Arc::clone(stream),
            sample: TcpSample {
                stream: stream.id(),
                bytes: stream.sample().unwrap().info.bytes_acked,
                ..TcpSample::default()
            },
        };
        self.streams[..n].iter().map(seen).collect()
    }

    fn paces(&self) -> Vec<Option<u64>> {
        let pace = |(stream, _): &(Arc<DataStream>, _)| max_pacing_rate(stream.as_fd()).unwrap();
        self.streams.iter().map(pace).collect()
    }
}

fn running(congestion: CongestionChoice, mut settings: TransferSettings) -> TransferSettings {
    settings.options.congestion = congestion;
    settings
}

fn adapting() -> TransferSettings {
    running(
        CongestionChoice::Auto,
        TransferSettings {
            mode: TransferMode::Extended,
            adapt: true,
            max_streams: 8,
            ..TransferSettings::default()
        },
    )
}

#[test]
fn who_asks_for_nothing_is_not_steered() {
    let sending = TestSender::new(TransferSettings::default(), 0);
    assert!(StreamTuning::for_transfer(&sending.transfer, &sending.settings, None).is_none());
}

#[test]
fn what_is_known_of_the_path_is_set_at_the_first_look() {
    let Some(other) = other_congestion() else {
        return;
    };
    let known = TransferSettings {
        prior: Prior {
            congestion_control: Some(other.clone()),
            pacing_rate: Some(900_000),
            ..Prior::default()
        },
        ..adapting()
    };
    let sending = TestSender::new(known, 2);
    sending.transfer.stream_set().set_wanted(2);
    let mut steering = sending.steering();
    let control = TransferControl::new();
    let scene = SizingSample {
        at: Duration::from_millis(1),
        streams: sending.seen(2),
        board: control.notices(),
    };
    steering.on_look(&scene, 0);
    assert_eq!(sending.paces(), [Some(450_000); 2]);
    for (stream, _) in &sending.streams {
        assert_eq!(stream.congestion().as_deref(), Some(&*other));
    }
    // Once only: what is measured counts from now on.
    assert_eq!(control.take_stream_decisions().len(), 2);
}

/// One that is not the system's.
fn other_congestion() -> Option<String> {
    let (stream, _far) = connected(BufferSizing::Kernel);
    let system = stream.congestion();
    settable()
        .into_iter()
        .find(|name| Some(name) != system.as_ref())
}

#[test]
fn all_streams_share_the_pace_and_none_keeps_it() {
    let sending = TestSender::new(adapting(), 3);
    let mut steering = sending.steering();
    steering.pace = Some(900_000);
    steering.apply_to_streams(&sending.seen(2));
    assert_eq!(sending.paces(), [Some(450_000), Some(450_000), None]);
    steering.apply_to_streams(&sending.seen(3));
    assert_eq!(sending.paces(), [Some(300_000); 3]);
    steering.apply_to_streams(&sending.seen(1));
    assert_eq!(sending.paces()[0], Some(900_000));
    steering.end();
    assert_eq!(sending.paces(), [None; 3]);
}

#[test]
fn a_pace_that_was_lifted_is_lifted_everywhere() {
    let sending = TestSender::new(adapting(), 2);
    let mut steering = sending.steering();
    steering.pace = Some(1);
    steering.apply_to_streams(&sending.seen(2));
    // Zero would stop a stream for good.
    assert_eq!(sending.paces(), [Some(1); 2]);
    steering.pace = None;
    steering.apply_to_streams(&sending.seen(2));
    assert_eq!(sending.paces(), [None; 2]);
}

#[test]
fn a_stream_that_joins_runs_the_congestion_control_that_was_decided() {
    for name in settable() {
        let sending = TestSender::new(adapting(), 2);
        let mut steering = sending.steering();
        steering.try_congestion(&name, &sending.seen(1)).unwrap();
        steering.congestion = Some(name.clone());
        steering.apply_to_streams(&sending.seen(2));
        for (stream, _) in &sending.streams {
            assert_eq!(stream.congestion().as_deref(), Some(&*name));
        }
    }
}

#[test]
fn a_refused_congestion_control_is_told_and_changes_nothing() {
    let sending = TestSender::new(adapting(), 1);
    let mut steering = sending.steering();
    let before = sending.streams[0].0.congestion();
    let mut auto = AutoTuner::new(limits(&sending.settings, 1), 1);
    let decision = TransferDecision {
        at: Duration::ZERO,
        setting: Some(TransferSetting::CongestionControl("warpdrive".to_owned())),
        limiter: tune::limiter::Limiter::Loss,
        reason: "losses".to_owned(),
    };
    let scene = SizingSample {
        at: Duration::ZERO,
        streams: sending.seen(1),
        board: sending.transfer.control().notices(),
    };
    steering.carry_out(&mut auto, decision, &scene);
    assert_eq!(steering.congestion, None);
    assert_eq!(sending.streams[0].0.congestion(), before);
    let told = sending.transfer.control().take_stream_decisions();
    assert!(told[0].reason.starts_with("losses; refused: "), "{told:?}");
    assert!(
        sending
            .transfer
            .control()
            .take_stream_decisions()
            .is_empty()
    );
}

#[test]
fn a_kept_connection_goes_back_to_its_own_congestion_control() {
    let (stream, _far) = connected(BufferSizing::Kernel);
    let own = stream.congestion();
    for name in settable() {
        stream.set_congestion(&name).unwrap();
        stream.prepare_reuse(&CongestionChoice::Auto).unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
        let refused = stream.prepare_reuse(&CongestionChoice::System);
        assert!(refused.is_ok());
        // A process that may not set the system's own cannot go back to it.
        if own.as_ref().is_some_and(|own| settable().contains(own)) {
            assert_eq!(stream.congestion(), own);
        }
        stream
            .prepare_reuse(&CongestionChoice::Named(name.clone()))
            .unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
    }
    assert!(
        stream
            .prepare_reuse(&CongestionChoice::Named("warpdrive".into()))
            .is_err()
    );
}

#[test]
fn what_an_earlier_transfer_chose_is_not_taken_for_the_systems() {
    let sending = TestSender::new(adapting(), 2);
    let (kept, joining) = (&sending.streams[0].0, &sending.streams[1].0);
    let own = kept.congestion();
    let Some(other) = settable()
        .into_iter()
        .find(|name| own.as_ref() != Some(name))
    else {
        return;
    };
    let mut steering = sending.steering();
    assert_eq!(
        (
            steering.current_congestion(&sending.seen(2)),
            &steering.congestion
        ),
        (own.clone(), &None)
    );
    kept.set_congestion(&other).unwrap();
    assert_eq!(steering.current_congestion(&sending.seen(2)), own);
    steering.apply_to_streams(&sending.seen(2));
    assert_eq!(joining.congestion().as_ref(), Some(&other));
    steering.auto = Some(AutoTuner::new(limits(&sending.settings, 2), 2));
    assert_eq!(steering.current_congestion(&sending.seen(2)), Some(other));
}

#[test]
fn what_was_pinned_is_what_is_in_force() {
    let pinned = running(CongestionChoice::Named("reno".into()), adapting());
    let sending = TestSender::new(pinned, 1);
    if sending.streams[0].0.set_congestion("reno").is_ok() {
        let mut steering = sending.steering();
        assert_eq!(
            steering.current_congestion(&sending.seen(1)).as_deref(),
            Some("reno")
        );
        assert_eq!(steering.congestion, None);
    }
}

#[test]
fn what_may_change_is_what_was_asked_for() {
    let may = limits(&adapting(), 2);
    assert_eq!(
        (may.min_streams, may.max_streams, may.may_pace),
        (1, 8, true)
    );
    assert_eq!(may.congestion_controls, settable());
    let at_least = |least_streams| TransferSettings {
        min_streams: least_streams,
        ..adapting()
    };
    assert_eq!(limits(&at_least(2), 3).min_streams, 2);
    assert_eq!(limits(&at_least(4), 3).min_streams, 3);
    assert_eq!(limits(&at_least(0), 3).min_streams, 1);
    // More streams were kept than there shall be.
    assert_eq!(limits(&adapting(), 9).max_streams, 9);
    let stream_mode = TransferSettings {
        mode: TransferMode::Stream,
        ..running(CongestionChoice::Named("reno".into()), adapting())
    };
    let may = limits(&stream_mode, 1);
    assert_eq!(
        (may.min_streams, may.max_streams, may.may_pace),
        (1, 1, true)
    );
    assert!(may.congestion_controls.is_empty());
    let fixed = TransferSettings {
        adapt: false,
        ..adapting()
    };
    let may = limits(&fixed, 4);
    assert_eq!(
        (may.min_streams, may.max_streams, may.may_pace),
        (4, 4, false)
    );
    assert_eq!(may.congestion_controls, settable());
}

#[test]
fn what_another_transfer_moved_over_a_connection_does_not_count() {
    let mut sending = TestSender::new(adapting(), 1);
    let (stream, far) = &mut sending.streams[0];
    let mut send = |bytes: &[u8]| {
        let before = stream.sample().unwrap().info.bytes_acked;
        let expected = before + bytes.len() as u64;
        assert_eq!(
            stream.transport().socket().send(bytes).unwrap(),
            bytes.len()
        );
        far.read_exact(&mut vec![0; bytes.len()]).unwrap();
        for _ in 0..1_000 {
            if stream.sample().unwrap().info.bytes_acked == expected {
                return expected;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not acknowledged");
    };
    let before = send(&[7; 1000]);
    stream.note_acknowledged_before(before);
    send(&[7; 300]);
    assert_eq!(acknowledged(&sending.seen(1)), 300);
}
