//! From a point of the sweep to the command lines, the network and the files of one run.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use super::Mode;
use super::axes::At;
use super::axes::Kind;
use super::cell::{CellTask, Process, Server};
use super::definition::Definition;
use super::document::mistake;
use super::interrupt::Interrupts;
use super::plan::Entrant;
use super::program::{ProgramDefinition, ServerDefinition};
use super::scratch::Scratch;
use super::template::{self, TemplateError, Variables, Word};
use super::variables;
use crate::LabError;
use crate::topology::Topology;

/// Parts of one run.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The measurement.
    pub(crate) job: CellTask,
    /// Marks its processes ([`leftovers::MARK`](super::leftovers::MARK)).
    pub(crate) mark: PathBuf,
    /// The network; `None`: this machine's loopback.
    pub(crate) topology: Option<PathBuf>,
    /// Size of the file that is moved; 0: none.
    pub(crate) bytes: u64,
    /// The point asks for a larger file, which others move there.
    pub(crate) cut: bool,
    /// The client has to leave a file of that size here.
    pub(crate) received: Option<PathBuf>,
    /// Where the client writes samples over time.
    pub(crate) trace: Option<PathBuf>,
    /// Values of the holes.
    pub(crate) variables: Variables,
}

/// Parts that all runs of an experiment share.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The experiment's name, for messages.
    pub(crate) name: &'a str,
    /// The experiment's definition.
    pub(crate) definition: &'a Definition,
    /// How much of it.
    pub(crate) mode: Mode,
    /// The `longhaul` that is under test and has the lab.
    pub(crate) longhaul: &'a Path,
    /// Files.
    pub(crate) scratch: &'a Scratch,
    /// Tells when the user wants to stop.
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

