//! Checks of settings that the parser cannot make: ranges, and settings that must fit each other.

use std::time::Duration;

use smallfile::settings;

use crate::log_reader::entry::TRANSFER_TEST;

use super::{AdvisorConfig, AdvisorConfigError, HOUR, TestConfig};

/// Names of the tests that are built in.
pub(super) const BUILT_IN: [&str; 5] = ["ping", "bottleneck", "route", "pchar", "iperf3"];

/// Longest name of a server or a test, bytes.
const LONGEST_NAME: usize = 128;

/// Whether a server may have this name: letters, digits, `.`, `-` and `_`.
pub(super) fn is_server_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain)
}

fn wrong(key: impl Into<String>, reason: impl Into<String>) -> AdvisorConfigError {
    AdvisorConfigError::Value {
        key: key.into(),
        reason: reason.into(),
    }
}

fn in_range(
    key: impl Into<String>,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), AdvisorConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(wrong(
        key,
        format!("{value} is not between {least} and {most}"),
    ))
}

impl AdvisorConfig {
    /// Checks the ranges of all settings.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), AdvisorConfigError> {
        if !is_server_name(&self.server_name) {
            let reason = "a name has 1 to 128 letters, digits, '.', '-' or '_'";
            return Err(wrong("server-name", reason));
        }
        in_range("max-clients", self.max_clients, 1, 1_000_000)?;
        if self.clients.len() > self.max_clients {
            let reason = format!("{} clients are more than max-clients", self.clients.len());
            return Err(wrong("clients", reason));
        }
        if let Some(client) = self.clients.iter().find(|name| !is_host(name)) {
            return Err(wrong(
                "clients",
                format!("{client:?} is not an address or name"),
            ));
        }
        in_range("workers", self.workers, 1, 256)?;
        in_range("values", self.values, 4, 100)?;
        if self.purge_after < HOUR {
            return Err(wrong("purge-after", "it is at least 1h"));
        }
        if self.bytes_per_hour == 0 {
            return Err(wrong("bytes-per-hour", "it is at least 1"));
        }
        for (name, test) in &self.tests {
            check_test(name, test)?;
        }
        in_range(
            "aggregation.prefix-v4",
            self.aggregation.prefix_v4.into(),
            0,
            32,
        )?;
        in_range(
            "aggregation.prefix-v6",
            self.aggregation.prefix_v6.into(),
            0,
            128,
        )?;
        let history = &self.history;
        if history.single < HOUR || history.hours <= history.single || history.days <= history.hours
        {
            let reason = "single (at least 1h), hours and days must increase";
            return Err(wrong("history", reason));
        }
        self.check_notify()
    }

    fn check_notify(&self) -> Result<(), AdvisorConfigError> {
        if let Some(url) = &self.notify.webhook
            && !url.starts_with("http://")
            && !url.starts_with("https://")
        {
            return Err(wrong(
                "notify.webhook",
                "it begins with http:// or https://",
            ));
        }
        let mail = self.notify.mail.as_ref();
        if mail.is_some_and(|mail| mail.to.is_empty()) {
            return Err(wrong("notify.mail.to", "it names no reader"));
        }
        Ok(())
    }
}

fn is_host(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    (1..=253).contains(&name.len()) && name.chars().all(plain)
}

fn check_test(name: &str, test: &TestConfig) -> Result<(), AdvisorConfigError> {
    let key = |setting: &str| format!("tests.{name}.{setting}");
    if name == TRANSFER_TEST {
        let reason = "transfers are no test that is started: what they show is always taken in";
        return Err(wrong(format!("tests.{name}"), reason));
    }
    let built_in = BUILT_IN.contains(&name);
    match &test.command {
        Some(_) if built_in => return Err(wrong(key("command"), "this test is built in")),
        None if !built_in => {
            let reason = settings::unknown_name(name, "test", BUILT_IN);
            return Err(wrong(
                "tests",
                format!("{reason} (a test of your own needs a command)"),
            ));
        }
        Some(command)
            if command
                .first()
                .is_none_or(|program| !program.starts_with('/')) =>
        {
            let reason = "its first word is the absolute path of a program";
            return Err(wrong(key("command"), reason));
        }
        Some(_) if !is_server_name(name) => {
            let reason = format!("{name:?} has other signs than letters, digits, '.', '-' and '_'");
            return Err(wrong("tests", reason));
        }
        Some(_) => {}
        None => {
            let external = [
                (test.weight.is_some(), "weight"),
                (test.most_bytes.is_some(), "most-bytes"),
                (test.timeout.is_some(), "timeout"),
            ];
            if let Some((_, setting)) = external.into_iter().find(|(given, _)| *given) {
                return Err(wrong(key(setting), "only a test with a command has it"));
            }
        }
    }
    if test
        .interval
        .is_some_and(|interval| interval < Duration::from_secs(1))
    {
        return Err(wrong(key("interval"), "it is at least 1s"));
    }
    if test.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(wrong(key("timeout"), "it is more than 0"));
    }
    match test.concurrency {
        Some(concurrency) => in_range(key("concurrency"), concurrency, 1, 256),
        None => Ok(()),
    }
}
