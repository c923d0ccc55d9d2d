//! Protected messages.

use super::*;

#[test]
fn messages_of_any_length_pass_in_both_directions() {
    let pki = Pki::new();
    for version in VERSIONS {
        let mut both = established(&pki, version);
        for length in [1, 6, 16_384, 100_000] {
            let message = vec![b'x'; length];
            let token = both.client.wrap(&message).unwrap();
            assert!(!token.windows(6).any(|w| w == b"xxxxxx"));
            assert_eq!(both.server.unwrap(&token).unwrap(), message);
            let token = both.server.wrap(&message).unwrap();
            assert_eq!(both.client.unwrap(&token).unwrap(), message);
        }
        assert!(both.client.wrap(b"").is_err());
        assert!(both.client.wrap(b"NOOP\r\n").is_ok());
    }
}

#[test]
fn one_message_may_be_cut_into_records() {
    let pki = Pki::new();
    let mut both = established(&pki, TlsVersion::V1_3);
    let mut token = both.client.wrap(b"NO").unwrap();
    token.extend(both.client.wrap(b"OP\r\n").unwrap());
    assert_eq!(both.server.unwrap(&token).unwrap(), b"NOOP\r\n");
}

#[test]
fn a_token_that_is_altered_replayed_truncated_or_alien_kills_the_context() {
    let pki = Pki::new();
    for version in VERSIONS {
        for attack in [
            "alter", "replay", "truncate", "extend", "empty", "plain", "reflect",
        ] {
            let mut both = established(&pki, version);
            let mut token = both.client.wrap(b"DELE file\r\n").unwrap();
            match attack {
                "alter" => *token.last_mut().unwrap() ^= 1,
                "replay" => {
                    both.server.unwrap(&token).unwrap();
                }
                "truncate" => token.truncate(token.len() - 1),
                "extend" => token.push(0x17),
                "empty" => token.clear(),
                "plain" => token = b"DELE file\r\n".to_vec(),
                _ => token = both.server.wrap(b"DELE file\r\n").unwrap(),
            }
            assert!(both.server.unwrap(&token).is_err(), "{version:?} {attack}");
            let honest = both.client.wrap(b"NOOP\r\n").unwrap();
            assert!(both.server.unwrap(&honest).is_err(), "{version:?} {attack}");
            assert!(
                both.server.wrap(b"200\r\n").is_err(),
                "{version:?} {attack}"
            );
        }
    }
}

#[test]
fn messages_that_are_left_out_are_noticed() {
    let pki = Pki::new();
    let mut both = established(&pki, TlsVersion::V1_3);
    both.client.wrap(b"DCAU N\r\n").unwrap();
    let second = both.client.wrap(b"NOOP\r\n").unwrap();
    assert!(both.server.unwrap(&second).is_err());
}

#[test]
fn the_token_of_the_last_reply_holds_no_message() {
    let pki = Pki::new();
    let mut both = established(&pki, TlsVersion::V1_3);
    let message = both.server.wrap(b"x").unwrap();
    assert!(both.client.receive_last_token(&message).is_err());
    assert!(both.client.wrap(b"USER x\r\n").is_err());
}
