//! Both ends of transfers over one session's DRS channel.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::channel::SessionDataChannel;
use data::drs::DrsEndpoint;
use data::job::TransferControl;
use data::store::Source;
use data::store::memory::{MemorySink, MemorySource};
use proto::command::TransferMode;
use proto::drs::{DrsMessage, Nonce};

use crate::end_under_test::{
    ANY, ELSEWHERE, LONG, connecting, greeting, listen, listening, pattern, plan, settings,
};
use crate::relay::{DrsRelay, RelayedDialogue};

const FILE_SIZE: usize = 1 << 20;

/// A source that holds its second half back until a condition is true.
struct HeldSource<F> {
    bytes: MemorySource,
    until: F,
}

impl<F> fmt::Debug for HeldSource<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

impl<F: Fn() -> bool + Send + Sync> Source for HeldSource<F> {
    fn name(&self) -> String {
        self.bytes.name()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let begin = Instant::now();
        while offset >= FILE_SIZE as u64 / 2 && !(self.until)() && begin.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.bytes.read_at(offset, buf)
    }
    fn len(&self) -> io::Result<Option<u64>> {
        self.bytes.len()
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

type DrsEnd<'a> = Option<&'a Arc<DrsEndpoint>>;

/// Moves bytes, the second half of them once `until` is true. All must arrive.
fn transfer(
    (mode, streams): (TransferMode, usize),
    sender: DrsEnd<'_>,
    receiver: DrsEnd<'_>,
    until: impl Fn() -> bool + Send + Sync + 'static,
) {
    let bytes = pattern(FILE_SIZE);
    let source_bytes = HeldSource {
        bytes: MemorySource::new(bytes.clone(), "source"),
        until,
    };
    let source: Arc<dyn Source> = Arc::new(source_bytes);
    let sink = MemorySink::new(64 << 20, "sink");
    let (mut to, address) = listen();
    let mut from = SessionDataChannel::connect_to(vec![address], None);
    let mut sending = settings(mode, sender);
    sending.streams = streams;
    let receiving = settings(mode, receiver);
    let control = || Arc::new(TransferControl::new());
    let begin = Instant::now();
    let (sent, received) = std::thread::scope(|scope| {
        let sent = scope
            .spawn(|| data::send::run(&mut from, &source, &plan(FILE_SIZE), &sending, &control()));
        let target = Arc::new(sink.clone()) as _;
        let received = data::recv::run(&mut to, &target, &ANY, &receiving, &control());
        (sent.join().unwrap(), received)
    });
    assert_eq!(sent.unwrap().evidence.bytes, FILE_SIZE as u64);
    assert_eq!(received.unwrap().evidence.bytes, FILE_SIZE as u64);
    assert!(sink.bytes() == bytes);
    assert!(begin.elapsed() < LONG);
}

const MODES: [(TransferMode, usize); 3] = [
    (TransferMode::Stream, 1),
    (TransferMode::Extended, 1),
    (TransferMode::Extended, 4),
];

/// Whether both ends have sent so many lines on the newest of so many connections.
fn said(relay: &DrsRelay, connections: usize, lines: usize) -> bool {
    let dialogues = relay.dialogues();
    let Some(RelayedDialogue {
        from_connecting,
        from_listening,
    }) = dialogues.get(connections - 1)
    else {
        return false;
    };
    [from_connecting, from_listening]
        .iter()
        .all(|text| text.matches('\n').count() >= lines)
}

/// Checks that the echoes are the messages, in order.
fn check_echoes(messages: &str, echoes: &str) {
    assert!(messages.starts_with(echoes), "{messages}\n{echoes}");
    assert!(echoes.lines().count() >= 2, "{echoes}");
    for line in messages.lines() {
        assert!(DrsMessage::parse(line).is_some(), "{line}");
    }
}

#[test]
fn the_dialogue_follows_the_paper_whichever_end_listens() {
    for kind in MODES {
        let drs = listening();
        let relay = Arc::new(DrsRelay::new(&drs, None));
        let hello = greeting(&drs);

        let watched = Arc::clone(&relay);
        transfer(kind, Some(&relay.endpoint), Some(&drs), move || {
            said(&watched, 1, 3)
        });
        let [
            RelayedDialogue {
                from_connecting,
                from_listening,
            },
        ] = &relay.dialogues()[..]
        else {
            panic!("{:?}", relay.dialogues());
        };
        check_echoes(
            from_listening,
            from_connecting.strip_prefix(&hello).unwrap(),
        );

        // The next transfer of the session has the opposite direction.
        let watched = Arc::clone(&relay);
        transfer(kind, Some(&drs), Some(&relay.endpoint), move || {
            said(&watched, 2, 3)
        });
        let [
            _,
            RelayedDialogue {
                from_connecting,
                from_listening,
            },
        ] = &relay.dialogues()[..]
        else {
            panic!("{:?}", relay.dialogues());
        };
        check_echoes(
            from_connecting.strip_prefix(&hello).unwrap(),
            from_listening,
        );
    }
}

#[test]
fn a_channel_lost_during_a_transfer_does_not_affect_either_end() {
    for kind in MODES {
        for receiver_listens in [true, false] {
            let drs = listening();
            let relay = Arc::new(DrsRelay::new(&drs, Some(2)));
            let (sender, receiver) = if receiver_listens {
                (&relay.endpoint, &drs)
            } else {
                (&drs, &relay.endpoint)
            };
            let watched = Arc::clone(&relay);
            transfer(kind, Some(sender), Some(receiver), move || {
                watched.was_cut()
            });
            assert!(relay.was_cut());
        }
    }
}

/// A condition that is true after an end has tried to reach the other.
fn after_a_while() -> impl Fn() -> bool + Send + Sync {
    let begin = Instant::now();
    move || begin.elapsed() > Duration::from_millis(100)
}

#[test]
fn an_end_without_a_peer_on_the_channel_continues_alone() {
    let [stream, _, extended] = MODES;
    let drs = listening();
    transfer(stream, None, Some(&drs), after_a_while());
    transfer(extended, Some(&drs), None, after_a_while());
    // A listener that never accepts the connection, then none at all.
    let (endpoint, listener) = connecting();
    transfer(stream, None, Some(&endpoint), after_a_while());
    drop(listener);
    transfer(extended, None, Some(&endpoint), after_a_while());
    transfer(stream, Some(&endpoint), None, after_a_while());
}

#[test]
fn no_connection_is_made_to_a_host_without_data_connections() {
    let elsewhere = TcpListener::bind((ELSEWHERE, 0)).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let at = elsewhere.local_addr().unwrap();
    let endpoint = Arc::new(DrsEndpoint::connect(at, Nonce::new([7; 16])));
    transfer(MODES[0], Some(&endpoint), None, after_a_while());
    assert!(elsewhere.accept().is_err());
}
