//! Runs labs as a user would, and repeats runs that are invalid because the machine was busy.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use emulator::NetReport;
use emulator::report::DirectionReport;
use tempfile::TempDir;

/// The program under test.
pub(crate) const LONGHAUL_LAB: &str = env!("CARGO_BIN_EXE_longhaul-lab");

/// Maximum number of invalid runs of a check.
const ATTEMPTS: usize = 6;
/// Pause between them.
const PAUSE: Duration = Duration::from_secs(1);
/// Exit code of an invalid run.
pub(crate) const INVALID: i32 = 9;

/// Shell functions `on HOST PROGRAM ...` and `probe HOST WORDS ...` (see [`crate::probe`]).
const PRELUDE: &str = r#"
set -eu
on() { on_host=$1; shift; "$LAB_PROGRAM" exec "$on_host" -- "$@"; }
probe() {
    probe_host=$1; shift
    LAB_PROBE="$*" on "$probe_host" "$TEST_PROGRAM" --exact probe_on_a_host --ignored --nocapture \
        >"probe.$probe_host" 2>&1 || { cat "probe.$probe_host" >&2; return 1; }
}
"#;

/// Guard of one test: no other test of this program runs a lab while it exists.
pub(crate) struct LabTestGuard {
    _guard: MutexGuard<'static, ()>,
}

impl LabTestGuard {
    /// Waits for other tests. `None`: this machine cannot run a lab, and the test is skipped.
    pub(crate) fn acquire() -> Option<Self> {
        static TURNS: Mutex<()> = Mutex::new(());
        let guard = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        if !rustix::process::geteuid().is_root() {
            return skip("this is not root");
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
            return skip(&format!("/dev/net/tun: {error}"));
        }
        Some(Self { _guard: guard })
    }
}

/// Reports that this test is skipped; fails if `LONGHAUL_REQUIRE_PEERS=1`.
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    assert!(
        std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_none_or(|value| value != "1"),
        "{why} (nothing may be missing while LONGHAUL_REQUIRE_PEERS=1)"
    );
    not_applicable(why);
    None
}

/// Reports that there is nothing to test on this machine. It writes to standard error directly, because
/// the test runner captures the output of passing tests.
pub(crate) fn not_applicable(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

/// Whether a program is installed; if not, reports that the test is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .any(|d| d.join(program).is_file())
        || skip::<()>(&format!("{program} is not installed")).is_some()
}

/// A lab to run scripts in.
pub(crate) struct TestLab<'t> {
    options: Vec<String>,
    topology: Option<String>,
    files: Vec<(&'static str, String)>,
    _turn: &'t LabTestGuard,
}

/// A finished script of a lab, with its directory.
pub(crate) struct LabScriptRun {
    pub(crate) directory: TempDir,
    pub(crate) output: Output,
    pub(crate) report: NetReport,
}

impl<'t> TestLab<'t> {
    /// A lab with these options of `lab net`.
    pub(crate) fn new(guard: &'t LabTestGuard, options: &[&str]) -> Self {
        Self {
            options: options.iter().map(ToString::to_string).collect(),
            topology: None,
            files: Vec::new(),
            _turn: guard,
        }
    }

    /// A lab with a topology file of this text.
    pub(crate) fn topology(guard: &'t LabTestGuard, text: &str) -> Self {
        Self {
            topology: Some(text.to_owned()),
            ..Self::new(guard, &[])
        }
    }

    /// Adds a file to the script's working directory.
    pub(crate) fn file(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.files.push((name, text.into()));
        self
    }

