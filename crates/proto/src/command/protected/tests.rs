use super::*;
use crate::security::SecurityToken;

/// The fake mechanism accepts what starts with `+`.
fn unwrapped(line: &str) -> Vec<LineEvent> {
    let mut out = Vec::new();
    let unwrap = |_, token: &[u8]| token.strip_prefix(b"+").map(<[u8]>::to_vec).ok_or(());
    unwrap_line(
        LineEvent::Line(line.as_bytes().to_vec()),
        10,
        unwrap,
        &mut out,
    );
    out
}

fn enc(plain: &str) -> String {
    let token = SecurityToken::new(plain.as_bytes().to_vec()).unwrap();
    format!("enc {}", token.encode())
}

fn protected(text: &str) -> LineEvent {
    LineEvent::Protected(text.as_bytes().to_vec())
}

#[test]
fn the_command_inside_is_returned_without_its_ending() {
    for plain in ["+PWD\r\n", "+PWD\n", "+PWD", "+PWD\r\n\0", "+PWD\0"] {
        assert_eq!(unwrapped(&enc(plain)), [protected("PWD")], "{plain:?}");
    }
    assert_eq!(
        unwrapped(&enc("+PWD\r\nNOOP\r\n")),
        [protected("PWD"), protected("NOOP")]
    );
    assert_eq!(
        unwrapped(&enc("+RETR 123456\r\n")),
        [LineEvent::TooLong],
        "the limit holds inside"
    );
}

#[test]
fn the_protection_is_that_of_the_verb() {
    for (verb, expected) in [
        ("MIC", CommandProtection::Safe),
        ("Conf", CommandProtection::Confidential),
        ("ENC", CommandProtection::Private),
    ] {
        let line = LineEvent::Line(format!("{verb} AAAA").into_bytes());
        let mut out = Vec::new();
        let unwrap = |protection, _: &[u8]| {
            assert_eq!(protection, expected);
            Ok::<_, ()>(b"NOOP".to_vec())
        };
        unwrap_line(line, 10, unwrap, &mut out);
        assert_eq!(out, [protected("NOOP")]);
    }
}

#[test]
fn invalid_protection_is_told_from_none() {
    for line in [&enc("-PWD"), "ENC", "enc !!", "MIC AAAA BBBB", "CONF A"] {
        assert_eq!(unwrapped(line), [LineEvent::Forged], "{line}");
    }
    for line in ["PWD", "", "ENCX AAAA", "ADAT AAAA"] {
        let same = LineEvent::Line(line.as_bytes().to_vec());
        assert_eq!(unwrapped(line), [same], "{line}");
    }
    let mut out = Vec::new();
    unwrap_line(LineEvent::TooLong, 10, |_, _| Err(()), &mut out);
    assert_eq!(out, [LineEvent::TooLong]);
}
