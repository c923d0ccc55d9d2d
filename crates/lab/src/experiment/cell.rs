//! One measurement, in the process that makes it (`longhaul lab cell`). It starts the servers, waits until
//! they listen, runs the client, measures wall-clock and processor time, and terminates all processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::process::{self, WaitEnd};
use crate::LabError;
use crate::net::signals::unblock_all;

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
    /// The TCP port on which it listens when it is ready.
    pub(crate) port: u16,
}

/// A measurement to make: the content of the job file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellTask {
    /// The `longhaul` whose `lab exec` enters the lab's hosts; `None`: there is no lab, and all programs run
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
        if let Some(longhaul) = &self.lab {
            command = Command::new(longhaul);
            command.args(["lab", "exec", &on_host.host, "--"]);
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
    let measured = start_servers(task, &mut started).and_then(|()| run_client(task));
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

/// The longest time from the start of the servers until all of them listen.
const SERVER_START_LIMIT: Duration = Duration::from_secs(20);

/// Starts the servers, then waits until each listens. The servers that were started are in `started` also
/// after an error, so that the caller can terminate them.
fn start_servers(task: &CellTask, started: &mut Vec<Child>) -> Result<(), LabError> {
    for server in &task.servers {
        started.push(task.start(&server.command, &server.name)?);
    }
    let give_up = Instant::now() + SERVER_START_LIMIT;
    for (server, child) in task.servers.iter().zip(started) {
        while !process::is_listening(child.id(), server.port, task.lab.is_some()) {
            let ended = child.try_wait();
            let ended = ended.map_err(|e| LabError::system("cannot observe the server", e))?;
            let why = match ended {
                Some(_) => "ended before it listened".to_owned(),
                None if Instant::now() > give_up => {
                    format!("does not listen on port {}", server.port)
                }
                None => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
            };
            let message = task.last_message(&server.name);
            return Err(LabError::Program(format!("the server {why}: {message}")));
        }
    }
    Ok(())
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
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn shell(script: &str) -> HostCommand {
        HostCommand {
            host: "a".into(),
            argv: ["sh", "-c", script].map(str::to_owned).into(),
        }
    }

    fn task(directory: &TempDir, script: &str) -> CellTask {
        CellTask {
            lab: None,
            servers: Vec::new(),
            client: shell(script),
            limit_seconds: 10,
            directory: directory.path().to_owned(),
            record: Vec::new(),
        }
    }

    #[test]
    fn a_client_is_timed_and_its_output_is_saved() {
        let directory = tempfile::tempdir().unwrap();
        let task = task(&directory, "sleep 0.05; echo $HOME; pwd");
        let (seconds, failure) = run_client(&task).unwrap();
        assert!(
            failure.is_none() && (0.05..9.0).contains(&seconds),
            "{seconds}"
        );
        let place = directory.path().display();
        let output = std::fs::read_to_string(task.client_output()).unwrap();
        assert_eq!(output, format!("{place}\n{place}\n"));
    }

    #[test]
    fn a_failed_client_reports_its_exit_status_and_last_message() {
        let directory = tempfile::tempdir().unwrap();
        for (script, reason) in [
            (
                "echo out; echo why >&2; echo >&2; exit 3",
                "exit code 3: why",
            ),
            ("echo out; exit 3", "exit code 3: out"),
            ("echo '{\"error\": \"busy\"}'; exit 1", "exit code 1: busy"),
            ("exit 1", "exit code 1: it printed no message"),
            ("kill -9 $$", "ended by signal 9: it printed no message"),
        ] {
            let (_, failure) = run_client(&task(&directory, script)).unwrap();
            assert_eq!(failure.as_deref(), Some(reason), "{script}");
        }
        let mut slow = task(&directory, "exec sleep 60");
        slow.limit_seconds = 0;
        let (seconds, failure) = run_client(&slow).unwrap();
        assert_eq!(failure.as_deref(), Some("not done after 0 s"));
        assert!(seconds < 30.0);
    }

    #[test]
    fn in_a_lab_a_command_runs_through_lab_exec() {
        let directory = tempfile::tempdir().unwrap();
        let mut task = task(&directory, "true");
        task.lab = Some("/opt/longhaul".into());
        let command = task.command(&task.client);
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(command.get_program(), "/opt/longhaul");
        assert_eq!(words, ["lab", "exec", "a", "--", "sh", "-c", "true"]);
    }

    #[test]
    fn a_server_that_exits_before_it_listens_is_an_error_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut task = task(&directory, "true");
        let server = |name: &str, script: &str| ServerTask {
            name: name.to_owned(),
            command: shell(script),
            port: 0,
        };
        let fails = server("server-one", "echo 'port taken' >&2");
        task.servers = vec![fails, server("server-two", "exec sleep 60")];
        let mut started = Vec::new();
        let message = start_servers(&task, &mut started).unwrap_err().to_string();
        assert_eq!(message, "the server ended before it listened: port taken");
        assert_eq!(started.len(), 2, "the caller can terminate both servers");
        for mut child in started {
            process::terminate(&mut child).unwrap();
        }
    }

    #[test]
    fn settings_are_read_and_hidden_ones_are_omitted() {
        let directory = tempfile::tempdir().unwrap();
        let mut task = task(&directory, "true");
        let keys = ["net.ipv4.tcp_rmem", "net.no_such", "kernel.ostype"].map(str::to_owned);
        task.record = vec![("a".into(), keys.into())];
        let settings = read_settings(&task).unwrap();
        assert_eq!(settings["a: kernel.ostype"], "Linux");
        assert_eq!(settings["a: net.ipv4.tcp_rmem"].split(' ').count(), 3);
        assert_eq!(settings.len(), 2);
    }

    const JOB: &str = "LAB_TEST_JOB";
    const PORT: &str = "LAB_TEST_PORT";

    /// Returns the command line that runs one ignored test of this executable: a part of another test.
    fn part(name: &str) -> Vec<String> {
        let own = std::env::current_exe().unwrap().display().to_string();
        let test = format!("experiment::cell::tests::{name}");
        vec![own, "--exact".into(), "--ignored".into(), test]
    }

    #[test]
    #[ignore = "a part of a_cell_leaves_nothing_behind"]
    fn part_cell() {
        if let Ok(job) = std::env::var(JOB) {
            run_task(&read(Path::new(&job)).unwrap()).unwrap();
        }
    }

    #[test]
    #[ignore = "a part of a_cell_leaves_nothing_behind"]
    fn part_server() {
        let Ok(port) = std::env::var(PORT) else {
            return;
        };
        let port: u16 = port.parse().unwrap();
        std::fs::write("server", std::process::id().to_string()).unwrap();
        // This process leaves the server's session (setsid(2)), so that it outlives the server unless it is found.
        let script = "setsid sh -c 'echo $$ > session; exec sleep 60' &";
        let status = Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(status.success());
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        while let Ok((connection, _)) = listener.accept() {
            drop(connection);
        }
    }

    #[test]
    fn a_cell_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        // The port is below the ephemeral range, so that no other program is given it before the server binds it.
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (20_000..32_000).rev().find(is_free).unwrap();
        let script = "until test -s session; do sleep 0.01; done
            i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo $i";
        let mut task = task(&directory, script);
        task.servers.push(ServerTask {
            name: "server".into(),
            command: HostCommand {
                host: "b".into(),
                argv: part("part_server"),
            },
            port,
        });
        let file = directory.path().join("job.json");
        std::fs::write(&file, serde_json::to_vec(&task).unwrap()).unwrap();
        let argv = part("part_cell");
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .env(JOB, &file)
            .env(PORT, port.to_string());
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        let outcome = std::fs::read(task.outcome_file()).unwrap();
        let outcome: CellOutcome = serde_json::from_slice(&outcome).unwrap();
        assert!(
            outcome.failure.is_none() && outcome.cpu_seconds > 0.01,
            "{outcome:?}"
        );
        assert_eq!(
            std::fs::read_to_string(task.client_output()).unwrap(),
            "100000\n"
        );
        // The processes are checked by their ids, because another program may have taken the port by now.
        for name in ["session", "server"] {
            let process = std::fs::read_to_string(directory.path().join(name)).unwrap();
            assert!(!Path::new("/proc").join(process.trim()).exists(), "{name}");
        }
    }
}
