use std::io::Read;
use std::net::TcpStream;

use proto::sizing::Sizing;
use tune::limiter::Role;

use super::*;
use crate::control::Control;
use crate::os::sockopt::pace;
use crate::sizing::fixtures::connected;

/// A transfer that is sent with these settings, and its streams.
struct Sending {
    settings: Settings,
    transfer: Transfer,
    streams: Vec<(Arc<Stream>, TcpStream)>,
}

impl Sending {
    fn new(settings: Settings, streams: usize) -> Self {
        let transfer = Transfer::new(Role::Sender, &settings, &Arc::new(Control::new())).unwrap();
        let streams = (0..streams).map(|_| connected(Sizing::Kernel)).collect();
        Self {
            settings,
            transfer,
            streams,
        }
    }

    fn steering(&self) -> Steering<'_> {
        Steering::of(&self.transfer, &self.settings, None).unwrap()
    }

    fn seen(&self, n: usize) -> Vec<Seen> {
        let seen = |(stream, _): &(Arc<Stream>, _)| Seen {
            stream: Arc::clone(stream),
            look: Look {
                stream: stream.id(),
                bytes: stream.sample().unwrap().info.bytes_acked,
                ..Look::default()
            },
        };
        self.streams[..n].iter().map(seen).collect()
    }

    fn paces(&self) -> Vec<Option<u64>> {
        let pace = |(stream, _): &(Arc<Stream>, _)| pace(stream.as_fd()).unwrap();
        self.streams.iter().map(pace).collect()
    }
}

fn running(congestion: Congestion, mut settings: Settings) -> Settings {
    settings.options.congestion = congestion;
    settings
}

fn adapting() -> Settings {
    running(
        Congestion::Auto,
        Settings {
            mode: Mode::Extended,
            adapt: true,
            most_streams: 8,
            ..Settings::default()
        },
    )
}

#[test]
fn who_asks_for_nothing_is_not_steered() {
    let sending = Sending::new(Settings::default(), 0);
    assert!(Steering::of(&sending.transfer, &sending.settings, None).is_none());
}

#[test]
fn what_is_known_of_the_path_is_set_at_the_first_look() {
    let Some(other) = other_congestion() else {
        return;
    };
    let known = Settings {
        prior: Prior {
            congestion_control: Some(other.clone()),
            pace: Some(900_000),
            ..Prior::default()
        },
        ..adapting()
    };
    let sending = Sending::new(known, 2);
    sending.transfer.lanes().aim(2);
    let mut steering = sending.steering();
    let control = Control::new();
    let scene = Scene {
        at: Duration::from_millis(1),
        seen: sending.seen(2),
        board: control.board(),
    };
    steering.on_look(&scene, 0);
    assert_eq!(sending.paces(), [Some(450_000); 2]);
    for (stream, _) in &sending.streams {
        assert_eq!(stream.congestion().as_deref(), Some(&*other));
    }
    // Once only: what is measured counts from now on.
    assert_eq!(control.stream_decisions().len(), 2);
}

/// One that is not the system's.
fn other_congestion() -> Option<String> {
    let (stream, _far) = connected(Sizing::Kernel);
    let system = stream.congestion();
    settable()
        .into_iter()
        .find(|name| Some(name) != system.as_ref())
}

#[test]
fn all_streams_share_the_pace_and_none_keeps_it() {
    let sending = Sending::new(adapting(), 3);
    let mut steering = sending.steering();
    steering.pace = Some(900_000);
    steering.fit(&sending.seen(2));
    assert_eq!(sending.paces(), [Some(450_000), Some(450_000), None]);
    steering.fit(&sending.seen(3));
    assert_eq!(sending.paces(), [Some(300_000); 3]);
    steering.fit(&sending.seen(1));
    assert_eq!(sending.paces()[0], Some(900_000));
    steering.end();
    assert_eq!(sending.paces(), [None; 3]);
}

#[test]
fn a_pace_that_was_lifted_is_lifted_everywhere() {
    let sending = Sending::new(adapting(), 2);
    let mut steering = sending.steering();
    steering.pace = Some(1);
    steering.fit(&sending.seen(2));
    // Zero would stop a stream for good.
    assert_eq!(sending.paces(), [Some(1); 2]);
    steering.pace = None;
    steering.fit(&sending.seen(2));
    assert_eq!(sending.paces(), [None; 2]);
}

