//! A configuration file: defaults for all commands, `[host."PATTERN"]` and `[remote.NAME]`.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, SettingKey};
use super::value::{Origin, SettingValue};

/// Keys of a remote that are no settings.
pub(super) const REMOTE_KEYS: [&str; 7] = [
    "netrc",
    "password",
    "password-command",
    "password-env",
    "password-file",
    "url",
    "user",
];

/// One `key = value` of a file. It has no `Debug`, because the value may be a password.
pub(super) struct FileSetting {
    pub(super) name: String,
    pub(super) value: SettingValue,
    /// From 1.
    pub(super) line: usize,
}

/// Defaults for hosts.
pub(super) struct HostSection {
    pub(super) pattern: String,
    matcher: GlobMatcher,
    pub(super) settings: Vec<FileSetting>,
}

/// A server with a name.
pub(super) struct RemoteSection {
    pub(super) name: String,
    pub(super) line: usize,
    /// Those of [`REMOTE_KEYS`], and `token`.
    pub(super) login: Vec<FileSetting>,
    /// Defaults for the server.
    pub(super) settings: Vec<FileSetting>,
}

/// A file.
pub(super) struct ConfigurationFile {
    pub(super) path: PathBuf,
    pub(super) defaults: Vec<FileSetting>,
    pub(super) hosts: Vec<HostSection>,
    pub(super) remotes: Vec<RemoteSection>,
}

impl ConfigurationFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// One line for each mistake, with file and line and without the value, which may be a secret.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Vec<String>> {
        let mut reading = FileReading {
            path,
            text,
            keys: keys::all(),
            mistakes: Vec::new(),
        };
        let file = match DeTable::parse(text) {
            Ok(table) => reading.file(table.get_ref()),
            Err(error) => {
                // The text of the whole error shows the line, which may have a secret.
                let at = error.span().map_or(0, |span| span.start);
                let message = error.message().lines().collect::<Vec<_>>().join(" ");
                return Err(vec![reading.at(at, &message)]);
            }
        };
        match reading.mistakes.is_empty() {
            true => Ok(file),
            false => Err(reading.mistakes),
        }
    }

    /// The line of the first login key of this name.
    pub(super) fn line_of(&self, name: &str) -> Option<usize> {
        let mut logins = self.remotes.iter().flat_map(|remote| &remote.login);
        let found = logins.find(|setting| setting.name == name);
        found.map(|setting| setting.line)
    }

    /// The head and the line of the first section that has a setting.
    pub(super) fn section_with(&self, name: &str) -> Option<(String, usize)> {
        let hosts = self.hosts.iter().map(|host| (host.head(), &host.settings));
        let remotes = self.remotes.iter();
        let remotes = remotes.map(|remote| (remote.head(), &remote.settings));
        let mut sections = hosts.chain(remotes);
        sections.find_map(|(head, settings)| {
            let setting = settings.iter().find(|setting| setting.name == name)?;
            Some((head, setting.line))
        })
    }

    /// The line of the first secret in the file.
    pub(super) fn secret_line(&self) -> Option<usize> {
        let of_remotes = self
            .remotes
            .iter()
            .flat_map(|remote| remote.login.iter().chain(&remote.settings));
        let of_hosts = self.hosts.iter().flat_map(|host| &host.settings);
        let settings = self.defaults.iter().chain(of_hosts).chain(of_remotes);
        let secrets = settings.filter(|setting| keys::is_secret(&setting.name, &setting.value));
        secrets.map(|setting| setting.line).min()
    }

    /// The origin of a setting of this file.
    pub(super) fn origin(&self, setting: &FileSetting, section: Option<String>) -> Origin {
        Origin::File {
            path: self.path.clone(),
            line: setting.line,
            section,
        }
    }
}

impl HostSection {
    /// Whether the section is about the host.
    pub(super) fn matches(&self, host: &str) -> bool {
        self.matcher.is_match(host)
    }

    /// The head of the section.
    pub(super) fn head(&self) -> String {
        format!("[host.{:?}]", self.pattern)
    }
}

impl RemoteSection {
    /// The head of the section.
    pub(super) fn head(&self) -> String {
        match self.name.contains('.') {
            true => format!("[remote.{:?}]", self.name),
            false => format!("[remote.{}]", self.name),
        }
    }

    /// The value of a login key.
    pub(super) fn login(&self, name: &str) -> Option<&FileSetting> {
        self.login.iter().find(|setting| setting.name == name)
    }
}

/// A file being parsed.
struct FileReading<'a> {
    path: &'a Path,
    text: &'a str,
    keys: Vec<SettingKey>,
    mistakes: Vec<String>,
}

