//! The file of a program under test: how its servers and its client are started, and how measured values
//! are read from its output. `docs/experiments.md` describes the keys.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::reading::OutputReading;
use super::template::{self, CommandWord, Variables};
use super::{ExperimentKind, OnlyAt, key_error, parse, require};
use crate::LabError;
use crate::experiment::results::SweepPoint;

/// A program under test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramDefinition {
    pub(crate) label: String,
    /// A remark for the reader of the results.
    #[serde(default)]
    pub(crate) note: Option<String>,
    /// How a user installs it, for the message that it is missing.
    #[serde(default)]
    install: String,
    /// Variable → places of the executable, of which the first that exists counts: names on the search path,
    /// paths below `{peers}`, or `$NAME` for a path in the environment. Every variable needs one.
    #[serde(default)]
    binaries: BTreeMap<String, Vec<String>>,
    /// The key of a program inside of which it runs, see [`Self::inside`].
    #[serde(default)]
    pub(crate) within: Option<String>,
    /// The command whose first line of output is the version.
    #[serde(default)]
    version: Vec<CommandWord>,
    /// The kinds of experiments in which it needs root.
    #[serde(default)]
    pub(crate) needs_root: Vec<ExperimentKind>,
    /// Axis → the value that is shown for this program, which does not depend on the axis. It runs once
    /// instead of once for each value.
    #[serde(default)]
    pub(crate) ignores: BTreeMap<String, String>,
    /// The only values at which it takes part.
    #[serde(default)]
    pub(crate) only: OnlyAt,
    /// The server, which is started before the client; none: no server.
    #[serde(default)]
    server: Option<ServerDefinition>,
    /// Name → a further server, for clients that need several.
    #[serde(default)]
    servers: BTreeMap<String, ServerDefinition>,
    /// The client, which is measured; none: the program is the simulator.
    #[serde(default)]
    pub(crate) client: Option<ClientDefinition>,
    /// Measure → its place in the output. `limited_by` is read as text, all others as numbers.
    #[serde(default)]
    pub(crate) reads: BTreeMap<String, OutputReading>,
}

/// A server of a program under test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerDefinition {
    /// The host on which it runs.
    pub(crate) host: String,
    /// Its command line. It must stay in the foreground and listen on `{port}`.
    pub(crate) argv: Vec<CommandWord>,
    /// The command line that succeeds when it is ready, called on its host again and again; empty: it is ready
    /// as soon as it listens.
    #[serde(default)]
    pub(crate) ready: Vec<CommandWord>,
    /// Files that it needs in `{scratch}`: name → template of the content.
    #[serde(default)]
    pub(crate) files: Variables,
}

/// The client of a program under test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientDefinition {
    /// The host on which it runs.
    pub(crate) host: String,
    /// Its command line.
    pub(crate) argv: Vec<CommandWord>,
}

/// The file in `{scratch}` to which a client writes samples over time: one JSON object per line.
pub(crate) const TRACE_FILE: &str = "trace";

