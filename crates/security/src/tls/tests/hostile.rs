//! Peers that send what they must not.

use super::*;

fn pair() -> (TlsEngine, TlsEngine) {
    let pki = Pki::new();
    connected(TlsOptions::client().unverified(), pki.server())
}

#[test]
fn a_record_that_is_altered_replayed_or_reordered_ends_the_connection() {
    for attack in ["altered", "replayed", "reordered"] {
        let (mut client, mut server) = pair();
        client.write(b"first").unwrap();
        let mut first = client.take_outgoing();
        client.write(b"second").unwrap();
        let second = client.take_outgoing();
        match attack {
            "altered" => *first.last_mut().unwrap() ^= 1,
            "replayed" => {
                server.receive(&first);
                assert_eq!(read_all(&mut server), b"first");
            }
            _ => first = second,
        }
        server.receive(&first);
        let error = server.read(&mut [0; 100]).unwrap_err();
        let TlsError::Protocol(words) = &error else {
            panic!("{error:?}")
        };
        assert!(words.contains("altered"), "{words}");
        assert_eq!(server.read(&mut [0; 100]), Err(error.clone()));
        assert_eq!(server.write(b"x"), Err(error));
    }
}

#[test]
fn bytes_that_are_no_tls_are_named() {
    let pki = Pki::new();
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP"),
        (b"USER anonymous\r\nPASS x\r\n", "does not speak TLS"),
    ] {
        let mut server = engine(pki.server());
        server.receive(bytes);
        let words = server.handshake().unwrap_err().to_string();
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn garbage_without_end_takes_no_memory() {
    let pki = Pki::new();
    let mut state = 1u32;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(100_000)
    .collect();
    for prefix in [&b""[..], b"\x16\x03\x01\x40\x00\x01\x00\xff\xff\x03\x03"] {
        let mut server = engine(pki.server());
        server.receive(prefix);
        for _ in 0..100 {
            server.receive(&garbage);
            let _ = server.handshake();
        }
        assert!(server.handshake().is_err());
        assert_eq!(server.unprocessed(), 0);
        assert!(server.held() < 32 << 10, "{}", server.held());
    }
}

#[test]
fn a_truncated_record_gives_no_bytes() {
    let (mut client, mut server) = pair();
    client.write(b"message").unwrap();
    let token = client.take_outgoing();
    for byte in &token[..token.len() - 1] {
        server.receive(&[*byte]);
        assert_eq!(server.read(&mut [0; 100]), Ok(ReadResult::NeedsInput));
    }
    server.receive(&token[token.len() - 1..]);
    assert_eq!(read_all(&mut server), b"message");
}

#[test]
fn a_handshake_in_single_bytes_completes() {
    let pki = Pki::new();
    let (mut client, mut server) = (engine(pki.client()), engine(pki.server()));
    while client.handshake().unwrap() != Handshake::Complete
        || server.handshake().unwrap() != Handshake::Complete
    {
        for byte in client.take_outgoing() {
            server.receive(&[byte]);
            server.handshake().unwrap();
        }
        for byte in server.take_outgoing() {
            client.receive(&[byte]);
            client.handshake().unwrap();
        }
    }
    assert_carries(&mut client, &mut server, b"bytes");
}
