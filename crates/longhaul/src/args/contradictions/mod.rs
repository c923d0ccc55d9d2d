//! Flags that contradict each other: refused before anything happens, with one line that names them.
//!
//! Only what was typed is compared. A default, or a value from elsewhere, gives way to a flag.

mod copy;
mod serve;

use std::any::Any;
use std::ffi::OsStr;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// Flags that contradict each other.
struct Contradiction {
    /// Whether the flags that were typed contradict each other in this way.
    applies: fn(TypedFlags<'_>) -> bool,
    /// The line that names them, and says what to do.
    line: &'static str,
}

/// The first contradiction in a command line, as one line.
pub(super) fn find_contradiction(matches: &ArgMatches) -> Option<&'static str> {
    let (verb, matches) = matches.subcommand()?;
    let rules = match verb {
        "cp" | "sync" => copy::RULES,
        "serve" => serve::RULES,
        _ => &[],
    };
    let flags = TypedFlags(matches);
    let found = rules.iter().find(|rule| (rule.applies)(flags));
    found.map(|rule| rule.line)
}

/// The flags of a verb by their names in its definition.
#[derive(Clone, Copy)]
struct TypedFlags<'m>(&'m ArgMatches);

impl<'m> TypedFlags<'m> {
    /// Whether the flag was typed. Verbs may lack it.
    fn has(self, name: &str) -> bool {
        // `value_source` panics for a name that the verb does not have.
        self.0.try_contains_id(name).is_ok()
            && self.0.value_source(name) == Some(ValueSource::CommandLine)
    }

    fn has_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    fn has_all(self, names: &[&str]) -> bool {
        names.iter().all(|name| self.has(name))
    }

    /// The value of a flag as written, from wherever it is.
    fn text(self, name: &str) -> Option<&'m OsStr> {
        self.0.try_get_raw(name).ok()??.next()
    }

    /// Whether the flag was typed with one of these words, in upper or lower case.
    fn is(self, name: &str, words: &[&str]) -> bool {
        self.has(name) && self.value_is(name, words)
    }

    /// Whether the value of a flag, from wherever it is, is one of these words.
    fn value_is(self, name: &str, words: &[&str]) -> bool {
        let text = self.text(name).and_then(OsStr::to_str);
        text.is_some_and(|text| words.iter().any(|word| word.eq_ignore_ascii_case(text)))
    }

    /// The parsed value of a flag that was typed.
    fn value<T: Any + Clone + Send + Sync + 'static>(self, name: &str) -> Option<T> {
        let value = self.has(name).then(|| self.0.try_get_one::<T>(name).ok());
        value??.cloned()
    }

    /// Whether a flag of the one kind and a flag of the other have one value, such as a file; `@FILE` counts as FILE.
    fn share_values(self, ones: &[&str], others: &[&str]) -> bool {
        let all = |names: &[&str]| -> Vec<&'m [u8]> {
            let given = names.iter().filter(|name| self.has(name));
            let values = given.filter_map(|name| self.0.try_get_raw(name).ok()?);
            let texts = values.flatten().map(OsStr::as_encoded_bytes);
            texts
                .map(|text| text.strip_prefix(b"@").unwrap_or(text))
                .collect()
        };
        let ones = all(ones);
        all(others).iter().any(|other| ones.contains(other))
    }

    /// Whether two of these flags have one value, such as a file.
    fn share_a_value(self, names: &[&str]) -> bool {
        let given = names.iter().filter(|name| self.has(name));
        let mut texts: Vec<_> = given.filter_map(|name| self.text(name)).collect();
        let all = texts.len();
        texts.sort_unstable();
        texts.dedup();
        texts.len() < all
    }
}
