//! From a point of the sweep to the command lines, the network and the files of one run.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use super::Mode;
use super::cell::{CellTask, HostCommand, ServerTask};
use super::definition::{ExperimentDefinition, ExperimentKind, key_error};
use super::plan::{self, Participant};
use super::process::Interrupts;
use super::program::ProgramDefinition;
use super::results::SweepPoint;
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
        participant: &Participant,
        at: &SweepPoint,
        seed: u64,
        record: bool,
    ) -> Result<Option<PreparedRun>, LabError> {
        let directory = self.scratch.clear()?;
        let mut variables = self.variables(participant, at, seed, &directory)?;
        let Some((bytes, is_cut)) = self.payload(participant, &mut variables)? else {
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
        let program = &participant.program;
        let servers = self.servers(program, &mut variables, &directory)?;
        let client = program.client.as_ref().ok_or_else(|| {
            let what = format!("{} has no client", program.label);
            key_error(self.name, "programs", what)
        })?;
        let noted = network.as_ref().filter(|_| record);
        let task = CellTask {
            lab: (self.definition.kind == ExperimentKind::Net).then(|| self.longhaul.to_owned()),
            servers,
            client: self.command(program, &client.host, &client.argv, &variables)?,
            limit_seconds: *self.definition.limit.for_mode(self.mode),
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
        participant: &Participant,
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
            given.insert("bytes".to_owned(), bytes.for_mode(self.mode).clone());
        }
        // Root's servers run their sessions as somebody else; other users' as themselves.
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

    /// Makes the file to be moved and sets `bytes`, `name` and `file`. Its size, and whether the point
    /// asks for a larger one. `None`: the user wants to stop.
    fn payload(
        &self,
        participant: &Participant,
        variables: &mut Variables,
    ) -> Result<Option<(u64, bool)>, LabError> {
        let Some(size) = variables.get("bytes") else {
            return Ok(Some((0, false)));
        };
        let asked = units::size(size).map_err(|e| key_error(self.name, "bytes", e))?;
        let bytes = participant.bytes(self.mode, asked);
        let Some(file) = self.scratch.make_payload(bytes, self.interrupts)? else {
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
            let address = address.ok_or_else(|| key_error(self.name, "network", missing()))?;
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
        key_error(self.name, key, error)
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
mod tests;
