//! `longhaul demo`: longhaul compared with stock FTP.
//!
//! The demo runs over an emulated long path ([`wan`]) if this machine can build one, otherwise over
//! [`loopback`]. It starts servers and clients as a user would, in a process that ends with the one that the user has
//! started ([`supervisor`]).

mod folder;
mod loopback;
mod race;
mod supervisor;
mod wan;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use command_line::output::is_reader_gone;
use copy::Exit;
use emulator::LabError;
use units::splitmix::SplitMix64;

use crate::args::DemoArgs;
use crate::output::{print_line, print_to_stderr};

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<Exit> {
    if let Some(folder) = &args.inside {
        let rtt = units::milliseconds(&args.rtt).context("--rtt")?;
        return race::run(folder, rtt);
    }
    let Some(parent) = args.parent else {
        return supervisor::supervise(args);
    };
    supervisor::end_with_parent(parent)?;
    match &args.folder {
        Some(folder) => show(args, folder).or_else(|error| {
            let is_printing = error.downcast_ref().is_some_and(is_reader_gone);
            is_printing.then_some(Exit::Done).ok_or(error)
        }),
        None => supervisor::exec(&args.command).map(|never| match never {}),
    }
}

/// Runs the first process of the emulated network; returns the exit code.
pub(crate) fn init(arguments: &[OsString]) -> u8 {
    exit_code_of(emulator::init(arguments))
}

/// Becomes a program on a host of the emulated network; returns the exit code if it cannot.
pub(crate) fn on_host(host: &str, command: &[OsString]) -> u8 {
    exit_code_of(emulator::exec(host, command).map(|never| match never {}))
}

/// The exit code of a part of the network, as a shell has it.
fn exit_code_of(result: Result<u8, LabError>) -> u8 {
    result.unwrap_or_else(|error| {
        print_to_stderr(&format!("longhaul demo: {error}"));
        emulator::start_failure_code(&error).unwrap_or(Exit::Local as u8)
    })
}

fn show(args: &DemoArgs, folder: &Path) -> Result<Exit> {
    if args.loopback {
        return loopback::run(args, folder).map(|()| Exit::Done);
    }
    match wan::run(args, folder) {
        Ok(exit) => Ok(exit),
        Err(wan::DemoError::NoNetwork(why)) => {
            print_line(&format!(
                "\nThe long path is missing, because this machine cannot emulate one: {why}.\n\
                 Without it nothing can be compared: over loopback there is no delay, and so nothing to gain. What\n\
                 follows shows only that longhaul copies between a client and two servers, and verifies the copies.\n"
            ))?;
            loopback::run(args, folder).map(|()| Exit::Done)
        }
        Err(wan::DemoError::Other(error)) => Err(error),
    }
}

/// A host of the surrounding lab.
struct DemoHost {
    name: &'static str,
    address: String,
}

impl DemoHost {
    /// The host of this name; its address is in the environment.
    fn named(name: &'static str) -> Result<Self> {
        let variable = format!("LAB_{}", name.to_ascii_uppercase());
        let address = std::env::var(&variable).with_context(|| format!("{variable} is not set"))?;
        Ok(Self { name, address })
    }
}

/// A command that runs this program, on a host of the surrounding lab or directly.
fn longhaul_command_on(host: Option<&DemoHost>) -> Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    // The demo shows the program as it is, without the user's settings and lessons, and leaves neither lessons nor journals.
    for (variable, value) in [
        ("LONGHAUL_CONFIG", "off"),
        ("LONGHAUL_HISTORY", "off"),
        ("LONGHAUL_BATCHES", "off"),
        ("LONGHAUL_ADVISOR", "off"),
    ] {
        command.env(variable, value);
    }
    match host {
        // The kernel takes down what runs in a lab.
        Some(host) => command.args(["on-host", host.name, "--"]).arg(program),
        None => {
            let parent = std::process::id().to_string();
            command.args(["demo", "--parent", &parent, "--"])
        }
    };
    Ok(command)
}

/// A running `longhaul serve`, killed on drop.
struct DemoServer {
    child: Child,
    address: String,
}

impl DemoServer {
    /// Starts a server on a host of the surrounding lab, or on loopback, and waits until it listens.
    fn start(root: &Path, host: Option<&DemoHost>) -> Result<Self> {
        let address = host.map_or("127.0.0.1", |h| h.address.as_str());
        let mut child = longhaul_command_on(host)?
            .args(["serve", "--listen", &format!("{address}:0")])
            .args(["--anonymous", "rw", "--root"])
            .arg(root)
            // Log lines of the servers would disturb the table.
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a server")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim().strip_prefix("listening on ") {
            Some(address) => Ok(Self {
                address: address.to_owned(),
                child,
            }),
            None => {
                // The server has ended and printed the reason on standard error; reap it.
                let _ = child.wait();
                bail!("the server did not start");
            }
        }
    }

    fn url(&self, name: &str) -> String {
        format!("ftp://{}/{name}", self.address)
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes random data, which no file system or network can compress.
fn write_random(path: &Path, size: u64) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut numbers = SplitMix64::new(1);
    let mut block = vec![0u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        // Each block is different, so that nothing can deduplicate them.
        numbers.fill(&mut block);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..n])
            .with_context(|| format!("cannot write {}; try --dir DIR", path.display()))?;
        left -= n as u64;
    }
    Ok(())
}
