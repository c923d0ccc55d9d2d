//! A fleet: a database, a server with files, and workers.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::Connection;
use test_postgres::Postgres;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_secs(90);

/// The `longhaul` of the same build.
///
/// # Panics
/// It was not built: `cargo test --workspace` builds it.
fn longhaul() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_longhaul-queue")).with_file_name("longhaul");
    assert!(path.is_file(), "cargo build -p longhaul");
    path
}

fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(path);
    command
        .env_remove("RUST_LOG")
        .env_remove("LONGHAUL_QUEUE")
        .env("USER", "anna")
        .env("LONGHAUL_CONFIG", "off")
        .env("LONGHAUL_HISTORY", "off");
    command
}

/// Waits until `probe` finds the thing.
pub(crate) fn wait_for<T>(sought: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not in time: {sought}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that ends with the test.
pub(crate) struct FleetProcess(Child);

impl FleetProcess {
    /// Starts a program and reads the first line that it prints.
    fn start(command: Command) -> (Self, String) {
        let (child, mut said) = Self::begin(command);
        let line = said.next().unwrap().unwrap();
        (child, line.trim().to_owned())
    }

    fn begin(mut command: Command) -> (Self, Lines<BufReader<ChildStdout>>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (Self(child), output.lines())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGTERM, and the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.0.wait().unwrap().code()
    }
}

impl Drop for FleetProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Fleet {
    pub(crate) postgres: Postgres,
    pub(crate) url: String,
    place: tempfile::TempDir,
    server: (FleetProcess, String),
}

impl Fleet {
    pub(crate) fn new(test: &str) -> Option<Self> {
        let postgres = Postgres::start(test)?;
        let url = postgres.database("queue");
        let place = tempfile::tempdir().unwrap();
        for folder in ["served", "copied"] {
            fs::create_dir(place.path().join(folder)).unwrap();
        }
        let mut command = program(longhaul());
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--anonymous",
                "ro",
                "--root",
            ])
            .arg(place.path().join("served"))
            .stderr(Stdio::null());
        let server = FleetProcess::start(command);
        Some(Self {
            postgres,
            url,
            place,
            server,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Makes a file at the server; returns its URL.
    pub(crate) fn file(&self, name: &str, bytes: usize) -> String {
        let content = units::splitmix::bytes(bytes as u64, bytes);
        fs::write(self.path("served").join(name), content).unwrap();
        let address = self.server.1.rsplit(' ').next().unwrap();
        format!("ftp://{address}/{name}")
    }

    /// Where the file goes.
    pub(crate) fn copy_of(&self, name: &str) -> String {
        self.path("copied").join(name).display().to_string()
    }

    pub(crate) fn is_copied(&self, name: &str) -> bool {
        let source = fs::read(self.path("served").join(name)).unwrap();
        fs::read(self.copy_of(name)).is_ok_and(|copy| copy == source)
    }

    /// Runs `longhaul queue`.
    pub(crate) fn queue(&self, words: &[&str]) -> Output {
        self.queue_command(words).output().unwrap()
    }

    pub(crate) fn queue_command(&self, words: &[&str]) -> Command {
        let mut command = program(longhaul());
        command
            .arg("queue")
            .args(words)
            .env("LONGHAUL_QUEUE", &self.url);
        command
    }

    pub(crate) fn submit(&self, words: &[&str]) -> i64 {
        let output = self.queue(&[&["submit"], words].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().unwrap()
    }

    /// A worker with a state directory of its own name.
    pub(crate) fn worker(&self, name: &str, words: &[&str]) -> FleetProcess {
        let (worker, mut said) = self.starting_worker(name, words);
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        worker
    }

    /// The same, which may not be ready yet, and the lines that it prints.
    pub(crate) fn starting_worker(
        &self,
        name: &str,
        words: &[&str],
    ) -> (FleetProcess, Lines<BufReader<ChildStdout>>) {
        let mut command = program(longhaul());
        command
            .args(["worker", "--name", name, "--poll", "1s", "--state"])
            .arg(self.path(name))
            .args(words)
            .env("LONGHAUL_QUEUE", &self.url)
            .stderr(Stdio::null());
        FleetProcess::begin(command)
    }

    /// `longhaul queue serve`, and its address.
    pub(crate) fn shown(&self) -> (FleetProcess, String) {
        let mut command = program(longhaul());
        command
            .args(["queue", "serve", "--listen", "127.0.0.1:0"])
            .env("LONGHAUL_QUEUE", &self.url)
            .stderr(Stdio::null());
        let (process, line) = FleetProcess::start(command);
        (
            process,
            line.strip_prefix("listening on ").unwrap().to_owned(),
        )
    }

    /// A job, and its attempts.
    pub(crate) fn job(&self, id: i64) -> (Value, Vec<Value>) {
        let output = self.queue(&["show", "--json", &id.to_string()]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (lines.next().unwrap(), lines.collect())
    }

    pub(crate) fn until(&self, id: i64, state: &str) -> (Value, Vec<Value>) {
        wait_for(&format!("job {id} {state}"), || {
            Some(self.job(id)).filter(|(job, _)| job["state"] == state)
        })
    }

    /// The answer to a question about the tables.
    pub(crate) fn number(&self, question: &'static str) -> i64 {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let mut database = sqlx::PgConnection::connect(&self.url).await.unwrap();
            let number = sqlx::query_scalar(question).fetch_one(&mut database);
            number.await.unwrap()
        })
    }
}

/// The body of a response.
pub(crate) fn http(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}