impl FileReading<'_> {
    fn line(&self, byte: usize) -> usize {
        let before = self.text.get(..byte).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn at(&self, byte: usize, problem: &str) -> String {
        format!("{}:{}: {problem}", self.path.display(), self.line(byte))
    }

    fn file(&mut self, table: &DeTable<'_>) -> ConfigurationFile {
        let mut file = ConfigurationFile {
            path: self.path.to_owned(),
            defaults: Vec::new(),
            hosts: Vec::new(),
            remotes: Vec::new(),
        };
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("host", DeValue::Table(hosts)) => {
                    let sections = hosts.iter().map(|(key, value)| self.host(key, value));
                    file.hosts = sections.collect::<Vec<_>>().into_iter().flatten().collect();
                }
                ("remote", DeValue::Table(remotes)) => {
                    let sections = remotes.iter().map(|(key, value)| self.remote(key, value));
                    file.remotes = sections.collect::<Vec<_>>().into_iter().flatten().collect();
                }
                (name @ ("host" | "remote"), _) => {
                    let problem = format!("write a section such as [{name}.\"NAME\"]");
                    self.mistakes.push(self.at(key.span().start, &problem));
                }
                _ => file
                    .defaults
                    .extend(self.setting(key, value, &["host", "remote"])),
            }
        }
        file
    }

    fn host(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<HostSection> {
        let pattern = key.get_ref().to_string();
        let DeValue::Table(table) = value.get_ref() else {
            // An unquoted name with dots is a table in a table: [host.a.b].
            let problem = "write a section such as [host.\"*.example.org\"], with quotes";
            self.mistakes.push(self.at(key.span().start, problem));
            return None;
        };
        let is_unquoted = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            value.get_ref().is_table().then(|| key.span().start)
        };
        if let Some(at) = table.iter().find_map(is_unquoted) {
            let problem = "write the host in quotes, such as [host.\"*.example.org\"]";
            self.mistakes.push(self.at(at, problem));
            return None;
        }
        let matcher = match GlobBuilder::new(&pattern).case_insensitive(true).build() {
            Ok(glob) => glob.compile_matcher(),
            Err(error) => {
                let problem = format!("{pattern:?} is no pattern: {}", error.kind());
                self.mistakes.push(self.at(key.span().start, &problem));
                return None;
            }
        };
        let settings = table
            .iter()
            .map(|(key, value)| self.setting(key, value, &[]));
        Some(HostSection {
            pattern,
            matcher,
            settings: settings.collect::<Vec<_>>().into_iter().flatten().collect(),
        })
    }

    fn remote(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<RemoteSection> {
        let DeValue::Table(table) = value.get_ref() else {
            let problem = "write a section such as [remote.cern]";
            self.mistakes.push(self.at(key.span().start, problem));
            return None;
        };
        let mut section = RemoteSection {
            name: key.get_ref().to_string(),
            line: self.line(key.span().start),
            login: Vec::new(),
            settings: Vec::new(),
        };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match REMOTE_KEYS.contains(&name) || name == "token" {
                true => match SettingValue::of_toml(value.get_ref()) {
                    Ok(value) => section.login.push(FileSetting {
                        name: name.to_owned(),
                        value,
                        line: self.line(key.span().start),
                    }),
                    Err(problem) => {
                        let problem = format!("{name}: {problem}");
                        self.mistakes.push(self.at(key.span().start, &problem));
                    }
                },
                false => section
                    .settings
                    .extend(self.setting(key, value, &REMOTE_KEYS)),
            }
        }
        Some(section)
    }

    /// A setting; `others` are names that would also be right here.
    fn setting(
        &mut self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        others: &[&str],
    ) -> Option<FileSetting> {
        let name = key.get_ref().as_ref();
        let at = key.span().start;
        let known = self.keys.iter().find(|known| known.name == name);
        let parsed = match known {
            None => Err(keys::refuse_unknown(name, &self.keys, others)),
            Some(known) => SettingValue::of_toml(value.get_ref())
                .and_then(|value| value.command_words(&known.flag).map(|_| value))
                .map_err(|problem| format!("{name}: {problem}")),
        };
        match parsed {
            Ok(value) => Some(FileSetting {
                name: name.to_owned(),
                value,
                line: self.line(at),
            }),
            Err(problem) => {
                self.mistakes.push(self.at(at, &problem));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigurationFile, Vec<String>> {
        ConfigurationFile::parse(Path::new("/c.toml"), text)
    }

    fn mistakes(text: &str) -> Vec<String> {
        parse(text).err().unwrap_or_default()
    }

    #[test]
    fn settings_know_their_lines_and_sections() {
        let text = "parallel = 8\n\n[host.\"*.Example.org\"]\ntls = \"require\"\n[host.h]\n\
                    resume = true\n[remote.cern]\nurl = \"ftps://h\"\nexclude = [\"a\", \"b\"]\n";
        let file = parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let first = &file.defaults[0];
        assert_eq!((first.name.as_str(), first.line), ("parallel", 1));
        assert!(file.hosts[0].matches("a.b.example.ORG") && !file.hosts[0].matches("example.org"));
        assert_eq!(file.hosts[0].settings[0].line, 4);
        assert_eq!(file.hosts[1].head(), "[host.\"h\"]");
        let remote = &file.remotes[0];
        assert_eq!((remote.line, remote.login[0].line), (7, 8));
        let list = SettingValue::Words(vec!["a".into(), "b".into()]);
        assert_eq!(remote.settings[0].value, list);
    }

    #[test]
    fn every_mistake_is_named_with_its_line_and_the_nearest_key() {
        let text =
            "max-stream = 3\nparallel = [1, 2]\n[host.a]\nresum = true\n[remote.x]\nurls = \"\"\n";
        let found = mistakes(text);
        let expected = [
            "/c.toml:1: \"max-stream\" is not a setting; is \"max-streams\" meant?",
            "/c.toml:2: parallel: use one value, not a list",
            "/c.toml:4: \"resum\" is not a setting; is \"resume\" meant?",
            "/c.toml:6: \"urls\" is not a setting; is \"url\" meant?",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_host_without_quotes_is_answered_with_the_right_form() {
        let found = mistakes("[host.www.example.org]\nresume = true\n");
        assert!(found[0].contains("in quotes"), "{found:?}");
    }

    #[test]
    fn a_broken_line_with_a_password_is_not_shown() {
        let found = mistakes("[remote.x]\npassword = \"hush\" hush\n");
        assert!(found[0].starts_with("/c.toml:2: "), "{found:?}");
        assert!(!found[0].contains("hush"), "{found:?}");
    }
}
