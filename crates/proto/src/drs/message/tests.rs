use super::*;
use proptest::prelude::*;

fn message(timestamp: Duration, size: u64) -> DrsMessage {
    DrsMessage { timestamp, size }
}

#[test]
fn messages_have_the_form_of_the_paper() {
    let m = message(Duration::new(12, 345_678_000), 262_144);
    assert_eq!(m.format(), "SBUF 12.345678 262144");
    assert_eq!(DrsMessage::parse("SBUF 12.345678 262144"), Some(m));
    assert_eq!(
        message(Duration::from_micros(7), 65_536).format(),
        "SBUF 0.000007 65536"
    );
}

#[test]
fn timestamps_of_any_precision_are_parsed() {
    for (text, nanos) in [
        ("1", 1_000_000_000),
        ("1.5", 1_500_000_000),
        ("0.000000001", 1),
        ("0.0000000019999", 1),
        ("1700000000.25", 1_700_000_000_250_000_000),
    ] {
        let read = DrsMessage::parse(&format!("sbuf {text} 65536"));
        assert_eq!(read.unwrap().timestamp, Duration::from_nanos(nanos));
    }
}

#[test]
fn sizes_are_clamped() {
    for (text, size) in [
        ("0", MIN_BUFFER),
        ("4097", 4097),
        ("1073741824", MAX_BUFFER),
        ("18446744073709551616", MAX_BUFFER),
        ("99999999999999999999999999999999999999", MAX_BUFFER),
    ] {
        let read = DrsMessage::parse(&format!("SBUF 1.0 {text}"));
        assert_eq!(read.unwrap().size, size);
    }
}

#[test]
fn malformed_messages_are_refused() {
    for line in [
        "",
        "SBUF",
        "SBUF 1.0",
        "SBUF 1.0 ",
        "SBUF  1.0 65536",
        "SBUF 1.0 65536 ",
        "SBUF 1.0 65536 1",
        " SBUF 1.0 65536",
        "SBUF 1. 65536",
        "SBUF .5 65536",
        "SBUF 1.0.0 65536",
        "SBUF -1 65536",
        "SBUF +1 65536",
        "SBUF 1e3 65536",
        "SBUF nan 65536",
        "SBUF inf 65536",
        "SBUF 1.0 -65536",
        "SBUF 1.0 64k",
        "SBUF 1.0 0x10000",
        "SBUF 99999999999999999999 65536",
        "SBUF\t1.0\t65536",
        "SBUFF 1.0 65536",
        "DRS 000102030405060708090a0b0c0d0eff",
    ] {
        assert_eq!(DrsMessage::parse(line), None, "{line:?}");
    }
}

proptest! {
    #[test]
    fn formatted_messages_fit_a_line_and_are_parsed_back(
        seconds: u64,
        micros in 0u32..1_000_000,
        size in MIN_BUFFER..=MAX_BUFFER,
    ) {
        let sent = message(Duration::new(seconds, micros * 1000), size);
        let line = sent.format();
        prop_assert!(line.len() + 2 <= super::super::MAX_LINE);
        prop_assert_eq!(DrsMessage::parse(&line), Some(sent));
    }

    #[test]
    fn arbitrary_lines_never_panic(line in "\\PC*", near in "SBUF [0-9.+e]{0,30} [0-9.+e]{0,30}") {
        let _ = DrsMessage::parse(&line);
        if let Some(read) = DrsMessage::parse(&near) {
            prop_assert!((MIN_BUFFER..=MAX_BUFFER).contains(&read.size));
        }
    }
}
