//! Streams that join a protected transfer.

use ::security::gsi::DataHandshakeMode;
use ::security::tls::{Handshake, ReadResult, TlsEngine};

use super::*;
use crate::security::DataSecurity;

/// Reads a protected connection up to its end; returns the number of bytes.
fn read_protected(mut stream: TcpStream, security: &DataSecurity) -> usize {
    let mut engine = TlsEngine::new(security.server.as_ref().unwrap(), None).unwrap();
    let (mut buffer, mut total, mut open) = (vec![0; 100_000], 0, false);
    loop {
        let needs_input = if open {
            match engine.read(&mut buffer).unwrap() {
                ReadResult::Bytes(count) => {
                    total += count;
                    false
                }
                ReadResult::NeedsInput => true,
                ReadResult::Closed => return total,
            }
        } else {
            open = engine.handshake().unwrap() == Handshake::Complete;
            !open
        };
        let sent = engine.outgoing().len();
        std::io::Write::write_all(&mut stream, engine.outgoing()).unwrap();
        engine.mark_sent(sent);
        if needs_input && engine.receive_with(|space| stream.read(space)).unwrap() == 0 {
            return total;
        }
    }
}

#[test]
fn a_stream_joins_when_its_handshake_is_complete_and_the_end_does_not_wait_for_it() {
    let security = Arc::new(DataSecurity::of_one_user(DataHandshakeMode::Protected));
    let mut settings = slow_settings(1);
    settings.security = Some(Arc::clone(&security));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = connect_to(listener.local_addr().unwrap());
    let bytes = test_bytes(FILE_SIZE);
    let seen = std::thread::scope(|scope| {
        let (first_sender, first) = std::sync::mpsc::channel();
        let accepting = scope.spawn(move || {
            first_sender.send(listener.accept().unwrap().0).unwrap();
            // It never answers.
            let (mut second, _) = listener.accept().unwrap();
            let mut hello = [0; 1];
            second.read_exact(&mut hello).unwrap();
            (second, hello)
        });
        let at_reader = Arc::clone(&security);
        let reading = scope.spawn(move || read_protected(first.recv().unwrap(), &at_reader));
        let mut seen = None;
        let report = send(&mut sender, &bytes, &settings, |transfer| {
            let set = transfer.stream_set();
            set.set_wanted(2);
            let (second, hello) = accepting.join().unwrap();
            // A ClientHello: the connection is established, and its handshake has begun.
            assert_eq!(hello, [22]);
            seen = Some((
                set.active_count(),
                set.opening_count(),
                transfer.control().streams(),
            ));
            // Open until the transfer has ended.
            wait_until(|| set.opening_count() == 0);
            drop(second);
        });
        let report = report.unwrap();
        assert_eq!(
            (report.evidence.bytes, report.evidence.streams),
            (FILE_SIZE as u64, 1)
        );
        drop(sender);
        assert!(reading.join().unwrap() > FILE_SIZE);
        seen
    });
    assert_eq!(seen, Some((1, 1, 1)));
}
