//! `longhaul advisor add`, `remove`, `list` and `test`: the clients that a server monitors.

use enable::method;
use proto::printable::printable;
use serde_json::Value;

use super::asking::{AskingFailure, client_of};
use command_line::flags::advisor::AdvisorServerArgs;
use command_line::output::{print_json, print_line, print_to_stderr};

pub(crate) fn add(client: &str, server: &AdvisorServerArgs) -> Result<(), AskingFailure> {
    let is_new = client_of(server)?.call(&method::ADD_HOST, vec![client.into()])?;
    let what = match is_new {
        Value::Bool(false) => "is monitored already",
        _ => "is monitored now",
    };
    print_to_stderr(&format!("{client} {what}"));
    Ok(())
}

pub(crate) fn remove(client: &str, server: &AdvisorServerArgs) -> Result<(), AskingFailure> {
    let was_known = client_of(server)?.call(&method::REMOVE_HOST, vec![client.into()])?;
    let what = match was_known {
        Value::Bool(false) => "was not monitored",
        _ => "is no longer monitored",
    };
    print_to_stderr(&format!("{client} {what}"));
    Ok(())
}

pub(crate) fn test(
    client: &str,
    test: &str,
    server: &AdvisorServerArgs,
) -> Result<(), AskingFailure> {
    client_of(server)?.call(&method::RUN_TEST, vec![client.into(), test.into()])?;
    print_to_stderr(&format!(
        "{test} of {client} runs as soon as the budget allows"
    ));
    Ok(())
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
    fn a_host_is_one_line_with_its_name_first() {
        assert_eq!(host_line(&json!("192.0.2.7")), "192.0.2.7");
        let host = json!({"asked_bytes": 7, "client": "192.0.2.7", "source": "api", "tests": null});
        assert_eq!(host_line(&host), "192.0.2.7 asked_bytes=7 source=api");
        assert_eq!(host_line(&json!({"client": "a\u{1b}[2J"})), "a\\x1b[2J");
    }
}
