use proptest::collection::vec;
use proptest::prelude::*;
use proto::address::{find_in_227, find_in_229, parse_eprt, parse_port, parse_spas_lines};
use proto::feature::ServerFeatures;
use proto::marker::{
    PerformanceMarker, checksum_marker_reply, parse_checksum_marker, parse_range_marker,
    range_marker_replies,
};
use proto::path::{MAX_PATH, VPath};
use proto::ranges::RangeSet;
use proto::remark::{self, CompletionRemarks, LimiterReport};
use proto::reply::Reply;
use proto::sizing::{
    MAX_BUFFER, MIN_BUFFER, buffer_size_reply, parse_buffer_size_reply, parse_names,
};
use proto::timestamp::Timestamp;

fn is_normal(path: &VPath) -> bool {
    let bytes = path.as_bytes();
    let components = || bytes[1..].split(|b| *b == b'/');
    bytes.starts_with(b"/")
        && bytes.len() <= MAX_PATH
        && !bytes.contains(&0)
        && (path.is_root() || components().all(|c| !matches!(c, b"" | b"." | b"..")))
}

proptest! {
    #[test]
    fn performance_markers_are_parsed_back(
        tenths in 0..20_000_000_000u64,
        stripe_index: u32,
        stripe_bytes: u64,
        stripe_count in 1..=u32::MAX,
    ) {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        let timestamp = tenths as f64 / 10.0;
        let marker = PerformanceMarker { timestamp, stripe_index, stripe_bytes, stripe_count };
        prop_assert_eq!(PerformanceMarker::from_reply(&marker.to_reply()), Some(marker));
        let status = checksum_marker_reply(timestamp, stripe_bytes);
        prop_assert_eq!(parse_checksum_marker(&status), Some(stripe_bytes));
    }

    #[test]
    fn restart_markers_are_parsed_back(items in vec((any::<u32>(), 1..9u32), 0..3000)) {
        let mut set = RangeSet::new();
        for (start, len) in items {
            set.insert(u64::from(start), u64::from(start) + u64::from(len));
        }
        let mut parsed_back = RangeSet::new();
        for reply in range_marker_replies(&set) {
            parsed_back.extend(&parse_range_marker(&reply).unwrap_or_default());
        }
        prop_assert_eq!(parsed_back, set);
    }

    #[test]
    fn buffer_sizes_are_parsed_back_clamped(bytes in prop_oneof![0..=2 * MAX_BUFFER, any::<u64>()]) {
        let parsed = parse_buffer_size_reply(&buffer_size_reply(bytes));
        prop_assert_eq!(parsed, (bytes > 0).then(|| bytes.clamp(MIN_BUFFER, MAX_BUFFER)));
    }

    #[test]
    fn remarks_in_a_226_are_parsed_back_bounded(
        limiter in "[a-z(][a-zA-Z ()/-]{0,20}",
        streams in 0..200u32,
        congestion in "[a-z0-9_-]{0,16}",
        text in "\\PC{0,500}|[ -~\r\n\t\u{0}\u{9b}]{0,500}|Limited by [a-z]{1,5}, [0-9] streams?.{0,9}",
    ) {
        let report = LimiterReport::new(limiter.trim_end(), streams, &congestion);
        let line = remark::printable_remark(&text);
        if let Some(line) = &line {
            prop_assert!(!line.chars().any(char::is_control) && !line.is_empty());
            prop_assert!(line.chars().count() <= 400);
        }
        let remark = line.as_deref().unwrap_or_default();
        let text_226 = match &report {
            Some(report) => format!("Transfer Complete. {report} {remark}"),
            None => format!("Transfer Complete. {remark}"),
        };
        let read = CompletionRemarks::from_reply(&Reply::new(226, text_226));
        match report {
            Some(_) => prop_assert_eq!(read, CompletionRemarks { limiter: report, remark: line, ..CompletionRemarks::default() }),
            None if remark.starts_with("FILE:") => prop_assert_eq!(read, CompletionRemarks::default()),
            None if read.limiter.is_some() => prop_assert!(remark.starts_with("Limited by ")),
            None => prop_assert_eq!(read.remark, line),
        }
    }

    #[test]
    fn times_are_parsed_back(seconds in -62_167_219_200..=253_402_300_799i64) {
        let time = Timestamp(seconds);
        prop_assert_eq!(Timestamp::parse(&time.format()), Some(time));
    }

    #[test]
    fn ls_dates_have_twelve_characters(seconds: i64, now: i64) {
        prop_assert_eq!(Timestamp(seconds).format_ls(Timestamp(now)).len(), 12);
    }

    #[test]
    fn resolved_paths_are_normalised(
        cwd in "(/(\\.|\\.\\.|a|b c|é)){0,5}",
        arg in "/?((\\.|\\.\\.|a|b c|é|)/){0,6}[ -~]{0,3}",
    ) {
        let Ok(base) = VPath::root().resolve(cwd.as_bytes()) else { return Ok(()) };
        prop_assert!(is_normal(&base));
        let Ok(path) = base.resolve(arg.as_bytes()) else { return Ok(()) };
        prop_assert!(is_normal(&path));
        prop_assert_eq!(VPath::root().resolve(path.as_bytes()), Ok(path.clone()));
        if !path.is_root() {
            prop_assert_eq!(path.parent().join(path.name()), Ok(path));
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,60}", code: u16) {
        let _ = (parse_port(&text), parse_eprt(&text), find_in_227(&text), find_in_229(&text));
        let _ = parse_spas_lines(text.split(' '));
        let _ = (Timestamp::parse(&text), VPath::root().resolve(text.as_bytes()));
        let reply = Reply::new(code, &text);
        let _ = (PerformanceMarker::from_reply(&reply), parse_range_marker(&reply), reply.summary());
        let _ = (parse_buffer_size_reply(&reply), CompletionRemarks::from_reply(&reply), reply.for_log());
        let _ = parse_names(&text);
        let _ = ServerFeatures::from_reply(&Reply::with_inner_lines(211, &text, vec![text.clone().into()], &text));
    }
}
