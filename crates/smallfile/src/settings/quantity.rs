//! Quantities in settings files: a number, or a text with a unit.

use serde::Deserialize;

/// The text of a quantity, for a parser of units. A number is written in digits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "NumberOrText")]
pub struct SettingText(pub String);

/// A number or a text, as TOML has both.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number or a text with a unit")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl From<NumberOrText> for SettingText {
    fn from(given: NumberOrText) -> Self {
        match given {
            NumberOrText::Number(number) => Self(number.to_string()),
            NumberOrText::Text(text) => Self(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct TimedSample {
        time: SettingText,
    }

    #[test]
    fn a_quantity_is_a_number_or_a_text() {
        let read = |text: &str| toml::from_str::<TimedSample>(text).map(|sample| sample.time.0);
        assert_eq!(read("time = 5").unwrap(), "5");
        assert_eq!(read("time = \"5m\"").unwrap(), "5m");
        let error = read("time = true").unwrap_err().to_string();
        assert!(error.contains("a number or a text with a unit"), "{error}");
    }
}
