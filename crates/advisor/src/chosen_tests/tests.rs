use super::*;
use serde_json::json;

fn read(choice: &Value) -> Result<ChosenTests, WrongChoice> {
    ChosenTests::from_json(choice.as_object().unwrap())
}

#[test]
fn a_choice_is_read_and_written() {
    let choice =
        json!({"ping": "10m", "pchar": false, "route": true, "iperf3": 0, "a": 1, "b": "1500ms"});
    let chosen = read(&choice).unwrap();
    let expected = [
        ("a", None),
        ("b", Some(Duration::from_millis(1500))),
        ("ping", Some(Duration::from_secs(600))),
        ("route", None),
    ];
    assert!(chosen.iter().eq(expected));
    assert_eq!(chosen.interval("ping"), Some(Duration::from_secs(600)));
    assert_eq!(
        (chosen.interval("route"), chosen.interval("no")),
        (None, None)
    );
    let written = chosen.to_json();
    assert_eq!(
        Value::from(written.clone()),
        json!({"a": true, "b": "1500ms", "ping": "600s", "route": true})
    );
    assert_eq!(ChosenTests::from_json(&written), Ok(chosen));
}

#[test]
fn other_values_and_intervals_are_refused() {
    for wrong in [
        json!(60),
        json!("soon"),
        json!(null),
        json!(["ping"]),
        json!("-5s"),
    ] {
        let refused = read(&json!({ "ping": wrong })).unwrap_err();
        assert_eq!(refused, WrongChoice::Value("ping".to_owned()));
    }
    for wrong in ["0", "999ms", "100000h"] {
        let refused = read(&json!({ "ping": wrong })).unwrap_err();
        assert_eq!(refused, WrongChoice::Interval("ping".to_owned()));
    }
    let long = read(&json!({ "x".repeat(10_000): "?" })).unwrap_err();
    assert!(long.to_string().len() < 200);
}
