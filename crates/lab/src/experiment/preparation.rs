//! From a point of the sweep to the command lines, the network and the files of one run.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use super::Mode;
use super::cell::{CellTask, HostCommand, ServerTask};
use super::definition::{ExperimentDefinition, ExperimentKind, SweepPoint, mistake};
use super::plan::{self, Participant};
use super::process::Interrupts;
use super::program::ProgramDefinition;
use super::scratch::Scratch;
use super::template::{self, CommandWord, TemplateError, Variables};
use crate::LabError;
use crate::topology::Topology;

/// Parts of one run.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) task: CellTask,
    /// Marks its processes ([`leftovers::MARK`](super::leftovers::MARK)).
    pub(crate) mark: PathBuf,
    /// The network; `None`: this machine's loopback.
    pub(crate) topology: Option<PathBuf>,
    /// Size of the file that is moved; 0: none.
    pub(crate) bytes: u64,
    /// The point asks for a larger file, which others move there.
    pub(crate) is_cut: bool,
    /// The client has to leave a file of that size here.
    pub(crate) received: Option<PathBuf>,
    /// Values of the holes.
    pub(crate) variables: Variables,
}

/// Parts that all runs of an experiment share.
#[derive(Debug)]
pub(crate) struct RunSetup<'a> {
    /// The experiment's name, for messages.
    pub(crate) name: &'a str,
    pub(crate) definition: &'a ExperimentDefinition,
    pub(crate) mode: Mode,
    /// The `longhaul` that is under test and has the lab.
    pub(crate) longhaul: &'a Path,
    pub(crate) scratch: &'a Scratch,
    pub(crate) interrupts: &'a Interrupts,
}

/// The control port of every server on an emulated host, where it is free; each has its own host.
const PORT: u16 = 2811;

/// Settings that are noted of every host, beside those that the experiment changes.
const NOTED: [&str; 7] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

