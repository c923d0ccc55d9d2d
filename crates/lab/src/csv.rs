//! Lines of comma-separated values (RFC 4180).

/// A line of fields that are ready to be written.
pub(crate) fn line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\r\n"
}

/// A field that holds text. A spreadsheet takes what begins like a formula for one, quoted or not:
/// an apostrophe makes it text. Numbers stay numbers.
pub(crate) fn text(field: &str) -> String {
    let formula =
        field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && field.parse::<f64>().is_err();
    let safe = if formula {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if safe.contains([',', '"', '\r', '\n']) || safe.trim() != safe {
        format!("\"{}\"", safe.replace('"', "\"\""))
    } else {
        safe
    }
}
