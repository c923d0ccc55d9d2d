//! Environment variables of the client.

use super::keys::{self, SettingKey};
use super::value::{Origin, SettingValue};

/// Names the configuration file, or `off`.
pub(super) const CONFIG: &str = "LONGHAUL_CONFIG";

/// Variables of the program that are no settings. The first is the variable of `--advisor` all the same.
pub(super) const OTHER_VARIABLES: [&str; 5] = [
    "LONGHAUL_ADVISOR",
    "LONGHAUL_BATCHES",
    CONFIG,
    "LONGHAUL_HISTORY",
    "LONGHAUL_PASSWORD",
];

/// Variables of the project's tests.
const OF_TESTS: [&str; 9] = [
    "LONGHAUL_BIN",
    "LONGHAUL_FUZZ_SECONDS",
    "LONGHAUL_FUZZ_SEED",
    "LONGHAUL_GREETING",
    "LONGHAUL_LAB_SCRATCH",
    "LONGHAUL_OLD",
    "LONGHAUL_PEERS",
    "LONGHAUL_REQUIRE_PEERS",
    "LONGHAUL_ROWS",
];

/// The value of a setting in the environment. An empty variable counts as none.
///
/// # Errors
/// One line: the variable and the mistake in it.
pub(super) fn value(key: &SettingKey) -> Result<Option<(SettingValue, Origin)>, String> {
    let name = key.variable();
    let Some(text) = std::env::var_os(&name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text
        .into_string()
        .map_err(|_| format!("{name} is not UTF-8"))?;
    let value =
        SettingValue::of_text(&text, &key.flag).map_err(|error| format!("{name}: {error}"))?;
    Ok(Some((value, Origin::Environment(name))))
}

/// One line for each variable that looks like a setting and is none.
pub(super) fn unknown_variables() -> Vec<String> {
    let known: Vec<String> = keys::all().iter().map(SettingKey::variable).collect();
    let all: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .chain(OTHER_VARIABLES)
        .chain(OF_TESTS)
        .collect();
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set = set.filter(|name| name.starts_with("LONGHAUL_"));
    set.filter(|name| !all.contains(&name.as_str()))
        .map(|name| smallfile::settings::unknown_name(&name, "variable", all.iter().copied()))
        .collect()
}
