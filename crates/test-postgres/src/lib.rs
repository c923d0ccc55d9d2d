//! A PostgreSQL server of a test: its own directory, its own account, a Unix socket and no port. A machine without
//! PostgreSQL prints `SKIPPED`; with `LONGHAUL_REQUIRE_PEERS=1` the test fails there.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test reports by panicking"
)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; dropping it ends it and removes its directory.
pub struct Postgres {
    process: Option<Child>,
    programs: PathBuf,
    account: String,
    directory: tempfile::TempDir,
}

impl Postgres {
    /// Starts a server, or says why there is none.
    pub fn start(test: &str) -> Option<Self> {
        let programs = programs();
        let Some(programs) = programs else {
            let required = std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_some_and(|v| v == "1");
            assert!(
                !required,
                "{test}: there is no PostgreSQL (tests/install-peers)"
            );
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no PostgreSQL");
            return None;
        };
        let directory = tempfile::Builder::new()
            .prefix("pg")
            .tempdir_in("/tmp")
            .unwrap();
        let account = account();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let data = directory.path().join("data");
        let user = nix::unistd::User::from_name(&account).unwrap().unwrap();
        std::fs::create_dir(&data).unwrap();
        if nix::unistd::geteuid().is_root() {
            for path in [directory.path(), &data] {
                nix::unistd::chown(path, Some(user.uid), Some(user.gid)).unwrap();
            }
        }
        let made = as_account(&account, &programs.join("initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "enable",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let mut server = Self {
            process: None,
            programs,
            account,
            directory,
        };
        server.resume();
        Some(server)
    }

    /// Starts the server again after [`halt`](Self::halt), with the data that it had.
    pub fn resume(&mut self) {
        let process = as_account(&self.account, &self.programs.join("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"])
            .arg(self.directory.path())
            .arg("-D")
            .arg(self.directory.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.run("pg_isready", &["-q", "-d", "postgres"]) {
            assert!(Instant::now() < deadline, "PostgreSQL does not start");
            std::thread::yield_now();
        }
    }

    /// Ends the server, whatever its clients do; its data stay.
    pub fn halt(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGINT is the fast shutdown: it does not wait for clients.
            let id = i32::try_from(process.id()).unwrap();
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(id),
                nix::sys::signal::Signal::SIGINT,
            );
            let _ = process.wait();
        }
    }

    /// The URL of a new, empty database.
    pub fn database(&self, name: &str) -> String {
        assert!(self.run("createdb", &[name]), "createdb {name}");
        let socket = self.directory.path().display();
        format!("postgres://enable@localhost/{name}?host={socket}")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> bool {
        as_account(&self.account, &self.programs.join(program))
            .args(["-U", "enable", "-h"])
            .arg(self.directory.path())
            .args(arguments)
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The newest installed version's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folder =
        |entry: std::io::Result<std::fs::DirEntry>| entry.ok().map(|e| e.path().join("bin"));
    versions
        .filter_map(folder)
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .max()
}

/// PostgreSQL refuses to run as root.
fn account() -> String {
    let named = |name: &str| nix::unistd::User::from_name(name).ok().flatten();
    if !nix::unistd::geteuid().is_root() {
        let own = nix::unistd::User::from_uid(nix::unistd::geteuid());
        return own.unwrap().unwrap().name;
    }
    let name = if named("postgres").is_some() {
        "postgres"
    } else {
        "nobody"
    };
    name.to_owned()
}

/// The program under that account; it ends with this process.
fn as_account(account: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name(account).unwrap().unwrap();
        let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
        command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups"]);
    }
    command.arg(program).current_dir("/").stdout(Stdio::null());
    command
}
