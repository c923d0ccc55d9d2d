//! The settings that a command has: flag, else environment, else section of the remote or host, else file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use clap::ArgMatches;
use clap::parser::ValueSource;
use copy::{Failure, PairSource};
use ftp::Remotes;
use ftp::location::Location;

use super::file::{ConfigurationFile, FileSetting};
use super::keys::{self, SettingKey};
use super::value::{Origin, SettingValue};
use super::{built_command, environment, places, remote_servers};
use crate::args::Cli;

/// The words of a command, and their meaning without settings.
pub(crate) struct CommandLine {
    words: Vec<OsString>,
    verb: String,
    matches: ArgMatches,
    /// Whether the arguments stand for any others.
    is_example: bool,
}

impl CommandLine {
    /// # Errors
    /// `Usage`: the words are no command.
    pub(crate) fn new(words: Vec<OsString>) -> Result<Self, Failure> {
        let usage = |text: String| Failure::usage(text);
        let matches = built_command()
            .try_get_matches_from(&words)
            .map_err(|error| usage(super::one_line(&error)))?;
        let Some((verb, matches)) = matches.subcommand() else {
            return Err(usage("the command has no verb".to_owned()));
        };
        Ok(Self {
            verb: verb.to_owned(),
            matches: matches.clone(),
            words,
            is_example: false,
        })
    }

    /// The same command, whose arguments stand for any others.
    pub(super) fn into_example(self) -> Self {
        Self {
            is_example: true,
            ..self
        }
    }

    /// Whether the command may have servers that its arguments do not name.
    fn may_have_other_servers(&self) -> bool {
        let list = self.matches.try_contains_id("from");
        self.is_example || list.unwrap_or(false)
    }

    /// Whether the command reads the names of its servers from a list that can be read only once.
    fn has_unread_list(&self) -> bool {
        let list = self.matches.try_get_raw("from").ok().flatten();
        let mut list = list
            .into_iter()
            .flatten()
            .map(|list| PairSource::of_argument(list.as_ref()));
        list.any(|list| !list.can_be_read_again())
    }

    /// The verb.
    pub(super) fn verb(&self) -> &str {
        &self.verb
    }

    /// Whether the words have the flag.
    pub(super) fn has(&self, key: &SettingKey) -> bool {
        let source = self.matches.value_source(key.flag.get_id().as_str());
        source == Some(ValueSource::CommandLine)
    }

    /// The values of a flag, or its defaults.
    pub(super) fn values(&self, key: &SettingKey) -> Vec<String> {
        let values = self.matches.try_get_raw(key.flag.get_id().as_str());
        let values = values.ok().flatten().into_iter().flatten();
        values
            .map(|value| value.to_string_lossy().into_owned())
            .collect()
    }

    /// The file of `--config`.
    fn config(&self) -> Option<&OsStr> {
        let values = self.matches.try_get_raw("config").ok().flatten();
        values.and_then(|mut values| values.next())
    }

    /// The arguments that are no flags, and one for each server of a list.
    fn places(&self) -> Vec<String> {
        let command = built_command();
        let verb = command.find_subcommand(&self.verb).into_iter();
        let places = verb.flat_map(clap::Command::get_positionals);
        let values = places.filter_map(|place| {
            let id = place.get_id().as_str();
            self.matches.try_get_raw(id).ok().flatten()
        });
        let texts = values.flatten().map(Location::argument);
        let mut texts: Vec<String> = texts.filter_map(Result::ok).collect();
        let list = self.matches.try_get_raw("from").ok().flatten();
        for list in list.into_iter().flatten() {
            texts.extend(PairSource::of_argument(list.as_ref()).servers());
        }
        texts
    }
}

/// A setting that is not on the command line.
pub(super) struct FoundSetting {
    pub(super) name: String,
    pub(super) value: SettingValue,
    pub(super) origin: Origin,
    words: Vec<OsString>,
}

/// A server of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedServer {
    remote: Option<String>,
    host: String,
}

