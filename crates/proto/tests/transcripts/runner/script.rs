//! Parses the input of a transcript into steps. The output of the session (`S:`, `A:`) is not parsed but
//! compared as text.

/// One input line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScriptStep {
    /// Comment or blank line, copied unchanged.
    Text(String),
    /// Setting before the greeting, or `login`.
    Setting(String),
    /// Line from the client, unescaped.
    Client(Vec<u8>),
    /// Command from the client inside ENC, unescaped.
    Protected(Vec<u8>),
    /// ENC from the client with invalid protection.
    Forged,
    /// Line from the client that exceeds the limit.
    TooLong,
    /// Event from the driver.
    DriverEvent(String),
}

/// A step and its line.
pub(crate) struct ScriptLine {
    /// Text of the line.
    pub(crate) source: String,
    /// Meaning of the line.
    pub(crate) step: ScriptStep,
}

/// Parses the input lines of a transcript.
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
        } else if source == "P: (forged)" {
            ScriptStep::Forged
        } else if let Some(text) = source.strip_prefix("P: ") {
            ScriptStep::Protected(unescape(text)?)
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

/// Replaces `\xHH` by a byte and `\\` by a backslash.
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
