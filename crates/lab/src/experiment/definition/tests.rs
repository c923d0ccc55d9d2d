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

const MORE: &str = r#"
baseline = "stock"
[[also]]
measure = "seconds"
label = "time"
unit = "s"
[ratios]
efficiency = { of = "goodput", to = "buffer" }
[variants.stock]
program = "x"
label = "stock"
quick_largest = "1MiB"
paper = { seconds = [3, nan, 1] }
[variants.drs]
program = "x"
label = "drs"
published_ratio = 9.0
"#;

/// [`GOOD`] without rows, with variants and further measures.
fn varied() -> String {
    let start = GOOD.find("[down]").unwrap();
    let end = GOOD.find("[network.default]").unwrap();
    let paper = GOOD.find("[paper]").unwrap();
    let (root, more) = MORE.split_at(MORE.find("[[also]]").unwrap());
    format!(
        "{}{}{more}",
        GOOD[..start].replace("\n[across]", &format!("{root}\n[across]")),
        &GOOD[end..paper],
    )
    .replace("[\"x\", \"y\"]", "[\"stock\", \"drs\"]")
    .replace("quick = [\"x\"]", "quick = [\"drs\"]")
}

#[test]
fn variants_and_further_measures_are_understood() {
    let d = Definition::parse("x.toml", &varied()).unwrap();
    assert_eq!(d.measures().collect::<Vec<_>>(), ["goodput", "seconds"]);
    assert_eq!(d.published("stock", "seconds", &at("", "10")), Some(1.0));
    assert_eq!(d.published("stock", "seconds", &at("", "5")), None, "nan");
    assert_eq!(d.published("drs", "seconds", &at("", "10")), None);
    let stock = &d.variants["stock"];
    assert_eq!(stock.largest(Mode::Quick), Some(1 << 20));
    assert_eq!(stock.largest(Mode::Full), None);
    assert!(stock.note(Mode::Quick).unwrap().contains("at most 1MiB"));
    assert_eq!(stock.note(Mode::Full), None);
}

#[test]
fn mistakes_in_variants_and_measures_name_their_key() {
    let good = varied();
    for (from, to, named) in [
        ("baseline = \"stock\"", "baseline = \"x\"", "'baseline'"),
        ("baseline = \"stock\"", "", "'variants.drs.published_ratio'"),
        ("unit = \"s\"", "unit = \"min\"", "'also.unit'"),
        (
            "measure = \"seconds\"",
            "measure = \"goodput\"",
            "'also.measure'",
        ),
        (
            "of = \"goodput\"",
            "of = \"efficiency\"",
            "'ratios.efficiency'",
        ),
        ("efficiency =", "wall =", "'ratios.wall'"),
        ("1MiB", "1 meg", "'variants.stock.quick_largest'"),
        (
            "quick_largest",
            "quick_repetitions = 0\nquick_largest",
            "'variants.stock.quick_repetitions'",
        ),
        ("[3, nan, 1]", "[3, 1]", "'variants.stock.paper.seconds'"),
        (
            "paper = { seconds",
            "paper = { rtt",
            "'variants.stock.paper.rtt'",
        ),
        ("quick_largest", "quick_smallest", "`quick_smallest`"),
        (
            "quick_largest",
            "only = { latency = [\"7\"] }\nquick_largest",
            "'variants.stock.only'",
        ),
        (
            "[network.default]",
            "[across.sets.\"2\"]\nbytes = \"1MB\"\n[network.default]",
            "'across'",
        ),
        (
            "[network.default]",
            "[[series]]\ntitle = \"W\"\nunit = \"kB\"\nlines = {}\n[network.default]",
            "'series.0.lines'",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let message = refusal(&good.replacen(from, to, 1));
        assert!(message.contains(named), "{from} -> {to}: {message}");
        assert!(!message.contains('\n'), "{message}");
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