impl ProgramDefinition {
    /// Reads and checks a program's file.
    ///
    /// # Errors
    /// [`LabError::Usage`] names the file and the line or key.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let mut program: Self = parse(file, text)?;
        let servers = program.servers().map(|(_, server)| &server.argv);
        let clients = program.client.iter().map(|client| &client.argv);
        let started = servers.chain(clients).all(|argv| !argv.is_empty());
        require(file, "argv", started, "is empty")?;
        for (name, places) in &program.binaries {
            let key = format!("binaries.{name}");
            require(file, &key, !places.is_empty(), "name at least one")?;
        }
        for (name, reading) in &mut program.reads {
            reading.read_trace_of(TRACE_FILE);
            if let Some(what) = reading.find_mistake() {
                return Err(key_error(file, &format!("reads.{name}"), what));
            }
        }
        Ok(program)
    }

    /// Returns all servers with their names; the one without a name comes first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (Option<&str>, &ServerDefinition)> {
        let named = self.servers.iter();
        let named = named.map(|(name, server)| (Some(name.as_str()), server));
        self.server.iter().map(|server| (None, server)).chain(named)
    }

    /// Returns this program inside of `outer`, whose key is `name`: the servers of both, and as its client the
    /// words of `outer`'s client, which come first, and its own.
    pub(crate) fn inside(mut self, name: &str, outer: Self) -> Self {
        let own = outer.server.map(|server| (name.to_owned(), server));
        self.servers.extend(own.into_iter().chain(outer.servers));
        if let (Some(client), Some(outer)) = (&mut self.client, outer.client) {
            client.argv.splice(0..0, outer.argv);
        }
        self.binaries.extend(outer.binaries);
        self.needs_root.extend(outer.needs_root);
        self.ignores.extend(outer.ignores);
        for (measure, reading) in outer.reads {
            self.reads.entry(measure).or_insert(reading);
        }
        self
    }

    /// Returns the point under which this program's results are listed: ignored axes have the shown value.
    pub(crate) fn listed_point(&self, at: &SweepPoint) -> SweepPoint {
        let mut shown = at.clone();
        for (axis, value) in &mut shown {
            if let Some(own) = self.ignores.get(axis) {
                value.clone_from(own);
            }
        }
        shown
    }

    /// Finds its executables: variable → path.
    ///
    /// # Errors
    /// A message for people: which executable is missing, and how it is installed.
    pub(crate) fn locate(&self, search: &ExecutableSearch) -> Result<Variables, String> {
        let located = self.binaries.iter().map(|(variable, places)| {
            let found = places.iter().find_map(|place| search.find(place));
            let path = found.ok_or_else(|| {
                let how = match self.install.as_str() {
                    "" => String::new(),
                    how => format!(" ({how})"),
                };
                format!(
                    "{} left out: {} is not installed{how}",
                    self.label, places[0]
                )
            })?;
            Ok((variable.clone(), path.display().to_string()))
        });
        located.collect()
    }

    /// Runs the version command and returns the first line that is not blank. `None`: there is no command, or
    /// it prints nothing.
    pub(crate) fn version(&self, variables: &Variables) -> Option<String> {
        let argv = template::command(&self.version, variables).ok()?;
        let (program, arguments) = argv.split_first()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env("LC_ALL", "C");
        let output = command.output().ok()?;
        let first = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().find(|line| !line.trim().is_empty())?;
            Some(line.trim().to_owned())
        };
        first(&output.stdout).or_else(|| first(&output.stderr))
    }
}

/// The directories in which executables are looked for.
#[derive(Debug)]
pub(crate) struct ExecutableSearch {
    directories: Vec<PathBuf>,
    peers: Option<PathBuf>,
}

impl ExecutableSearch {
    /// Reads `PATH`, adds the directories of servers, which users often lack in theirs, and reads
    /// `LONGHAUL_PEERS`, the directory of unpacked packages.
    pub(crate) fn from_environment() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        directories.retain(|directory| directory.as_os_str() != OsStr::new(""));
        directories.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
        Self {
            directories,
            peers: std::env::var_os("LONGHAUL_PEERS").map(PathBuf::from),
        }
    }

    /// Finds the executable at one of the places of `binaries`. `None`: there is none.
    fn find(&self, place: &str) -> Option<PathBuf> {
        if let Some(name) = place.strip_prefix('$') {
            let path = std::path::absolute(std::env::var_os(name)?).ok()?;
            return Some(path).filter(|path| is_executable(path));
        }
        if let Some(below) = place.strip_prefix("{peers}/") {
            let path = self.peers.as_ref()?.join(below);
            return Some(path).filter(|path| is_executable(path));
        }
        // `join` with an absolute path returns that path, so that absolute places need no case of their own.
        let mut paths = self
            .directories
            .iter()
            .map(|directory| directory.join(place));
        paths.find(|path| is_executable(path))
    }
}

