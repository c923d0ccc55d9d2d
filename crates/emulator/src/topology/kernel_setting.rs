//! Syntax of kernel settings and congestion controls.

use units::names;

use super::error::TopologyError;

/// Parses a `net.*` setting.
pub(super) fn parse_sysctl(key: &str, value: &str) -> Result<(String, String), TopologyError> {
    let part_is_fine = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let shown = key.escape_debug();
    if !key.starts_with("net.") || !key.split('.').all(part_is_fine) {
        return Err(TopologyError::new(format!(
            "'{shown}' is not a network setting; write it like net.ipv4.tcp_rmem"
        )));
    }
    let value = value.trim();
    if value.is_empty() || value.len() > 1024 || value.chars().any(char::is_control) {
        return Err(TopologyError::new(format!(
            "{shown}: the value must be one line of text"
        )));
    }
    Ok((key.into(), value.into()))
}

/// Parses the name of a congestion control.
pub(super) fn parse_congestion_control(name: &str) -> Result<String, TopologyError> {
    if names::is_congestion_control(name) {
        return Ok(name.into());
    }
    Err(TopologyError::new(format!(
        "cc: '{}' is not the name of a congestion control; write it like cubic",
        name.escape_debug()
    )))
}

/// Sets a setting, replacing an earlier value.
pub(super) fn insert_or_replace(settings: &mut Vec<(String, String)>, key: String, value: String) {
    match settings.iter_mut().find(|(there, _)| *there == key) {
        Some((_, old)) => *old = value,
        None => settings.push((key, value)),
    }
}
