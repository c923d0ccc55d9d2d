//! The command line as a whole: parsed, and refused if its flags contradict each other.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use super::Cli;
use super::contradictions::find_contradiction;

/// A command line that is not carried out: help, or a usage error.
#[derive(Debug)]
pub(crate) enum CommandLineAnswer {
    /// Help, or an error with a hint at it, as clap prints them.
    Usual(clap::Error),
    /// Flags that contradict each other, in one line.
    Contradiction(String),
}

impl Cli {
    /// Parses words, of which the first is the program.
    ///
    /// # Errors
    /// [`CommandLineAnswer`]
    pub(crate) fn from_words(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, CommandLineAnswer> {
        let matches = Self::command().try_get_matches_from(words);
        let matches = matches.map_err(CommandLineAnswer::from)?;
        match find_contradiction(&matches) {
            Some(line) => Err(CommandLineAnswer::Contradiction(line.to_owned())),
            None => Ok(Self::from_arg_matches(&matches)?),
        }
    }
}

impl From<clap::Error> for CommandLineAnswer {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        match (error.kind(), text.lines().next()) {
            (ErrorKind::ArgumentConflict, Some(line)) => {
                let line = line.strip_prefix("error: ").unwrap_or(line);
                // With several others, they follow in lines of their own.
                let others = text
                    .lines()
                    .skip(1)
                    .take_while(|line| line.starts_with("  "));
                let others: Vec<&str> = others.map(str::trim).collect();
                let line = format!("{line} {}", others.join(", "));
                Self::Contradiction(line.trim_end().to_owned())
            }
            _ => Self::Usual(error),
        }
    }
}
