//! The outer half: a network of two long paths, and in it this program again, which runs the race.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow};
use client::Exit;
use lab::LabError;
use lab::net::NetRequest;
use lab::topology::Topology;
use units::show;

use super::{DemoFolder, race, write_random};
use crate::args::DemoArgs;
use crate::output::{print_line, print_to_stderr};

/// The file is moved in about 20 s at 100 Mbit/s.
const SIZE: u64 = 240_000_000;

/// Why there is no result.
pub(super) enum DemoError {
    /// The system does not let this user build a network.
    NoNetwork(LabError),
    /// Anything else.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for DemoError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Builds the network and runs the race in it.
pub(super) fn run(args: &DemoArgs) -> Result<Exit, DemoError> {
    let size = args.size.unwrap_or(SIZE);
    let topology = match topology(args) {
        Ok(topology) => topology,
        Err(error) => {
            print_to_stderr(&format!("longhaul demo: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let place = DemoFolder::create(args.dir.as_deref())?;
    let served = place.root.join("served");
    std::fs::create_dir(&served).with_context(|| format!("cannot make {}", served.display()))?;
    print_line(&format!(
        "longhaul demo: a file of {} over an emulated path of {} round trip and {}, as stock FTP moves it \
         and\nself-tuned, at the same time on two such paths.",
        show::bytes(size),
        args.rtt,
        args.rate,
    ))?;
    write_random(&served.join("big.dat"), size)?;
    let outcome = lab::net::run(NetRequest {
        topology,
        command: race_command(&place.root, &args.rtt)?,
        wait: Some(crate::lab::report_lab_wait),
    })
    .map_err(|error| match error {
        LabError::Refused(_) => DemoError::NoNetwork(error),
        other => DemoError::Other(anyhow!("{other}")),
    })?;
    match outcome.code {
        0 => {
            let line = std::fs::read_to_string(place.root.join(race::RESULT_FILE))
                .context("the race left no result")?;
            print_result_line(&line, outcome.report.invalid.last())?;
            Ok(Exit::Done)
        }
        130 | 143 => Ok(Exit::Interrupted),
        _ => Ok(Exit::Local),
    }
}

/// The last line, unless the emulator could not keep up: then the figures are no result.
fn print_result_line(line: &str, invalid: Option<&String>) -> std::io::Result<()> {
    match invalid {
        None => print_line(line),
        Some(reason) => print_line(&format!(
            "No result, since this machine was too busy; run it again on a quiet one. {reason}"
        )),
    }
}

/// Two separate paths, each with its own bottleneck: a and b for stock FTP, c and d for longhaul.
fn topology(args: &DemoArgs) -> Result<Topology, LabError> {
    let congestion = if may_set_cubic() {
        "cc = \"cubic\"\n"
    } else {
        ""
    };
    let text = format!(
        "{congestion}[default]\nrtt = {:?}\nrate = {:?}\n[hosts.a]\n[hosts.b]\n[hosts.c]\n[hosts.d]\n",
        args.rtt, args.rate
    );
    Topology::parse(&text, Path::new("."))
}

/// Without root, hosts can use only what the system allows everybody; then the system's own has to
/// do.
fn may_set_cubic() -> bool {
    rustix::process::geteuid().is_root()
        || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
            .is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == "cubic"))
}

fn race_command(place: &Path, rtt: &str) -> std::io::Result<Vec<OsString>> {
    Ok(vec![
        std::env::current_exe()?.into_os_string(),
        "demo".into(),
        "--rtt".into(),
        rtt.into(),
        "--inside".into(),
        place.into(),
    ])
}
