//! A program under test as its file says it: how to start its server and its client, and how to
//! read what it measured. `docs/experiments.md` describes the keys.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::axes::{self, Kind};
use super::document::{self, mistake};
use super::reading::Reading;
use super::template::{Variables, Word};
use crate::LabError;

/// A program under test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramDefinition {
    /// For people.
    pub(crate) label: String,
    /// A remark for the reader of the results.
    #[serde(default)]
    pub(crate) note: Option<String>,
    /// How to get it.
    #[serde(default)]
    pub(crate) install: String,
    /// Variable → where the executable may be: names on the search path, or paths below
    /// `{peers}`. All must be there.
    #[serde(default)]
    pub(crate) binaries: BTreeMap<String, Vec<String>>,
    /// A command whose first line of output is the version.
    #[serde(default)]
    pub(crate) version: Vec<Word>,
    /// Where it runs as root only.
    #[serde(default)]
    pub(crate) needs_root: Vec<Kind>,
    /// Axis → the value this program's row has in place of the axis's own: it is run once, not
    /// for each value.
    #[serde(default)]
    pub(crate) ignores: BTreeMap<String, String>,
    /// Axis → the only values it can be run at.
    #[serde(default)]
    pub(crate) only: BTreeMap<String, Vec<String>>,
    /// The server, started first; none: no server.
    #[serde(default)]
    pub(crate) server: Option<ServerDefinition>,
    /// Further servers by name, for clients that need several.
    #[serde(default)]
    pub(crate) servers: BTreeMap<String, ServerDefinition>,
    /// The client, which is measured; none: the simulator.
    #[serde(default)]
    pub(crate) client: Option<ClientDefinition>,
    /// Measure → where it is in the client's output. `limited_by` is kept as text.
    #[serde(default)]
    pub(crate) reads: BTreeMap<String, Reading>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerDefinition {
    /// Where it runs.
    pub(crate) host: String,
    /// Its command line; it listens on `{port}`, in the foreground.
    pub(crate) argv: Vec<Word>,
    /// Files it needs in `{scratch}`: name → content.
    #[serde(default)]
    pub(crate) files: Variables,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientDefinition {
    /// Where it runs.
    pub(crate) host: String,
    /// Its command line.
    pub(crate) argv: Vec<Word>,
    /// File in `{scratch}` to which it writes samples over time: JSON, one a line.
    #[serde(default)]
    pub(crate) trace: Option<String>,
}

impl ProgramDefinition {
    /// Reads and checks a program's file.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the file and the line or key.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let program: Self = document::parse(file, text)?;
        if program.client.as_ref().is_some_and(|c| c.argv.is_empty()) {
            return Err(mistake(file, "client.argv", "is empty"));
        }
        for (name, server) in program.all_servers() {
            let key = name.map_or("server".to_owned(), |name| format!("servers.{name}"));
            if server.argv.is_empty() {
                return Err(mistake(file, &format!("{key}.argv"), "is empty"));
            }
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.is_none_or(|name| !name.is_empty() && name.chars().all(legal)) {
                return Err(mistake(file, &key, "name it with letters and digits"));
            }
        }
        for (name, places) in &program.binaries {
            if places.is_empty() {
                return Err(mistake(
                    file,
                    &format!("binaries.{name}"),
                    "name at least one",
                ));
            }
        }
        for (name, reading) in &program.reads {
            if let Some(what) = reading.mistake() {
                return Err(mistake(file, &format!("reads.{name}"), what));
            }
        }
        Ok(program)
    }

    /// Every server, the one without a name first.
    pub(crate) fn all_servers(&self) -> impl Iterator<Item = (Option<&str>, &ServerDefinition)> {
        let named = self.servers.iter();
        let named = named.map(|(name, server)| (Some(name.as_str()), server));
        self.server.iter().map(|server| (None, server)).chain(named)
    }

    /// Whether it can be run at a point of the sweep.
    pub(crate) fn runs_at(&self, at: &BTreeMap<String, String>) -> bool {
        axes::within(&self.only, at)
    }

    /// The point as this program's row is called.
    pub(crate) fn shown_at(&self, at: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        at.iter()
            .map(|(axis, value)| {
                (
                    axis.clone(),
                    self.ignores.get(axis).unwrap_or(value).clone(),
                )
            })
            .collect()
    }

    /// Where its executables are: variable → path.
    ///
    /// # Errors
    /// A sentence with the name of the one that is missing and how to install it.
    pub(crate) fn locate(&self, search: &Search) -> Result<Variables, String> {
        self.binaries
            .iter()
            .map(|(variable, places)| {
                let found = places.iter().find_map(|place| search.find(place));
                match found {
                    Some(path) => Ok((variable.clone(), path.display().to_string())),
                    None => Err(self.missing(&places[0])),
                }
            })
            .collect()
    }

    fn missing(&self, binary: &str) -> String {
        let how = match self.install.as_str() {
            "" => String::new(),
            how => format!(" ({how})"),
        };
        format!("{} left out: {binary} is not installed{how}", self.label)
    }
}

