//! One measurement, in the process that makes it: starts the servers, waits until they accept, runs
//! the client, counts time and processor time, ends everything.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::listening;
use super::process::{self, Wait};
use crate::LabError;
use crate::net::signals::unblock_all;

/// A command line and where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Host of the lab; without a lab it has no meaning.
    pub(crate) host: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
}

/// A server, its name and where it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    /// Of the files with its output.
    pub(crate) name: String,
    /// How it is started.
    pub(crate) process: Process,
    /// TCP port on which it listens when it is ready.
    pub(crate) port: u16,
}

/// Measurement to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellTask {
    /// The `longhaul` that has `lab exec`; `None`: there is no lab, everything runs here.
    pub(crate) lab: Option<PathBuf>,
    /// The client's servers.
    pub(crate) servers: Vec<Server>,
    /// The program to measure.
    pub(crate) client: Process,
    /// When the client is ended, seconds.
    pub(crate) limit_seconds: u32,
    /// For the programs' output and the outcome; their working directory and home.
    pub(crate) directory: PathBuf,
    /// Kernel settings to be noted: host, keys.
    pub(crate) record: Vec<(String, Vec<String>)>,
}

/// Outcome of a measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Why the client failed.
    pub(crate) failure: Option<String>,
    /// Wall-clock seconds of the client, from its start to its end.
    pub(crate) seconds: f64,
    /// Processor seconds of client and server, their children included, start and end included.
    pub(crate) cpu_seconds: f64,
    /// `HOST: KEY` → value.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Outcome {
    /// Of a run that did not get as far as its client.
    pub(crate) fn failed(why: String) -> Self {
        Self {
            failure: Some(why),
            ..Self::default()
        }
    }
}

impl CellTask {
    /// Where the client's standard output goes.
    pub(crate) fn client_output(&self) -> PathBuf {
        self.directory.join("client.out")
    }

    /// Where [`run`] writes what it saw.
    pub(crate) fn outcome_file(&self) -> PathBuf {
        self.directory.join("outcome.json")
    }

