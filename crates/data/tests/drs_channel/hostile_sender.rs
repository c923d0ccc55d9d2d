//! A data receiver whose sender abuses the DRS channel.

use std::io::Write;

use data::store::memory::MemorySink;
use tune::sizing::BufferBounds;

use crate::end_under_test::{DrsTestPeer, EndUnderTest, connecting, greeting, listening, pattern};

const FILE_SIZE: usize = 512 << 10;

/// A receiver that has announced its first size on the channel, its peer, and the bytes of the
/// transfer.
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
        let bytes = pattern(FILE_SIZE);
        // The peer's host is known from the first byte of its data connection on.
        let begin = |drs: &_| {
            let mut running = EndUnderTest::receiver(sink.clone(), drs);
            running.data.write_all(&bytes[..FILE_SIZE / 2]).unwrap();
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
        let mut receiver = Self {
            running,
            peer,
            announced: String::new(),
            sink,
            bytes,
        };
        receiver.announced = receiver.peer.line();
        receiver
    }

    /// The transfer completes as if nothing had happened.
    fn finish(self) {
        let largest = 2 * BufferBounds::default().largest;
        for sample in self.running.control.sample_streams() {
            assert!(sample.receive_buffer <= largest);
        }
        self.running.feed(&self.bytes[FILE_SIZE / 2..]);
        assert!(self.sink.bytes() == self.bytes);
    }
}

#[test]
fn a_correct_echo_is_answered_by_the_next_size() {
    for receiver_listens in [true, false] {
        let mut receiver = AnnouncedReceiver::new(receiver_listens);
        let mut words = receiver.announced.split_whitespace();
        assert_eq!(words.next(), Some("SBUF"));
        let timestamp = words.next().unwrap();
        assert!(timestamp.split_once('.').unwrap().1.len() == 6);
        assert!(words.next().unwrap().parse::<u64>().unwrap() >= BufferBounds::default().initial);
        for _ in 0..3 {
            let said = receiver.announced.clone();
            receiver.peer.say(&said);
            receiver.announced = receiver.peer.line();
            assert_ne!(receiver.announced, said);
        }
        receiver.finish();
    }
}

#[test]
fn forged_echoes_close_only_the_channel() {
    for receiver_listens in [true, false] {
        for forged in [
            // From the future, from the past, and more than were requested.
            "SBUF 4000000000.000000 65536\r\n".to_owned(),
            "SBUF 18446744073709551615.9 99999999999999999999\r\n".into(),
            "SBUF 0.000000 65536\r\n".repeat(5000),
            "SBUF 0.0 65536 and more\r\n".into(),
            "x".repeat(1 << 20),
        ] {
            let mut receiver = AnnouncedReceiver::new(receiver_listens);
            receiver.peer.say(&forged);
            receiver.peer.hears_end();
            receiver.finish();
        }
    }
}

#[test]
fn a_sender_that_never_echoes_does_not_affect_the_transfer() {
    for receiver_listens in [true, false] {
        AnnouncedReceiver::new(receiver_listens).finish();
    }
}

#[test]
fn a_channel_lost_during_the_transfer_does_not_affect_it() {
    for receiver_listens in [true, false] {
        let mut receiver = AnnouncedReceiver::new(receiver_listens);
        let said = receiver.announced.clone();
        receiver.peer.say(&said);
        receiver.peer.line();
        receiver.peer.hang_up();
        receiver.finish();
    }
}
