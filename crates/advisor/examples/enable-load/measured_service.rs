//! The service as a process of its own, and what it uses.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::AnyError;

/// Longest wait for the service.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Token of those who may ask for a test.
const TOKEN: &str = "only-for-this-measurement";
/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(500);

/// Address number `n` of the loopback network.
pub(crate) fn host(n: u32) -> Ipv4Addr {
    // 127.0.0.1 and those near it belong to others.
    Ipv4Addr::from(0x7f01_0001 + n)
}

/// The running service; dropping it ends it.
pub(crate) struct MeasuredService {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl MeasuredService {
    /// Starts `longhaul advisor serve` with these settings in this directory.
    pub(crate) fn start(
        program: &Path,
        directory: &Path,
        settings: &str,
    ) -> Result<Self, AnyError> {
        let file = directory.join("advisor.toml");
        let store = directory.join("paths.sqlite");
        let token = directory.join("token");
        std::fs::write(&token, TOKEN)?;
        std::fs::set_permissions(&token, Permissions::from_mode(0o600))?;
        let all = format!(
            "listen = \"127.0.0.1:0\"\nstore = \"sqlite://{}\"\ntoken-file = \"{}\"\n{settings}",
            store.display(),
            token.display()
        );
        std::fs::write(&file, all)?;
        let mut process = Command::new(program)
            .args(["advisor", "serve", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().parse();
        Ok(Self {
            process,
            address: address.map_err(|_| format!("the service did not start: {line}"))?,
        })
    }

    /// A number of the service's metrics; sums up all labels.
    pub(crate) fn metric(&self, name: &str) -> Result<f64, AnyError> {
        let url = format!("http://{}/metrics", self.address);
        let text = ureq::get(&url).call()?.body_mut().read_to_string()?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("longhaul_advisor_")?.strip_prefix(name)?;
            let value = rest.rsplit(' ').next()?;
            rest.starts_with([' ', '{'])
                .then(|| value.parse::<f64>().ok())?
        });
        Ok(values.sum())
    }

    /// Asks for tests of a host.
    pub(crate) fn request_tests(&self, host: Ipv4Addr, tests: &[&str]) -> Result<(), AnyError> {
        for test in tests {
            let url = format!("http://{}/api/v1/hosts/{host}/tests/{test}", self.address);
            let token = format!("Bearer {TOKEN}");
            ureq::post(&url)
                .header("authorization", token)
                .send_empty()?;
        }
        Ok(())
    }

    /// Waits until a number of its metrics is `least` or more; returns the time that it took.
    pub(crate) fn wait_for(&self, name: &str, least: f64) -> Result<Duration, AnyError> {
        let started = Instant::now();
        while self.metric(name)? < least {
            if started.elapsed() > PATIENCE {
                return Err(format!("{name} stays below {least}").into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(started.elapsed())
    }

    /// Processor time that it has used, user and system (proc_pid_stat(5)).
    pub(crate) fn cpu(&self) -> Result<Duration, AnyError> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name of the program may hold anything but ends with the last bracket.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let ticks = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|number| number.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(
            ticks * 1000 / rustix::param::clock_ticks_per_second(),
        ))
    }

    /// Its resident memory now, and at its largest, MB.
    pub(crate) fn memory(&self) -> Result<(f64, f64), AnyError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        let megabytes = |name| field(name).map_or(f64::NAN, |kib| kib * 1024.0 / 1e6);
        Ok((megabytes("VmRSS:"), megabytes("VmHWM:")))
    }
}

impl Drop for MeasuredService {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