#[test]
fn a_stream_that_joins_runs_the_congestion_control_that_was_decided() {
    for name in settable() {
        let sending = Sending::new(adapting(), 2);
        let mut steering = sending.steering();
        steering.try_congestion(&name, &sending.seen(1)).unwrap();
        steering.congestion = Some(name.clone());
        steering.fit(&sending.seen(2));
        for (stream, _) in &sending.streams {
            assert_eq!(stream.congestion().as_deref(), Some(&*name));
        }
    }
}

#[test]
fn a_refused_congestion_control_is_told_and_changes_nothing() {
    let sending = Sending::new(adapting(), 1);
    let mut steering = sending.steering();
    let before = sending.streams[0].0.congestion();
    let mut auto = Auto::new(limits(&sending.settings, 1), 1);
    let decision = Decision {
        at: Duration::ZERO,
        step: Some(Step::Congestion("warpdrive".to_owned())),
        limiter: tune::limiter::Limiter::Loss,
        reason: "losses".to_owned(),
    };
    let scene = Scene {
        at: Duration::ZERO,
        seen: sending.seen(1),
        board: sending.transfer.control().board(),
    };
    steering.carry_out(&mut auto, decision, &scene);
    assert_eq!(steering.congestion, None);
    assert_eq!(sending.streams[0].0.congestion(), before);
    let told = sending.transfer.control().stream_decisions();
    assert!(told[0].reason.starts_with("losses; refused: "), "{told:?}");
    assert!(sending.transfer.control().stream_decisions().is_empty());
}

#[test]
fn a_kept_connection_goes_back_to_its_own_congestion_control() {
    let (stream, _far) = connected(Sizing::Kernel);
    let own = stream.congestion();
    for name in settable() {
        stream.set_congestion(&name).unwrap();
        stream.again(&Congestion::Auto).unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
        let refused = stream.again(&Congestion::System);
        assert!(refused.is_ok());
        // A process that may not set the system's own cannot go back to it.
        if own.as_ref().is_some_and(|own| settable().contains(own)) {
            assert_eq!(stream.congestion(), own);
        }
        stream.again(&Congestion::Named(name.clone())).unwrap();
        assert_eq!(stream.congestion().as_deref(), Some(&*name));
    }
    assert!(
        stream
            .again(&Congestion::Named("warpdrive".into()))
            .is_err()
    );
}

#[test]
fn what_an_earlier_transfer_chose_is_not_taken_for_the_systems() {
    let sending = Sending::new(adapting(), 2);
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
        (steering.in_force(&sending.seen(2)), &steering.congestion),
        (own.clone(), &None)
    );
    kept.set_congestion(&other).unwrap();
    assert_eq!(steering.in_force(&sending.seen(2)), own);
    steering.fit(&sending.seen(2));
    assert_eq!(joining.congestion().as_ref(), Some(&other));
    steering.auto = Some(Auto::new(limits(&sending.settings, 2), 2));
    assert_eq!(steering.in_force(&sending.seen(2)), Some(other));
}

#[test]
fn what_was_pinned_is_what_is_in_force() {
    let pinned = running(Congestion::Named("reno".into()), adapting());
    let sending = Sending::new(pinned, 1);
    if sending.streams[0].0.set_congestion("reno").is_ok() {
        let mut steering = sending.steering();
        assert_eq!(steering.in_force(&sending.seen(1)).as_deref(), Some("reno"));
        assert_eq!(steering.congestion, None);
    }
}

#[test]
fn what_may_change_is_what_was_asked_for() {
    let may = limits(&adapting(), 2);
    assert_eq!((may.least, may.most, may.pace), (1, 8, true));
    assert_eq!(may.congestion, settable());
    let at_least = |least_streams| Settings {
        least_streams,
        ..adapting()
    };
    assert_eq!(limits(&at_least(2), 3).least, 2);
    assert_eq!(limits(&at_least(4), 3).least, 3);
    assert_eq!(limits(&at_least(0), 3).least, 1);
    // More streams were kept than there shall be.
    assert_eq!(limits(&adapting(), 9).most, 9);
    let stream_mode = Settings {
        mode: Mode::Stream,
        ..running(Congestion::Named("reno".into()), adapting())
    };
    let may = limits(&stream_mode, 1);
    assert_eq!((may.least, may.most, may.pace), (1, 1, true));
    assert!(may.congestion.is_empty());
    let fixed = Settings {
        adapt: false,
        ..adapting()
    };
    let may = limits(&fixed, 4);
    assert_eq!((may.least, may.most, may.pace), (4, 4, false));
    assert_eq!(may.congestion, settable());
}

#[test]
fn what_another_transfer_moved_over_a_connection_does_not_count() {
    let mut sending = Sending::new(adapting(), 1);
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
