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

use crate::ends::{
    ANY, ELSEWHERE, LONG, connecting, greeting, listen, listening, pattern, plan, settings,
};
use crate::relay::{DrsRelay, RelayedDialogue};

const LEN: usize = 1 << 20;

/// A source that keeps its second half back until something has happened.
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
        while offset >= LEN as u64 / 2 && !(self.until)() && begin.elapsed() < LONG {
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

/// Moves bytes, the second half of them when `until` holds; they must arrive.
fn transfer(
    (mode, streams): (TransferMode, usize),
    sender: DrsEnd<'_>,
    receiver: DrsEnd<'_>,
    until: impl Fn() -> bool + Send + Sync + 'static,
) {
    let bytes = pattern(LEN);
    let held = HeldSource {
        bytes: MemorySource::new(bytes.clone(), "source"),
        until,
    };
    let source: Arc<dyn Source> = Arc::new(held);
    let sink = MemorySink::new(64 << 20, "sink");
    let (mut to, address) = listen();
    let mut from = SessionDataChannel::connect_to(vec![address], None);
    let mut sending = settings(mode, sender);
    sending.streams = streams;
    let receiving = settings(mode, receiver);
    let control = || Arc::new(TransferControl::new());
    let begin = Instant::now();
    let (sent, received) = std::thread::scope(|scope| {
        let sent =
            scope.spawn(|| data::send::run(&mut from, &source, &plan(LEN), &sending, &control()));
        let target = Arc::new(sink.clone()) as _;
        let received = data::recv::run(&mut to, &target, &ANY, &receiving, &control());
        (sent.join().unwrap(), received)
    });
    assert_eq!(sent.unwrap().evidence.bytes, LEN as u64);
    assert_eq!(received.unwrap().evidence.bytes, LEN as u64);
    assert!(sink.bytes() == bytes);
    assert!(begin.elapsed() < LONG);
}

const KINDS: [(TransferMode, usize); 3] = [
    (TransferMode::Stream, 1),
    (TransferMode::Extended, 1),
    (TransferMode::Extended, 4),
];

/// Whether both ends have said so many lines, on the newest connection of so many.
fn said(tap: &DrsRelay, connections: usize, lines: usize) -> bool {
    let dialogues = tap.dialogues();
    let Some(RelayedDialogue { there, back }) = dialogues.get(connections - 1) else {
        return false;
    };
    [there, back]
        .iter()
        .all(|text| text.matches('\n').count() >= lines)
}

/// Every echo is a message, in order.
fn check_echoes(messages: &str, echoes: &str) {
    assert!(messages.starts_with(echoes), "{messages}\n{echoes}");
    assert!(echoes.lines().count() >= 2, "{echoes}");
    for line in messages.lines() {
        assert!(DrsMessage::parse(line).is_some(), "{line}");
    }
}

#[test]
fn the_dialogue_is_the_papers_whoever_listens() {
    for kind in KINDS {
        let drs = listening();
        let tap = Arc::new(DrsRelay::new(&drs, None));
        let hello = greeting(&drs);

        let watched = Arc::clone(&tap);
        transfer(kind, Some(&tap.endpoint), Some(&drs), move || {
            said(&watched, 1, 3)
        });
        let [RelayedDialogue { there, back }] = &tap.dialogues()[..] else {
            panic!("{:?}", tap.dialogues());
        };
        check_echoes(back, there.strip_prefix(&hello).unwrap());

        // The same session's next transfer goes the other way.
        let watched = Arc::clone(&tap);
        transfer(kind, Some(&drs), Some(&tap.endpoint), move || {
            said(&watched, 2, 3)
        });
        let [_, RelayedDialogue { there, back }] = &tap.dialogues()[..] else {
            panic!("{:?}", tap.dialogues());
        };
        check_echoes(there.strip_prefix(&hello).unwrap(), back);
    }
}

#[test]
fn a_channel_cut_in_mid_transfer_is_missed_by_nobody() {
    for kind in KINDS {
        for receiver_listens in [true, false] {
            let drs = listening();
            let tap = Arc::new(DrsRelay::new(&drs, Some(2)));
            let (sender, receiver) = if receiver_listens {
                (&tap.endpoint, &drs)
            } else {
                (&drs, &tap.endpoint)
            };
            let watched = Arc::clone(&tap);
            transfer(kind, Some(sender), Some(receiver), move || {
                watched.was_cut()
            });
            assert!(tap.was_cut());
        }
    }
}

/// So long that an end has tried to reach the other.
fn a_while() -> impl Fn() -> bool + Send + Sync {
    let begin = Instant::now();
    move || begin.elapsed() > Duration::from_millis(100)
}

#[test]
fn an_end_whose_other_end_never_comes_goes_on_alone() {
    let [stream, _, extended] = KINDS;
    let drs = listening();
    transfer(stream, None, Some(&drs), a_while());
    transfer(extended, Some(&drs), None, a_while());
    // Somebody who never takes the connection, then nobody.
    let (endpoint, listener) = connecting();
    transfer(stream, None, Some(&endpoint), a_while());
    drop(listener);
    transfer(extended, None, Some(&endpoint), a_while());
    transfer(stream, Some(&endpoint), None, a_while());
}

#[test]
fn a_host_without_data_connections_is_not_connected_to() {
    let elsewhere = TcpListener::bind((ELSEWHERE, 0)).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let at = elsewhere.local_addr().unwrap();
    let endpoint = Arc::new(DrsEndpoint::connect(at, Nonce::new([7; 16])));
    transfer(KINDS[0], Some(&endpoint), None, a_while());
    assert!(elsewhere.accept().is_err());
}
