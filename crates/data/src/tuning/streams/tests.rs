use std::io::Read;
use std::net::TcpStream;

use proto::sizing::BufferSizing;
use tune::limiter::Role;

use super::*;
use crate::control::TransferControl;
use crate::os::sockopt::max_pacing_rate;
use crate::tuning::fixtures::connected;

/// A sending transfer with these settings, and its streams.
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

    fn tuning(&self) -> StreamTuning<'_> {
        StreamTuning::for_transfer(&self.transfer, &self.settings, None).unwrap()
    }

    fn sampled(&self, n: usize) -> Vec<SampledStream> {
        let sampled = |(stream, _): &(Arc<DataStream>, _)| SampledStream {
            stream: Arc::clone(stream),
            sample: TcpSample {
                stream: stream.id(),
                bytes_acked: stream.sample().unwrap().bytes_acked,
                ..TcpSample::default()
            },
        };
        self.streams[..n].iter().map(sampled).collect()
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
fn without_adaptation_there_is_no_tuning() {
    let sender = TestSender::new(TransferSettings::default(), 0);
    assert!(StreamTuning::for_transfer(&sender.transfer, &sender.settings, None).is_none());
}

#[test]
fn prior_knowledge_is_applied_at_the_first_sample() {
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
    let sender = TestSender::new(known, 2);
    sender.transfer.stream_set().set_wanted(2);
    let mut tuning = sender.tuning();
    let control = TransferControl::new();
    let sample = TuningSample {
        at: Duration::from_millis(1),
        streams: sender.sampled(2),
        notices: control.notices(),
    };
    tuning.on_sample(&sample, 0);
    assert_eq!(sender.paces(), [Some(450_000); 2]);
    for (stream, _) in &sender.streams {
        assert_eq!(stream.congestion().as_deref(), Some(&*other));
    }
    // Only once: later decisions follow measurements.
    assert_eq!(control.take_stream_decisions().len(), 2);
    tuning.end();
    let report = sender.transfer.finish(Ok(None)).unwrap();
    assert_eq!(report.evidence.pacing_rate, Some(900_000));
    let used = report.prior_use.unwrap();
    assert!(used.contains(&other) && used.contains("paced at"), "{used}");
}

/// A congestion control that is not the system's default.
fn other_congestion() -> Option<String> {
    let (stream, _far) = connected(BufferSizing::Kernel);
    let system = stream.congestion();
    settable()
        .into_iter()
        .find(|name| Some(name) != system.as_ref())
}

#[test]
fn streams_share_the_pacing_rate_until_the_transfer_ends() {
    let sender = TestSender::new(adapting(), 3);
    let mut tuning = sender.tuning();
    tuning.pace = Some(900_000);
    tuning.apply_to_streams(&sender.sampled(2));
    assert_eq!(sender.paces(), [Some(450_000), Some(450_000), None]);
    tuning.apply_to_streams(&sender.sampled(3));
    assert_eq!(sender.paces(), [Some(300_000); 3]);
    tuning.apply_to_streams(&sender.sampled(1));
    assert_eq!(sender.paces()[0], Some(900_000));
    tuning.end();
    assert_eq!(sender.paces(), [None; 3]);
}

#[test]
fn a_removed_pacing_rate_is_removed_from_every_stream() {
    let sender = TestSender::new(adapting(), 2);
    let mut tuning = sender.tuning();
    tuning.pace = Some(1);
    tuning.apply_to_streams(&sender.sampled(2));
    // A rate of zero would stop the stream.
    assert_eq!(sender.paces(), [Some(1); 2]);
    tuning.pace = None;
    tuning.apply_to_streams(&sender.sampled(2));
    assert_eq!(sender.paces(), [None; 2]);
}

#[test]
fn a_connection_that_was_opened_at_a_known_pace_loses_it() {
    let sender = TestSender::new(adapting(), 2);
    for (stream, _) in &sender.streams {
        sockopt::set_max_pacing_rate(stream.as_fd(), Some(50_000)).unwrap();
    }
    sender.tuning().apply_to_streams(&sender.sampled(2));
    assert_eq!(sender.paces(), [None; 2]);
}

#[test]
fn a_decided_control_is_remembered_with_its_connection_and_a_begun_comparison_is_not() {
    let Some(other) = other_congestion() else {
        return;
    };
    let sender = TestSender::new(adapting(), 2);
    let mut auto = AutoTuner::new(tuner_limits(&sender.settings, 2), 2);
    let sample = TuningSample {
        at: Duration::ZERO,
        streams: sender.sampled(2),
        notices: sender.transfer.control().notices(),
    };
    let own = sender.streams[0].0.congestion().unwrap();
    let decide = |auto: &mut AutoTuner, setting: TransferSetting| {
        let mut tuning = sender.tuning();
        let decision = TransferDecision {
            at: Duration::ZERO,
            setting: Some(setting),
            limiter: tune::limiter::Limiter::Loss,
            reason: String::new(),
        };
        tuning.apply_decision(auto, decision, &sample);
        tuning.end();
        let prior = sender
            .tuning()
            .initial_prior(2, &sample.streams, Some(&own));
        (sender.streams[0].0.congestion(), prior.congestion_control)
    };
    let beside = TransferSetting::StreamCongestionControl {
        streams: vec![sender.streams[0].0.id()],
        name: other.clone(),
    };
    if settable().contains(&own) {
        assert_eq!(decide(&mut auto, beside), (Some(own.clone()), None));
    }
    let decided = TransferSetting::CongestionControl(other.clone());
    assert_eq!(decide(&mut auto, decided), (Some(other), Some(own.clone())));
}

#[test]
fn a_joining_stream_gets_the_decided_congestion_control() {
    for name in settable() {
        let sender = TestSender::new(adapting(), 2);
        let mut tuning = sender.tuning();
        tuning
            .try_congestion(&name, sender.sampled(1).iter())
            .unwrap();
        tuning.congestion = Some(name.clone());
        tuning.apply_to_streams(&sender.sampled(2));
        for (stream, _) in &sender.streams {
            assert_eq!(stream.congestion().as_deref(), Some(&*name));
        }
    }
}

#[test]
fn a_refused_congestion_control_is_reported_and_changes_nothing() {
    let sender = TestSender::new(adapting(), 1);
    let mut tuning = sender.tuning();
    let before = sender.streams[0].0.congestion();
    let mut auto = AutoTuner::new(tuner_limits(&sender.settings, 1), 1);
    let decision = TransferDecision {
        at: Duration::ZERO,
        setting: Some(TransferSetting::CongestionControl("warpdrive".to_owned())),
        limiter: tune::limiter::Limiter::Loss,
        reason: "losses".to_owned(),
    };
    let sample = TuningSample {
        at: Duration::ZERO,
        streams: sender.sampled(1),
        notices: sender.transfer.control().notices(),
    };
    tuning.apply_decision(&mut auto, decision, &sample);
    assert_eq!(tuning.congestion, None);
    assert_eq!(sender.streams[0].0.congestion(), before);
    let decisions = sender.transfer.control().take_stream_decisions();
    assert!(
        decisions[0].reason.starts_with("losses; refused: "),
        "{decisions:?}"
    );
    assert!(sender.transfer.control().take_stream_decisions().is_empty());
}

#[test]
fn a_congestion_control_begun_anew_is_the_same_one() {
    let (stream, _far) = connected(BufferSizing::Kernel);
    for name in settable() {
        stream.set_congestion(&name).unwrap();
        stream.restart_congestion().unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
    }
}

#[test]
fn a_cached_connection_returns_to_its_own_congestion_control() {
    let (stream, _far) = connected(BufferSizing::Kernel);
    let own = stream.congestion();
    for name in settable() {
        stream.set_congestion(&name).unwrap();
        stream.prepare_reuse(&CongestionChoice::Auto).unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
        let refused = stream.prepare_reuse(&CongestionChoice::System);
        assert!(refused.is_ok());
        // A process that may not set the system's default cannot return to it.
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
fn an_earlier_choice_is_not_taken_for_the_system_default() {
    let sender = TestSender::new(adapting(), 2);
    let (kept, joining) = (&sender.streams[0].0, &sender.streams[1].0);
    let own = kept.congestion();
    let Some(other) = settable()
        .into_iter()
        .find(|name| own.as_ref() != Some(name))
    else {
        return;
    };
    let mut tuning = sender.tuning();
    assert_eq!(
        (
            tuning.current_congestion(&sender.sampled(2)),
            &tuning.congestion
        ),
        (own.clone(), &None)
    );
    kept.set_congestion(&other).unwrap();
    assert_eq!(tuning.current_congestion(&sender.sampled(2)), own);
    tuning.apply_to_streams(&sender.sampled(2));
    assert_eq!(joining.congestion().as_ref(), Some(&other));
    tuning.auto = Some(AutoTuner::new(tuner_limits(&sender.settings, 2), 2));
    assert_eq!(tuning.current_congestion(&sender.sampled(2)), Some(other));
}

#[test]
fn a_pinned_congestion_control_is_in_force() {
    let pinned = running(CongestionChoice::Named("reno".into()), adapting());
    let sender = TestSender::new(pinned, 1);
    if sender.streams[0].0.set_congestion("reno").is_ok() {
        let mut tuning = sender.tuning();
        assert_eq!(
            tuning.current_congestion(&sender.sampled(1)).as_deref(),
            Some("reno")
        );
        assert_eq!(tuning.congestion, None);
    }
}

#[test]
fn the_tuner_may_change_only_what_the_settings_allow() {
    let limits = tuner_limits(&adapting(), 2);
    assert_eq!(
        (limits.min_streams, limits.max_streams, limits.may_pace),
        (1, 8, true)
    );
    assert_eq!(limits.congestion_controls, settable());
    let at_least = |min_streams| TransferSettings {
        min_streams,
        ..adapting()
    };
    assert_eq!(tuner_limits(&at_least(2), 3).min_streams, 2);
    assert_eq!(tuner_limits(&at_least(4), 3).min_streams, 3);
    assert_eq!(tuner_limits(&at_least(0), 3).min_streams, 1);
    // More cached streams than the settings allow.
    assert_eq!(tuner_limits(&adapting(), 9).max_streams, 9);
    let stream_mode = TransferSettings {
        mode: TransferMode::Stream,
        ..running(CongestionChoice::Named("reno".into()), adapting())
    };
    let limits = tuner_limits(&stream_mode, 1);
    assert_eq!(
        (limits.min_streams, limits.max_streams, limits.may_pace),
        (1, 1, true)
    );
    assert!(limits.congestion_controls.is_empty());
    let fixed = TransferSettings {
        adapt: false,
        ..adapting()
    };
    let limits = tuner_limits(&fixed, 4);
    assert_eq!(
        (limits.min_streams, limits.max_streams, limits.may_pace),
        (4, 4, false)
    );
    assert_eq!(limits.congestion_controls, settable());
}

#[test]
fn bytes_of_an_earlier_transfer_do_not_count() {
    let mut sender = TestSender::new(adapting(), 1);
    let (stream, peer) = &mut sender.streams[0];
    let mut send = |bytes: &[u8]| {
        let before = stream.sample().unwrap().bytes_acked;
        let expected = before + bytes.len() as u64;
        assert_eq!(
            stream.transport().socket().send(bytes).unwrap(),
            bytes.len()
        );
        peer.read_exact(&mut vec![0; bytes.len()]).unwrap();
        for _ in 0..1_000 {
            if stream.sample().unwrap().bytes_acked == expected {
                return expected;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("not acknowledged");
    };
    let before = send(&[7; 1000]);
    stream.note_acknowledged_before(before);
    send(&[7; 300]);
    assert_eq!(acknowledged(&sender.sampled(1)), 300);
}