/// The settings of one command.
pub(crate) struct EffectiveSettings {
    pub(super) files: Vec<ConfigurationFile>,
    pub(super) keys: Vec<SettingKey>,
    pub(super) used: Vec<FoundSetting>,
    /// Settings that contradict the command line, or lack another flag.
    pub(super) unused: Vec<FoundSetting>,
    remotes: Arc<Remotes>,
}

impl EffectiveSettings {
    /// Reads files and environment for a command.
    ///
    /// # Errors
    /// As [`super::parse_arguments`].
    pub(crate) fn load(line: &CommandLine) -> Result<Self, Failure> {
        let files = places::read_all(line.config())?;
        let remotes = Arc::new(remote_servers::remotes(&files)?);
        let mut servers: Vec<NamedServer> = Vec::new();
        for text in line.places() {
            let server = remotes.host_in(&text).map(|host| NamedServer {
                remote: remotes.name_in(&text).map(str::to_owned),
                host,
            });
            servers.extend(server.filter(|server| !servers.contains(server)));
        }
        let keys = keys::of_verb(line.verb());
        let mut found = Vec::new();
        // The files of certificates and tokens must not be missing in a local copy.
        let has_servers = !servers.is_empty() || line.may_have_other_servers();
        let is_wanted = |key: &&SettingKey| !line.has(key) && (has_servers || !key.is_protection());
        for key in keys.iter().filter(is_wanted) {
            if key.is_protection() && line.has_unread_list() {
                refuse_sections(key, &files)?;
            }
            let Some((value, origin)) = find(key, &files, &servers)? else {
                continue;
            };
            let refused = |reason: String| {
                let value = keys::masked(&key.name, &value);
                Failure::usage(format!("{origin}: {} = {value}: {reason}", key.name))
            };
            let words = value.command_words(&key.flag).map_err(refused)?;
            key.check(&words).map_err(refused)?;
            found.push(FoundSetting {
                name: key.name.clone(),
                value,
                origin,
                words,
            });
        }
        let (used, unused) = split(found, line);
        Ok(Self {
            files,
            keys,
            used,
            unused,
            remotes,
        })
    }

    /// The command with its settings.
    pub(crate) fn words(&self, line: &CommandLine) -> Vec<OsString> {
        with_settings(line, &self.used)
    }

    /// The names of the settings in use.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.used
            .iter()
            .map(|setting| setting.name.clone())
            .collect()
    }

    /// The servers with names.
    pub(crate) fn remotes(&self) -> Arc<Remotes> {
        Arc::clone(&self.remotes)
    }
}

/// Refuses a command whose servers are unknown, if a section says how some of them are protected.
fn refuse_sections(key: &SettingKey, files: &[ConfigurationFile]) -> Result<(), Failure> {
    let name = &key.name;
    let mut sections = files.iter().filter_map(|file| {
        let (head, line) = file.section_with(name)?;
        Some(format!("{}:{line} {head}", file.path.display()))
    });
    match sections.next() {
        None => Ok(()),
        Some(place) => Err(Failure::usage(format!(
            "{place}: {name} may concern a server of --from, which is not known before the list is read: choose \
                 with --{name}, or give the list as a file"
        ))),
    }
}

