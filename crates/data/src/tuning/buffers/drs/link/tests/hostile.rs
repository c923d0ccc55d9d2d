//! Strangers, leftover connections, and a peer that violates the protocol.

use super::*;

#[test]
fn strangers_are_closed_and_do_not_block_the_peer() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let hello = greeting(&endpoint);
    let wrong = Nonce::new([7; 16]).to_hex();
    let mut closed = vec![
        caller(at, ELSEWHERE, &hello),
        caller(at, HERE, &format!("DRS {wrong}\r\n")),
        caller(at, HERE, &"x".repeat(4000)),
        caller(at, HERE, "SBUF 1.0 4096\r\n"),
    ];
    let _slow: Vec<_> = (0..30).map(|_| caller(at, HERE, "DRS ")).collect();
    // More than the backlog holds.
    let _silent: Vec<_> = (0..300).map(|_| caller(at, HERE, "")).collect();
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(
        Arc::clone(&endpoint),
        Role::Sender,
        None,
    )]);
    table.turns(4);
    for stream in &mut closed {
        // Unread bytes make the close a reset.
        assert!(!matches!(stream.read(&mut [0; 64]), Ok(1..)));
    }
    let watched = table.links[0].poll_fds().count();
    assert!((1..=9).contains(&watched), "{watched}");
    let mut peer = caller(at, HERE, &hello);
    table.check_sender_hears(&mut peer, 1 << 20);
    assert_eq!(table.events.len(), 1);
}

#[test]
fn many_connections_pause_accepting_for_a_while() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let crowd: Vec<_> = (0..40).map(|_| caller(at, ELSEWHERE, "DRS ")).collect();
    let mut link = DrsLink::new(Arc::clone(&endpoint), Role::Sender, None);
    let ms = Duration::from_millis;
    for (now, watched) in [(0, 0), (99, 0), (100, 0), (150, 0), (200, 1)] {
        link.advance(ms(now), &[HERE]);
        assert_eq!(link.poll_fds().count(), watched, "{now} ms");
    }
    drop(crowd);
    let mut peer = caller(at, HERE, &greeting(&endpoint));
    let mut table = DrsLinkDriver::new(vec![link]);
    table.begin -= ms(300);
    table.check_sender_hears(&mut peer, 1 << 20);
}

#[test]
fn a_connection_without_a_complete_greeting_is_closed() {
    let endpoint = listening();
    let mut slow = caller(endpoint.address().socket, HERE, "DRS ");
    let mut link = DrsLink::new(endpoint, Role::Sender, None);
    let begin = Instant::now();
    while link.poll_fds().count() < 2 {
        link.advance(Duration::ZERO, &[HERE]);
        assert!(begin.elapsed() < TEST_TIMEOUT);
    }
    link.advance(Duration::from_secs(2), &[HERE]);
    assert_eq!(link.poll_fds().count(), 2);
    link.advance(Duration::from_secs(4), &[HERE]);
    assert_eq!(link.poll_fds().count(), 1);
    assert!(matches!(slow.read(&mut [0; 64]), Ok(0)));
}

#[test]
fn leftovers_of_an_earlier_transfer_are_ignored() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let hello = greeting(&endpoint);
    for size in 1..=5 {
        drop(caller(
            at,
            HERE,
            &format!("{hello}SBUF 1.0 {size}000000\r\n"),
        ));
    }
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(
        Arc::clone(&endpoint),
        Role::Sender,
        None,
    )]);
    table.turns(3);
    // An older connection whose end was not noticed yet, then the peer.
    let mut late = caller(at, HERE, &hello);
    table.check_sender_hears(&mut late, 1 << 19);
    let mut peer = caller(at, HERE, &hello);
    table.check_sender_hears(&mut peer, 1 << 20);
    drop(late);
    table.turns(3);
    table.links[0].applied();
    assert_eq!(
        table.events,
        [
            (0, DrsChannelEvent::Size(1 << 19)),
            (0, DrsChannelEvent::Size(1 << 20))
        ]
    );
    let mut echo = [0; 64];
    let count = peer.read(&mut echo).unwrap();
    assert_eq!(&echo[..count], b"SBUF 1.0 1048576\r\n");
}

#[test]
fn the_newest_connection_with_the_nonce_is_the_peer() {
    let endpoint = listening();
    let hello = greeting(&endpoint);
    let _callers: Vec<_> = (1..=3)
        .map(|n| {
            let words = format!("{hello}SBUF 1.0 {n}00000\r\n");
            caller(endpoint.address().socket, HERE, &words)
        })
        .collect();
    let mut table = DrsLinkDriver::new(vec![DrsLink::new(endpoint, Role::Sender, None)]);
    table.until_event(0, |event| matches!(event, DrsChannelEvent::Size(_)));
    table.turns(2);
    assert_eq!(table.events, [(0, DrsChannelEvent::Size(300_000))]);
}

#[test]
fn a_peer_that_floods_or_sends_garbage_loses_the_channel() {
    for words in [
        "SBUF 1.0 65536\r\n".repeat(3000),
        "SBUF 1.0 65536 1\r\n".into(),
        "x".repeat(100_000),
        "\r\n".into(),
    ] {
        let (mut table, mut peer) = greeted();
        let writing = std::thread::spawn(move || {
            let _ = peer.write_all(words.as_bytes());
            peer
        });
        table.until_event(0, |event| *event == DrsChannelEvent::Lost);
        let sizes = table.events.iter().filter(|e| e.1 != DrsChannelEvent::Lost);
        assert!(sizes.count() < 10, "{:?}", table.events);
        assert_eq!(table.links[0].poll_fds().count(), 0);
        let now = table.now();
        assert!(table.links[0].advance(now, &[HERE]).is_empty());
        drop(writing.join().unwrap());
    }
}

#[test]
fn a_peer_that_does_not_read_loses_the_channel() {
    let (mut table, mut peer) = greeted();
    peer.set_nonblocking(true).unwrap();
    let line = "SBUF 1700000000.123456789012345678901234 0000000000065536\r\n".repeat(100);
    let begin = Instant::now();
    // Simulated time passes fast enough that the messages are no flood.
    for second in 1.. {
        let _ = peer.write(line.as_bytes());
        let events = table.links[0].advance(Duration::from_secs(second * 10), &[HERE]);
        table.links[0].applied();
        if events.contains(&DrsChannelEvent::Lost) {
            return;
        }
        assert!(begin.elapsed() < TEST_TIMEOUT);
    }
}

#[test]
fn a_forged_echo_closes_the_channel() {
    let endpoint = listening();
    let at = endpoint.address().socket;
    let hello = greeting(&endpoint);
    for forged in ["SBUF 0.0 65536\r\n", "SBUF 999999.0 65536\r\n"] {
        let mut peer = caller(at, HERE, &hello);
        let mut table = DrsLinkDriver::new(vec![DrsLink::new(
            Arc::clone(&endpoint),
            Role::Receiver,
            None,
        )]);
        table.links[0].announce(Duration::ZERO, 65_536);
        table.until(|table| table.links[0].connection.is_some());
        peer.write_all(forged.repeat(2).as_bytes()).unwrap();
        table.until_event(0, |event| *event == DrsChannelEvent::Lost);
        assert_eq!(table.links[0].poll_fds().count(), 0);
    }
}
