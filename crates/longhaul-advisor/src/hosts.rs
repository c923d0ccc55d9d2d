//! `longhaul advisor add`, `remove`, `list`, `choose` and `test`: the clients that a server monitors.

use std::time::{Duration, Instant};

use enable::method;
use proto::printable::printable;
use serde_json::{Map, Value};
use units::show;

use super::asking::{AskingFailure, change, client_of};
use command_line::flags::advisor::AdvisorServerArgs;
use command_line::output::{print_json, print_line, print_to_stderr};

pub(crate) fn add(client: &str, server: &AdvisorServerArgs) -> Result<(), AskingFailure> {
    let is_new = change(server, &method::ADD_HOST, vec![client.into()])?;
    let what = match is_new {
        Value::Bool(false) => "is monitored already",
        _ => "is monitored now",
    };
    print_to_stderr(&format!("{client} {what}"));
    Ok(())
}

pub(crate) fn remove(client: &str, server: &AdvisorServerArgs) -> Result<(), AskingFailure> {
    let was_known = change(server, &method::REMOVE_HOST, vec![client.into()])?;
    let what = match was_known {
        Value::Bool(false) => "was not monitored",
        _ => "is no longer monitored",
    };
    print_to_stderr(&format!("{client} {what}"));
    Ok(())
}

/// Chooses the tests of a client that run at intervals.
pub(crate) fn choose(
    client: &str,
    tests: &[String],
    server: &AdvisorServerArgs,
) -> Result<(), AskingFailure> {
    let chosen = tests.iter().map(|test| match test.split_once('=') {
        Some((name, interval)) => (name.to_owned(), interval.into()),
        None => (test.clone(), true.into()),
    });
    let chosen: Map<String, Value> = chosen.collect();
    change(
        server,
        &method::SET_TESTS,
        vec![client.into(), chosen.into()],
    )?;
    print_to_stderr(&match tests {
        [] => format!("{client} is tested as the server's settings say"),
        tests => format!("{client} is tested by {}", tests.join(", ")),
    });
    Ok(())
}

pub(crate) fn test(
    client: &str,
    test: &str,
    result_within: Duration,
    server: &AdvisorServerArgs,
) -> Result<(), AskingFailure> {
    let asking = client_of(server)?;
    change(server, &method::RUN_TEST, vec![client.into(), test.into()])?;
    let question = vec![server.server.as_str().into(), client.into()];
    let deadline = Instant::now() + result_within;
    let mut is_told = false;
    loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        let info = match result_within.is_zero() {
            true => Value::Null,
            false => asking.call(&method::GET_NET_INFO, question.clone())?,
        };
        let Some(state) = info.pointer(&format!("/asked_tests/{test}")) else {
            // The answer was not wanted, or the server is an earlier one that does not tell.
            print_to_stderr(&format!(
                "{test} of {client} runs as soon as the budget allows"
            ));
            return Ok(());
        };
        if state["state"] == "measured" {
            print_line(&result_line(test, client, &state["values"]))?;
            return Ok(());
        }
        let why = state.get("why").map(plain);
        if state["state"] == "failed" {
            let why = why.unwrap_or_else(|| "the server does not say why".to_owned());
            return Err(AskingFailure::NoResult(format!(
                "{test} of {client} has no result: {why}"
            )));
        }
        if wait.is_zero() {
            let why = why.unwrap_or_else(|| "it runs, or other tests are before it".to_owned());
            let waited = show::time(result_within);
            return Err(AskingFailure::NoResult(format!(
                "{test} of {client} has no result within {waited}: {why}; it still runs as soon as it can"
            )));
        }
        if let Some(why) = why.filter(|_| !is_told) {
            print_to_stderr(&format!("{test} of {client} waits: {why}"));
            is_told = true;
        }
        std::thread::sleep(ASK_AGAIN.min(wait));
    }
}

/// The time between two questions for the result of a test.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// The values of a test on one line, with their units.
fn result_line(test: &str, client: &str, values: &Value) -> String {
    let shown = |(name, value): (&String, &Value)| {
        let text = match value.as_f64() {
            None => plain(value),
            Some(value) => quantity_text(name, value),
        };
        format!("{} {text}", printable(&name.replace('_', " ")))
    };
    let values = values.as_object().into_iter().flatten().map(shown);
    let values: Vec<String> = values.collect();
    format!("{test} of {client}: {}", values.join(", "))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and one beyond the type is shown as its largest"
)]
fn quantity_text(name: &str, value: f64) -> String {
    match name {
        "rtt" => Duration::try_from_secs_f64(value).map_or_else(|_| value.to_string(), show::time),
        "loss" | "retransmits" => format!("{:.3} %", value * 100.0),
        "bandwidth" | "reverse_bandwidth" | "goodput" | "reverse_goodput" => {
            show::bits(value.round() as u64)
        }
        _ => value.to_string(),
    }
}

pub(crate) fn list(json: bool, server: &AdvisorServerArgs) -> Result<(), AskingFailure> {
    let answer = client_of(server)?.call(&method::LIST_HOSTS, Vec::new())?;
    let Value::Array(hosts) = answer else {
        return Ok(());
    };
    for host in &hosts {
        match json {
            true => print_json(host)?,
            false => print_line(&host_line(host))?,
        }
    }
    Ok(())
}

/// A client and what the server tells of it: its name first, then the facts.
fn host_line(host: &Value) -> String {
    let Some(facts) = host.as_object() else {
        return plain(host);
    };
    let client = facts.get("client").map(plain).unwrap_or_default();
    let rest = facts
        .iter()
        .filter(|(name, value)| *name != "client" && !value.is_null())
        .map(|(name, value)| format!(" {}={}", printable(name), plain(value)));
    format!("{client}{}", rest.collect::<String>())
}

/// A value without the quotes of JSON, escaped for a terminal.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    printable(&text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_result_of_a_test_is_one_line_with_units() {
        let values = json!({"bandwidth": 94.1e6, "hops": 7.0, "loss": 0.25, "rtt": 0.1});
        assert_eq!(
            result_line("bottleneck", "h", &values),
            "bottleneck of h: bandwidth 94.1 Mbit/s, hops 7, loss 25.000 %, rtt 100 ms"
        );
    }

    #[test]
    fn a_host_is_one_line_with_its_name_first() {
        assert_eq!(host_line(&json!("192.0.2.7")), "192.0.2.7");
        let host = json!({"asked_bytes": 7, "client": "192.0.2.7", "source": "api", "tests": null});
        assert_eq!(host_line(&host), "192.0.2.7 asked_bytes=7 source=api");
        assert_eq!(host_line(&json!({"client": "a\u{1b}[2J"})), "a\\x1b[2J");
    }
}
