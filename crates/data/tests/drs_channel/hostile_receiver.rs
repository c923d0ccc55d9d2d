//! A data sender whose receiver, or a stranger, abuses the DRS channel.

use data::drs::DrsEndpoint;
use proto::sizing::MIN_BUFFER;
use tune::sizing::{BufferBounds, BufferSetting};

use crate::end_under_test::{
    DrsTestPeer, ELSEWHERE, EndUnderTest, HERE, MUCH, connecting, greeting, listening, pattern,
};

/// Sizes that the sender set on its buffers, bytes.
fn sizes(running: &EndUnderTest) -> Vec<u64> {
    let decisions = running.control.take_decisions();
    let changes = decisions.iter().filter_map(|decision| decision.setting);
    changes
        .filter_map(|change| match change {
            BufferSetting::SendBuffer(bytes) => Some(bytes),
            _ => None,
        })
        .collect()
}

#[test]
fn sizes_are_applied_within_bounds_and_echoed_exactly() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let mut peer = DrsTestPeer::peer(&drs);
    for line in [
        "SBUF 0.000000 0\r\n",
        "SBUF 1700000000.123456 99999999999999999999999\r\n",
        "sbuf 18446744073709551615.999999999999 000000131072\n",
    ] {
        peer.say(line);
        assert_eq!(peer.line(), line);
    }
    let largest = BufferBounds::default().largest;
    assert_eq!(sizes(&running), [MIN_BUFFER, largest, 131_072]);
    assert!(running.drain() == bytes);
}

#[test]
fn the_smallest_size_does_not_stop_a_transfer() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let mut peer = DrsTestPeer::peer(&drs);
    peer.say("SBUF 1.0 0\r\n");
    peer.line();
    assert!(running.drain() == bytes);
}

/// Protocol violations that close the channel, and have no other effect.
fn offences(drs: &DrsEndpoint) -> Vec<String> {
    vec![
        "SBUF 1.0 65536\r\n".repeat(5000),
        "SBUF 1.0 -1\r\n".into(),
        "SBUF nan 65536\r\n".into(),
        "\0\u{1}\u{2}\r\n".into(),
        "x".repeat(1 << 20),
        greeting(drs),
        "\n".into(),
    ]
}

#[test]
fn a_peer_that_violates_the_protocol_loses_only_the_channel() {
    let bytes = pattern(MUCH);
    let drs = listening();
    // Successive transfers of one session.
    for offence in offences(&drs) {
        let running = EndUnderTest::sender(bytes.clone(), &drs);
        let mut peer = DrsTestPeer::peer(&drs);
        peer.say("SBUF 1.0 262144\r\n");
        assert_eq!(peer.line(), "SBUF 1.0 262144\r\n");
        peer.say(&offence);
        peer.hears_end();
        assert!(running.drain() == bytes);
    }
}

#[test]
fn a_listener_that_violates_the_protocol_loses_only_the_channel() {
    let bytes = pattern(MUCH);
    let (drs, listener) = connecting();
    for offence in offences(&drs) {
        let running = EndUnderTest::sender(bytes.clone(), &drs);
        let mut peer = DrsTestPeer::new(listener.accept().unwrap().0);
        assert_eq!(peer.line(), greeting(&drs));
        peer.say(&offence);
        peer.hears_end();
        assert!(running.drain() == bytes);
    }
}

#[test]
fn a_silent_peer_does_not_affect_the_transfer() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let _peer = DrsTestPeer::peer(&drs);
    assert!(running.drain() == bytes);
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let mut half = DrsTestPeer::peer(&drs);
    half.say("SBUF 1.0 ");
    assert!(running.drain() == bytes);
    // Nobody connects.
    assert!(EndUnderTest::sender(bytes.clone(), &drs).drain() == bytes);
}

#[test]
fn strangers_do_not_affect_the_transfer() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let announcement = "SBUF 1.0 1048576\r\n";
    let wrong = format!("DRS {}\r\n{announcement}", "0".repeat(32));
    let right = format!("{}{announcement}", greeting(&drs));
    // Before there is a transfer.
    let mut strangers = vec![
        DrsTestPeer::from(HERE, &drs, &wrong),
        DrsTestPeer::from(ELSEWHERE, &drs, &right),
    ];
    let _slow: Vec<_> = (0..20)
        .map(|_| DrsTestPeer::from(HERE, &drs, "DRS"))
        .collect();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    strangers.push(DrsTestPeer::from(HERE, &drs, announcement));
    strangers.push(DrsTestPeer::from(ELSEWHERE, &drs, &right));
    for stranger in &mut strangers {
        stranger.hears_end();
    }
    assert_eq!(sizes(&running), [] as [u64; 0]);
    let mut peer = DrsTestPeer::peer(&drs);
    peer.say("SBUF 1.0 262144\r\n");
    assert_eq!(peer.line(), "SBUF 1.0 262144\r\n");
    // And afterwards.
    DrsTestPeer::from(HERE, &drs, &wrong).hears_end();
    peer.say("SBUF 2.0 524288\r\n");
    assert_eq!(peer.line(), "SBUF 2.0 524288\r\n");
    assert_eq!(sizes(&running), [262_144, 524_288]);
    assert!(running.drain() == bytes);
}