impl RunSetup<'_> {
    /// Prepares a run at a point with a seed. With `record` it notes the hosts' kernel settings.
    /// `None`: the user wants to stop.
    ///
    /// # Errors
    /// A mistake in the experiment's or the program's file, or a full disk.
    pub(crate) fn prepare(
        &self,
        one: &Participant,
        at: &SweepPoint,
        seed: u64,
        record: bool,
    ) -> Result<Option<PreparedRun>, LabError> {
        let directory = self.scratch.clear()?;
        let mut variables = self.variables(one, at, seed, &directory)?;
        let Some((bytes, is_cut)) = self.payload(one, &mut variables)? else {
            return Ok(None);
        };
        self.write_files(&self.definition.files, &variables, &directory)?;
        let network = self.definition.network.as_ref();
        let network = network
            .map(|network| template::table(network, &variables))
            .transpose();
        let network = network.map_err(|e| self.wrong("network", &e))?;
        let topology = network.as_ref().map(|network| {
            let path = directory.join("topology.toml");
            write(&path, &network.to_string()).map(|()| path)
        });
        let hosts = hosts(network.as_ref());
        self.add_addresses(&mut variables, &hosts);
        let program = &one.program;
        let servers = self.servers(program, &mut variables, &directory)?;
        let client = program.client.as_ref().ok_or_else(|| {
            let what = format!("{} has no client", program.label);
            mistake(self.name, "programs", what)
        })?;
        let noted = network.as_ref().filter(|_| record);
        let task = CellTask {
            lab: (self.definition.kind == ExperimentKind::Net).then(|| self.longhaul.to_owned()),
            servers,
            client: self.command(program, &client.host, &client.argv, &variables)?,
            limit_seconds: *self.definition.limit.of(self.mode),
            record: noted.map_or_else(Vec::new, |network| self::noted(network, &hosts)),
            directory,
        };
        let sink = self.scratch.sink();
        let names_sink = |word: &String| word.contains(&text(&sink));
        let receives = bytes > 0 && task.client.argv.iter().any(names_sink);
        Ok(Some(PreparedRun {
            mark: self.scratch.mark().to_owned(),
            task,
            topology: topology.transpose()?,
            bytes,
            is_cut,
            received: receives.then_some(sink),
            variables,
        }))
    }

    /// The point of the sweep, the experiment's parameters, the variant's settings, and the variables
    /// that every run has.
    fn variables(
        &self,
        one: &Participant,
        at: &SweepPoint,
        seed: u64,
        directory: &Path,
    ) -> Result<Variables, LabError> {
        let mut given: Variables = [
            ("longhaul", text(self.longhaul)),
            ("sink", text(&self.scratch.sink())),
            ("root", text(&self.scratch.served())),
            ("inbox", text(&self.scratch.inbox())),
            ("scratch", text(directory)),
            ("seed", seed.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        if let Some(bytes) = &self.definition.bytes {
            given.insert("bytes".to_owned(), bytes.of(self.mode).clone());
        }
        // Root's servers run their sessions as somebody else; other users' as themselves.
        if rustix::process::geteuid().is_root() {
            given.insert("user".to_owned(), "nobody".to_owned());
        }
        given.extend(one.binaries.clone());
        plan::variables(self.name, self.definition, at, given, &one.variant.sets)
    }

    /// Makes the file to be moved and sets `bytes`, `name` and `file`. Its size, and whether the point
    /// asks for a larger one. `None`: the user wants to stop.
    fn payload(
        &self,
        one: &Participant,
        variables: &mut Variables,
    ) -> Result<Option<(u64, bool)>, LabError> {
        let Some(size) = variables.get("bytes") else {
            return Ok(Some((0, false)));
        };
        let asked = units::size(size).map_err(|e| mistake(self.name, "bytes", e))?;
        let bytes = one.bytes(self.mode, asked);
        let Some(file) = self.scratch.payload(bytes, self.interrupts)? else {
            return Ok(None);
        };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        variables.insert("name".to_owned(), name.into_owned());
        variables.insert("file".to_owned(), text(&file));
        variables.insert("bytes".to_owned(), bytes.to_string());
        Ok(Some((bytes, bytes < asked)))
    }

    /// Sets `address.HOST` for every host.
    fn add_addresses(&self, variables: &mut Variables, hosts: &[String]) {
        let emulated = self.definition.kind == ExperimentKind::Net;
        for (index, host) in hosts.iter().enumerate() {
            let address = match emulated {
                true => Topology::address(index),
                false => Ipv4Addr::LOCALHOST,
            };
            variables.insert(format!("address.{host}"), address.to_string());
        }
        if !emulated {
            let here = Ipv4Addr::LOCALHOST.to_string();
            variables.insert("loopback".to_owned(), here);
        }
    }

    /// The servers of `program`; sets `host` and `port`, for those with names `host.NAME` and
    /// `port.NAME`. In their own texts `host` and `port` are their own.
    fn servers(
        &self,
        program: &ProgramDefinition,
        variables: &mut Variables,
        directory: &Path,
    ) -> Result<Vec<ServerTask>, LabError> {
        let mut places = Vec::new();
        for (name, server) in program.servers() {
            let ending = name.map(|name| format!(".{name}")).unwrap_or_default();
            let address = variables.get(&format!("address.{}", server.host)).cloned();
            let missing = || format!("there is no host '{}'", server.host);
            let address = address.ok_or_else(|| mistake(self.name, "network", missing()))?;
            let port = match self.definition.kind {
                ExperimentKind::Net => PORT,
                ExperimentKind::Loopback | ExperimentKind::Sim => free_port()?,
            };
            variables.insert(format!("host{ending}"), address.clone());
            variables.insert(format!("port{ending}"), port.to_string());
            places.push((address, port));
        }
        let mut servers = Vec::new();
        for ((name, server), (address, port)) in program.servers().zip(places) {
            let mut own = variables.clone();
            own.insert("host".to_owned(), address);
            own.insert("port".to_owned(), port.to_string());
            self.write_files(&server.files, &own, directory)?;
            servers.push(ServerTask {
                name: name.map_or("server".to_owned(), |name| format!("server-{name}")),
                command: self.command(program, &server.host, &server.argv, &own)?,
                port,
            });
        }
        Ok(servers)
    }

    fn command(
        &self,
        program: &ProgramDefinition,
        host: &str,
        argv: &[CommandWord],
        variables: &Variables,
    ) -> Result<HostCommand, LabError> {
        let argv = template::command(argv, variables);
        let argv = argv.map_err(|e| self.wrong(&format!("argv of {}", program.label), &e))?;
        let host = host.to_owned();
        Ok(HostCommand { host, argv })
    }

    fn write_files(
        &self,
        files: &Variables,
        variables: &Variables,
        directory: &Path,
    ) -> Result<(), LabError> {
        for (name, content) in files {
            let content = template::expand(content, variables);
            let content = content.map_err(|e| self.wrong(&format!("files.{name}"), &e))?;
            write(&directory.join(name), &content)?;
        }
        Ok(())
    }

    fn wrong(&self, key: &str, error: &TemplateError) -> LabError {
        mistake(self.name, key, error)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn write(path: &Path, content: &str) -> Result<(), LabError> {
    std::fs::write(path, content)
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

/// The hosts of a topology file in the order of their addresses; two are there by default.
fn hosts(network: Option<&toml::Table>) -> Vec<String> {
    match network.and_then(|network| network.get("hosts")?.as_table()) {
        Some(hosts) => hosts.keys().cloned().collect(),
        None => ["a", "b"].map(str::to_owned).into(),
    }
}

/// The settings to be noted of each host: the usual ones and those that the topology sets.
fn noted(network: &toml::Table, hosts: &[String]) -> Vec<(String, Vec<String>)> {
    let keys = |table: Option<&toml::Table>| -> Vec<String> {
        let settings = table.and_then(|table| table.get("sysctl")?.as_table());
        settings.map_or_else(Vec::new, |settings| settings.keys().cloned().collect())
    };
    let of_host = |host: &String| {
        let table = network
            .get("hosts")
            .and_then(|hosts| hosts.get(host)?.as_table());
        let mut all: BTreeSet<String> = NOTED.map(str::to_owned).into();
        all.extend(keys(Some(network)).into_iter().chain(keys(table)));
        (host.clone(), all.into_iter().collect())
    };
    hosts.iter().map(of_host).collect()
}

/// A TCP port that nobody listens on at the moment.
fn free_port() -> Result<u16, LabError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| LabError::system("cannot find a free port", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::definition::VariantDefinition;

    const EXPERIMENT: &str = r#"
title = "Throughput"
kind = "net"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["x"], quick = ["x"] }
repetitions = { full = 5, quick = 3 }
bytes = { full = "1MiB", quick = "1000B" }
limit = { full = 600, quick = 60 }
files = { "path.csv" = "0,{latency}ms" }
[across]
key = "latency"
label = "latency"
full = ["0.5", "5"]
quick = ["5"]
[down]
key = "dest"
label = "destination"
full = ["nowhere", "memory"]
quick = ["memory"]
means = { nowhere = "/dev/null", memory = "{sink}" }
[parameters]
offered = "{1.2*latency}"
[network]
cc = "cubic"
[network.sysctl]
"net.ipv4.tcp_sack" = "1"
[network.hosts.a]
[network.hosts.b.sysctl]
"net.core.wmem_max" = "4194304"
[network.default]
rtt = "{2*latency}ms"
"#;

    const PROGRAM: &str = r#"
label = "X"
[server]
host = "b"
argv = ["serve", "{host}", "{port}", "{root}"]
files = { "x.conf" = "port={port}\nbytes={bytes}\n" }
[client]
host = "a"
argv = ["{tool}", ["-p", "{p}"], "--rate", "{offered}", "ftp://{host}:{port}{file}", "{name}", "{dest}"]
"#;

    fn participant() -> Participant {
        Participant {
            key: "x".into(),
            program: ProgramDefinition::parse("x.toml", PROGRAM).unwrap(),
            binaries: [("tool".to_owned(), "/bin/x".to_owned())].into(),
            variant: VariantDefinition::default(),
        }
    }

    fn prepare(
        experiment: &str,
        one: &Participant,
        at: [&str; 2],
    ) -> (Scratch, Result<PreparedRun, LabError>) {
        let definition = ExperimentDefinition::parse("t.toml", experiment).unwrap();
        let scratch = Scratch::new().unwrap();
        let at = [("latency", at[0]), ("dest", at[1])].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let setup = RunSetup {
            name: "t",
            definition: &definition,
            mode: Mode::Quick,
            longhaul: Path::new("/opt/longhaul"),
            scratch: &scratch,
            interrupts: &Interrupts::hold().unwrap(),
        };
        let prepared = setup.prepare(one, &at.into(), 7, true);
        (scratch, prepared.map(Option::unwrap))
    }

    #[test]
    fn a_point_becomes_a_network_files_and_command_lines() {
        let (scratch, prepared) = prepare(EXPERIMENT, &participant(), ["0.5", "memory"]);
        let prepared = prepared.unwrap();
        let file = scratch.served().join("1000.dat");
        assert_eq!(
            (file.metadata().unwrap().len(), prepared.bytes),
            (1000, 1000)
        );
        assert_eq!(prepared.received, Some(scratch.sink()));
        let task = &prepared.task;
        assert_eq!(task.lab.as_deref(), Some(Path::new("/opt/longhaul")));
        assert_eq!(task.limit_seconds, 60);
        let server = &task.servers[0];
        assert_eq!(
            (&*server.name, server.port, &*server.command.host),
            ("server", 2811, "b")
        );
        let root = text(&scratch.served());
        assert_eq!(server.command.argv, ["serve", "10.99.0.2", "2811", &root]);
        let (url, sink) = (
            format!("ftp://10.99.0.2:2811{}", file.display()),
            text(&scratch.sink()),
        );
        let expected = ["/bin/x", "--rate", "0.6", &url, "1000.dat", &sink];
        assert_eq!(task.client.argv, expected);
        let read = |name: &str| std::fs::read_to_string(task.directory.join(name)).unwrap();
        assert_eq!(read("x.conf"), "port=2811\nbytes=1000\n");
        assert_eq!(read("path.csv"), "0,0.5ms");
        let topology: toml::Table = read("topology.toml").parse().unwrap();
        assert_eq!(topology["default"]["rtt"].as_str(), Some("1ms"));
    }

    #[test]
    fn the_settings_that_the_experiment_changes_are_noted_on_their_hosts() {
        let (_scratch, prepared) = prepare(EXPERIMENT, &participant(), ["5", "nowhere"]);
        let prepared = prepared.unwrap();
        assert_eq!(prepared.received, None);
        let [(a, of_a), (b, of_b)] = prepared.task.record.as_slice() else {
            panic!("{:?}", prepared.task.record);
        };
        assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
        for keys in [of_a, of_b] {
            for key in [
                "net.ipv4.tcp_sack",
                "net.ipv4.tcp_rmem",
                "net.core.wmem_max",
            ] {
                assert_eq!(
                    keys.iter().filter(|known| *known == key).count(),
                    1,
                    "{key}"
                );
            }
        }
    }

    #[test]
    fn on_loopback_the_port_is_free_and_nothing_is_noted() {
        let network = EXPERIMENT.find("[network]").unwrap();
        let experiment = EXPERIMENT[..network].replace("\"net\"", "\"loopback\"");
        let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "memory"]);
        let PreparedRun { task, topology, .. } = prepared.unwrap();
        assert!(topology.is_none() && task.lab.is_none() && task.record.is_empty());
        let server = &task.servers[0];
        let expected = ["127.0.0.1".to_owned(), server.port.to_string()];
        assert_eq!(server.command.argv[1..3], expected);
        TcpListener::bind((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    }

    #[test]
    fn mistakes_name_experiment_and_place() {
        for (from, to, named) in [
            ("{2*latency}ms", "{2*letency}ms", "key 'network'"),
            ("{1.2*latency}", "{latncy}", "key 'parameters.offered'"),
            ("memory = \"{sink}\"", "memory = \"{sunk}\"", "key 'dest'"),
            (
                "[network.hosts.b.sysctl]",
                "[network.hosts.c.sysctl]",
                "no host 'b'",
            ),
        ] {
            let experiment = EXPERIMENT.replace(from, to);
            let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "memory"]);
            let message = prepared.unwrap_err().to_string();
            assert!(
                message.starts_with("t: ") && message.contains(named),
                "{message}"
            );
        }
        let mut unknown = participant();
        unknown.binaries.clear();
        let (_scratch, prepared) = prepare(EXPERIMENT, &unknown, ["5", "memory"]);
        let message = prepared.unwrap_err().to_string();
        assert!(
            message.contains("argv of X") && message.contains("{tool}"),
            "{message}"
        );
    }

    #[test]
    fn several_servers_have_hosts_and_ports_of_their_own() {
        let hosts = "[network.hosts.c]\n[network.default]";
        let experiment = EXPERIMENT.replace("[network.default]", hosts);
        let program = r#"
label = "X"
[servers.source]
host = "b"
argv = ["serve", "{host}:{port}"]
[servers.destination]
host = "c"
argv = ["serve", "{host}:{port}", "{inbox}"]
[client]
host = "a"
argv = ["cp", "{host.source}:{port.source}", "{host.destination}:{port.destination}"]
"#;
        let mut third_party = participant();
        third_party.program = ProgramDefinition::parse("x.toml", program).unwrap();
        let (scratch, prepared) = prepare(&experiment, &third_party, ["5", "nowhere"]);
        let task = prepared.unwrap().task;
        let told = |server: &ServerTask| {
            format!(
                "{} {} {}",
                server.name,
                server.command.host,
                server.command.argv.join(" ")
            )
        };
        let servers: Vec<String> = task.servers.iter().map(told).collect();
        // Hosts have addresses in the order of the network, servers come in that of their names.
        let inbox = text(&scratch.inbox());
        let destination = format!("server-destination c serve 10.99.0.3:2811 {inbox}");
        assert_eq!(
            servers,
            [
                destination,
                "server-source b serve 10.99.0.2:2811".to_owned()
            ]
        );
        assert_eq!(task.client.argv[1..], ["10.99.0.2:2811", "10.99.0.3:2811"]);
    }

    #[test]
    fn variants_and_values_of_an_axis_have_settings_and_a_size_of_their_own() {
        let mut one = participant();
        one.variant.sets = [("p".to_owned(), "{8*latency}".to_owned())].into();
        one.variant.quick_largest = Some("500B".into());
        let experiment = EXPERIMENT
            .replace("[parameters]", "[parameters]\np = \"1\"")
            .replace(
                "key = \"latency\"",
                "key = \"latency\"\nsets.\"5\".bytes = \"2000B\"",
            );
        let (_scratch, prepared) = prepare(&experiment, &one, ["0.5", "nowhere"]);
        let prepared = prepared.unwrap();
        assert_eq!((prepared.bytes, prepared.is_cut), (500, true));
        assert_eq!(prepared.task.client.argv[..3], ["/bin/x", "-p", "4"]);
        let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "nowhere"]);
        assert_eq!(prepared.unwrap().bytes, 2000);
    }
}