/// The value of a setting that is not on the command line.
fn find(
    key: &SettingKey,
    files: &[ConfigurationFile],
    servers: &[NamedServer],
) -> Result<Option<(SettingValue, Origin)>, Failure> {
    let usage = |problem: String| Failure::usage(problem);
    if let Some(found) = environment::value(key).map_err(usage)? {
        return Ok(Some(found));
    }
    let of_servers = servers.iter().map(|server| in_sections(key, files, server));
    let of_servers: Vec<_> = of_servers.collect();
    if key.is_protection() {
        // A flag holds for all servers of a command: what weakens or names the login of one must not reach
        // another.
        let value = |found: &Option<(SettingValue, Origin)>| found.clone().map(|(value, _)| value);
        let differs = of_servers
            .iter()
            .find(|found| value(found) != value(&of_servers[0]));
        if differs.is_some() {
            let has_one = of_servers.iter().flatten().next();
            let place = has_one.map_or_else(String::new, |(_, origin)| format!("{origin}: "));
            return Err(usage(format!(
                "{place}{0} is not the same for all servers of this command; choose with --{0}",
                key.name
            )));
        }
    }
    let of_servers = of_servers.into_iter().flatten().next();
    Ok(of_servers.or_else(|| {
        let in_file = |file: &ConfigurationFile| in_settings(key, file, &file.defaults, None);
        files.iter().find_map(in_file)
    }))
}

/// The value in the section of the remote, else in the first section whose pattern matches the host.
fn in_sections(
    key: &SettingKey,
    files: &[ConfigurationFile],
    server: &NamedServer,
) -> Option<(SettingValue, Origin)> {
    let in_remote = |file: &ConfigurationFile| {
        let name = server.remote.as_ref()?;
        let section = file.remotes.iter().find(|section| section.name == *name)?;
        in_settings(key, file, &section.settings, Some(section.head()))
    };
    let in_hosts = |file: &ConfigurationFile| {
        let mut hosts = file.hosts.iter().filter(|host| host.matches(&server.host));
        hosts.find_map(|host| in_settings(key, file, &host.settings, Some(host.head())))
    };
    let of_remote = files.iter().find_map(in_remote);
    of_remote.or_else(|| files.iter().find_map(in_hosts))
}

fn in_settings(
    key: &SettingKey,
    file: &ConfigurationFile,
    settings: &[FileSetting],
    section: Option<String>,
) -> Option<(SettingValue, Origin)> {
    let setting = settings.iter().find(|setting| setting.name == key.name)?;
    Some((setting.value.clone(), file.origin(setting, section)))
}

/// Splits settings into those that are used, and those that contradict the command line or more important ones.
fn split(
    mut found: Vec<FoundSetting>,
    line: &CommandLine,
) -> (Vec<FoundSetting>, Vec<FoundSetting>) {
    let mut unused: Vec<FoundSetting> = Vec::new();
    found.sort_by_key(|setting| rank(&setting.origin));
    for name in ["key", "insecure", "ca", "token"] {
        if let Some(at) = found.iter().position(|setting| setting.name == name)
            && is_overruled(&found[at], &found, line)
        {
            unused.push(found.remove(at));
        }
    }
    let is_parsed = |settings: &[FoundSetting]| {
        let words = with_settings(line, settings);
        Cli::from_words(words).is_ok()
    };
    if is_parsed(&found) {
        return (found, unused);
    }
    // One by one, the most important first. A second round takes those that need one that came later.
    let mut used: Vec<FoundSetting> = Vec::new();
    for _ in 0..2 {
        for setting in std::mem::take(&mut found) {
            used.push(setting);
            if !is_parsed(&used) {
                found.extend(used.pop());
            }
        }
    }
    unused.extend(found);
    (used, unused)
}

/// Whether the command line, or a more important setting, makes no sense together with this one.
fn is_overruled(setting: &FoundSetting, all: &[FoundSetting], line: &CommandLine) -> bool {
    let on_line = |name: &str| {
        let values = line.matches.try_contains_id(name);
        let is_given = values.unwrap_or(false);
        is_given && line.matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    let other = |name: &str| all.iter().find(|other| other.name == name);
    let beaten_by = |name: &str| {
        let is_beaten = |other: &FoundSetting| rank(&other.origin) < rank(&setting.origin);
        on_line(name) || other(name).is_some_and(is_beaten)
    };
    match setting.name.as_str() {
        // A key belongs to the certificate beside it.
        "key" => on_line("cert") || other("cert").is_some_and(|cert| !is_beside(cert, setting)),
        "insecure" => beaten_by("ca") || beaten_by("token"),
        "ca" | "token" => beaten_by("insecure"),
        _ => false,
    }
}

/// Whether two settings are in one section, or both in the environment.
fn is_beside(a: &FoundSetting, b: &FoundSetting) -> bool {
    match (&a.origin, &b.origin) {
        (Origin::Environment(_), Origin::Environment(_)) => true,
        (
            Origin::File { path, section, .. },
            Origin::File {
                path: other_path,
                section: other_section,
                ..
            },
        ) => path == other_path && section == other_section,
        _ => false,
    }
}

/// The order of importance; the first is 0.
fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Environment(_) => 0,
        Origin::File {
            section: Some(_), ..
        } => 1,
        Origin::File { section: None, .. } => 2,
    }
}

