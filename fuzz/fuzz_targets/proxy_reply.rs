//! Replies of a proxy that opens connections (CONNECT, SOCKS5): the dialogue ends at the same byte for any split, takes a
//! bounded number of bytes, and leaves those of the server unread.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::tunnel::{ProxyLogin, TunnelDialogue, TunnelProtocol, TunnelTarget};

/// Most bytes that a dialogue may take.
const LONGEST: usize = 17 << 10;

fuzz_target!(|input: &[u8]| {
    let Some((&[choice, split], replies)) = input.split_first_chunk::<2>() else {
        return;
    };
    let protocol = match choice & 1 {
        0 => TunnelProtocol::HttpConnect,
        _ => TunnelProtocol::Socks5,
    };
    let login = ProxyLogin::new(b"ann", b"hush").expect("a valid login");
    let login = (choice & 2 != 0).then_some(&login);
    let target = TunnelTarget::new("host.example", 2811).expect("a valid name");
    let run = |split: usize| {
        let mut dialogue = TunnelDialogue::new(protocol, &target, login);
        let mut taken = 0;
        loop {
            dialogue.sent(dialogue.output().len());
            let count = dialogue.wanted().min(split).min(replies.len() - taken);
            if count == 0 {
                assert!(dialogue.is_open() || taken == replies.len());
                return Ok((taken, dialogue.is_open()));
            }
            taken += count;
            assert!(taken <= LONGEST, "a reply is bounded");
            if dialogue.receive(&replies[taken - count..taken]).is_err() {
                assert!(!dialogue.is_open() && dialogue.wanted() == 0);
                return Err(());
            }
        }
    };
    assert_eq!(run(usize::MAX), run(usize::from(split).max(1)));
});