    /// The command that runs `process` on its host.
    fn command(&self, process: &Process) -> Command {
        let mut argv = process.argv.iter();
        let mut command;
        if let Some(longhaul) = &self.lab {
            command = Command::new(longhaul);
            command.args(["lab", "exec", &process.host, "--"]);
        } else {
            command = Command::new(argv.next().map_or("", String::as_str));
        }
        // Nobody's own settings files take part.
        command
            .args(argv)
            .current_dir(&self.directory)
            .env("HOME", &self.directory)
            .env("LC_ALL", "C")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Starts `process` with its output in `NAME.out` and `NAME.err`.
    fn start(&self, process: &Process, name: &str) -> Result<Child, LabError> {
        let file = |end: &str| {
            let path = self.directory.join(format!("{name}.{end}"));
            File::create(&path)
                .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
        };
        self.command(process)
            .stdout(file("out")?)
            .stderr(file("err")?)
            .spawn()
            .map_err(|e| LabError::system(format!("cannot start {}", process.argv.join(" ")), e))
    }

    /// Why a program that printed to `NAME.out` and `NAME.err` gave up, as far as it says.
    fn last_words(&self, name: &str) -> String {
        let text = |end: &str| {
            let bytes = std::fs::read(self.directory.join(format!("{name}.{end}")));
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let (out, err) = (text("out"), text("err"));
        let last = |text: &str| {
            let line = text.lines().rfind(|line| !line.trim().is_empty())?;
            Some(line.trim().to_owned())
        };
        // iperf3 --json tells its errors in the document.
        let document: Option<serde_json::Value> = serde_json::from_str(&out).ok();
        let told = document.and_then(|d| Some(d.get("error")?.as_str()?.to_owned()));
        last(&err)
            .or(told)
            .or_else(|| last(&out))
            .unwrap_or_else(|| "it said nothing".to_owned())
    }
}

/// Runs the job in `file` and writes its outcome beside the programs' output.
///
/// The process ends, with all it started, when its standard input does: in a lab the network then goes
/// and ends the rest, else everything is in one process group.
///
/// # Errors
/// The job cannot be read, a setting cannot be read, the server does not start. A client that
/// fails is an outcome.
pub(crate) fn run(file: &Path) -> Result<(), LabError> {
    let job = read(file)?;
    process::end_with_input(job.lab.is_none())
        .map_err(|e| LabError::system("cannot start a thread", e))?;
    measure(&job)
}

fn measure(job: &CellTask) -> Result<(), LabError> {
    let observed = |error| LabError::system("cannot observe the programs", error);
    unblock_all()?;
    process::adopt_orphans().map_err(observed)?;
    let settings = record(job)?;
    let before = process::ended_children_cpu().map_err(observed)?;
    let mut started = Vec::new();
    let measured = start_all(job, &mut started).and_then(|()| client(job));
    for mut server in started {
        process::end(&mut server).map_err(observed)?;
    }
    process::end_orphans().map_err(observed)?;
    let (seconds, failure) = measured?;
    let outcome = Outcome {
        failure,
        seconds,
        cpu_seconds: process::ended_children_cpu().map_err(observed)? - before,
        settings,
    };
    let path = job.outcome_file();
    serde_json::to_vec(&outcome)
        .map_err(io::Error::from)
        .and_then(|json| std::fs::write(&path, json))
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

fn read(file: &Path) -> Result<CellTask, LabError> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| LabError::system(format!("cannot read {}", file.display()), e))?;
    serde_json::from_str(&text)
        .map_err(|e| LabError::Usage(format!("{}: not a job: {e}", file.display())))
}

/// How long a server may take until it accepts.
const START: Duration = Duration::from_secs(20);

/// Starts the servers, then waits for each. Those that were started are in `started` whatever
/// happens.
fn start_all(job: &CellTask, started: &mut Vec<Child>) -> Result<(), LabError> {
    for server in &job.servers {
        started.push(job.start(&server.process, &server.name)?);
    }
    for (server, child) in job.servers.iter().zip(started) {
        wait_for(job, server, child)?;
    }
    Ok(())
}

/// Waits until a server listens.
fn wait_for(job: &CellTask, server: &Server, child: &mut Child) -> Result<(), LabError> {
    let give_up = Instant::now() + START;
    let refused = |why: &str| {
        let words = job.last_words(&server.name);
        LabError::Program(format!("the server {why}: {words}"))
    };
    loop {
        if listening::on(child.id(), server.port, job.lab.is_some()) {
            return Ok(());
        }
        let ended = child
            .try_wait()
            .map_err(|e| LabError::system("cannot observe the server", e))?;
        if ended.is_some() {
            return Err(refused("ended before it listened"));
        }
        if Instant::now() > give_up {
            return Err(refused(&format!("does not listen on port {}", server.port)));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the client: its seconds, and why it failed.
fn client(job: &CellTask) -> Result<(f64, Option<String>), LabError> {
    let observed = |error| LabError::system("cannot observe the client", error);
    let begin = Instant::now();
    let limit = Duration::from_secs(u64::from(job.limit_seconds));
    let mut child = job.start(&job.client, "client")?;
    let end = process::wait(&mut child, begin + limit, None).map_err(observed)?;
    let seconds = begin.elapsed().as_secs_f64();
    let failure = match end {
        Wait::Ended(status) if status.success() => None,
        Wait::Ended(status) => Some(format!("{}: {}", how(status), job.last_words("client"))),
        Wait::Late | Wait::Interrupted => {
            process::end(&mut child).map_err(observed)?;
            Some(format!("not done after {} s", job.limit_seconds))
        }
    };
    Ok((seconds, failure))
}

fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

/// Prints a line for each file, an empty one if it is not there: some kernels hide settings of the
/// whole machine from network namespaces.
const PRINT_FILES: &str = r#"for f; do cat "$f" 2>/dev/null || echo; done"#;

/// Reads the kernel settings to be noted, each on its host.
fn record(job: &CellTask) -> Result<BTreeMap<String, String>, LabError> {
    let mut settings = BTreeMap::new();
    for (host, keys) in &job.record {
        let files = keys
            .iter()
            .map(|key| format!("/proc/sys/{}", key.replace('.', "/")));
        let print = ["sh", "-c", PRINT_FILES, "sh"].map(str::to_owned);
        let shell = Process {
            host: host.clone(),
            argv: print.into_iter().chain(files).collect(),
        };
        let output = job
            .command(&shell)
            .output()
            .map_err(|e| LabError::system("cannot read the kernel's settings", e))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(LabError::Program(format!(
                "cannot read the settings of host {host}: {}",
                why.trim().replace('\n', "; ")
            )));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        for (key, value) in keys.iter().zip(text.lines()) {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            if !value.is_empty() {
                settings.insert(format!("{host}: {key}"), value);
            }
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests;
