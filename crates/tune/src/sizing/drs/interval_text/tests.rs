use std::time::Duration;

use super::*;
use proptest::prelude::*;

#[test]
fn times_have_a_unit_and_bounds() {
    let fixed = |millis| Ok(DrsInterval::Fixed(Duration::from_millis(millis)));
    assert_eq!("adaptive".parse(), Ok(DrsInterval::Adaptive));
    for (text, millis) in [
        ("5ms", 5),
        ("100ms", 100),
        ("100 ms", 100),
        ("12.0ms", 12),
        ("0.25s", 250),
        ("4s", 4000),
        ("4000ms", 4000),
        ("5000us", 5),
    ] {
        assert_eq!(text.parse::<DrsInterval>(), fixed(millis), "{text}");
    }
}

#[test]
fn anything_else_says_what_to_write() {
    for text in [
        "",
        "ms",
        "s",
        "20",
        "4ms",
        "5s",
        "4.001s",
        "-5ms",
        "infs",
        "1.2.3s",
        "100us",
        "Adaptive",
        "adaptive ",
    ] {
        let error = text.parse::<DrsInterval>().unwrap_err().to_string();
        assert!(error.contains("from 5ms to 4s"), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*", near in "[0-9.]{0,400}m?s") {
        for text in [text, near] {
            if let Ok(DrsInterval::Fixed(time)) = text.parse() {
                prop_assert!((SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&time));
            }
        }
    }
}