    /// Runs a shell script, which must succeed, and checks its results with `verify`. If the check fails
    /// and the lab reports the run as invalid, the run is repeated. If the run was valid, the test fails.
    pub(crate) fn check<T>(&self, script: &str, verify: impl Fn(&LabScriptRun) -> T) -> T {
        let mut invalid_runs = Vec::new();
        loop {
            let run = self.run_to_any_end(script);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                run.assert_success();
                verify(&run)
            }));
            let failure = match outcome {
                Ok(value) => return value,
                Err(failure) => failure,
            };
            if run.report.invalid.is_empty() {
                resume_unwind(failure);
            }
            invalid_runs.push(run.report.invalid.join("; "));
            assert!(
                invalid_runs.len() < ATTEMPTS,
                "{ATTEMPTS} runs failed, and all of them were invalid: {invalid_runs:#?}"
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Runs a shell script, which must succeed. For tests whose results do not depend on the load.
    pub(crate) fn run(&self, script: &str) -> LabScriptRun {
        let run = self.run_to_any_end(script);
        run.assert_success();
        run
    }

    /// Runs a shell script to its end, with any exit code.
    pub(crate) fn run_to_any_end(&self, script: &str) -> LabScriptRun {
        let directory = directory();
        let directory_path = directory.path();
        for (name, text) in &self.files {
            std::fs::write(directory_path.join(name), text).unwrap();
        }
        let mut command = Command::new(LONGHAUL_LAB);
        command.args(["net", "--wait", "--report", "report.json"]);
        if let Some(text) = &self.topology {
            std::fs::write(directory_path.join("topology.toml"), text).unwrap();
            command.args(["--topology", "topology.toml"]);
        }
        command
            .args(&self.options)
            .args(["--", "sh", "-c", &format!("{PRELUDE}\n{script}")])
            .env("LONGHAUL", longhaul())
            .env("TEST_PROGRAM", std::env::current_exe().unwrap())
            .current_dir(directory_path)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = std::fs::read_to_string(directory_path.join("report.json")).unwrap_or_default();
        let report = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("no report ({e}): {text}\n{}", stderr(&output)));
        LabScriptRun {
            directory,
            output,
            report,
        }
    }
}

impl LabScriptRun {
    /// Fails unless the script succeeded, in a valid or an invalid run.
    fn assert_success(&self) {
        assert!(
            matches!(self.output.status.code(), Some(0 | INVALID)),
            "the script failed ({}):\n{}\n{}",
            self.output.status,
            stdout(&self.output),
            stderr(&self.output)
        );
    }

    /// A file that the script wrote.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Text of a file that the script wrote.
    pub(crate) fn text(&self, name: &str) -> String {
        read(&self.path(name))
    }

    /// A JSON file that the script wrote.
    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    /// The report on one direction.
    pub(crate) fn direction(&self, from: &str, to: &str) -> &DirectionReport {
        self.report
            .directions
            .iter()
            .find(|d| d.from == from && d.to == to)
            .unwrap_or_else(|| panic!("no direction {from} to {to} in {:?}", self.report))
    }
}

/// A temporary directory that every user can write.
pub(crate) fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    directory
}

/// The `longhaul` of the same build.
///
/// # Panics
/// It was not built: `cargo test --workspace` builds it.
pub(crate) fn longhaul() -> PathBuf {
    let path = Path::new(LONGHAUL_LAB).with_file_name("longhaul");
    assert!(path.is_file(), "cargo build -p longhaul");
    path
}

/// Runs a verb of the lab to its end.
pub(crate) fn lab(arguments: &[&str]) -> Output {
    Command::new(LONGHAUL_LAB)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Results of `tcp-receive`.
#[derive(Debug)]
pub(crate) struct TcpReceiveRecord {
    pub(crate) bytes: u64,
    /// Bytes that differ from those sent.
    pub(crate) wrong: u64,
    /// Duration of the connection.
    pub(crate) seconds: f64,
}

impl LabScriptRun {
    /// The connection that `tcp-receive` accepted.
    pub(crate) fn received(&self) -> TcpReceiveRecord {
        let text = self.text("received");
        let words: Vec<&str> = text.split(' ').collect();
        TcpReceiveRecord {
            bytes: words[0].parse().unwrap(),
            wrong: words[1].parse().unwrap(),
            seconds: words[2].parse().unwrap(),
        }
    }
}
