//! Values of settings, and where each one comes from.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ValueHint};
use toml::de::DeValue;

/// The value of a setting, before its flag checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingValue {
    /// `true` or `false`
    Switch(bool),
    /// One text or number, or a list.
    Words(Vec<String>),
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// An environment variable.
    Environment(String),
    /// A line of a file, and the section that it is in.
    File {
        path: PathBuf,
        line: usize,
        section: Option<String>,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File {
                path,
                line,
                section,
            } => {
                write!(f, "{}:{line}", path.display())?;
                section.iter().try_for_each(|name| write!(f, " {name}"))
            }
        }
    }
}

impl SettingValue {
    /// A value of TOML.
    ///
    /// # Errors
    /// It is a table, a list of lists, or a number that is not decimal.
    pub(super) fn of_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Boolean(switch) => Ok(Self::Switch(*switch)),
            DeValue::Array(items) => {
                let words = items.iter().map(|item| word_of_toml(item.get_ref()));
                words.collect::<Result<_, _>>().map(Self::Words)
            }
            other => word_of_toml(other).map(|word| Self::Words(vec![word])),
        }
    }

    /// A text, such as the value of an environment variable, for a flag. A list has one value a line.
    ///
    /// # Errors
    /// The flag has no value, and the text is neither `true` nor `false`.
    pub(super) fn of_text(text: &str, flag: &Arg) -> Result<Self, String> {
        if !is_switch(flag) {
            return Ok(Self::Words(match flag.get_action() {
                ArgAction::Append => text.lines().map(str::to_owned).collect(),
                _ => vec![text.to_owned()],
            }));
        }
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Self::Switch(true)),
            "false" | "0" | "no" | "off" => Ok(Self::Switch(false)),
            _ => Err("use true or false".to_owned()),
        }
    }

    /// As in a file: one value, or a list.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Switch(switch) => (*switch).into(),
            Self::Words(words) => match words.as_slice() {
                [word] => word.as_str().into(),
                words => words.into(),
            },
        }
    }

    /// The words that give the flag this value on a command line.
    ///
    /// # Errors
    /// The flag has values of another kind.
    pub(super) fn command_words(&self, flag: &Arg) -> Result<Vec<OsString>, String> {
        let name = flag.get_long().unwrap_or_default();
        let alone = OsString::from(format!("--{name}"));
        let takes_none = flag
            .get_num_args()
            .is_some_and(|range| range.min_values() == 0);
        match self {
            Self::Switch(true) if takes_none => Ok(vec![alone]),
            Self::Switch(false) if takes_none => Ok(Vec::new()),
            Self::Switch(_) => Err("use a text or a number".to_owned()),
            Self::Words(words) => match (flag.get_action(), words.as_slice()) {
                (ArgAction::Count, [number]) => {
                    let number: usize = match number.as_str() {
                        // As in a file, where they are no texts.
                        "true" => 1,
                        "false" => 0,
                        number => number.parse().map_err(|_| "use a number".to_owned())?,
                    };
                    Ok(vec![alone; number.min(9)])
                }
                _ if is_switch(flag) => Err("use true or false".to_owned()),
                (ArgAction::Append, words) => {
                    Ok(words.iter().map(|w| with_value(flag, w)).collect())
                }
                (_, [word]) => Ok(vec![with_value(flag, word)]),
                _ => Err("use one value, not a list".to_owned()),
            },
        }
    }
}

/// As in a file.
impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Switch(switch) => switch.fmt(f),
            Self::Words(words) => match words.as_slice() {
                [word] => write!(f, "{word:?}"),
                words => write!(f, "{words:?}"),
            },
        }
    }
}

/// Whether a flag has no value.
fn is_switch(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

fn with_value(flag: &Arg, word: &str) -> OsString {
    let name = flag.get_long().unwrap_or_default();
    let is_path = matches!(
        flag.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath
    );
    let mut argument = OsString::from(format!("--{name}="));
    match is_path {
        true => argument.push(expand_home(word)),
        false => argument.push(word),
    }
    argument
}

/// A path of a file or a variable, where no shell replaces `~/`.
pub(super) fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

fn word_of_toml(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Datetime(date) => Ok(date.to_string()),
        other => Err(format!("a {} is no value of a setting", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(action: ArgAction) -> Arg {
        let command = clap::Command::new("x").arg(Arg::new("f").long("f").action(action));
        let mut command = command;
        command.build();
        let found = command.get_arguments().find(|flag| flag.get_id() == "f");
        found.unwrap().clone()
    }

    fn words(text: &str, action: ArgAction) -> Result<Vec<OsString>, String> {
        let flag = flag(action);
        SettingValue::of_text(text, &flag)?.command_words(&flag)
    }

    #[test]
    fn values_become_words_of_the_command_line() {
        assert_eq!(words("a b", ArgAction::Set).unwrap(), ["--f=a b"]);
        assert_eq!(
            words("a\nb", ArgAction::Append).unwrap(),
            ["--f=a", "--f=b"]
        );
        assert_eq!(words("Yes", ArgAction::SetTrue).unwrap(), ["--f"]);
        assert_eq!(words("off", ArgAction::SetTrue).unwrap(), [""; 0]);
        assert_eq!(words("2", ArgAction::Count).unwrap(), ["--f", "--f"]);
        assert_eq!(words("true", ArgAction::Count).unwrap(), ["--f"]);
        assert!(words("maybe", ArgAction::SetTrue).is_err());
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        let set = flag(ArgAction::Set);
        assert!(SettingValue::Switch(true).command_words(&set).is_err());
        let list = SettingValue::Words(vec!["a".into(), "b".into()]);
        assert!(list.command_words(&set).is_err());
        assert!(list.command_words(&flag(ArgAction::SetTrue)).is_err());
    }
}
