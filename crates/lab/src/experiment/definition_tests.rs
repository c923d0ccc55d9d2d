use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"
title = "Throughput"
kind = "net"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x", "y"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
bytes = { full = "1GiB", quick = "64MiB" }
limit = { full = 600, quick = 60 }

[across]
key = "latency"
label = "one-way latency"
unit = "ms"
full = ["1", "5", "10"]
quick = ["1", "10"]

[down]
key = "buffer"
label = "buffer"
full = ["256KB", "1MB"]
quick = ["1MB"]
means = { "256KB" = "262144" }

[network.default]
rtt = "{2*latency}ms"

[paper]
"256KB" = [1, 2.5, 3]
"#;

fn refusal(text: &str) -> String {
    Definition::parse("x.toml", text).unwrap_err().to_string()
}

fn at(buffer: &str, latency: &str) -> BTreeMap<String, String> {
    [("buffer", buffer), ("latency", latency)]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
}

#[test]
fn a_good_file_is_understood() {
    let d = Definition::parse("x.toml", GOOD).unwrap();
    assert_eq!(d.kind, Kind::Net);
    assert_eq!(d.bytes(Mode::Full), Some("1GiB"));
    assert_eq!(d.bytes(Mode::Quick), Some("64MiB"));
    assert_eq!(d.across.values(Mode::Quick), ["1", "10"]);
    assert_eq!(d.published("x", "goodput", &at("256KB", "5")), Some(2.5));
    assert_eq!(d.published("x", "goodput", &at("1MB", "5")), None);
    assert_eq!(d.published("x", "goodput", &at("256KB", "7")), None);
    let down = d.down.unwrap();
    assert_eq!(down.meaning("256KB"), "262144");
    assert_eq!(down.meaning("1MB"), "1MB");
}

#[test]
fn each_mistake_names_its_key() {
    for (from, to, named) in [
        ("kind = \"net\"", "kind = \"nut\"", "x.toml:3: "),
        ("kind = \"net\"", "kind = \"sim\"", "'network'"),
        ("kind = \"net\"", "kind = \"net\"\nnutwork = 1", "`nutwork`"),
        ("unit = \"Mbit/s\"", "unit = \"ms\"", "'unit'"),
        ("quick = [\"x\"]", "quick = []", "'programs.quick'"),
        ("full = 5", "full = 0", "'repetitions.full'"),
        ("1GiB", "1 gig", "'bytes.full'"),
        ("quick = [\"1\", \"10\"]", "quick = [\"2\"]", "'across'"),
        (
            "\"5\", \"10\"]\nquick",
            "\"5\", \"5\"]\nquick",
            "'across.full'",
        ),
        ("key = \"buffer\"", "key = \"latency\"", "'down.key'"),
        ("means = { \"256KB\"", "means = { \"256\"", "'down'"),
        ("[1, 2.5, 3]", "[1, 2.5]", "'paper.256KB'"),
        ("\"256KB\" = [1", "\"2MB\" = [1", "'paper.2MB'"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let message = refusal(&GOOD.replacen(from, to, 1));
        assert!(message.contains(named), "{from} -> {to}: {message}");
        assert!(
            message.starts_with("x.toml") && !message.contains('\n'),
            "{message}"
        );
    }
}

#[test]
fn without_rows_the_published_numbers_are_called_values() {
    let start = GOOD.find("[down]").unwrap();
    let end = GOOD.find("[network.default]").unwrap();
    let flat = format!("{}{}", &GOOD[..start], &GOOD[end..]);
    assert!(refusal(&flat).contains("'values'"));
    let d = Definition::parse("x.toml", &flat.replace("\"256KB\"", "values")).unwrap();
    assert_eq!(d.published("x", "goodput", &at("", "10")), Some(3.0));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".{0,200}") {
        let _ = Definition::parse("x.toml", &text);
    }
}
