//! One measurement, in the process that makes it (`longhaul lab cell`). It starts the servers, waits until
//! they are ready, runs the client, measures wall-clock and processor time, and terminates all processes.

mod servers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::process::{self, WaitEnd};
use crate::LabError;
use emulator::signals::unblock_all;

/// A command line and the host on which it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostCommand {
    /// The host of the lab; ignored without a lab.
    pub(crate) host: String,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
}

/// A server to start, with its name and port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerTask {
    /// The name of the files with its output, without `.out` and `.err`.
    pub(crate) name: String,
    pub(crate) command: HostCommand,
    /// The TCP port on which it listens.
    pub(crate) port: u16,
    /// The command that succeeds when the server is ready; `None`: it is as soon as it listens.
    #[serde(default)]
    pub(crate) ready: Option<HostCommand>,
}

/// A measurement to make: the content of the job file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellTask {
    /// The program whose verb `exec` enters the lab's hosts; `None`: there is no lab, and all programs run
    /// in this process's network namespace.
    pub(crate) lab: Option<PathBuf>,
    pub(crate) servers: Vec<ServerTask>,
    /// The program to measure.
    pub(crate) client: HostCommand,
    /// Seconds after which the client is terminated and the run has failed.
    pub(crate) limit_seconds: u32,
    /// The directory for the programs' output and the outcome. It is also their working directory and home.
    pub(crate) directory: PathBuf,
    /// Kernel settings to record: the host, and keys of sysctl(8).
    pub(crate) record: Vec<(String, Vec<String>)>,
}

/// The outcome of a measurement.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CellOutcome {
    /// Why the client failed; `None`: it succeeded.
    pub(crate) failure: Option<String>,
    /// Wall-clock seconds of the client, from its start to its exit.
    pub(crate) seconds: f64,
    /// Processor seconds (user and system) of client, servers and their children, from start to exit.
    pub(crate) cpu_seconds: f64,
    /// The recorded kernel settings: `HOST: KEY` → value.
    pub(crate) settings: BTreeMap<String, String>,
}

impl CellOutcome {
    /// Makes the outcome of a run that failed before its client started.
    pub(crate) fn failed(why: String) -> Self {
        Self {
            failure: Some(why),
            ..Self::default()
        }
    }
}

impl CellTask {
    /// Returns the path of the client's standard output.
    pub(crate) fn client_output(&self) -> PathBuf {
        self.directory.join("client.out")
    }

    /// Returns the path to which [`run`] writes the outcome.
    pub(crate) fn outcome_file(&self) -> PathBuf {
        self.directory.join("outcome.json")
    }

