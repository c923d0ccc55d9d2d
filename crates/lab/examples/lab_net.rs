//! The smallest program around `lab::net`: two hosts 10 ms apart at 100 Mbit/s, and a command.
//!
//! ```sh
//! cargo run -p lab --example lab_net -- ping -c 3 10.99.0.2   # refused: this is not host a
//! cargo run -p lab --example lab_net -- sh -c '$LAB_PROGRAM lab exec a -- ping -c 3 $LAB_B'
//! ```
//!
//! `--wait`, `--sysctl KEY=VALUE` and `--cc NAME` before the command are as in `longhaul lab net`.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use lab::LabError;
use lab::net::{NetRequest, exec, init, run, start_code};
use lab::topology::{Host, Path, Topology};
use sim::link::{Conditions, Loss, Queue};
use sim::rate::Rate;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments
        .iter()
        .take(3)
        .filter_map(|a| a.to_str())
        .collect();
    let done = match words[..] {
        ["lab", "init", ..] => {
            init(&arguments[2..]).or_else(|e| Ok((start_code(&e).unwrap_or(2), e).told()))
        }
        ["lab", "exec", host] => exec(host, arguments.get(4..).unwrap_or_default())
            .map(|never| match never {})
            .or_else(|e| Ok((start_code(&e).unwrap_or(2), e).told())),
        _ => net(&arguments),
    };
    ExitCode::from(done.unwrap_or_else(|error: LabError| (1, error).told()))
}

trait Told {
    fn told(self) -> u8;
}

impl Told for (u8, LabError) {
    fn told(self) -> u8 {
        eprintln!("lab_net: {}", self.1);
        self.0
    }
}

fn net(arguments: &[OsString]) -> Result<u8, LabError> {
    let mut wait = false;
    let mut sysctls = Vec::new();
    let mut congestion = None;
    let mut rest = arguments;
    while let [option, more @ ..] = rest {
        match (option.to_str(), more) {
            (Some("--wait"), _) => {
                wait = true;
                rest = more;
            }
            (Some("--sysctl"), [setting, more @ ..]) => {
                let setting = setting.to_string_lossy();
                let (key, value) = setting.split_once('=').unwrap_or((&setting, ""));
                sysctls.push((key.to_owned(), value.to_owned()));
                rest = more;
            }
            (Some("--cc"), [name, more @ ..]) => {
                congestion = Some(name.to_string_lossy().into_owned());
                rest = more;
            }
            _ => break,
        }
    }
    let outcome = run(NetRequest {
        topology: topology(&sysctls, congestion.as_deref()),
        command: rest.to_vec(),
        wait,
        environment: Vec::new(),
        program: None,
    })?;
    eprint!("{}", outcome.report.to_text());
    Ok(outcome.code)
}

fn topology(sysctls: &[(String, String)], congestion: Option<&str>) -> Topology {
    let host = |name: &str| Host {
        name: name.to_owned(),
        sysctls: sysctls.to_vec(),
        congestion: congestion.map(str::to_owned),
    };
    let direction = Conditions {
        rate: Some(Rate::bits_per_second(100_000_000)),
        delay: Duration::from_millis(5),
        queue: Queue::Packets(200),
        loss: Loss::Never,
        reorder: None,
        duplicate: 0.0,
        corrupt: 0.0,
        trace: None,
    };
    Topology {
        hosts: vec![host("a"), host("b")],
        paths: vec![Path {
            between: (0, 1),
            forward: direction.clone(),
            back: direction,
        }],
        seed: 1,
        offload: true,
        mtu: 1500,
    }
}
