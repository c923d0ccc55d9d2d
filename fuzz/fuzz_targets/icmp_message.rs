//! ICMP messages, which anybody may send: what is understood of one is what it says.

#![no_main]

use advisor::fuzzing::{echo_again, message_in_ipv4};
use libfuzzer_sys::fuzz_target;

/// Size of the header, and of the header with the bytes that name a run.
const HEADER: usize = 8;
const WITH_TOKEN: usize = 16;

fuzz_target!(|packet: &[u8]| {
    for message in [Some(packet), message_in_ipv4(packet)]
        .into_iter()
        .flatten()
    {
        assert!(packet.ends_with(message));
        for (is_v6, reply, request) in [(false, 0, 8), (true, 129, 128)] {
            let [answer, quoted] = echo_again(is_v6, message);
            for (kind, least, again) in [(reply, WITH_TOKEN, answer), (request, HEADER, quoted)] {
                let is_one = message.len() >= least && message.starts_with(&[kind, 0]);
                assert_eq!(again.is_some(), is_one, "{message:?}");
                let Some(again) = again else { continue };
                assert_eq!(again[4..HEADER], message[4..HEADER]);
                if let Some(token) = message.get(HEADER..WITH_TOKEN) {
                    assert_eq!(again[HEADER..], *token);
                }
            }
        }
    }
});
