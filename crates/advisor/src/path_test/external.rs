//! An external test: a command of the configuration that prints what it measured, as lines `rtt 0.0123` or as a JSON
//! object `{"rtt": 0.0123}` with the names and units of [`Quantity`].

use std::ffi::OsString;
use std::time::Duration;

use super::program_test::{MeasuringProgram, ProgramResult};
use super::{HeldBackBy, Target, TestProfile, Weight};
use crate::measurement::Quantity;
use crate::program::ProgramOutput;

/// Longest output, bytes.
const MOST_OUTPUT: usize = 64 * 1024;

/// A word of the command that stands for the client's address.
const CLIENT: &str = "{client}";

/// A command of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCommand {
    /// Name of the test.
    pub name: String,
    /// Program and arguments; `{client}` in an argument stands for the client's address. No shell sees them.
    pub command: Vec<String>,
    /// Whether it fills the path.
    pub weight: Weight,
    /// Most runs at one time.
    pub concurrency: usize,
    /// Time between two runs for one client.
    pub interval: Duration,
    /// Most bytes that one run puts on the network.
    pub most_bytes: u64,
    /// Time after which it is killed.
    pub time_limit: Duration,
}

impl MeasuringProgram for ExternalCommand {
    fn profile(&self) -> TestProfile<'_> {
        TestProfile {
            name: &self.name,
            weight: self.weight,
            concurrency: self.concurrency,
            fills_path: self.concurrency == 1,
            interval: self.interval,
            held_back_by: match self.weight {
                Weight::Light => HeldBackBy::Nothing,
                Weight::Heavy => HeldBackBy::AnyTransfer,
            },
            measures: &[],
        }
    }

    fn most_bytes(&self, _target: &Target) -> u64 {
        self.most_bytes
    }

    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn missing(&self) -> String {
        match self.command.first() {
            Some(program) => format!("{program}: no such program"),
            None => "it has no command".to_owned(),
        }
    }

    fn arguments(&self, target: &Target) -> Vec<OsString> {
        let client = target.client.to_string();
        let words = self.command.iter().skip(1);
        words
            .map(|word| word.replace(CLIENT, &client).into())
            .collect()
    }

    fn time_limit(&self) -> Duration {
        self.time_limit
    }

    fn most_output(&self) -> usize {
        MOST_OUTPUT
    }

    fn read(&self, ran: &ProgramOutput) -> Result<ProgramResult, String> {
        if !ran.status.success() {
            return Err(ran.complaint());
        }
        let text = std::str::from_utf8(&ran.output)
            .map_err(|_| "its output is not text in UTF-8".to_owned())?;
        Ok(ProgramResult {
            values: parse_values(text)?,
            detail: None,
            cost_bytes: self.most_bytes,
        })
    }
}

/// The values in the output of a command: lines of name and value, or one JSON object.
fn parse_values(text: &str) -> Result<Vec<(Quantity, f64)>, String> {
    let pairs = if text.trim_start().starts_with('{') {
        json_pairs(text)?
    } else {
        line_pairs(text)?
    };
    let mut values: Vec<(Quantity, f64)> = Vec::new();
    for (name, value) in pairs {
        let shown = name.escape_debug();
        let quantity =
            Quantity::from_name(&name).ok_or_else(|| format!("'{shown}' is no quantity"))?;
        if !quantity.allows(value) {
            return Err(format!("{shown} cannot be {value}"));
        }
        if values.iter().any(|(known, _)| *known == quantity) {
            return Err(format!("{shown} is printed twice"));
        }
        values.push((quantity, value));
    }
    if values.is_empty() {
        return Err("it printed no value".to_owned());
    }
    Ok(values)
}

fn line_pairs(text: &str) -> Result<Vec<(String, f64)>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let pair = words
                .next()
                .zip(words.next().and_then(|word| word.parse().ok()));
            match (pair, words.next()) {
                (Some((name, value)), None) => Ok((name.to_owned(), value)),
                _ => {
                    let start: String = line.chars().take(60).collect();
                    Err(format!(
                        "'{}' is not a quantity and its value",
                        start.escape_debug()
                    ))
                }
            }
        })
        .collect()
}

fn json_pairs(text: &str) -> Result<Vec<(String, f64)>, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| format!("its JSON is wrong: {error}"))?;
    let pairs = object
        .into_iter()
        .map(|(name, value)| match value.as_f64() {
            Some(value) => Ok((name, value)),
            None => Err(format!("{} is not a number", name.escape_debug())),
        });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path_test::PathTest as _;
    use crate::path_test::program_test::ProgramTest;

    #[test]
    fn lines_and_json_give_the_same_values() {
        let expected = vec![(Quantity::Bandwidth, 1e9), (Quantity::Rtt, 0.0123)];
        assert_eq!(
            parse_values("bandwidth 1e9\n\n rtt  0.0123 \n"),
            Ok(expected.clone())
        );
        assert_eq!(
            parse_values(r#"{"rtt": 0.0123, "bandwidth": 1000000000}"#),
            Ok(expected)
        );
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        for text in [
            "",
            "rtt",
            "rtt x",
            "rtt 1 2",
            "rtt -1",
            "rtt NaN",
            "loss 2",
            "speed 1",
            "rtt 1\nrtt 2",
            "{",
            "{}",
            "{\"rtt\": \"1\"}",
            "{\"rtt\": 1} x",
            "bandwidth inf",
        ] {
            assert!(parse_values(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_parsed_or_refused(text in "\\PC*|([a-z{}\":,]{0,9} ?[0-9e.-]{0,6}\n){0,5}") {
            if let Ok(values) = parse_values(&text) {
                prop_assert!(values.iter().all(|(quantity, value)| quantity.allows(*value)));
            }
        }
    }

    fn test_of(command: &[&str]) -> ProgramTest<ExternalCommand> {
        ProgramTest::new(ExternalCommand {
            name: "own".to_owned(),
            command: command.iter().map(ToString::to_string).collect(),
            weight: Weight::Light,
            concurrency: 1,
            interval: Duration::from_secs(60),
            most_bytes: 1000,
            time_limit: Duration::from_secs(60),
        })
    }

    fn target() -> Target {
        Target::new("192.0.2.7".parse().unwrap())
    }

    #[tokio::test]
    async fn the_command_gets_the_clients_address_and_no_shell() {
        let script = "test \"$1\" = 'a;192.0.2.7 $HOME' && echo rtt 0.5";
        let mut test = test_of(&["/bin/sh", "-c", script, "sh", "a;{client} $HOME"]);
        test.init().await.unwrap();
        let measurement = test.run(&target()).await.unwrap();
        assert_eq!(measurement.values, [(Quantity::Rtt, 0.5)]);
        assert_eq!(measurement.test, "own");
    }

    #[tokio::test]
    async fn a_command_that_fails_gives_its_message() {
        let mut test = test_of(&["/bin/sh", "-c", "echo 'no licence' >&2; exit 2"]);
        test.init().await.unwrap();
        let failure = test.run(&target()).await.unwrap_err();
        assert!(failure.to_string().contains("no licence"), "{failure}");
    }

    #[tokio::test]
    async fn a_missing_program_is_unavailable() {
        let mut test = test_of(&["/nonexistent/program"]);
        let reason = test.init().await.unwrap_err().to_string();
        assert!(
            reason.contains("/nonexistent/program: no such program"),
            "{reason}"
        );
    }
}
