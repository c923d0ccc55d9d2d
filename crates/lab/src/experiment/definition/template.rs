//! Templates: texts in which `{name}` is replaced by the value of a variable and `{250*rate*rtt}` by the
//! product of numbers and variables. `{{` and `}}` stand for single braces.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The variables of templates: name → value.
pub(crate) type Variables = BTreeMap<String, String>;

/// Why a template cannot be expanded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    /// A variable without a value.
    #[error("'{{{0}}}' has no value here")]
    Unset(String),
    /// Unpaired braces, an invalid name, or a product whose factors are not all numbers.
    #[error("'{0}' is not a variable: write {{name}}, {{2*name}}, or {{{{ for a brace")]
    Malformed(String),
}

/// Replaces the variables in a text.
///
/// # Errors
/// A variable has no value, or the text is malformed.
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
        let end = rest.find('}').filter(|end| *end > 0);
        let end = end.ok_or_else(|| TemplateError::Malformed(rest.to_owned()))?;
        out.push_str(&value(&rest[1..end], variables)?);
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the text that replaces the braces around `hole`.
fn value(hole: &str, variables: &Variables) -> Result<String, TemplateError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let malformed = || TemplateError::Malformed(format!("{{{hole}}}"));
    let variable = |name: &str| match variables.get(name) {
        Some(value) => Ok(value.clone()),
        None if name.is_empty() || !name.chars().all(legal) => Err(malformed()),
        None => Err(TemplateError::Unset(name.to_owned())),
    };
    if !hole.contains('*') {
        return variable(hole);
    }
    let mut product = 1.0;
    for factor in hole.split('*') {
        product *= match factor.parse::<f64>() {
            Ok(number) => number,
            Err(_) => variable(factor)?.parse().map_err(|_| malformed())?,
        };
    }
    Ok(product.to_string())
}

/// One argument of a command line, or several that belong together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum CommandWord {
    /// One argument.
    One(String),
    /// Arguments that are all omitted when a variable in one of them has no value.
    Optional(Vec<String>),
}

/// Expands a command line into its arguments.
///
/// # Errors
/// A variable outside of optional arguments has no value, or a text is malformed.
pub(crate) fn command(
    words: &[CommandWord],
    variables: &Variables,
) -> Result<Vec<String>, TemplateError> {
    let mut argv = Vec::new();
    for word in words {
        match word {
            CommandWord::One(text) => argv.push(expand(text, variables)?),
            CommandWord::Optional(texts) => {
                let filled = texts.iter().map(|text| expand(text, variables));
                match filled.collect::<Result<Vec<_>, _>>() {
                    Ok(more) => argv.extend(more),
                    Err(TemplateError::Unset(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
    }
    Ok(argv)
}

/// Expands every text of a TOML table, at any depth of nested tables.
///
/// # Errors
/// A variable has no value, or a text is malformed.
pub(crate) fn table(
    table: &toml::Table,
    variables: &Variables,
) -> Result<toml::Table, TemplateError> {
    let filled = table.iter().map(|(key, value)| {
        let value = match value {
            toml::Value::String(text) => toml::Value::String(expand(text, variables)?),
            toml::Value::Table(inner) => toml::Value::Table(self::table(inner, variables)?),
            other => other.clone(),
        };
        Ok((key.clone(), value))
    });
    filled.collect()
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
    fn variables_are_replaced_and_mistakes_are_named() {
        for (text, filled) in [
            ("-p {p}", "-p 4"),
            ("{2*latency}ms", "0.5ms"),
            ("{8*p*latency}", "8"),
            ("{{{p}}}", "{4}"),
        ] {
            assert_eq!(expand(text, &variables()).as_deref(), Ok(filled));
        }
        let unset = |name: &str| Err(TemplateError::Unset(name.to_owned()));
        assert_eq!(expand("{q}", &variables()), unset("q"));
        assert_eq!(expand("{x*p}", &variables()), unset("x"));
        for bad in ["{p", "p}", "{}", "{a b}", "{*p}", "{2*}", "{2*cc}"] {
            let error = expand(bad, &variables()).unwrap_err();
            assert!(matches!(error, TemplateError::Malformed(_)), "{bad}");
        }
    }

    #[test]
    fn optional_arguments_are_omitted_together_and_nested_tables_are_expanded() {
        let text = r#"argv = ["cp", ["-p", "{p}"], ["--buffer", "{buffer}"], "x"]"#;
        let words: BTreeMap<String, Vec<CommandWord>> = toml::from_str(text).unwrap();
        let argv = command(&words["argv"], &variables()).unwrap();
        assert_eq!(argv, ["cp", "-p", "4", "x"]);
        let bad = [CommandWord::Optional(vec!["{p".into()])];
        assert!(command(&bad, &variables()).is_err());
        let text = "seed = 3\n[default]\nrtt = \"{2*latency}ms\"\n";
        let filled = table(&text.parse().unwrap(), &variables()).unwrap();
        assert_eq!(filled["default"]["rtt"].as_str(), Some("0.5ms"));
        assert_eq!(filled["seed"].as_integer(), Some(3));
    }

    proptest! {
        #[test]
        fn a_text_with_doubled_braces_expands_to_itself(text in ".{0,60}") {
            let _ = expand(&text, &variables());
            let doubled = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(expand(&doubled, &variables()), Ok(text));
        }
    }
}
