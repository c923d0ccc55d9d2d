//! The clock of the wall is set, forwards and backwards by a day, while server and client work.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use interop::longhaul::copy;
use interop::longhaul::rows::path_argument;
use interop::longhaul::running_copy::RunningCopy;
use interop::longhaul::serve::{LonghaulServer, ServeCommand, USER, add_user};
use interop::matrix::TestStore;
use interop::pki::PeerPki;
use interop::require;
use interop::run;
use interop::set_clock::{self, SettableClock};
use interop::test_files;
use serde_json::Value;

/// Longest time that anything here may take, if no clock misleads it.
const LIMIT: Duration = Duration::from_secs(170);

/// A store, with a clock for the server and one for the client.
struct Clocks {
    store: TestStore,
    server: SettableClock,
    client: SettableClock,
}

impl Clocks {
    fn new(library: &Path) -> Self {
        let store = TestStore::new().unwrap();
        let clock = |name: &str| SettableClock::new(library, &store.path(name)).unwrap();
        let (server, client) = (clock("server-clock"), clock("client-clock"));
        Self {
            store,
            server,
            client,
        }
    }

    /// Starts a server with its clock.
    fn start(&self, command: ServeCommand) -> LonghaulServer {
        let env = self.server.env();
        let words: Vec<&str> = env.iter().map(String::as_str).collect();
        command.wrapped_in(&words).start().unwrap()
    }

    fn set_both(&self, days: i32) -> Result<()> {
        self.server.set(days)?;
        self.client.set(days)
    }
}

/// A control connection of a test that speaks FTP itself.
struct FtpDialogue(BufReader<TcpStream>);

impl FtpDialogue {
    fn open(server: &LonghaulServer) -> Result<Self> {
        let connection = TcpStream::connect(server.address())?;
        connection.set_read_timeout(Some(LIMIT))?;
        let mut dialogue = Self(BufReader::new(connection));
        dialogue.expect("220")?;
        Ok(dialogue)
    }

    fn ask(&mut self, line: &str, code: &str) -> Result<()> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        self.expect(code)
    }

    /// Reads a reply, with all of its lines.
    fn expect(&mut self, code: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line)?;
            if line.as_bytes().get(3) == Some(&b' ') {
                ensure!(line.starts_with(code), "{line:?} instead of {code}");
                return Ok(());
            }
            ensure!(!line.is_empty(), "closed instead of {code}");
        }
    }
}

fn records(log: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(log)?;
    let records = text.lines().map(serde_json::from_str);
    Ok(records.collect::<Result<_, _>>()?)
}

/// Copies with both clocks, which are set to each of these days after another part of the file is safe.
fn copy_meanwhile(clocks: &Clocks, from: &str, to: &str, days: &[i32]) -> Result<()> {
    let words = ["--retries", "0", "--limit-rate", "200M", from, to];
    let mut command = copy::command(&words)?;
    clocks.client.apply(&mut command);
    let mut copy = RunningCopy::start(command)?;
    for (step, days) in (1..).zip(days) {
        copy.wait_until_safe(step * 15_000_000)?;
        clocks.set_both(*days)?;
    }
    let status = copy.wait_for_end()?;
    ensure!(status.success(), "{status}");
    clocks.set_both(0)
}

#[test]
fn a_transfer_survives_a_clock_that_is_set_by_a_day() {
    let library = require!(set_clock::find());
    let clocks = Clocks::new(&library);
    let log = clocks.store.path("transfers.json");
    let command = ServeCommand::anonymous(clocks.store.root());
    let server = clocks.start(command.option("--transfer-log", &path_argument(&log)));
    let large = test_files::shared(test_files::LARGE).unwrap();
    let url = server.url(&format!("src/{}", test_files::name(test_files::LARGE)));
    let (got, put) = (clocks.store.local(), server.url("up/put"));
    let begun = Instant::now();
    for (from, to) in [(url, path_argument(&got)), (path_argument(&large), put)] {
        let copied = copy_meanwhile(&clocks, &from, &to, &[1, 0, -1]);
        server.explain(copied).unwrap();
    }
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    test_files::ensure_same(&large, &got).unwrap();
    test_files::ensure_same(&large, &clocks.store.path("up/put")).unwrap();
    for record in records(&log).unwrap() {
        assert!(
            record["seconds"].as_f64().unwrap() < LIMIT.as_secs_f64(),
            "{record}"
        );
    }
    // The server does have that clock.
    clocks.server.set(2).unwrap();
    copy::cp(&[server.url("src/f1"), path_argument(&clocks.store.local())]).unwrap();
    let records = records(&log).unwrap();
    let day = |record: &Value| record["start"].as_str().unwrap()[..10].to_owned();
    assert!(
        day(&records[0]) < day(records.last().unwrap()),
        "{records:?}"
    );
}