impl Setup<'_> {
    /// Prepares a run of `entrant` at `at` with a seed. With `record` it notes the hosts' kernel settings.
    /// `None`: the user wants to stop.
    ///
    /// # Errors
    /// A mistake in the experiment's or the program's file, or a full disk.
    pub(crate) fn prepare(
        &self,
        entrant: &Entrant,
        at: &At,
        seed: u64,
        record: bool,
    ) -> Result<Option<Prepared>, LabError> {
        let directory = self.scratch.clear()?;
        let mut variables = self.variables(entrant, at, seed)?;
        variables.extend(entrant.binaries.clone());
        variables.insert("scratch".to_owned(), text(&directory));
        let Some((bytes, cut)) = self.payload(entrant, &mut variables)? else {
            return Ok(None);
        };
        let network = self.network(&variables)?;
        let hosts = hosts(network.as_ref());
        let topology = match &network {
            Some(network) => Some(write_topology(&directory, network)?),
            None => None,
        };
        self.addresses(&mut variables, &hosts);
        let program = &entrant.program;
        let servers = self.servers(program, &mut variables, &directory)?;
        let client = program.client.as_ref().ok_or_else(|| {
            let what = format!("{} has no client", program.label);
            mistake(self.name, "programs", what)
        })?;
        let noted = network.as_ref().filter(|_| record);
        let job = CellTask {
            lab: (self.definition.kind == Kind::Net).then(|| self.longhaul.to_owned()),
            servers,
            client: self.process(program, &client.host, &client.argv, &variables)?,
            limit_seconds: *self.definition.limit.of(self.mode),
            record: noted.map_or_else(Vec::new, |network| self::noted(network, &hosts)),
            directory,
        };
        let sink = self.scratch.sink();
        let names_sink = |word: &String| word.contains(&text(&sink));
        let received = job.client.argv.iter().any(names_sink);
        let trace = client.trace.as_ref();
        Ok(Some(Prepared {
            trace: trace.map(|name| job.directory.join(name)),
            mark: self.scratch.mark().to_owned(),
            job,
            topology,
            bytes,
            cut,
            received: (received && bytes > 0).then_some(sink),
            variables,
        }))
    }

    /// The point of the sweep, the experiment's parameters, the variant's settings, and what every
    /// experiment has.
    fn variables(&self, entrant: &Entrant, at: &At, seed: u64) -> Result<Variables, LabError> {
        let mut variables = Variables::new();
        variables.insert("longhaul".to_owned(), text(self.longhaul));
        variables.insert("sink".to_owned(), text(&self.scratch.sink()));
        variables.insert("root".to_owned(), text(&self.scratch.served()));
        variables.insert("seed".to_owned(), seed.to_string());
        variables.insert("inbox".to_owned(), text(&self.scratch.inbox()));
        if let Some(bytes) = self.definition.bytes(self.mode) {
            variables.insert("bytes".to_owned(), bytes.to_owned());
        }
        // Root's servers run their sessions as somebody else; other users' as themselves.
        if rustix::process::geteuid().is_root() {
            variables.insert("user".to_owned(), "nobody".to_owned());
        }
        variables::at(self.name, self.definition, at, variables, entrant.sets())
    }

    /// Makes the file to be moved and sets `bytes`, `name` and `file`. Its size, and whether the point
    /// asks for a larger one. `None`: the user wants to stop.
    fn payload(
        &self,
        entrant: &Entrant,
        variables: &mut Variables,
    ) -> Result<Option<(u64, bool)>, LabError> {
        let Some(size) = variables.get("bytes") else {
            return Ok(Some((0, false)));
        };
        let asked = units::size(size).map_err(|e| mistake(self.name, "bytes", e))?;
        let bytes = entrant.bytes(self.mode, asked);
        let Some(file) = self.scratch.payload(bytes, self.interrupts)? else {
            return Ok(None);
        };
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        variables.insert("name".to_owned(), name);
        variables.insert("file".to_owned(), text(&file));
        variables.insert("bytes".to_owned(), bytes.to_string());
        Ok(Some((bytes, bytes < asked)))
    }

    /// The topology's content at this point.
    fn network(&self, variables: &Variables) -> Result<Option<toml::Table>, LabError> {
        let network = self.definition.network.as_ref();
        network
            .map(|network| template::table(network, variables))
            .transpose()
            .map_err(|e| self.wrong("network", &e))
    }

    /// Sets `address.HOST` for every host.
    fn addresses(&self, variables: &mut Variables, hosts: &[String]) {
        let emulated = self.definition.kind == Kind::Net;
        for (index, host) in hosts.iter().enumerate() {
            let address = if emulated {
                Topology::address(index)
            } else {
                Ipv4Addr::LOCALHOST
            };
            variables.insert(format!("address.{host}"), address.to_string());
        }
        if !emulated {
            let here = Ipv4Addr::LOCALHOST.to_string();
            variables.insert("loopback".to_owned(), here);
        }
    }

    /// The servers of `program`; sets `host` and `port`, for those with names `host.NAME` and
    /// `port.NAME`. In what is theirs `host` and `port` are their own.
    fn servers(
        &self,
        program: &ProgramDefinition,
        variables: &mut Variables,
        directory: &Path,
    ) -> Result<Vec<Server>, LabError> {
        let mut places = Vec::new();
        for (name, server) in program.all_servers() {
            let ending = name.map(|name| format!(".{name}")).unwrap_or_default();
            let (address, port) = (self.address(variables, &server.host)?, self.port()?);
            variables.insert(format!("host{ending}"), address.clone());
            variables.insert(format!("port{ending}"), port.to_string());
            places.push((address, port));
        }
        let mut servers = Vec::new();
        for ((name, server), (address, port)) in program.all_servers().zip(places) {
            let mut own = variables.clone();
            own.insert("host".to_owned(), address);
            own.insert("port".to_owned(), port.to_string());
            self.write_files(server, &own, directory)?;
            servers.push(Server {
                name: name.map_or("server".to_owned(), |name| format!("server-{name}")),
                process: self.process(program, &server.host, &server.argv, &own)?,
                port,
            });
        }
        Ok(servers)
    }

    /// Where a server listens: on a host of its own where it always does.
    fn port(&self) -> Result<u16, LabError> {
        match self.definition.kind {
            Kind::Net => Ok(PORT),
            Kind::Loopback | Kind::Sim => free_port(),
        }
    }

    fn process(
        &self,
        program: &ProgramDefinition,
        host: &str,
        argv: &[Word],
        variables: &Variables,
    ) -> Result<Process, LabError> {
        let argv = template::command(argv, variables)
            .map_err(|e| self.wrong(&format!("argv of {}", program.label), &e))?;
        Ok(Process {
            host: host.to_owned(),
            argv,
        })
    }

    fn address(&self, variables: &Variables, host: &str) -> Result<String, LabError> {
        let known = variables.get(&format!("address.{host}")).cloned();
        known.ok_or_else(|| mistake(self.name, "network", format!("there is no host '{host}'")))
    }

    fn write_files(
        &self,
        server: &ServerDefinition,
        variables: &Variables,
        directory: &Path,
    ) -> Result<(), LabError> {
        for (name, content) in &server.files {
            let content = template::expand(content, variables)
                .map_err(|e| self.wrong(&format!("server.files.{name}"), &e))?;
            let path = directory.join(name);
            std::fs::write(&path, content)
                .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))?;
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

/// The hosts of a topology file in the order of their addresses; two are there by default.
fn hosts(network: Option<&toml::Table>) -> Vec<String> {
    match network.and_then(|network| network.get("hosts")?.as_table()) {
        Some(hosts) => hosts.keys().cloned().collect(),
        None => ["a", "b"].map(str::to_owned).into(),
    }
}

/// The settings to be noted of each host: the usual ones and those that the topology sets.
fn noted(network: &toml::Table, hosts: &[String]) -> Vec<(String, Vec<String>)> {
    let keys = |table: Option<&toml::Value>| -> Vec<String> {
        let settings = table.and_then(|t| t.get("sysctl")?.as_table());
        settings.map_or_else(Vec::new, |s| s.keys().cloned().collect())
    };
    let common = keys(Some(&toml::Value::Table(network.clone())));
    hosts
        .iter()
        .map(|host| {
            let mut all: BTreeSet<String> = NOTED.map(str::to_owned).into();
            all.extend(common.iter().cloned());
            all.extend(keys(network.get("hosts").and_then(|hosts| hosts.get(host))));
            (host.clone(), all.into_iter().collect())
        })
        .collect()
}

fn write_topology(directory: &Path, network: &toml::Table) -> Result<PathBuf, LabError> {
    let path = directory.join("topology.toml");
    std::fs::write(&path, network.to_string())
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))?;
    Ok(path)
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