    /// Builds the command that runs on its host, through `lab exec` if there is a lab.
    fn command(&self, on_host: &HostCommand) -> Command {
        let mut argv = on_host.argv.iter();
        let mut command;
        if let Some(program) = &self.lab {
            command = Command::new(program);
            command.args(["exec", &on_host.host, "--"]);
        } else {
            command = Command::new(argv.next().map_or("", String::as_str));
        }
        // With this directory as home, the programs do not read the user's settings files. What an earlier transfer
        // taught is part of an experiment only if its command says so.
        command
            .args(argv)
            .current_dir(&self.directory)
            .env("HOME", &self.directory)
            .env("LC_ALL", "C")
            .env("LONGHAUL_HISTORY", "off")
            .env("LONGHAUL_CONFIG", "off")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Starts a command and redirects its output to `NAME.out` and `NAME.err`.
    fn start(&self, on_host: &HostCommand, name: &str) -> Result<Child, LabError> {
        let file = |end: &str| {
            let path = self.directory.join(format!("{name}.{end}"));
            File::create(&path)
                .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
        };
        let mut command = self.command(on_host);
        command.stdout(file("out")?).stderr(file("err")?);
        let shown = on_host.argv.join(" ");
        command
            .spawn()
            .map_err(|e| LabError::system(format!("cannot start {shown}"), e))
    }

    /// Returns the last line that a failed program printed to `NAME.err` or else `NAME.out`.
    fn last_message(&self, name: &str) -> String {
        let text = |end: &str| {
            let bytes = std::fs::read(self.directory.join(format!("{name}.{end}")));
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let (out, err) = (text("out"), text("err"));
        let last = |text: &str| {
            let line = text.lines().rfind(|line| !line.trim().is_empty())?;
            Some(line.trim().to_owned())
        };
        // iperf3 --json writes its errors into the document.
        let document: Option<serde_json::Value> = serde_json::from_str(&out).ok();
        let error = document.and_then(|d| Some(d.get("error")?.as_str()?.to_owned()));
        let message = last(&err).or(error).or_else(|| last(&out));
        message.unwrap_or_else(|| "it printed no message".to_owned())
    }
}

/// Runs the task in `file` and writes its outcome into the task's directory.
///
/// When its standard input closes, this process exits and all processes that it started end, too: in a lab
/// `lab net` kills them with the network; without one they are in this process's group, which is killed.
///
/// # Errors
/// The task or a kernel setting cannot be read, or a server does not start. A client that fails is an
/// outcome, not an error.
pub(crate) fn run(file: &Path) -> Result<(), LabError> {
    let task = read(file)?;
    process::exit_when_input_closes(task.lab.is_none())
        .map_err(|e| LabError::system("cannot start a thread", e))?;
    run_task(&task)
}

/// Makes the measurement of `task` and writes its outcome.
fn run_task(task: &CellTask) -> Result<(), LabError> {
    let cannot_observe = |error| LabError::system("cannot observe the programs", error);
    // The experiment blocks signals, and children inherit the mask; the programs under test need them.
    unblock_all()?;
    process::adopt_orphans().map_err(cannot_observe)?;
    let settings = read_settings(task)?;
    let before = process::ended_children_cpu().map_err(cannot_observe)?;
    let mut started = Vec::new();
    let measured = servers::start(task, &mut started).and_then(|()| run_client(task));
    // Servers are terminated even if the client failed, and before processor time is read: the kernel
    // counts only children that have ended and been waited for.
    for mut server in started {
        process::terminate(&mut server).map_err(cannot_observe)?;
    }
    process::terminate_orphans().map_err(cannot_observe)?;
    let (seconds, failure) = measured?;
    let outcome = CellOutcome {
        failure,
        seconds,
        cpu_seconds: process::ended_children_cpu().map_err(cannot_observe)? - before,
        settings,
    };
    let path = task.outcome_file();
    serde_json::to_vec(&outcome)
        .map_err(io::Error::from)
        .and_then(|json| std::fs::write(&path, json))
        .map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

/// Reads the job file.
fn read(file: &Path) -> Result<CellTask, LabError> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| LabError::system(format!("cannot read {}", file.display()), e))?;
    serde_json::from_str(&text)
        .map_err(|e| LabError::Usage(format!("{}: not a job: {e}", file.display())))
}

/// Runs the client. Returns its wall-clock seconds, and why it failed if it did.
fn run_client(task: &CellTask) -> Result<(f64, Option<String>), LabError> {
    use std::os::unix::process::ExitStatusExt;
    let cannot_observe = |error| LabError::system("cannot observe the client", error);
    let begin = Instant::now();
    let limit = Duration::from_secs(u64::from(task.limit_seconds));
    let mut child = task.start(&task.client, "client")?;
    let end = process::wait(&mut child, begin + limit, None).map_err(cannot_observe)?;
    let seconds = begin.elapsed().as_secs_f64();
    let failure = match end {
        WaitEnd::Ended(status) if status.success() => None,
        WaitEnd::Ended(status) => {
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (_, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
            };
            Some(format!("{how}: {}", task.last_message("client")))
        }
        WaitEnd::Late | WaitEnd::Interrupted => {
            process::terminate(&mut child).map_err(cannot_observe)?;
            Some(format!("not done after {} s", task.limit_seconds))
        }
    };
    Ok((seconds, failure))
}

/// A shell script that prints one line per file, an empty one for a file that does not exist: some
/// kernels hide settings of the whole machine from network namespaces.
const PRINT_FILES: &str = r#"for f; do cat "$f" 2>/dev/null || echo; done"#;

/// Reads the kernel settings to record, each on its host.
fn read_settings(task: &CellTask) -> Result<BTreeMap<String, String>, LabError> {
    let mut settings = BTreeMap::new();
    for (host, keys) in &task.record {
        let files = keys
            .iter()
            .map(|key| format!("/proc/sys/{}", key.replace('.', "/")));
        let print = ["sh", "-c", PRINT_FILES, "sh"].map(str::to_owned);
        let shell = HostCommand {
            host: host.clone(),
            argv: print.into_iter().chain(files).collect(),
        };
        let output = task.command(&shell).output();
        let output =
            output.map_err(|e| LabError::system("cannot read the kernel's settings", e))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ");
            let message = format!("cannot read the settings of host {host}: {why}");
            return Err(LabError::Program(message));
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
