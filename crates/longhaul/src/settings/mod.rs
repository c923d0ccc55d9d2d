//! Settings of the client: flags, environment variables and configuration files, as one command line.
//!
//! A setting has the name of a flag of `cp` or `sync`. A setting that the command line lacks is put on it, so
//! that it is parsed and checked as if it had been typed.

pub(crate) mod effective;
mod environment;
mod file;
mod keys;
mod places;
mod remote_servers;
pub(crate) mod show;
mod value;

use std::ffi::OsString;

use clap::CommandFactory;
use copy::Failure;

use crate::args::{Cli, CommandLineAnswer, LoadedSettings};
use effective::{CommandLine, EffectiveSettings};

/// The arguments with all settings of their verb. Prints usage errors and help, and exits, as clap does.
///
/// # Errors
/// `Usage`: a file or a variable has something that is no setting. `Refused`: a file with a secret is readable
/// by others. `NotFound`: a named file is missing.
pub(crate) fn parse_arguments(words: Vec<OsString>) -> Result<Cli, Failure> {
    let mut cli = parsed(words.clone())?;
    if cli.verb.loaded_mut().is_none() {
        return Ok(cli);
    }
    let line = CommandLine::new(words)?;
    let settings = EffectiveSettings::load(&line)?;
    // Each setting was parsed alone, and only those are used that agree.
    let mut cli = parsed(settings.words(&line))?;
    if let Some(loaded) = cli.verb.loaded_mut() {
        *loaded = LoadedSettings {
            remotes: settings.remotes(),
            defaults: settings.names(),
        };
    }
    Ok(cli)
}

/// Parses words; prints help and usage errors, and exits, as clap does.
///
/// # Errors
/// `Usage`: flags contradict each other.
fn parsed(words: Vec<OsString>) -> Result<Cli, Failure> {
    Cli::from_words(words).map_err(|answer| match answer {
        CommandLineAnswer::Usual(answer) => answer.exit(),
        CommandLineAnswer::Contradiction(line) => Failure::usage(line),
    })
}

/// The definition of the program with all parts of its verbs filled in.
fn built_command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// The reason of a usage error, without advice about the command line.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let reason = text.split("\n\n").next().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}
