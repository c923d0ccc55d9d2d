//! TLS records: arbitrary ones, and a handshake with changed bytes. Memory stays bounded, and no plain
//! byte appears that the other end has not written.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::Tampering;
use longhaul_fuzz::pki::config;
use security::tls::{Handshake, ReadResult, TlsConfig, TlsEngine, TlsProfile, TlsRole};

/// Bytes to send that an end may hold: its flight, and answers to what it reads.
const MAX_OUTGOING: usize = 256 << 10;
/// Rounds of a handshake at most. A genuine one has three.
const MAX_ROUNDS: usize = 8;
const MESSAGE: &[u8] = b"RETR /data/file\r\n";

static CLIENT: LazyLock<TlsConfig> = LazyLock::new(|| config(TlsRole::Client, TlsProfile::Web));
static SERVER: LazyLock<TlsConfig> = LazyLock::new(|| config(TlsRole::Server, TlsProfile::Web));

fuzz_target!(|input: &[u8]| {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    let client = TlsEngine::new(&CLIENT, None).expect("a client");
    let server = TlsEngine::new(&SERVER, None).expect("a server");
    // The tested end hears changed bytes.
    let (mut tested, mut genuine) = match first % 2 {
        0 => (server, client),
        _ => (client, server),
    };
    let mut tampering = Tampering::new(rest);
    for _ in 0..MAX_ROUNDS {
        let _ = genuine.handshake();
        deliver(&mut genuine, &mut tested, &mut tampering);
        let done = tested.handshake();
        if done != Ok(Handshake::Complete) {
            let plain = tested.read(&mut [0; 64]);
            assert!(
                plain.is_err(),
                "no plain byte before the handshake: {plain:?}"
            );
        }
        check_memory(&tested);
        let sent = tested.outgoing().to_vec();
        genuine.receive(&sent);
        tested.mark_sent(sent.len());
    }
    let is_complete = tested.handshake() == Ok(Handshake::Complete);
    assert!(
        is_complete || tampering.has_changed(),
        "a genuine handshake completes"
    );
    if is_complete {
        exchange(&mut genuine, &mut tested, &mut tampering);
    }
});

/// The tested end reads only what the other has written.
fn exchange(genuine: &mut TlsEngine, tested: &mut TlsEngine, tampering: &mut Tampering) {
    let mut written = Vec::new();
    let mut read = Vec::new();
    for _ in 0..3 {
        if genuine.write(MESSAGE).is_ok() {
            written.extend_from_slice(MESSAGE);
        }
        deliver(genuine, tested, tampering);
        let mut space = [0; 4096];
        while let Ok(ReadResult::Bytes(count)) = tested.read(&mut space) {
            read.extend_from_slice(&space[..count]);
        }
        assert!(
            written.starts_with(&read),
            "plain bytes that nobody has written"
        );
        check_memory(tested);
    }
    assert!(tampering.has_changed() || read == written);
}

fn deliver(from: &mut TlsEngine, to: &mut TlsEngine, tampering: &mut Tampering) {
    let sent = from.outgoing().to_vec();
    from.mark_sent(sent.len());
    let arrives = tampering.apply(&sent);
    to.receive(&arrives);
}

fn check_memory(engine: &TlsEngine) {
    assert!(engine.outgoing().len() <= MAX_OUTGOING);
}
