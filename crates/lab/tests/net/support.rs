//! Starts labs and looks for what they leave.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a busy machine, and for a lab that waits for those of other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// `examples/lab_net.rs`, which cargo builds with the tests of the crate.
pub(crate) fn program() -> PathBuf {
    let mut directory = std::env::current_exe().unwrap();
    directory.pop();
    directory.pop();
    let program = directory.join("examples/lab_net");
    assert!(
        program.is_file(),
        "{} is missing: cargo build -p lab --example lab_net",
        program.display()
    );
    program
}

/// Why no lab can be built here as root; the test is skipped then.
pub(crate) fn cannot_run() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "this is not root"
    } else if std::fs::File::open("/dev/net/tun").is_err() {
        "/dev/net/tun cannot be opened"
    } else {
        return false;
    };
    eprintln!("SKIPPED: {why}");
    true
}

/// A lab around `command`; it waits for others, which tests and people may have.
pub(crate) fn lab(options: &[&str], command: &[&str]) -> Command {
    let mut lab = Command::new(program());
    lab.arg("--wait").args(options).args(command);
    lab
}

/// A lab around a shell script, to its end.
pub(crate) fn script(options: &[&str], script: &str) -> Output {
    lab(options, &["sh", "-c", script]).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// A lab that runs until it is ended, with a process that has left its session.
pub(crate) struct Lasting {
    pub(crate) lab: Child,
    pub(crate) traces: Traces,
    _directory: tempfile::TempDir,
}

/// What can be found of a lab from outside.
#[derive(Debug)]
pub(crate) struct Traces {
    /// An argument no other process has.
    marker: String,
    /// As in `/proc/PID/ns/net`: `net:[4026532000]`.
    namespaces: Vec<String>,
}

impl Lasting {
    pub(crate) fn start(options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let marker = format!("86400.{}{count:03}", std::process::id());
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let script = format!(
            "setsid sleep {marker} & $LAB_PROGRAM lab exec a -- setsid sleep {marker} &
             for h in $LAB_HOSTS; do $LAB_PROGRAM lab exec $h -- readlink /proc/self/ns/net; done \
             > {0}.new; mv {0}.new {0}; sleep {marker}",
            ready.display()
        );
        let lab = lab(options, &["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lasting = Self {
            lab,
            traces: Traces {
                marker,
                namespaces: Vec::new(),
            },
            _directory: directory,
        };
        wait_until("the lab is ready", || ready.exists());
        lasting.traces.namespaces = lines(&ready);
        let traces = &lasting.traces;
        assert_eq!(traces.namespaces.len(), 2, "{traces:?}");
        wait_until("its processes run", || traces.processes().len() >= 3);
        assert!(traces.holders() >= 2);
        lasting
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.lab)
    }
}

/// A test that fails must not leave a lab that all others wait for.
impl Drop for Lasting {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

impl Traces {
    /// The processes with the marker in their command line.
    fn processes(&self) -> Vec<PathBuf> {
        processes()
            .filter(|process| {
                std::fs::read(process.join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&self.marker))
            })
            .collect()
    }

    /// How often the hosts' namespaces are held, as a process's own or by a descriptor.
    fn holders(&self) -> usize {
        let held = |link: &Path| {
            std::fs::read_link(link).is_ok_and(|target| {
                self.namespaces
                    .iter()
                    .any(|n| target.as_os_str() == n.as_str())
            })
        };
        processes()
            .map(|process| {
                let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten();
                let by_descriptor = descriptors
                    .filter(|d| d.as_ref().is_ok_and(|d| held(&d.path())))
                    .count();
                by_descriptor + usize::from(held(&process.join("ns/net")))
            })
            .sum()
    }

    /// Waits until no process and no namespace of the lab is left.
    pub(crate) fn vanish(&self) {
        wait_until("no process is left", || self.processes().is_empty());
        wait_until("no namespace is left", || self.holders() == 0);
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The program where every user can execute it.
pub(crate) fn public_program() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let mode = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    mode(directory.path());
    let copy = directory.path().join("lab_net");
    std::fs::copy(program(), &copy).unwrap();
    mode(&copy);
    (directory, copy)
}
