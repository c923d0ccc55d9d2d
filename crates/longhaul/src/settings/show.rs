//! `longhaul config`: the settings of a command, and whether the files are right.

use std::ffi::OsString;

use anyhow::Result;
use clap::error::ErrorKind;
use copy::{Exit, Failure};
use proto::printable::printable_json;
use serde_json::{Value, json};

use super::effective::{CommandLine, EffectiveSettings, FoundSetting};
use super::file::{ConfigurationFile, FileSetting, RemoteSection};
use super::keys::{self, SettingKey};
use super::value::{Origin, SettingValue};
use super::{built_command, environment, places, remote_servers};
use crate::args::{ConfigArgs, ConfigVerb};
use crate::output::{ignore_broken_pipe, print_line, print_to_stderr};
use units::show;

/// Runs the verb.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &ConfigArgs) -> Result<Exit> {
    let config = args.settings.config.as_ref().map(|path| path.as_os_str());
    let shown = match &args.verb {
        None => show(&[], config, args.json),
        Some(ConfigVerb::Show { command, json }) => show(command, config, args.json || *json),
        Some(ConfigVerb::Check) if args.json => {
            let message = "--json is for the settings of a command: longhaul config show --json";
            Err(Failure::usage(message))
        }
        Some(ConfigVerb::Check) => check(config),
    };
    // A pager may close early.
    let printed = shown.and_then(|lines| {
        let printed = lines.iter().try_for_each(|line| print_line(line));
        ignore_broken_pipe(printed)
    });
    Ok(match printed {
        Ok(()) => Exit::Done,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {failure}"));
            failure.exit()
        }
    })
}

/// The settings of a command: one a line, or one JSON object.
fn show(
    command: &[OsString],
    config: Option<&std::ffi::OsStr>,
    as_json: bool,
) -> Result<Vec<String>, Failure> {
    let line = command_line(command, config)?;
    let settings = EffectiveSettings::load(&line)?;
    let keys = settings.keys.iter();
    let shown: Vec<_> = keys
        .map(|key| ShownSetting::new(key, &line, &settings))
        .collect();
    Ok(match as_json {
        true => vec![printable_json(
            &json_of(&line, &settings, &shown).to_string(),
        )],
        false => lines_of(&line, &settings, &shown),
    })
}

/// A setting of a command.
struct ShownSetting<'a> {
    name: &'a str,
    /// `None`: it has none.
    value: Option<SettingValue>,
    origin: ShownOrigin<'a>,
}

/// Where a value comes from.
enum ShownOrigin<'a> {
    Flag,
    Setting(&'a Origin),
    Default,
}

impl<'a> ShownSetting<'a> {
    fn new(key: &'a SettingKey, line: &CommandLine, settings: &'a EffectiveSettings) -> Self {
        let name = key.name.as_str();
        let used = settings.used.iter().find(|setting| setting.name == name);
        let (value, origin) = match (line.has(key), used) {
            (true, _) => (Some(flag_value(key, line)), ShownOrigin::Flag),
            (false, Some(setting)) => (
                Some(setting.value.clone()),
                ShownOrigin::Setting(&setting.origin),
            ),
            (false, None) => {
                let values = line.values(key);
                let has_value = values.iter().any(|value| !value.is_empty());
                let value = has_value.then(|| flag_value(key, line));
                (value, ShownOrigin::Default)
            }
        };
        Self {
            name,
            value: value.map(|value| keys::masked(name, &value)),
            origin,
        }
    }
}

impl std::fmt::Display for ShownOrigin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Setting(origin) => origin.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

