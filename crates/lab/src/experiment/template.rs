//! Text with holes: `{name}` is replaced by a variable, `{250*rate*rtt}` by a product of numbers and
//! variables.
//!
//! `{{` and `}}` stand for single braces. A command line is a list of such texts; a nested list in
//! it is left out as a whole when one of its variables has no value.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Values for the holes.
pub(crate) type Variables = BTreeMap<String, String>;

/// Why a text cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    /// A variable without a value.
    #[error("'{{{0}}}' has no value here")]
    Unset(String),
    /// Braces that do not pair, or a name with other characters than letters, digits, `_`, `.`.
    #[error("'{0}' is no variable; write {{name}}, {{2*name}}, or {{{{ for a brace")]
    Malformed(String),
    /// `{2*name}` of something that is no number.
    #[error("'{{{product}}}': '{value}' is not a number")]
    NotANumber {
        /// The product as written.
        product: String,
        /// Its value.
        value: String,
    },
}

/// Fills in one text.
pub(crate) fn expand(text: &str, variables: &Variables) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            out.push_str(&rest[..1]);
            rest = &rest[2..];
            continue;
        }
        let end = rest
            .find('}')
            .filter(|end| *end > 0)
            .ok_or_else(|| TemplateError::Malformed(rest.to_owned()))?;
        out.push_str(&value(&rest[1..end], variables)?);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Value for the inside of a pair of braces.
fn value(hole: &str, variables: &Variables) -> Result<String, TemplateError> {
    if !hole.contains('*') {
        return variable(hole, hole, variables).cloned();
    }
    let mut product = 1.0;
    for factor in hole.split('*').map(str::trim) {
        product *= match factor.parse::<f64>() {
            Ok(number) => number,
            Err(_) => number(hole, variable(hole, factor, variables)?)?,
        };
    }
    Ok(format!("{product}"))
}

/// The variable called `name` in `hole`.
fn variable<'a>(
    hole: &str,
    name: &str,
    variables: &'a Variables,
) -> Result<&'a String, TemplateError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || !name.chars().all(legal) {
        return Err(TemplateError::Malformed(format!("{{{hole}}}")));
    }
    variables
        .get(name)
        .ok_or_else(|| TemplateError::Unset(name.to_owned()))
}

fn number(hole: &str, value: &str) -> Result<f64, TemplateError> {
    value.parse().map_err(|_| TemplateError::NotANumber {
        product: hole.to_owned(),
        value: value.to_owned(),
    })
}

/// A word of a command line, or words that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word {
    /// One argument.
    One(String),
    /// Arguments that are left out together when a variable in them has no value.
    Optional(Vec<String>),
}

/// Fills in a command line.
pub(crate) fn command(words: &[Word], variables: &Variables) -> Result<Vec<String>, TemplateError> {
    let mut argv = Vec::new();
    for word in words {
        match word {
            Word::One(text) => argv.push(expand(text, variables)?),
            Word::Optional(texts) => {
                let filled: Result<Vec<_>, _> =
                    texts.iter().map(|text| expand(text, variables)).collect();
                match filled {
                    Ok(more) => argv.extend(more),
                    Err(TemplateError::Unset(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
    }
    Ok(argv)
}

/// Fills in every text of a TOML table.
pub(crate) fn table(
    table: &toml::Table,
    variables: &Variables,
) -> Result<toml::Table, TemplateError> {
    table
        .iter()
        .map(|(key, value)| Ok((key.clone(), toml_value(value, variables)?)))
        .collect()
}

fn toml_value(value: &toml::Value, variables: &Variables) -> Result<toml::Value, TemplateError> {
    Ok(match value {
        toml::Value::String(text) => toml::Value::String(expand(text, variables)?),
        toml::Value::Array(values) => toml::Value::Array(
            values
                .iter()
                .map(|v| toml_value(v, variables))
                .collect::<Result<_, _>>()?,
        ),
        toml::Value::Table(inner) => toml::Value::Table(table(inner, variables)?),
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variables() -> Variables {
        [("p", "4"), ("latency", "0.25"), ("cc", "cubic")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    }

    #[test]
    fn holes_are_filled() {
        let v = variables();
        assert_eq!(expand("-p {p}", &v), Ok("-p 4".into()));
        assert_eq!(expand("{2*latency}ms", &v), Ok("0.5ms".into()));
        assert_eq!(expand("{1.5*p}", &v), Ok("6".into()));
        assert_eq!(expand("{8*p*latency}", &v), Ok("8".into()));
        assert_eq!(expand("{{{p}}}", &v), Ok("{4}".into()));
    }

    #[test]
    fn mistakes_are_named() {
        let v = variables();
        assert_eq!(expand("{q}", &v), Err(TemplateError::Unset("q".into())));
        assert_eq!(expand("{x*p}", &v), Err(TemplateError::Unset("x".into())));
        for bad in ["{p", "p}", "{}", "{a b}", "{*p}", "{2*}"] {
            assert!(
                matches!(expand(bad, &v), Err(TemplateError::Malformed(_))),
                "{bad}"
            );
        }
        assert!(matches!(
            expand("{2*cc}", &v),
            Err(TemplateError::NotANumber { .. })
        ));
    }

    #[test]
    fn optional_words_go_together() {
        let words: Vec<Word> = toml::from_str::<BTreeMap<String, Vec<Word>>>(
            r#"argv = ["cp", ["-p", "{p}"], ["--buffer", "{buffer}"], "x"]"#,
        )
        .unwrap()
        .remove("argv")
        .unwrap();
        assert_eq!(
            command(&words, &variables()).unwrap(),
            ["cp", "-p", "4", "x"]
        );
        let bad = [Word::Optional(vec!["{p".into()])];
        assert!(command(&bad, &variables()).is_err());
    }

    #[test]
    fn tables_are_filled_to_any_depth() {
        let text = "seed = 3\n[default]\nrtt = \"{2*latency}ms\"\nlist = [\"{p}\"]\n";
        let filled = table(&text.parse().unwrap(), &variables()).unwrap();
        assert_eq!(filled["default"]["rtt"].as_str(), Some("0.5ms"));
        assert_eq!(filled["default"]["list"][0].as_str(), Some("4"));
        assert_eq!(filled["seed"].as_integer(), Some(3));
    }

    proptest! {
        #[test]
        fn any_text_is_answered_and_plain_text_is_kept(text in ".{0,60}") {
            let answer = expand(&text, &variables());
            if !text.contains(['{', '}']) {
                prop_assert_eq!(answer, Ok(text));
            }
        }

        #[test]
        fn doubled_braces_give_any_text_back(text in ".{0,60}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(expand(&doubled, &variables()), Ok(text));
        }
    }
}
