//! Data files of experiments: TOML, with mistakes named by file and line.

use serde::de::DeserializeOwned;

use crate::LabError;

/// Reads `text`, the content of the file called `name`.
///
/// # Errors
/// [`LabError::Usage`]: one line, `name:LINE: what is wrong`.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, LabError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            1 + text[..span.start.min(text.len())].matches('\n').count()
        });
        LabError::Usage(format!(
            "{name}:{line}: {}",
            error.message().replace('\n', " ")
        ))
    })
}

/// A mistake that only the whole file shows: `name: key 'KEY': what is wrong`.
pub(crate) fn mistake(name: &str, key: &str, what: impl std::fmt::Display) -> LabError {
    LabError::Usage(format!("{name}: key '{key}': {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct Small {
        title: String,
    }

    fn refusal(text: &str) -> String {
        parse::<Small>("x.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_one_line_with_file_and_line() {
        let unknown = refusal("title = 'a'\ntilte = 'b'\n");
        assert!(
            unknown.starts_with("x.toml:2: unknown field `tilte`"),
            "{unknown}"
        );
        let syntax = refusal("title = 'a'\n\n= 3\n");
        assert!(syntax.starts_with("x.toml:3: "), "{syntax}");
        assert!(refusal("").contains("title"));
        for message in [unknown, syntax] {
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