fn is_executable(path: &Path) -> bool {
    let metadata = path.metadata();
    metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
label = "iperf3"
install = "apt install iperf3"
version = ["sh", "-c", "echo; echo ' iperf 3 '; echo more"]
binaries = { sh = ["no-such-shell", "sh"] }
ignores = { p = "auto" }
[server]
host = "b"
argv = ["{sh}", "-p", "{port}"]
[client]
host = "a"
argv = ["{sh}", ["-P", "{p}"]]
[reads]
goodput = { json = "end.sum_received.bits_per_second", scale = 1e-6 }
"#;

    #[test]
    fn a_program_that_ignores_an_axis_is_listed_at_its_own_value() {
        let program = ProgramDefinition::parse("x.toml", GOOD).unwrap();
        let point = |p: &str| -> SweepPoint {
            [("p", p), ("buffer", "1MB")]
                .map(|(k, v)| (k.into(), v.into()))
                .into()
        };
        assert_eq!(program.listed_point(&point("4")), point("auto"));
    }

    #[test]
    fn a_program_within_another_has_its_servers_readings_and_first_words() {
        let parse = |text: &str| ProgramDefinition::parse("x.toml", text).unwrap();
        let outer = r#"
label = "nice"
needs_root = ["net"]
[server]
host = "b"
argv = ["watch", "{port}"]
ready = ["test", "-e", "watched"]
[client]
host = "a"
argv = ["nice", ["-n", "{n}"]]
[reads]
goodput = { after = "rate=" }
niceness = { after = "n=" }
"#;
        let program = parse(GOOD).inside("nice", parse(outer));
        let names: Vec<_> = program.servers().map(|(name, _)| name).collect();
        assert_eq!(names, [None, Some("nice")]);
        let variables = [("sh", "/bin/sh"), ("n", "7")];
        let variables = variables.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let client = program.client.as_ref().unwrap();
        let argv = template::command(&client.argv, &variables).unwrap();
        assert_eq!(argv, ["nice", "-n", "7", "/bin/sh"]);
        assert_eq!(program.needs_root, [ExperimentKind::Net]);
        // The inner program's own reading counts.
        let printed = r#"{"end": {"sum_received": {"bits_per_second": 2e6}}}"#;
        let number = |measure: &str, printed: &str| {
            program.reads[measure].read_number(printed, Path::new("/"), &variables)
        };
        assert_eq!(number("goodput", printed), Some(2.0));
        assert_eq!(number("niceness", "n=7"), Some(7.0));
    }

    #[test]
    fn executables_and_versions_are_found_and_missing_ones_are_named() {
        let search = ExecutableSearch::from_environment();
        let program = ProgramDefinition::parse("x.toml", GOOD).unwrap();
        assert!(program.locate(&search).unwrap()["sh"].ends_with("/sh"));
        assert_eq!(
            program.version(&Variables::new()).as_deref(),
            Some("iperf 3")
        );
        for absent in ["{peers}/sh", "$LONGHAUL_NO_SUCH_VARIABLE", "/no/such/sh"] {
            let text = GOOD.replace("\"sh\"]", &format!("{absent:?}]"));
            let program = ProgramDefinition::parse("x.toml", &text).unwrap();
            let expected = "iperf3 left out: no-such-shell is not installed (apt install iperf3)";
            assert_eq!(program.locate(&search).unwrap_err(), expected);
        }
    }

    #[test]
    fn each_mistake_names_its_key() {
        for (from, to, named) in [
            ("label", "lable", "`lable`"),
            (
                "argv = [\"{sh}\", [\"-P\", \"{p}\"]]",
                "argv = []",
                "'argv'",
            ),
            (
                "argv = [\"{sh}\", \"-p\", \"{port}\"]",
                "argv = []",
                "'argv'",
            ),
            ("[\"no-such-shell\", \"sh\"]", "[]", "'binaries.sh'"),
            (
                "json = \"end.sum_received.bits_per_second\", ",
                "",
                "'reads.goodput'",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let message = ProgramDefinition::parse("x.toml", &text)
                .unwrap_err()
                .to_string();
            assert!(message.contains(named), "{message}");
        }
    }
}
