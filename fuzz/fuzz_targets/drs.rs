//! A DRS channel off the wire: any split means the same, nothing grows beyond its bound, and what
//! is written is read back.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use proto::drs::{Channel, DrsAddress, End, Event, Message, Nonce, Violation};
use proto::sizing::{MAX_BUFFER, MIN_BUFFER};

const NONCE: Nonce = Nonce::new([7; 16]);

/// Far more than a line, far less than a flood of them.
const BOUND: usize = 128 << 10;

fn hear(channel: &mut Channel, pieces: &[&[u8]]) -> (Vec<Event>, Option<Violation>) {
    let mut events = Vec::new();
    channel.announce(Duration::from_millis(1500), MAX_BUFFER);
    let broken = pieces.iter().find_map(|piece| {
        let now = Duration::from_secs(2);
        channel.receive(now, piece, &mut events).err()
    });
    channel.applied();
    assert!(channel.unsent().len() <= BOUND);
    (events, broken)
}

fn check(make: impl Fn() -> Channel, wire: &[u8], at: usize) {
    let (head, tail) = wire.split_at(at.min(wire.len()));
    let (mut whole, mut split) = (make(), make());
    let (events, broken) = hear(&mut whole, &[wire]);
    assert_eq!(hear(&mut split, &[head, tail]), (events.clone(), broken));
    assert_eq!(whole.unsent(), split.unsent());
    for event in events {
        match event {
            Event::Size(bytes) => assert!((MIN_BUFFER..=MAX_BUFFER).contains(&bytes)),
            Event::Echo(rtt) => assert!(rtt <= Duration::from_secs(60)),
            Event::Proven => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    for end in [End::Receiver, End::Sender] {
        check(|| Channel::listening(end, NONCE), wire, usize::from(*first));
        check(
            || Channel::connecting(end, NONCE),
            wire,
            usize::from(*first),
        );
    }
    let Ok(text) = std::str::from_utf8(wire) else {
        return;
    };
    if let Ok(address) = DrsAddress::parse(text) {
        assert_eq!(DrsAddress::parse(&address.format()), Ok(address));
    }
    let _ = DrsAddress::find_in_229(text);
    if let Some(message) = Message::parse(text) {
        let again = Message::parse(&message.format());
        assert_eq!(again.map(|m| m.size), Some(message.size));
    }
});
