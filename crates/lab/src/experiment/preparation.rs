//! The preparation of one run: command lines, network and files for a point of the sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use super::Mode;
use super::arrival_check::ArrivalCheck;
use super::cell::{CellTask, HostCommand, ServerTask};
use super::definition::program::ProgramDefinition;
use super::definition::template::{self, CommandWord, TemplateError, Variables};
use super::definition::{ExperimentDefinition, ExperimentKind, key_error};
use super::plan::{self, Participant};
use super::process::Interrupts;
use super::results::SweepPoint;
use super::scratch::Scratch;
use crate::LabError;
use emulator::topology::Topology;

/// A run that is ready to be started.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) task: CellTask,
    /// The value of [`leftovers::MARK`](super::process::leftovers::MARK) in the environment of its processes.
    pub(crate) mark: PathBuf,
    /// The topology file; `None`: the run uses this machine's loopback interface.
    pub(crate) topology: Option<PathBuf>,
    /// The size of what is moved; 0: nothing is.
    pub(crate) bytes: u64,
    /// The number of files that are moved.
    pub(crate) files: u64,
    /// Whether the point asks for a larger file, which other programs move there.
    pub(crate) is_cut: bool,
    /// The files that the run must leave behind; `None`: it is not checked.
    pub(crate) arrival: Option<ArrivalCheck>,
    /// The variables of templates.
    pub(crate) variables: Variables,
}

/// The file or tree that a run moves; by default nothing.
#[derive(Debug, Default)]
struct Payload {
    /// The file or the top of the tree.
    place: Option<PathBuf>,
    bytes: u64,
    files: u64,
    /// Whether the point asks for a larger file.
    is_cut: bool,
}

/// The settings that all runs of an experiment share.
#[derive(Debug)]
pub(crate) struct RunSetup<'a> {
    /// The experiment's name, for error messages.
    pub(crate) name: &'a str,
    pub(crate) definition: &'a ExperimentDefinition,
    pub(crate) mode: Mode,
    /// The program with the verbs of the lab.
    pub(crate) lab_program: &'a Path,
    pub(crate) scratch: &'a Scratch,
    pub(crate) interrupts: &'a Interrupts,
}

/// The port of the first server on an emulated host (that of GridFTP); the others have the next ones. They are
/// free there: each host has a network namespace of its own.
const EMULATED_PORT: u16 = 2811;

/// The kernel settings that are recorded for every host, in addition to those that the experiment sets.
const RECORDED_SETTINGS: [&str; 7] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

