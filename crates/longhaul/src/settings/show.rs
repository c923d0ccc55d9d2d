//! `longhaul config`: the settings of a command, and whether the files are right.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::ErrorKind;
use client::{CopyFailure, Exit};

use super::effective::{CommandLine, EffectiveSettings};
use super::file::{ConfigurationFile, FileSetting, RemoteSection};
use super::keys::{self, SettingKey};
use super::value::SettingValue;
use super::{built_command, environment, places, remote_servers};
use crate::args::{ConfigArgs, ConfigVerb};
use crate::output::{print_line, print_to_stderr};

/// Runs the verb.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &ConfigArgs) -> Result<Exit> {
    let config = args.settings.config.as_ref().map(|path| path.as_os_str());
    let done = match &args.verb {
        None => show(&[], config),
        Some(ConfigVerb::Show { command }) => show(command, config),
        Some(ConfigVerb::Check) => check(config),
    };
    let lines = match done {
        Ok(lines) => lines,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {}", failure.message));
            return Ok(failure.exit);
        }
    };
    for line in lines {
        // A pager may close early.
        if print_line(&line).is_err() {
            break;
        }
    }
    Ok(Exit::Done)
}

/// The settings of a command, one a line.
fn show(
    command: &[OsString],
    config: Option<&std::ffi::OsStr>,
) -> Result<Vec<String>, CopyFailure> {
    let line = command_line(command, config)?;
    let settings = EffectiveSettings::load(&line)?;
    let mut lines = vec![format!("# settings of longhaul {}", line.verb())];
    let mut not_set = Vec::new();
    for key in &settings.keys {
        let name = &key.name;
        let used = settings.used.iter().find(|setting| setting.name == *name);
        let (value, origin) = match (line.has(key), used) {
            (true, _) => (flag_value(key, &line), "flag".to_owned()),
            (false, Some(setting)) => (key.show(&setting.value), setting.origin.to_string()),
            (false, None) => match line.values(key).as_slice() {
                [] => {
                    not_set.push(name.as_str());
                    continue;
                }
                [empty] if empty.is_empty() => {
                    not_set.push(name.as_str());
                    continue;
                }
                _ => (flag_value(key, &line), "default".to_owned()),
            },
        };
        let setting = format!("{name} = {value}");
        lines.push(format!("{setting:<40} # {origin}"));
    }
    if !not_set.is_empty() {
        lines.push(format!("# without a value: {}", not_set.join(", ")));
    }
    let chooses_proxy = settings.used.iter().any(|setting| setting.name == "proxy")
        || settings
            .keys
            .iter()
            .any(|key| key.name == "proxy" && line.has(key));
    if !chooses_proxy {
        for (variable, value, schemes) in client::proxies_of_environment() {
            let schemes = schemes.join(":, ");
            lines.push(format!(
                "# proxy of {schemes}: {value:?} (environment {variable})"
            ));
        }
    }
    for setting in &settings.unused {
        lines.push(format!(
            "# not used: {} = {} ({}): it contradicts a flag or a more important setting, or lacks one",
            setting.name,
            keys::show_value(&setting.name, &setting.value),
            setting.origin
        ));
    }
    for file in &settings.files {
        for remote in &file.remotes {
            lines.push(String::new());
            lines.extend(remote_lines(file, remote));
        }
    }
    if settings.files.is_empty() {
        let places = places::usual_places();
        let names: Vec<_> = places
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        lines.push(format!(
            "# no configuration file is used; the usual ones: {}",
            names.join(", ")
        ));
    }
    Ok(lines)
}