/// Where executables are looked for.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    directories: Vec<PathBuf>,
    peers: Option<PathBuf>,
}

impl Search {
    /// `PATH` and the administrators' directories, in which servers are; `LONGHAUL_PEERS` for
    /// unpacked packages.
    pub(crate) fn from_environment() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        directories.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        Self {
            directories,
            peers: std::env::var_os("LONGHAUL_PEERS").map(PathBuf::from),
        }
    }

    fn find(&self, place: &str) -> Option<PathBuf> {
        if let Some(below) = place.strip_prefix("{peers}/") {
            return self
                .peers
                .as_ref()
                .map(|p| p.join(below))
                .filter(|p| executable(p));
        }
        if place.contains('/') {
            return Some(PathBuf::from(place)).filter(|p| executable(p));
        }
        self.directories
            .iter()
            .filter(|directory| directory.as_os_str() != OsStr::new(""))
            .map(|directory| directory.join(place))
            .find(|path| executable(path))
    }
}

fn executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
label = "iperf3"
install = "apt install iperf3"
binaries = { sh = ["no-such-shell", "sh"] }
ignores = { p = "auto" }
only = { buffer = ["1MB"] }
[server]
host = "b"
argv = ["{sh}", "-p", "{port}"]
[client]
host = "a"
argv = ["{sh}", ["-P", "{p}"]]
[reads]
goodput = { json = "end.sum_received.bits_per_second", scale = 1e-6 }
"#;

    fn point(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn a_good_file_is_understood() {
        let program = ProgramDefinition::parse("x.toml", GOOD).unwrap();
        let at = point(&[("p", "4"), ("buffer", "1MB")]);
        assert!(program.runs_at(&at));
        assert!(!program.runs_at(&point(&[("buffer", "2MB")])));
        assert!(program.runs_at(&point(&[("latency", "1")])));
        assert_eq!(
            program.shown_at(&at),
            point(&[("p", "auto"), ("buffer", "1MB")])
        );
    }

    #[test]
    fn executables_are_found_or_named() {
        let search = Search::from_environment();
        let program = ProgramDefinition::parse("x.toml", GOOD).unwrap();
        assert!(program.locate(&search).unwrap()["sh"].ends_with("/sh"));
        let text = GOOD.replace(
            "\"no-such-shell\", \"sh\"",
            "\"no-such-shell\", \"{peers}/sh\"",
        );
        let absent = ProgramDefinition::parse("x.toml", &text).unwrap();
        assert_eq!(
            absent.locate(&search).unwrap_err(),
            "iperf3 left out: no-such-shell is not installed (apt install iperf3)"
        );
    }

    #[test]
    fn each_mistake_names_its_key() {
        for (from, to, named) in [
            ("label", "lable", "`lable`"),
            (
                "argv = [\"{sh}\", [\"-P\", \"{p}\"]]",
                "argv = []",
                "'client.argv'",
            ),
            (
                "argv = [\"{sh}\", \"-p\", \"{port}\"]",
                "argv = []",
                "'server.argv'",
            ),
            (
                "[client]",
                "[servers.'a b']\nhost = \"c\"\nargv = [\"x\"]\n[client]",
                "'servers.a b'",
            ),
            ("[\"no-such-shell\", \"sh\"]", "[]", "'binaries.sh'"),
            (
                "json = \"end.sum_received.bits_per_second\", ",
                "",
                "'reads.goodput'",
            ),
        ] {
            let message = ProgramDefinition::parse("x.toml", &GOOD.replacen(from, to, 1))
                .unwrap_err()
                .to_string();
            assert!(message.contains(named), "{message}");
        }
    }
}
