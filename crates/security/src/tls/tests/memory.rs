//! The memory that connections hold.

use std::io::{Read, Write};

use super::*;
use crate::tls::memory::MemoryWire;

#[test]
fn an_idle_connection_holds_no_buffers() {
    let pki = Pki::new();
    let (client, server) = (TlsOptions::client().unverified(), pki.server());
    let (mut client, mut server) = connected(client, server);
    assert_eq!((client.held(), server.held()), (0, 0));
    assert_carries(&mut client, &mut server, b"NOOP\r\n");
    assert_carries(&mut server, &mut client, b"200 OK\r\n");
    assert_eq!((client.held(), server.held()), (0, 0));
    let nothing = client.receive_with(|_| Err(std::io::ErrorKind::WouldBlock));
    assert!(nothing.is_err());
    assert_eq!(client.held(), 0);
}

#[test]
fn the_space_for_received_bytes_follows_the_traffic() {
    let mut wire = MemoryWire::default();
    let mut spaces = Vec::new();
    for _ in 0..7 {
        wire.receive_with(|space| {
            spaces.push(space.len());
            Ok::<_, ()>(space.len())
        })
        .unwrap();
        std::io::copy(&mut (&mut wire).take(u64::MAX), &mut std::io::sink()).unwrap_err();
    }
    assert_eq!(spaces[..6], [16, 32, 64, 128, 256, 256].map(|k| k << 10));
    for _ in 0..6 {
        wire.receive_with(|_| Ok::<_, ()>(1)).unwrap();
        assert_eq!(wire.read(&mut [0; 10]).unwrap(), 1);
    }
    assert_eq!(wire.held(), 0);
}

#[test]
fn bytes_leave_in_their_order_whatever_is_sent_at_once() {
    let mut wire = MemoryWire::default();
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for n in 0..1000usize {
        let piece = vec![u8::try_from(n % 256).unwrap(); n % 97];
        expected.extend_from_slice(&piece);
        wire.write_all(&piece).unwrap();
        let count = wire.outgoing().len().min(n % 89);
        sent.extend_from_slice(&wire.outgoing()[..count]);
        wire.mark_sent(count);
    }
    sent.extend_from_slice(wire.outgoing());
    wire.mark_sent(usize::MAX / 2);
    assert!(sent == expected);
    assert_eq!(wire.held(), 0);
}

#[test]
fn a_gate_holds_back_what_follows() {
    let mut wire = MemoryWire::default();
    wire.set_gate(Some(3));
    wire.receive(b"tlsraw");
    let mut space = [0; 10];
    assert_eq!(wire.read(&mut space).unwrap(), 3);
    assert!(wire.read(&mut space).is_err());
    assert_eq!(wire.take_unprocessed(), b"raw");
}