impl RunSetup<'_> {
    /// Prepares a run at a point. With `record` the run also records the hosts' kernel settings. `None`: the
    /// user wants to stop.
    ///
    /// # Errors
    /// The experiment's or the program's file has a mistake, or a file cannot be written.
    pub(crate) fn prepare(
        &self,
        participant: &Participant,
        at: &SweepPoint,
        seed: u64,
        record: bool,
    ) -> Result<Option<PreparedRun>, LabError> {
        let directory = self.scratch.clear()?;
        let mut variables = self.variables(participant, at, seed, &directory)?;
        let Some(payload) = self.prepare_payload(participant, &mut variables)? else {
            return Ok(None);
        };
        self.write_files(&self.definition.files, &variables, &directory)?;
        let network = self.definition.network.as_ref();
        let network = network
            .map(|network| template::table(network, &variables))
            .transpose();
        let network = network.map_err(|e| self.template_error("network", &e))?;
        let topology = network.as_ref().map(|network| {
            let path = directory.join("topology.toml");
            write_file(&path, &network.to_string()).map(|()| path)
        });
        let hosts = host_names(network.as_ref());
        self.add_addresses(&mut variables, &hosts);
        let program = &participant.program;
        let servers = self.prepare_servers(program, &mut variables, &directory)?;
        let client = program.client.as_ref().ok_or_else(|| {
            let what = format!("{} has no client", program.label);
            key_error(self.name, "programs", what)
        })?;
        let recorded_network = network.as_ref().filter(|_| record);
        let task = CellTask {
            lab: (self.definition.kind == ExperimentKind::Net).then(|| self.lab_program.to_owned()),
            servers,
            client: self.command(program, &client.host, &client.argv, &variables)?,
            limit_seconds: *self.definition.limit.for_mode(self.mode),
            record: recorded_network
                .map_or_else(Vec::new, |network| settings_to_record(network, &hosts)),
            directory,
        };
        let arrival = self.arrival(&payload, &task.client, &variables)?;
        Ok(Some(PreparedRun {
            mark: self.scratch.mark().to_owned(),
            task,
            topology: topology.transpose()?,
            bytes: payload.bytes,
            files: payload.files,
            is_cut: payload.is_cut,
            arrival,
            variables,
        }))
    }

    /// Returns what the run must leave behind: at the place that the variable `received` names, what was sent; else
    /// the whole file in the sink if the client names it. Others discard what they receive.
    fn arrival(
        &self,
        payload: &Payload,
        client: &HostCommand,
        variables: &Variables,
    ) -> Result<Option<ArrivalCheck>, LabError> {
        let sink = self.scratch.sink();
        if let (Some(received), Some(sent)) = (variables.get("received"), &payload.place) {
            let (received, sent) = (PathBuf::from(received), sent.clone());
            if received.starts_with(self.scratch.disk_inbox()) {
                self.scratch.sync_disk()?;
            }
            return Ok(Some(ArrivalCheck::Equal { received, sent }));
        }
        let names_sink = |word: &String| word.contains(&path_text(&sink));
        let receives = payload.bytes > 0 && client.argv.iter().any(names_sink);
        Ok(receives.then_some(ArrivalCheck::Size {
            received: sink,
            bytes: payload.bytes,
        }))
    }

    /// Collects the variables of a run: those that every run has, then those of the point, the variant and
    /// the experiment.
    fn variables(
        &self,
        participant: &Participant,
        at: &SweepPoint,
        seed: u64,
        directory: &Path,
    ) -> Result<Variables, LabError> {
        let mut given: Variables = [
            ("longhaul", path_text(self.lab_program)),
            ("sink", path_text(&self.scratch.sink())),
            ("root", path_text(&self.scratch.served())),
            ("inbox", path_text(&self.scratch.inbox())),
            ("disk", path_text(&self.scratch.disk_inbox())),
            ("scratch", path_text(directory)),
            ("seed", seed.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        if let Some(bytes) = &self.definition.bytes {
            given.insert("bytes".to_owned(), bytes.for_mode(self.mode).clone());
        }
        // Servers that are started as root need a user for their sessions; others cannot change theirs.
        if rustix::process::geteuid().is_root() {
            given.insert("user".to_owned(), "nobody".to_owned());
        }
        given.extend(participant.binaries.clone());
        plan::expand_variables(
            self.name,
            self.definition,
            at,
            given,
            &participant.variant.sets,
        )
    }

    /// Creates the file or tree to move and sets the variables `bytes`, `name` and `file`. `None`: the user wants
    /// to stop.
    fn prepare_payload(
        &self,
        participant: &Participant,
        variables: &mut Variables,
    ) -> Result<Option<Payload>, LabError> {
        let payload = match (variables.get("tree"), variables.get("bytes")) {
            (Some(name), _) => self.make_tree(name)?,
            (None, Some(size)) => self.make_file(participant, size)?,
            (None, None) => return Ok(Some(Payload::default())),
        };
        if let Some(Payload {
            place: Some(place),
            bytes,
            ..
        }) = &payload
        {
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            variables.insert("name".to_owned(), name.into_owned());
            variables.insert("file".to_owned(), path_text(place));
            variables.insert("bytes".to_owned(), bytes.to_string());
        }
        Ok(payload)
    }

    /// Creates the experiment's tree of this name.
    fn make_tree(&self, name: &str) -> Result<Option<Payload>, LabError> {
        let tree = self.definition.trees.get(name);
        let tree = tree.ok_or_else(|| {
            key_error(
                self.name,
                "tree",
                format!("there is no '{name}' in [trees]"),
            )
        })?;
        let how = (self.mode, self.definition.seed);
        let place = self.scratch.make_tree(name, tree, how, self.interrupts)?;
        let totals = tree.totals(self.mode, self.definition.seed);
        Ok(place.map(|place| Payload {
            place: Some(place),
            bytes: totals.bytes,
            files: totals.files,
            is_cut: false,
        }))
    }

    /// Creates the file that a participant moves where the point asks for one of `size`.
    fn make_file(
        &self,
        participant: &Participant,
        size: &str,
    ) -> Result<Option<Payload>, LabError> {
        let requested = units::size(size).map_err(|e| key_error(self.name, "bytes", e))?;
        let bytes = participant.bytes(self.mode, requested);
        let place = self.scratch.make_payload(bytes, self.interrupts)?;
        Ok(place.map(|place| Payload {
            place: Some(place),
            bytes,
            files: 1,
            is_cut: bytes < requested,
        }))
    }

    /// Sets `address.HOST` for every host, and `loopback` where the run uses the loopback interface.
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
            let loopback = Ipv4Addr::LOCALHOST.to_string();
            variables.insert("loopback".to_owned(), loopback);
        }
    }

    /// Prepares the servers of `program`. It sets `host` and `port`, for servers with a name `host.NAME` and
    /// `port.NAME`. In a server's own templates, `host` and `port` are its own.
    fn prepare_servers(
        &self,
        program: &ProgramDefinition,
        variables: &mut Variables,
        directory: &Path,
    ) -> Result<Vec<ServerTask>, LabError> {
        let mut places = Vec::new();
        let mut next_ports = BTreeMap::new();
        for (name, server) in program.servers() {
            let ending = name.map(|name| format!(".{name}")).unwrap_or_default();
            let address = variables.get(&format!("address.{}", server.host)).cloned();
            let missing = || format!("there is no host '{}'", server.host);
            let address = address.ok_or_else(|| key_error(self.name, "network", missing()))?;
            let port = match self.definition.kind {
                ExperimentKind::Net => {
                    let next = next_ports.entry(&server.host).or_insert(EMULATED_PORT);
                    std::mem::replace(next, *next + 1)
                }
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
                ready: match server.ready.as_slice() {
                    [] => None,
                    argv => Some(self.command(program, &server.host, argv, &own)?),
                },
            });
        }
        Ok(servers)
    }

    /// Expands a command line for its host.
    fn command(
        &self,
        program: &ProgramDefinition,
        host: &str,
        argv: &[CommandWord],
        variables: &Variables,
    ) -> Result<HostCommand, LabError> {
        let argv = template::command(argv, variables);
        let argv =
            argv.map_err(|e| self.template_error(&format!("argv of {}", program.label), &e))?;
        let host = host.to_owned();
        Ok(HostCommand { host, argv })
    }

    /// Expands files and writes them into `directory`.
    fn write_files(
        &self,
        files: &Variables,
        variables: &Variables,
        directory: &Path,
    ) -> Result<(), LabError> {
        for (name, content) in files {
            let content = template::expand(content, variables);
            let content = content.map_err(|e| self.template_error(&format!("files.{name}"), &e))?;
            write_file(&directory.join(name), &content)?;
        }
        Ok(())
    }

    /// Makes the error for a template that cannot be expanded.
    fn template_error(&self, key: &str, error: &TemplateError) -> LabError {
        key_error(self.name, key, error)
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn write_file(path: &Path, content: &str) -> Result<(), LabError> {
    std::fs::write(path, content)
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

/// Lists the hosts of a topology file in the order of their addresses. By default they are `a` and `b`.
fn host_names(network: Option<&toml::Table>) -> Vec<String> {
    match network.and_then(|network| network.get("hosts")?.as_table()) {
        Some(hosts) => hosts.keys().cloned().collect(),
        None => ["a", "b"].map(str::to_owned).into(),
    }
}

/// Lists the kernel settings to record for each host: [`RECORDED_SETTINGS`] and those that the topology sets.
fn settings_to_record(network: &toml::Table, hosts: &[String]) -> Vec<(String, Vec<String>)> {
    let keys = |table: Option<&toml::Table>| -> Vec<String> {
        let settings = table.and_then(|table| table.get("sysctl")?.as_table());
        settings.map_or_else(Vec::new, |settings| settings.keys().cloned().collect())
    };
    let of_host = |host: &String| {
        let table = network
            .get("hosts")
            .and_then(|hosts| hosts.get(host)?.as_table());
        let mut all: BTreeSet<String> = RECORDED_SETTINGS.map(str::to_owned).into();
        all.extend(keys(Some(network)).into_iter().chain(keys(table)));
        (host.clone(), all.into_iter().collect())
    };
    hosts.iter().map(of_host).collect()
}

/// Finds a TCP port of the loopback address that is free at the moment.
fn free_port() -> Result<u16, LabError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| LabError::system("cannot find a free port", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::definition::{VariantDefinition, catalog};

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
        participant: &Participant,
        at: [&str; 2],
    ) -> (Scratch, Result<PreparedRun, LabError>) {
        let definition = ExperimentDefinition::parse("t.toml", experiment).unwrap();
        let scratch = Scratch::new().unwrap();
        let at = [("latency", at[0]), ("dest", at[1])].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let setup = RunSetup {
            name: "t",
            definition: &definition,
            mode: Mode::Quick,
            lab_program: Path::new("/opt/longhaul-lab"),
            scratch: &scratch,
            interrupts: &Interrupts::block().unwrap(),
        };
        let prepared = setup.prepare(participant, &at.into(), 7, true);
        (scratch, prepared.map(Option::unwrap))
    }

    #[test]
    fn the_emulator_can_read_the_network_of_every_point_of_every_shipped_experiment() {
        let scratch = Scratch::new().unwrap();
        let interrupts = Interrupts::block().unwrap();
        for (name, _) in catalog::EXPERIMENTS {
            let definition = &catalog::load_experiment(name).unwrap().definition;
            let Some(network) = &definition.network else {
                continue;
            };
            let variant = definition.variants.values().next();
            let participant = Participant {
                variant: variant.cloned().unwrap_or_default(),
                ..participant()
            };
            for mode in [Mode::Full, Mode::Quick] {
                let setup = RunSetup {
                    name,
                    definition,
                    mode,
                    lab_program: Path::new("/opt/longhaul-lab"),
                    scratch: &scratch,
                    interrupts: &interrupts,
                };
                let visited = plan::visited_values(definition, mode, &[]).unwrap();
                let here = std::slice::from_ref(&participant);
                for (at, _) in plan::points_with_participants(definition, &visited, here) {
                    let seed = plan::run_seed(definition.seed, &at, 0);
                    let directory = scratch.clear().unwrap();
                    let known = setup.variables(&participant, &at, seed, &directory);
                    let known = known.unwrap();
                    setup
                        .write_files(&definition.files, &known, &directory)
                        .unwrap();
                    let network = template::table(network, &known).unwrap().to_string();
                    let read = Topology::parse(&network, &directory);
                    assert!(read.is_ok(), "{name} {at:?}: {:?}", read.err());
                }
            }
        }
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
        let (received, bytes) = (scratch.sink(), 1000);
        assert_eq!(
            prepared.arrival,
            Some(ArrivalCheck::Size { received, bytes })
        );
        let task = &prepared.task;
        assert_eq!(task.lab.as_deref(), Some(Path::new("/opt/longhaul-lab")));
        assert_eq!(task.limit_seconds, 60);
        let server = &task.servers[0];
        assert_eq!(
            (&*server.name, server.port, &*server.command.host),
            ("server", 2811, "b")
        );
        let root = path_text(&scratch.served());
        assert_eq!(server.command.argv, ["serve", "10.99.0.2", "2811", &root]);
        let (url, sink) = (
            format!("ftp://10.99.0.2:2811{}", file.display()),
            path_text(&scratch.sink()),
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
    fn the_settings_that_the_experiment_sets_are_recorded_for_their_hosts() {
        let (_scratch, prepared) = prepare(EXPERIMENT, &participant(), ["5", "nowhere"]);
        let prepared = prepared.unwrap();
        assert_eq!(prepared.arrival, None);
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
    fn on_loopback_the_port_is_free_and_no_setting_is_recorded() {
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
    fn errors_name_the_experiment_and_the_key() {
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
ready = ["ask", "{host}:{port}"]
[servers.beside]
host = "b"
argv = ["watch", "{host}:{port}"]
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
        let summary = |server: &ServerTask| {
            format!(
                "{} {} {}",
                server.name,
                server.command.host,
                server.command.argv.join(" ")
            )
        };
        let servers: Vec<String> = task.servers.iter().map(summary).collect();
        // Addresses follow the order of the network's hosts, servers the order of their names.
        let inbox = path_text(&scratch.inbox());
        let destination = format!("server-destination c serve 10.99.0.3:2811 {inbox}");
        assert_eq!(
            servers,
            [
                "server-beside b watch 10.99.0.2:2811".to_owned(),
                destination,
                "server-source b serve 10.99.0.2:2812".to_owned()
            ]
        );
        let ready = task.servers.iter().map(|server| server.ready.as_ref());
        let asked: Vec<_> = ready.map(|ready| Some(&ready?.argv[..])).collect();
        let source = ["ask", "10.99.0.2:2812"].map(str::to_owned);
        assert_eq!(asked, [None, None, Some(&source[..])]);
        assert_eq!(task.servers[2].ready.as_ref().unwrap().host, "b");
        assert_eq!(task.client.argv[1..], ["10.99.0.2:2812", "10.99.0.3:2811"]);
    }

    #[test]
    fn variants_and_values_of_an_axis_have_settings_and_a_size_of_their_own() {
        let mut limited = participant();
        limited.variant.sets = [("p".to_owned(), "{8*latency}".to_owned())].into();
        limited.variant.quick_largest = Some("500B".into());
        let experiment = EXPERIMENT
            .replace("[parameters]", "[parameters]\np = \"1\"")
            .replace(
                "key = \"latency\"",
                "key = \"latency\"\nsets.\"5\".bytes = \"2000B\"",
            );
        let (_scratch, prepared) = prepare(&experiment, &limited, ["0.5", "nowhere"]);
        let prepared = prepared.unwrap();
        assert_eq!((prepared.bytes, prepared.is_cut), (500, true));
        assert_eq!(prepared.task.client.argv[..3], ["/bin/x", "-p", "4"]);
        let (_scratch, prepared) = prepare(&experiment, &participant(), ["5", "nowhere"]);
        assert_eq!(prepared.unwrap().bytes, 2000);
    }
}
