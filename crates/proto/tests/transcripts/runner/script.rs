//! A transcript as steps: what is given to the session. What it says (`S:`, `A:`) is not read; it
//! is compared as text.

/// One line of a transcript that is not the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScriptStep {
    /// Comment or blank line, kept as it is.
    Text(String),
    /// A setting that comes before the greeting, or `login`.
    Setting(String),
    /// A line from the client, unescaped.
    Client(Vec<u8>),
    /// A line that is longer than any.
    TooLong,
    /// Report of the driver.
    DriverEvent(String),
}

/// A step and its line.
pub(crate) struct ScriptLine {
    /// As written.
    pub(crate) source: String,
    /// Meaning of the line.
    pub(crate) step: ScriptStep,
}

/// Reads a transcript.
pub(crate) fn parse(text: &str) -> Result<Vec<ScriptLine>, String> {
    let mut lines = Vec::new();
    for source in text.lines() {
        if source.starts_with("S: ") || source.starts_with("A: ") {
            continue;
        }
        let step = if source.is_empty() || source.starts_with('#') {
            ScriptStep::Text(source.to_owned())
        } else if source == "C: (too long)" {
            ScriptStep::TooLong
        } else if let Some(text) = source.strip_prefix("C: ") {
            ScriptStep::Client(unescape(text)?)
        } else if source == "C:" {
            ScriptStep::Client(Vec::new())
        } else if let Some(text) = source.strip_prefix("> ") {
            ScriptStep::DriverEvent(text.to_owned())
        } else {
            ScriptStep::Setting(source.to_owned())
        };
        lines.push(ScriptLine {
            source: source.to_owned(),
            step,
        });
    }
    Ok(lines)
}

/// `\xHH` is a byte, `\\` a backslash.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        if let Some(after) = after.strip_prefix('\\') {
            out.push(b'\\');
            rest = after;
        } else {
            let hex = after.strip_prefix('x').and_then(|h| h.get(..2));
            let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
            out.push(byte.ok_or_else(|| format!("bad escape in {text}"))?);
            rest = &after[3..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// The reverse of [`unescape`] for bytes that are not printable ASCII.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out
}
