use super::*;

#[test]
fn a_wait_is_given_in_seconds_or_ends_at_a_date() {
    let now = Timestamp(784_111_707);
    for (text, seconds) in [
        ("7", Some(7)),
        (" 0 ", Some(0)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(70)),
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("-7", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
    ] {
        let wait = seconds.map(Duration::from_secs);
        assert_eq!(retry_after(text, now), wait, "{text}");
    }
}

#[test]
fn every_form_is_parsed_as_the_same_time() {
    let moment = Some(Timestamp(784_111_777));
    for text in [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov  6 08:49:37 UTC 1994",
        " Sun,  6 Nov 1994 08:49:37 GMT ",
        "So, 06 Nov 1994 08:49:37 GMT",
        "dim., 06 novembre 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 GMT-00:00",
        "Sun, 06 Nov 1994 10:19:37 GMT+01:30",
        "Sun, 06 Nov 1994 03:49:37 -0500",
        "1994-11-06T08:49:37Z",
        "1994-11-06T08:49:37.250Z",
        "1994-11-06T09:49:37+01:00",
    ] {
        assert_eq!(parse(text), moment, "{text}");
    }
    let march = parse("Wed, 13 Mar 2019 15:19:49 GMT");
    assert_eq!(parse("Mi, 13 Mrz 2019 15:19:49 GMT"), march);
    assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Timestamp(0)));
    // A leap second, which Unix time cannot express.
    let leap = parse("Sat, 31 Dec 2016 23:59:60 GMT");
    assert_eq!(leap, parse("Sat, 31 Dec 2016 23:59:59 GMT"));
}

#[test]
fn other_texts_and_times_of_unknown_zones_are_no_dates() {
    for text in [
        "",
        "0",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET",
        "Sun, 06 Nov 1994 08:49:37 GMT+1x:00",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 -8:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sunday, 06-Nov 08:49:37 GMT",
        "1994-11-06T08:49:37",
        "1994-11-06",
        "a b c d e f g h",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}
