//! The promises of docs/advisor.md.

use std::collections::BTreeSet;

use advisor::config::AdvisorConfig;
use advisor::measurement::Quantity;
use enable::method;

const PAGE: &str = include_str!("../../../../docs/advisor.md");

/// The keys of a table: the parser names them when it meets an unknown one.
fn keys(table: &str, prefix: &str) -> BTreeSet<String> {
    let error =
        toml::from_str::<AdvisorConfig>(&format!("{table}\nno-such-key = 1\n")).unwrap_err();
    let message = error.message();
    let (_, known) = message.split_once("expected").unwrap();
    let known = known.split('`').skip(1).step_by(2);
    known.map(|key| format!("{prefix}{key}")).collect()
}

#[test]
fn the_table_of_settings_has_every_key_and_no_other() {
    let mut expected = keys("", "");
    for table in ["log", "tests", "aggregation", "history", "notify"] {
        assert!(expected.remove(table), "{table}");
    }
    expected.extend(keys("[[log]]", "log."));
    expected.extend(keys("[tests.ping]", "tests.NAME."));
    expected.extend(keys("[aggregation]", "aggregation."));
    expected.extend(keys("[history]", "history."));
    expected.extend(keys("[notify]", "notify."));
    assert!(expected.remove("notify.smtp"), "it is refused");
    assert!(expected.remove("notify.mail"));
    expected.extend(keys("[notify.mail]", "notify.mail."));
    let (_, section) = PAGE.split_once("\n## Settings\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented = rows.map(|row| row.split('`').next().unwrap().to_owned());
    assert_eq!(documented.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_example_of_settings_can_be_used() {
    let example = PAGE.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let config: AdvisorConfig = toml::from_str(example).unwrap();
    config.check().unwrap();
    // It names no file that a reader has to make first, and every test that it has can run within its budget.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let found = runtime.block_on(advisor::check::check(&config));
    assert_eq!(found.refusals, [] as [String; 0]);
    let missing_program = |text: &&String| text.contains("cannot run here");
    let found: Vec<_> = found.shortcomings.iter().collect();
    assert!(found.iter().all(missing_program), "{found:?}");
}

#[test]
fn every_quantity_of_reports_is_in_the_page_with_its_unit() {
    let (_, section) = PAGE.split_once("\n### Quantities\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    for quantity in Quantity::ALL {
        let row = format!("| `{}` |", quantity.name());
        assert!(section.contains(&row), "{row}");
    }
}

#[test]
fn every_method_is_in_the_page() {
    for method in method::ALL {
        assert!(
            PAGE.contains(&format!("`{}", method.name)),
            "{}",
            method.name
        );
    }
}

#[test]
fn every_route_is_in_the_page() {
    let description = advisor::http::openapi();
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    for path in description["paths"].as_object().unwrap().keys() {
        assert!(PAGE.contains(&format!("{path}`")), "{path}");
    }
}
