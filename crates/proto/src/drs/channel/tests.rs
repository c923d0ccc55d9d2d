use super::*;
use crate::drs::MAX_LINE;
use crate::sizing::MAX_BUFFER;
use proptest::prelude::*;

const HEX: &str = "000102030405060708090a0b0c0d0eff";

fn nonce() -> Nonce {
    Nonce::parse(HEX).unwrap()
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes all unsent bytes.
fn flush(channel: &mut DrsChannel) -> Vec<u8> {
    let bytes = channel.unsent().to_vec();
    channel.mark_sent(bytes.len());
    bytes
}

fn receive(
    channel: &mut DrsChannel,
    now: Duration,
    bytes: &[u8],
) -> Result<Vec<DrsEvent>, DrsViolation> {
    let mut events = Vec::new();
    channel.on_bytes(now, bytes, &mut events).map(|()| events)
}

/// A channel that is open.
fn open(role: DrsRole) -> DrsChannel {
    let mut channel = DrsChannel::connecting(role, nonce());
    flush(&mut channel);
    channel
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_connecting_receiver_sends_nonce_and_size_and_gets_an_echo() {
    let mut receiver = DrsChannel::connecting(DrsRole::Receiver, nonce());
    let mut sender = DrsChannel::listening(DrsRole::Sender, nonce());
    assert!(receiver.is_open() && !sender.is_open());

    assert!(receiver.announce(at(12), 65_536));
    let wire = flush(&mut receiver);
    assert_eq!(
        text(&wire),
        "DRS 000102030405060708090a0b0c0d0eff\r\nSBUF 0.012000 65536\r\n"
    );
    let received = receive(&mut sender, at(3), &wire);
    assert_eq!(
        received,
        Ok(vec![DrsEvent::Authenticated, DrsEvent::BufferSize(65_536)])
    );
    assert!(sender.is_open() && sender.unsent().is_empty());
    sender.release_echoes();
    let wire = flush(&mut sender);
    assert_eq!(text(&wire), "SBUF 0.012000 65536\r\n");
    let received = receive(&mut receiver, at(112), &wire);
    assert_eq!(received, Ok(vec![DrsEvent::RoundTrip(at(100))]));
}

#[test]
fn a_listening_receiver_announces_only_after_the_nonce() {
    let mut sender = DrsChannel::connecting(DrsRole::Sender, nonce());
    let mut receiver = DrsChannel::listening(DrsRole::Receiver, nonce());
    assert!(!receiver.announce(at(1), 65_536));
    assert!(receiver.unsent().is_empty());
    let received = receive(&mut receiver, at(2), &flush(&mut sender));
    assert_eq!(received, Ok(vec![DrsEvent::Authenticated]));
    assert!(receiver.announce(at(1234), 1 << 20));
    let wire = flush(&mut receiver);
    assert_eq!(text(&wire), "SBUF 1.234000 1048576\r\n");
    assert_eq!(
        receive(&mut sender, at(0), &wire),
        Ok(vec![DrsEvent::BufferSize(1 << 20)])
    );
}

#[test]
fn an_echo_repeats_the_line_exactly_once_the_size_is_applied() {
    let mut sender = open(DrsRole::Sender);
    let line = b"sbuf 1700000000.123456789012 00000000000000065537\n";
    let received = receive(&mut sender, at(0), line);
    assert_eq!(received, Ok(vec![DrsEvent::BufferSize(65_537)]));
    assert!(sender.unsent().is_empty());
    sender.release_echoes();
    assert_eq!(flush(&mut sender), line);
    sender.release_echoes();
    assert!(sender.unsent().is_empty());
}

#[test]
fn several_messages_may_be_outstanding_and_each_echo_is_a_round_trip() {
    let (mut receiver, mut sender) = (open(DrsRole::Receiver), open(DrsRole::Sender));
    for millis in [0, 20, 40] {
        assert!(receiver.announce(at(millis), 65_536));
    }
    receive(&mut sender, at(0), &flush(&mut receiver)).unwrap();
    sender.release_echoes();
    let echoes = flush(&mut sender);
    let received = receive(&mut receiver, at(140), &echoes).unwrap();
    let round_trips = [140, 120, 100].map(|millis| DrsEvent::RoundTrip(at(millis)));
    assert_eq!(received, round_trips);
}

#[test]
fn only_the_right_nonce_opens_a_channel() {
    for greeting in [
        "DRS 000102030405060708090a0b0c0d0efe\r\n".to_owned(),
        "DRS \r\n".into(),
        format!("drs {HEX}\r\n"),
        format!("DRS  {HEX}\r\n"),
        format!("DRS {HEX} \r\n"),
        format!("DRS {HEX}{HEX}\r\n"),
        "SBUF 1.0 65536\r\n".into(),
        "GET / HTTP/1.1\r\n".into(),
        "\r\n".into(),
    ] {
        let mut channel = DrsChannel::listening(DrsRole::Sender, nonce());
        let received = receive(&mut channel, at(0), greeting.as_bytes());
        assert!(received.is_err() && !channel.is_open(), "{greeting}");
        assert!(channel.unsent().is_empty());
    }
    let mut silent = DrsChannel::listening(DrsRole::Receiver, nonce());
    let endless = [b'D'; MAX_LINE];
    assert_eq!(
        receive(&mut silent, at(0), &endless),
        Err(DrsViolation::TooLong)
    );
}

#[test]
fn debug_output_hides_the_nonce() {
    let channel = DrsChannel::connecting(DrsRole::Receiver, nonce());
    let shown = format!("{channel:?}");
    assert_eq!(shown, "Channel { open: true, unsent: 38, .. }");
}

#[test]
fn malformed_lines_and_a_second_nonce_are_violations() {
    for line in ["\n", "HELO\n", "SBUF 1.0\n", "SBUF 1.0 65536\0\n"] {
        for role in [DrsRole::Receiver, DrsRole::Sender] {
            let received = receive(&mut open(role), at(0), line.as_bytes());
            assert_eq!(received, Err(DrsViolation::Malformed), "{line:?}");
        }
    }
    let mut channel = DrsChannel::listening(DrsRole::Sender, nonce());
    let greeting = format!("DRS {HEX}\r\n").repeat(2);
    let received = receive(&mut channel, at(0), greeting.as_bytes());
    assert_eq!(received, Err(DrsViolation::Malformed));
}

#[test]
fn announced_sizes_are_clamped() {
    let received = receive(
        &mut open(DrsRole::Sender),
        at(0),
        b"SBUF 1.0 99999999999999999999999\n",
    );
    assert_eq!(received, Ok(vec![DrsEvent::BufferSize(MAX_BUFFER)]));
}

#[test]
fn an_echo_of_a_message_that_was_not_sent_is_a_violation() {
    let unasked = |receiver: &mut DrsChannel, line: &[u8]| {
        assert_eq!(
            receive(receiver, at(5000), line),
            Err(DrsViolation::UnexpectedEcho)
        );
    };
    unasked(&mut open(DrsRole::Receiver), b"SBUF 0.0 65536\n");

    let mut receiver = open(DrsRole::Receiver);
    assert!(receiver.announce(at(1000), 65_536));
    // One timestamp between the last message and now, one in the future.
    unasked(&mut receiver, b"SBUF 1.000001 65536\n");
    unasked(&mut receiver, b"SBUF 6.0 65536\n");

    let mut receiver = open(DrsRole::Receiver);
    assert!(receiver.announce(at(1000), 65_536));
    let echo = b"SBUF 1.000000 65536\n";
    receive(&mut receiver, at(1100), echo).unwrap();
    unasked(&mut receiver, echo);
}

#[test]
fn the_size_in_an_echo_is_ignored() {
    let mut receiver = open(DrsRole::Receiver);
    assert!(receiver.announce(at(1000), 65_536));
    let received = receive(&mut receiver, at(1100), b"SBUF 1.000000 4\n");
    assert_eq!(received, Ok(vec![DrsEvent::RoundTrip(at(100))]));
}

#[test]
fn an_echo_older_than_a_minute_is_no_round_trip() {
    let mut receiver = open(DrsRole::Receiver);
    assert!(receiver.announce(at(1000), 65_536) && receiver.announce(at(2000), 65_536));
    let echoes = b"SBUF 1.000000 65536\nSBUF 2.000000 65536\n";
    let received = receive(&mut receiver, at(62_000), echoes);
    assert_eq!(received, Ok(vec![DrsEvent::RoundTrip(at(60_000))]));
}

#[test]
fn a_flood_of_messages_is_a_violation() {
    let mut sender = open(DrsRole::Sender);
    for second in 0..200 {
        let begin = at(1000 * second);
        for _ in 0..50 {
            receive(&mut sender, begin, b"SBUF 1.0 65536\n").unwrap();
        }
        sender.release_echoes();
        flush(&mut sender);
    }
    let flood = b"SBUF 1.0 65536\n".repeat(2000);
    let received = receive(&mut sender, at(200_000), &flood);
    assert_eq!(received, Err(DrsViolation::Flood));
}

#[test]
fn a_peer_that_does_not_read_its_echoes_is_a_violation() {
    let mut sender = open(DrsRole::Sender);
    let line = b"SBUF 1700000000.123456789012345678901234 0000000000065536\r\n";
    for millis in (0..).step_by(10) {
        let received = receive(&mut sender, at(millis), line);
        sender.release_echoes();
        assert!(sender.unsent().len() <= MAX_UNSENT);
        if received.is_err() {
            assert_eq!(received, Err(DrsViolation::UnreadEchoes));
            return;
        }
    }
}

#[test]
fn announcements_are_rate_limited_and_stop_without_echoes() {
    let mut receiver = open(DrsRole::Receiver);
    let in_a_second = (0..1000)
        .filter(|millis| receiver.announce(at(*millis), 65_536))
        .count();
    assert!((100..=132).contains(&in_a_second), "{in_a_second}");
    for millis in 1000..60_000 {
        receiver.announce(at(millis), 65_536);
    }
    let lines = receiver.unsent().iter().filter(|b| **b == b'\n').count();
    assert_eq!(lines, 512);
    let first = receiver.unsent().split_inclusive(|b| *b == b'\n').next();
    let first = first.unwrap().to_vec();
    assert!(!receiver.announce(at(61_000), 65_536));
    receive(&mut receiver, at(61_000), &first).unwrap();
    assert!(receiver.announce(at(61_000), 65_536));
}

#[test]
fn a_sender_announces_nothing_and_a_receiver_echoes_nothing() {
    let (mut sender, mut receiver) = (open(DrsRole::Sender), open(DrsRole::Receiver));
    assert!(!sender.announce(at(0), 65_536));
    receiver.release_echoes();
    assert!(sender.unsent().is_empty() && receiver.unsent().is_empty());
}

/// Step of a path between two honest ends.
#[derive(Debug, Clone, Copy)]
enum PathStep {
    /// So many milliseconds pass, and the receiver announces as often as it can.
    Announce(u64),
    /// So many bytes arrive at the sender, possibly ending inside a line.
    Deliver(usize),
    /// All echoes arrive at the receiver.
    Return,
}

fn step() -> impl Strategy<Value = PathStep> {
    prop_oneof![
        4 => (0u64..300).prop_map(PathStep::Announce),
        2 => (0usize..40_000).prop_map(PathStep::Deliver),
        1 => Just(PathStep::Return),
    ]
}

proptest! {
    #[test]
    fn honest_ends_never_see_a_violation(steps in proptest::collection::vec(step(), 1..400)) {
        let (mut receiver, mut sender) = (open(DrsRole::Receiver), open(DrsRole::Sender));
        let (mut now, mut sent, mut echoed) = (at(0), 0, 0);
        for step in steps {
            match step {
                PathStep::Announce(millis) => {
                    for _ in 0..millis {
                        now += at(1);
                        sent += usize::from(receiver.announce(now, 1 << 20));
                    }
                }
                PathStep::Deliver(count) => {
                    let count = count.min(receiver.unsent().len());
                    let wire = receiver.unsent()[..count].to_vec();
                    receiver.mark_sent(count);
                    prop_assert!(receive(&mut sender, now, &wire).is_ok());
                    sender.release_echoes();
                }
                PathStep::Return => {
                    let wire = flush(&mut sender);
                    prop_assert!(receive(&mut receiver, now, &wire).is_ok());
                    echoed += wire.iter().filter(|b| **b == b'\n').count();
                }
            }
            prop_assert!(echoed <= sent && sent <= echoed + 512);
        }
    }

    #[test]
    fn unsent_bytes_are_bounded_for_any_input(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300),
                "SBUF [0-9.]{1,20} [0-9]{1,30}\r\n".prop_map(String::into_bytes),
                Just(format!("DRS {HEX}\n").into_bytes()),
            ],
            0..60,
        ),
        sends: bool,
        listens: bool,
    ) {
        let role = if sends { DrsRole::Sender } else { DrsRole::Receiver };
        let mut channel = if listens {
            DrsChannel::listening(role, nonce())
        } else {
            open(role)
        };
        for (millis, piece) in (0..).zip(pieces) {
            channel.announce(at(millis), 65_536);
            if receive(&mut channel, at(millis), &piece).is_err() {
                break;
            }
            channel.release_echoes();
            prop_assert!(channel.unsent().len() <= MAX_UNSENT);
        }
    }

    #[test]
    fn any_split_of_the_input_gives_the_same_events(
        sizes in proptest::collection::vec(0u64..1 << 31, 0..20),
        cut: prop::sample::Index,
    ) {
        let messages: String = sizes.iter().map(|size| format!("SBUF 1.5 {size}\r\n")).collect();
        let wire = format!("DRS {HEX}\r\n{messages}").into_bytes();
        let (head, tail) = wire.split_at(cut.index(wire.len()));
        let mut whole = DrsChannel::listening(DrsRole::Sender, nonce());
        let mut split = DrsChannel::listening(DrsRole::Sender, nonce());
        let expected = receive(&mut whole, at(0), &wire).unwrap();
        let mut received = receive(&mut split, at(0), head).unwrap();
        received.extend(receive(&mut split, at(0), tail).unwrap());
        prop_assert_eq!(received, expected);
        whole.release_echoes();
        split.release_echoes();
        prop_assert_eq!(whole.unsent(), split.unsent());
        prop_assert_eq!(whole.unsent(), messages.as_bytes());
    }
}