/// The command, with places where it lacks them: `longhaul config` alone shows what any copy has.
fn command_line(
    command: &[OsString],
    config: Option<&std::ffi::OsStr>,
) -> Result<CommandLine, CopyFailure> {
    let usage = |text: String| CopyFailure::new(Exit::Usage, text);
    let (verb, rest) = match command.split_first() {
        Some((verb, rest)) => (verb.clone(), rest),
        None => (OsString::from("cp"), command),
    };
    let is_of_client = verb
        .to_str()
        .is_some_and(|verb| !keys::of_verb(verb).is_empty());
    if !is_of_client {
        return Err(usage(format!(
            "{} has no settings: name a verb such as cp, sync or ls",
            verb.display()
        )));
    }
    let mut words = vec![OsString::from("longhaul"), verb];
    if let Some(config) = config {
        words.extend([OsString::from("--config"), config.to_owned()]);
    }
    words.extend_from_slice(rest);
    let length = words.len();
    for _ in 0..2 {
        match built_command().try_get_matches_from(&words) {
            Err(error) if is_incomplete(error.kind()) => words.push(".".into()),
            _ => break,
        }
    }
    let is_complete = words.len() == length;
    let line = CommandLine::new(words)?;
    Ok(match is_complete {
        true => line,
        false => line.into_example(),
    })
}

fn is_incomplete(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::MissingRequiredArgument
            | ErrorKind::TooFewValues
            | ErrorKind::WrongNumberOfValues
    )
}

/// The value of a flag, or its default, as in a file.
fn flag_value(key: &SettingKey, line: &CommandLine) -> String {
    let values = line.values(key);
    match values.as_slice() {
        [word] if word == "true" || word == "false" => word.clone(),
        _ => key.show(&SettingValue::Words(values)),
    }
}

/// A remote, without its password.
fn remote_lines(file: &ConfigurationFile, remote: &RemoteSection) -> Vec<String> {
    let place = file.path.display();
    let mut lines = vec![format!("{:<40} # {place}:{}", remote.head(), remote.line)];
    let line = |setting: &FileSetting| {
        let value = keys::show_value(&setting.name, &setting.value);
        let text = format!("{} = {value}", setting.name);
        format!("{text:<40} # {place}:{}", setting.line)
    };
    lines.extend(remote.login.iter().chain(&remote.settings).map(line));
    lines
}

/// Checks all values of all files and of the environment.
///
/// # Errors
/// The first exit code is that of the first mistake; the message has one line for each.
fn check(config: Option<&std::ffi::OsStr>) -> Result<Vec<String>, CopyFailure> {
    let files = places::read_all(config)?;
    let keys = keys::all();
    let mut mistakes = Vec::new();
    for key in &keys {
        match environment::value(key) {
            Ok(Some((value, origin))) => {
                mistakes.extend(mistake_in(key, &value).map(|text| format!("{origin}: {text}")));
            }
            Ok(None) => {}
            Err(problem) => mistakes.push(problem),
        }
    }
    mistakes.extend(environment::unknown_variables());
    let mut lines = Vec::new();
    for file in &files {
        mistakes.extend(mistakes_in_file(file, &keys));
        lines.push(format!(
            "{}: {} defaults, {} hosts, {} remotes",
            file.path.display(),
            file.defaults.len(),
            file.hosts.len(),
            file.remotes.len()
        ));
    }
    match mistakes.is_empty() {
        true if lines.is_empty() => Ok(vec!["there is no configuration file".to_owned()]),
        true => Ok(lines),
        false => Err(CopyFailure::new(Exit::Usage, mistakes.join("\nlonghaul: "))),
    }
}

fn mistakes_in_file(file: &ConfigurationFile, keys: &[SettingKey]) -> Vec<String> {
    let place = |line: usize| format!("{}:{line}", file.path.display());
    let of_hosts = file.hosts.iter().flat_map(|host| &host.settings);
    let of_remotes = file.remotes.iter().flat_map(|remote| &remote.settings);
    let settings = file.defaults.iter().chain(of_hosts).chain(of_remotes);
    let mut mistakes: Vec<String> = settings
        .filter_map(|setting| {
            let key = keys.iter().find(|key| key.name == setting.name)?;
            let mistake = mistake_in(key, &setting.value)?;
            Some(format!("{}: {mistake}", place(setting.line)))
        })
        .collect();
    for remote in &file.remotes {
        if let Err((line, problem)) = remote_servers::server(remote) {
            mistakes.push(format!("{}: {}: {problem}", place(line), remote.head()));
        }
    }
    mistakes
}

fn mistake_in(key: &SettingKey, value: &SettingValue) -> Option<String> {
    let checked = value
        .command_words(&key.flag)
        .and_then(|words| key.check(&words));
    checked
        .err()
        .map(|reason| format!("{} = {}: {reason}", key.name, key.show(value)))
}
