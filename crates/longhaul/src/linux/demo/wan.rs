//! The part of the demo that runs outside the lab: builds two emulated paths and runs [`race`] in that
//! network.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow};
use copy::Exit;
use emulator::topology::{NetworkOptions, Topology};
use emulator::{LabError, NetRequest};
use units::show;

use super::{race, write_random};
use crate::args::DemoArgs;
use crate::output::{print_line, print_to_stderr};

/// Default size of the file: about 20 s at 100 Mbit/s.
const SIZE: u64 = 240_000_000;

/// Reasons why the demo has no result.
pub(super) enum DemoError {
    /// The system does not allow this user to build a network.
    NoNetwork(LabError),
    /// Any other error.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for DemoError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Builds the network, runs both copies in it and prints the result line.
pub(super) fn run(args: &DemoArgs, folder: &Path) -> Result<Exit, DemoError> {
    let size = args.size.unwrap_or(SIZE);
    let topology = match topology(args) {
        Ok(topology) => topology,
        Err(error) => {
            print_to_stderr(&format!("longhaul demo: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let served = folder.join("served");
    std::fs::create_dir(&served).with_context(|| format!("cannot make {}", served.display()))?;
    print_line(&format!(
        "longhaul demo: stock FTP and longhaul copy a file of {} at the same time, each over its own\n\
         emulated path with a round-trip time of {} and a rate of {}.",
        show::bytes(size),
        args.rtt,
        args.rate,
    ))?;
    write_random(&served.join("big.dat"), size)?;
    let outcome = emulator::run(NetRequest {
        topology,
        command: race_command(folder, &args.rtt)?,
        // The demo waits for another lab instead of failing.
        wait: Some(report_lab_wait),
        first_process: &["network-init"],
    })
    .map_err(|error| match error {
        // Only a missing privilege leads to loopback; other errors are defects that must be
        // visible.
        LabError::Refused(_) => DemoError::NoNetwork(error),
        other => DemoError::Other(anyhow!("{other}")),
    })?;
    match outcome.code {
        0 => {
            let line = std::fs::read_to_string(folder.join(race::RESULT_FILE))
                .context("the copies left no result")?;
            print_result_line(&line, outcome.report.invalid.last())?;
            Ok(Exit::Done)
        }
        // 128 + SIGINT and 128 + SIGTERM.
        130 | 143 => Ok(Exit::Interrupted),
        _ => Ok(Exit::Local),
    }
}

fn report_lab_wait(holder: &str) {
    print_to_stderr(&format!(
        "longhaul: waiting for another lab to end ({holder})"
    ));
}

/// Prints the result line, and the reason why it is not to be relied on.
fn print_result_line(line: &str, invalid: Option<&String>) -> std::io::Result<()> {
    print_line(line)?;
    match invalid {
        None => Ok(()),
        Some(reason) => print_line(&format!(
            "This is what the demo saw, not a measurement, since the machine was too busy: {reason}. Run it again when it is \
             quiet."
        )),
    }
}

/// Two separate paths, each with its own bottleneck: a and b for stock FTP, c and d for longhaul.
fn topology(args: &DemoArgs) -> Result<Topology, LabError> {
    let options = NetworkOptions {
        rtt: Some(args.rtt.clone()),
        rate: Some(args.rate.clone()),
        // Stock systems use cubic. Pinning it makes results comparable between machines.
        cc: may_set_cubic().then(|| "cubic".to_owned()),
        ..NetworkOptions::default()
    };
    let hosts = "[hosts.a]\n[hosts.b]\n[hosts.c]\n[hosts.d]\n";
    Topology::parse_with(hosts, Path::new("."), &options)
}

/// Whether the hosts may use cubic. Without root they can use only congestion controls that the system
/// allows to every user.
fn may_set_cubic() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
            .is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == "cubic"))
}

fn race_command(folder: &Path, rtt: &str) -> std::io::Result<Vec<OsString>> {
    Ok(vec![
        std::env::current_exe()?.into_os_string(),
        "demo".into(),
        "--rtt".into(),
        rtt.into(),
        "--inside".into(),
        folder.into(),
    ])
}
