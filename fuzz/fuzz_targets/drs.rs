//! DRS channel: any split of the input gives the same events, unsent bytes are bounded, and encoded
//! values are parsed back.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use proto::drs::{DrsAddress, DrsChannel, DrsEvent, DrsMessage, DrsRole, DrsViolation, Nonce};
use proto::sizing::{MAX_BUFFER, MIN_BUFFER};

const NONCE: Nonce = Nonce::new([7; 16]);

/// Bound of unsent bytes: more than a line, and less than a flood of lines.
const BOUND: usize = 128 << 10;

fn receive(channel: &mut DrsChannel, pieces: &[&[u8]]) -> (Vec<DrsEvent>, Option<DrsViolation>) {
    let mut events = Vec::new();
    channel.announce(Duration::from_millis(1500), MAX_BUFFER);
    let violation = pieces.iter().find_map(|piece| {
        let now = Duration::from_secs(2);
        channel.on_bytes(now, piece, &mut events).err()
    });
    channel.release_echoes();
    assert!(channel.unsent().len() <= BOUND);
    (events, violation)
}

fn check(make: impl Fn() -> DrsChannel, wire: &[u8], at: usize) {
    let (head, tail) = wire.split_at(at.min(wire.len()));
    let (mut whole, mut split) = (make(), make());
    let (events, violation) = receive(&mut whole, &[wire]);
    assert_eq!(
        receive(&mut split, &[head, tail]),
        (events.clone(), violation)
    );
    assert_eq!(whole.unsent(), split.unsent());
    for event in events {
        match event {
            DrsEvent::BufferSize(bytes) => assert!((MIN_BUFFER..=MAX_BUFFER).contains(&bytes)),
            DrsEvent::RoundTrip(rtt) => assert!(rtt <= Duration::from_secs(60)),
            DrsEvent::Authenticated => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, wire)) = data.split_first() else {
        return;
    };
    for role in [DrsRole::Receiver, DrsRole::Sender] {
        check(
            || DrsChannel::listening(role, NONCE),
            wire,
            usize::from(*first),
        );
        check(
            || DrsChannel::connecting(role, NONCE),
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
    if let Some(message) = DrsMessage::parse(text) {
        let again = DrsMessage::parse(&message.format());
        assert_eq!(again.map(|m| m.size), Some(message.size));
    }
});
