//! A look at settings before they are used: whether the service would start, and would do all that they say.

use std::path::Path;

use crate::aggregation;
use crate::config::AdvisorConfig;
use crate::http::check_token_file;
use crate::notify;
use crate::service;
use crate::store;

/// The outcome of a look, one sentence each.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CheckedSettings {
    /// Why the service would not start.
    pub refusals: Vec<String>,
    /// Parts of the settings that the service would do without.
    pub shortcomings: Vec<String>,
}

/// Looks at files, database, tests and the program for mail of settings that were read. Nothing is changed, and no packet is sent to a client.
pub async fn check(config: &AdvisorConfig) -> CheckedSettings {
    let mut found = CheckedSettings::default();
    if let Some(Err(error)) = config.token_file.as_deref().map(check_token_file) {
        found.refusals.push(error.to_string());
    }
    if let Err(error) = aggregation::policy(&config.aggregation) {
        found.refusals.push(error.to_string());
    }
    if let Err(error) = notify::check(&config.notify) {
        found.refusals.push(error.to_string());
    }
    for log in &config.log {
        if let Some(trouble) = log_trouble(&log.path) {
            let log = log.path.display();
            let text =
                format!("log {log}: {trouble}; nothing is learned from it until it can be read");
            found.shortcomings.push(text);
        }
    }
    if let Err(error) = store::check_reachable(&config.store).await {
        found.shortcomings.push(format!(
            "store: the database is unavailable, nothing would be kept beyond memory: {error}"
        ));
    }
    found
        .shortcomings
        .extend(service::test_problems(config).await);
    found
}

/// Why a log cannot be read; `None`: it can.
fn log_trouble(path: &Path) -> Option<String> {
    // A FIFO would not open until somebody writes to it.
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Some("it is no regular file".to_owned()),
        Ok(_) => std::fs::File::open(path)
            .err()
            .map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}