fn lines_of(
    line: &CommandLine,
    settings: &EffectiveSettings,
    shown: &[ShownSetting<'_>],
) -> Vec<String> {
    let mut lines = vec![format!("# settings of longhaul {}", line.verb())];
    for setting in shown {
        let Some(value) = &setting.value else {
            continue;
        };
        let text = format!("{} = {value}", setting.name);
        lines.push(format!("{text:<40} # {}", setting.origin));
    }
    let not_set = shown.iter().filter(|setting| setting.value.is_none());
    let not_set: Vec<_> = not_set.map(|setting| setting.name).collect();
    if !not_set.is_empty() {
        lines.push(format!("# without a value: {}", not_set.join(", ")));
    }
    let chooses_proxy = settings.used.iter().any(|setting| setting.name == "proxy")
        || settings
            .keys
            .iter()
            .any(|key| key.name == "proxy" && line.has(key));
    if !chooses_proxy {
        for (variable, value, schemes) in ftp::proxies_of_environment() {
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
            keys::masked(&setting.name, &setting.value),
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
    lines
}

fn json_of(line: &CommandLine, settings: &EffectiveSettings, shown: &[ShownSetting<'_>]) -> Value {
    let of_setting = |setting: &ShownSetting<'_>| {
        json!({
            "name": setting.name,
            "value": setting.value.as_ref().map(SettingValue::to_json),
            "origin": setting.origin.to_string(),
        })
    };
    let of_unused = |setting: &FoundSetting| {
        json!({
            "name": setting.name,
            "value": keys::masked(&setting.name, &setting.value).to_json(),
            "origin": setting.origin.to_string(),
        })
    };
    let files = settings.files.iter();
    let remotes = files.clone().flat_map(|file| {
        let remotes = file.remotes.iter();
        remotes.map(|remote| remote_json(file, remote))
    });
    json!({
        "command": line.verb(),
        "files": files.map(|file| file.path.display().to_string()).collect::<Vec<_>>(),
        "settings": shown.iter().map(of_setting).collect::<Vec<_>>(),
        "unused": settings.unused.iter().map(of_unused).collect::<Vec<_>>(),
        "remotes": remotes.collect::<Vec<_>>(),
    })
}

fn remote_json(file: &ConfigurationFile, remote: &RemoteSection) -> Value {
    let values = remote.login.iter().chain(&remote.settings).map(|setting| {
        let value = keys::masked(&setting.name, &setting.value);
        (setting.name.clone(), value.to_json())
    });
    json!({
        "name": remote.name,
        "origin": format!("{}:{}", file.path.display(), remote.line),
        "values": values.collect::<serde_json::Map<_, _>>(),
    })
}

/// The command, with places where it lacks them: `longhaul config` alone shows what any copy has.
fn command_line(
    command: &[OsString],
    config: Option<&std::ffi::OsStr>,
) -> Result<CommandLine, Failure> {
    let usage = |text: String| Failure::usage(text);
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
fn flag_value(key: &SettingKey, line: &CommandLine) -> SettingValue {
    let values = line.values(key);
    match values.as_slice() {
        [word] if word == "true" || word == "false" => SettingValue::Switch(word == "true"),
        _ => SettingValue::Words(values),
    }
}

/// A remote, without its password.
fn remote_lines(file: &ConfigurationFile, remote: &RemoteSection) -> Vec<String> {
    let place = file.path.display();
    let mut lines = vec![format!("{:<40} # {place}:{}", remote.head(), remote.line)];
    let line = |setting: &FileSetting| {
        let value = keys::masked(&setting.name, &setting.value);
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
fn check(config: Option<&std::ffi::OsStr>) -> Result<Vec<String>, Failure> {
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
            "{}: {}, {}, {}",
            file.path.display(),
            show::count(file.defaults.len(), "default"),
            show::count(file.hosts.len(), "host"),
            show::count(file.remotes.len(), "remote")
        ));
    }
    match mistakes.is_empty() {
        true if lines.is_empty() => Ok(vec!["there is no configuration file".to_owned()]),
        true => Ok(lines),
        false => Err(Failure::usage(mistakes.join("\nlonghaul: "))),
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
    checked.err().map(|reason| {
        format!(
            "{} = {}: {reason}",
            key.name,
            keys::masked(&key.name, value)
        )
    })
}
