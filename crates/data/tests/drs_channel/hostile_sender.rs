//! A data receiver whose sender abuses the DRS channel.

use std::io::Write;

use data::store::memory::MemorySink;
use tune::sizing::BufferBounds;

use crate::ends::{DrsTestPeer, EndUnderTest, connecting, greeting, listening, pattern};

const LEN: usize = 512 << 10;

/// A receiver that has announced its first size on the channel, the rest of its bytes, and what it
/// said.
struct AnnouncedReceiver {
    running: EndUnderTest,
    peer: DrsTestPeer,
    announced: String,
    sink: MemorySink,
    bytes: Vec<u8>,
}

impl AnnouncedReceiver {
    fn new(receiver_listens: bool) -> Self {
        let sink = MemorySink::new(64 << 20, "sink");
        let bytes = pattern(LEN);
        // A data connection counts from its first byte on, and with it the channel's peer.
        let begin = |drs: &_| {
            let mut running = EndUnderTest::receiver(sink.clone(), drs);
            running.data.write_all(&bytes[..LEN / 2]).unwrap();
            running
        };
        let (running, peer) = if receiver_listens {
            let drs = listening();
            let running = begin(&drs);
            (running, DrsTestPeer::peer(&drs))
        } else {
            let (drs, listener) = connecting();
            let running = begin(&drs);
            let mut peer = DrsTestPeer::new(listener.accept().unwrap().0);
            assert_eq!(peer.line(), greeting(&drs));
            (running, peer)
        };
        let mut begun = Self {
            running,
            peer,
            announced: String::new(),
            sink,
            bytes,
        };
        begun.announced = begun.peer.line();
        begun
    }

    /// The transfer ends as if nothing had been.
    fn finish(self) {
        let largest = 2 * BufferBounds::default().largest;
        for sample in self.running.control.sample_streams() {
            assert!(u64::from(sample.memory.rcvbuf) <= largest);
        }
        self.running.feed(&self.bytes[LEN / 2..]);
        assert!(self.sink.bytes() == self.bytes);
    }
}

#[test]
fn an_honest_echo_keeps_the_dialogue_going() {
    for receiver_listens in [true, false] {
        let mut begun = AnnouncedReceiver::new(receiver_listens);
        let mut words = begun.announced.split_whitespace();
        assert_eq!(words.next(), Some("SBUF"));
        let timestamp = words.next().unwrap();
        assert!(timestamp.split_once('.').unwrap().1.len() == 6);
        assert!(words.next().unwrap().parse::<u64>().unwrap() >= BufferBounds::default().initial);
        for _ in 0..3 {
            let said = begun.announced.clone();
            begun.peer.say(&said);
            begun.announced = begun.peer.line();
            assert_ne!(begun.announced, said);
        }
        begun.finish();
    }
}

#[test]
fn forged_echoes_lose_the_channel_only() {
    for receiver_listens in [true, false] {
        for forged in [
            // Of the future, of the past, and more than were asked for.
            "SBUF 4000000000.000000 65536\r\n".to_owned(),
            "SBUF 18446744073709551615.9 99999999999999999999\r\n".into(),
            "SBUF 0.000000 65536\r\n".repeat(5000),
            "SBUF 0.0 65536 and more\r\n".into(),
            "x".repeat(1 << 20),
        ] {
            let mut begun = AnnouncedReceiver::new(receiver_listens);
            begun.peer.say(&forged);
            begun.peer.hears_end();
            begun.finish();
        }
    }
}

#[test]
fn a_sender_that_never_echoes_costs_nothing() {
    for receiver_listens in [true, false] {
        AnnouncedReceiver::new(receiver_listens).finish();
    }
}

#[test]
fn a_channel_that_is_cut_in_mid_transfer_is_missed_by_nobody() {
    for receiver_listens in [true, false] {
        let mut begun = AnnouncedReceiver::new(receiver_listens);
        let said = begun.announced.clone();
        begun.peer.say(&said);
        begun.peer.line();
        begun.peer.hang_up();
        begun.finish();
    }
}