fn with_settings(line: &CommandLine, settings: &[FoundSetting]) -> Vec<OsString> {
    // The program and the verb come first; flags come before what may follow a `--`.
    let (head, rest) = line.words.split_at(line.words.len().min(2));
    let settings = settings.iter().flat_map(|setting| &setting.words);
    head.iter().chain(settings).chain(rest).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory with a configuration file.
    struct Configured(tempfile::TempDir);

    impl Configured {
        fn new(text: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("c.toml"), text).unwrap();
            Self(directory)
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("c.toml")
        }

        fn line(&self, words: &[&str]) -> CommandLine {
            let head = ["longhaul", words[0], "--config"].map(OsString::from);
            let file = self.path().into_os_string();
            let rest = words[1..].iter().map(OsString::from);
            CommandLine::new(head.into_iter().chain([file]).chain(rest).collect()).unwrap()
        }

        fn load(&self, words: &[&str]) -> Result<EffectiveSettings, Failure> {
            EffectiveSettings::load(&self.line(words))
        }

        /// `name = value` of the settings in use, sorted.
        fn used(&self, words: &[&str]) -> Vec<String> {
            let settings = self.load(words).unwrap();
            let used = settings.used.iter();
            let mut used: Vec<_> = used.map(|s| format!("{} = {}", s.name, s.value)).collect();
            used.sort();
            used
        }

        fn refusal(&self, words: &[&str]) -> String {
            self.load(words).err().unwrap().to_string()
        }
    }

    #[test]
    fn a_flag_comes_before_a_section_and_a_section_before_the_file() {
        let configured = Configured::new(
            "max-streams = 10\nretries = 1\nresume = true\n\
         [host.\"*.example.org\"]\nmax-streams = 20\nretries = 2\n\
         [remote.lab]\nurl = \"ftp://a.example.org/d\"\nmax-streams = 30\n",
        );
        let used = |words: &[&str]| configured.used(words);
        let everywhere = ["max-streams = \"10\"", "resume = true", "retries = \"1\""];
        assert_eq!(used(&["cp", "a", "b"]), everywhere);
        assert_eq!(used(&["cp", "ftp://example.org/a", "b"]), everywhere);
        let of_host = ["max-streams = \"20\"", "resume = true", "retries = \"2\""];
        assert_eq!(used(&["cp", "ftp://A.Example.org/a", "b"]), of_host);
        let of_remote = ["max-streams = \"30\"", "resume = true", "retries = \"2\""];
        assert_eq!(used(&["sync", "a", "lab:b"]), of_remote);
        let of_flag = ["resume = true", "retries = \"2\""];
        assert_eq!(used(&["cp", "--max-streams=5", "lab:a", "b"]), of_flag);
    }

    #[test]
    fn the_first_section_that_matches_and_has_the_key_counts() {
        let configured = Configured::new(
            "[host.\"a.*\"]\nretries = 1\n[host.\"*\"]\nretries = 2\nmax-streams = 3\n",
        );
        let used = configured.used(&["cp", "ftp://a.b/x", "y"]);
        assert_eq!(used, ["max-streams = \"3\"", "retries = \"1\""]);
    }

    #[test]
    fn words_of_settings_stand_behind_the_verb() {
        let configured =
            Configured::new("exclude = [\"*.o\", \"a b\"]\nresume = true\nwait = false\n");
        let line = configured.line(&["cp", "--", "-x", "y"]);
        let settings = EffectiveSettings::load(&line).unwrap();
        let words = settings.words(&line);
        assert_eq!(words[..2], ["longhaul", "cp"]);
        for word in ["--exclude=*.o", "--exclude=a b", "--resume"] {
            assert!(words.iter().any(|known| known == word), "{word}: {words:?}");
        }
        assert_eq!(words[words.len() - 3..], ["--", "-x", "y"]);
    }

    #[test]
    fn protection_must_be_the_same_for_all_servers_of_a_command() {
        let configured = Configured::new(
            "[host.test]\ninsecure = true\nretries = 9\n[host.prod]\nretries = 1\n",
        );
        assert_eq!(
            configured.used(&["cp", "ftps://test/a", "b"]),
            ["insecure = true", "retries = \"9\""]
        );
        let both = &["cp", "ftps://prod/a", "ftps://test/b"];
        let refusal = configured.refusal(both);
        assert!(refusal.contains("choose with --insecure"), "{refusal}");
        assert!(refusal.contains("c.toml:2 [host.\"test\"]"), "{refusal}");
        // Other settings: those of the first server that has them.
        let both = &["cp", "--insecure", "ftps://prod/a", "ftps://test/b"];
        assert_eq!(configured.used(both), ["retries = \"1\""]);
    }

    #[test]
    fn settings_that_contradict_the_command_line_are_not_used() {
        let configured = Configured::new(
            "ca = \"/ca\"\nsums-algorithm = \"md5\"\n[host.h]\ncert = \"/c\"\nkey = \"/k\"\n",
        );
        let used = |words: &[&str]| configured.used(words);
        let on_host = ["ca = \"/ca\"", "cert = \"/c\"", "key = \"/k\""];
        assert_eq!(used(&["cp", "ftps://h/a", "b"]), on_host);
        assert_eq!(
            used(&["cp", "--cert=/x", "ftps://h/a", "b"]),
            ["ca = \"/ca\""]
        );
        let insecure = used(&["cp", "--insecure", "ftps://x/a", "b"]);
        assert_eq!(insecure, [""; 0]);
        let sums = used(&["cp", "--write-sums=s", "ftps://x/a", "b"]);
        assert_eq!(sums, ["ca = \"/ca\"", "sums-algorithm = \"md5\""]);
    }

    #[test]
    fn a_setting_that_contradicts_a_flag_gives_way_to_it() {
        let configured = Configured::new("mode = \"s\"\nmax-streams = 4\nretries = 1\n");
        assert_eq!(
            configured.used(&["cp", "-p", "8", "a", "b"]),
            ["retries = \"1\""]
        );
    }

    #[test]
    fn a_local_copy_has_no_settings_about_protection() {
        let configured = Configured::new("ca = \"/ca\"\ntoken = \"/none\"\nretries = 1\n");
        assert_eq!(configured.used(&["cp", "a", "b"]), ["retries = \"1\""]);
        let all = ["ca = \"/ca\"", "retries = \"1\"", "token = \"/none\""];
        assert_eq!(configured.used(&["cp", "https://h/a", "b"]), all);
        assert_eq!(configured.used(&["cp", "--from", "pairs"]), all);
    }

    #[test]
    fn a_value_that_the_flag_refuses_is_named_with_its_place() {
        let configured = Configured::new("\nmax-streams = 0\n");
        let refusal = configured.refusal(&["cp", "a", "b"]);
        assert!(
            refusal.contains("c.toml:2: max-streams = \"0\":"),
            "{refusal}"
        );
        assert!(refusal.contains("1 to 256"), "{refusal}");
        // The verbs for remote files have no such flag.
        assert_eq!(configured.used(&["ls", "ftp://h/"]), [""; 0]);
    }
}