#[test]
fn an_idle_session_ends_after_its_time_whatever_the_clock_is_set_to() {
    let library = require!(set_clock::find());
    let clocks = Clocks::new(&library);
    let command = ServeCommand::anonymous(clocks.store.root());
    let server = clocks.start(command.option("--idle-timeout", "4s"));
    let mut session = FtpDialogue::open(&server).unwrap();
    session.ask("USER anonymous", "331").unwrap();
    session.ask("PASS x@", "230").unwrap();
    for days in [1, -1, 0] {
        clocks.server.set(days).unwrap();
        session.ask("NOOP", "200").unwrap();
    }
    let idle = Instant::now();
    clocks.server.set(-1).unwrap();
    session.expect("421").unwrap();
    assert!(idle.elapsed() < LIMIT);
    // Neither earlier. What the session was asked last came before.
    assert!(
        idle.elapsed() > Duration::from_secs(3),
        "{:?}",
        idle.elapsed()
    );
}

#[test]
fn failed_logins_delay_the_next_whatever_the_clock_is_set_to() {
    let library = require!(set_clock::find());
    let clocks = Clocks::new(&library);
    let users = clocks.store.path("users");
    add_user(&users, clocks.store.root()).unwrap();
    let command = ServeCommand::new(clocks.store.root());
    let server = clocks.start(command.option("--users", &path_argument(&users)));
    let fail = || {
        let mut session = FtpDialogue::open(&server)?;
        session.ask(&format!("USER {USER}"), "331")?;
        let asked = Instant::now();
        session.ask("PASS wrong", "530")?;
        anyhow::Ok(asked.elapsed())
    };
    // The first three cost nothing; then 1 s, 2 s, 4 s pass between two checks.
    for _ in 0..6 {
        fail().unwrap();
    }
    for days in [1, -1] {
        clocks.server.set(days).unwrap();
        let waited = fail().unwrap();
        assert!(waited > Duration::from_secs(2), "{days} days: {waited:?}");
        assert!(waited < LIMIT, "{days} days: {waited:?}");
    }
}

/// OpenSSL takes no session that is a day old: what has to be resumed cannot be.
#[test]
fn a_server_that_wants_sessions_resumed_serves_whoever_comes_again() {
    let library = require!(set_clock::find());
    let pki = require!(PeerPki::find());
    let clocks = Clocks::new(&library);
    let tree = clocks.store.path("src/tree");
    std::fs::create_dir(&tree).unwrap();
    let source = test_files::shared(20_000_000).unwrap();
    for n in 0..4 {
        std::fs::copy(&source, tree.join(format!("f{n}"))).unwrap();
    }
    let command = ServeCommand::anonymous(clocks.store.root()).certificate(&pki.host);
    let server = clocks.start(command.option("--tls-session-reuse", "required"));
    let url = server
        .url("src/tree")
        .replace("ftp://127.0.0.1", "ftps://localhost");
    let to = clocks.store.local();
    let words = ["-r", "-p", "1", "--limit-rate", "80M", &url];
    let mut command = copy::command(&words).unwrap();
    clocks
        .client
        .apply(command.arg(&to).arg("--ca").arg(pki.ca_file()));
    let begun = Instant::now();
    let mut copy = RunningCopy::start(command).unwrap();
    for (safe, days) in [(10_000_000, 1), (50_000_000, 0)] {
        copy.wait_until_safe(safe).unwrap();
        clocks.set_both(days).unwrap();
    }
    let status = copy.wait_for_end().unwrap();
    assert!(status.success(), "{status}\n{}", server.log());
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    for n in 0..4 {
        test_files::ensure_same(&source, &to.join(format!("f{n}"))).unwrap();
    }
}

#[test]
fn certificates_are_valid_by_the_clock_of_the_wall() {
    let library = require!(set_clock::find());
    let pki = require!(PeerPki::find());
    let clocks = Clocks::new(&library);
    let command = ServeCommand::anonymous(clocks.store.root());
    let server = clocks.start(command.certificate(&pki.host));
    let url = server
        .url("src/f65536")
        .replace("ftp://127.0.0.1", "ftps://localhost");
    let get = |days: i32| {
        clocks.client.set(days)?;
        let to = path_argument(&clocks.store.local());
        let mut command = copy::command(&["--retries", "0", &url, &to])?;
        clocks.client.apply(command.arg("--ca").arg(pki.ca_file()));
        run::run(&mut command)
    };
    get(0).unwrap().expect_success().unwrap();
    for (days, word) in [(31, "expired"), (-1, "not valid before")] {
        let refused = get(days).unwrap().expect_failure().unwrap();
        assert!(
            refused.stdout_text().contains(word),
            "{days} days: {refused}"
        );
    }
    get(1).unwrap().expect_success().unwrap();
}
