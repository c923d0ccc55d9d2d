//! A data sender whose receiver, or a stranger, abuses the DRS channel.

use data::drs::DrsEndpoint;
use proto::sizing::MIN_BUFFER;
use tune::sizing::{BufferBounds, BufferSetting};

use crate::ends::{
    DrsTestPeer, ELSEWHERE, EndUnderTest, HERE, MUCH, connecting, greeting, listening, pattern,
};

/// Sizes that the sender gave its buffers, bytes.
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
fn sizes_are_followed_within_bounds_and_echoed_exactly() {
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

/// Offences that cost a peer its channel, and nobody anything else.
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
fn a_peer_that_breaks_the_rules_loses_the_channel_only() {
    let bytes = pattern(MUCH);
    let drs = listening();
    // One session's transfers, one after the other.
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
fn a_listener_that_breaks_the_rules_loses_the_channel_only() {
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
fn silence_costs_nothing() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let _peer = DrsTestPeer::peer(&drs);
    assert!(running.drain() == bytes);
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    let mut half = DrsTestPeer::peer(&drs);
    half.say("SBUF 1.0 ");
    assert!(running.drain() == bytes);
    // Nobody at all.
    assert!(EndUnderTest::sender(bytes.clone(), &drs).drain() == bytes);
}

#[test]
fn strangers_change_nothing() {
    let bytes = pattern(MUCH);
    let drs = listening();
    let told = "SBUF 1.0 1048576\r\n";
    let wrong = format!("DRS {}\r\n{told}", "0".repeat(32));
    let right = format!("{}{told}", greeting(&drs));
    // Before there is a transfer.
    let mut strangers = vec![
        DrsTestPeer::from(HERE, &drs, &wrong),
        DrsTestPeer::from(ELSEWHERE, &drs, &right),
    ];
    let _slow: Vec<_> = (0..20)
        .map(|_| DrsTestPeer::from(HERE, &drs, "DRS"))
        .collect();
    let running = EndUnderTest::sender(bytes.clone(), &drs);
    strangers.push(DrsTestPeer::from(HERE, &drs, told));
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
