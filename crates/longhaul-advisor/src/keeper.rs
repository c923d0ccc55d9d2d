//! `longhaul advisor keep`: starts the service beside a server again whenever it dies. The server cannot do that itself,
//! because its sandbox permits no new processes.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use advisor::config::state_directory;
use anyhow::{Context, Result};
use data::os::privilege;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tune::backoff;
use units::Exit;

use command_line::flags::advisor::AdvisorKeepArgs;
use command_line::log::log_to_stderr;
use command_line::output::print_line;
use command_line::programs::listening_address;

/// A service that ran for longer begins with the shortest delay again.
const LONG_RUN: Duration = Duration::from_secs(60);

/// Runs the service until it ends as it was told to. Standard input is the service's: its end ends both.
///
/// # Errors
/// The service cannot be started for the first time, or the system fails.
pub(crate) fn run(args: &AdvisorKeepArgs) -> Result<u8> {
    log_to_stderr(args.log, "info");
    // The first service chooses the port, and later ones keep it: the server announces it.
    let mut address = None;
    let mut retry = 0;
    loop {
        let started = Instant::now();
        let ended = run_service(args, &mut address);
        let reason = match &ended {
            Ok(status) if status.success() => return Ok(Exit::Done as u8),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        if address.is_none() {
            // The service has said why.
            let code = ended.context("cannot start the advice service")?.code();
            let code = code.and_then(|code| u8::try_from(code).ok());
            return Ok(code.unwrap_or(Exit::Local as u8));
        }
        retry = if started.elapsed() > LONG_RUN {
            1
        } else {
            retry + 1
        };
        let delay = backoff::delay(retry, std::process::id().into());
        tracing::error!(reason, ?delay, "the advice service ended; it starts again");
        if input_ends_within(delay)? {
            return Ok(Exit::Done as u8);
        }
    }
}

/// Starts the service and waits for its end. Prints and notes the address of the first one.
fn run_service(args: &AdvisorKeepArgs, address: &mut Option<SocketAddr>) -> io::Result<ExitStatus> {
    // The program itself: a binary that was replaced meanwhile would be another version.
    let mut command = Command::new("/proc/self/exe");
    command.args(["serve", "--end-with-stdin"]);
    command.args(["--log", args.log.name()]).args(&args.service);
    if let Some(account) = &args.run_as {
        command.args(["--run-as", account]);
        command.env("STATE_DIRECTORY", directory_of_account(account));
    }
    if let Some(address) = address {
        command.args(["--listen", &address.to_string()]);
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let ready = ready_line(&mut child)?;
    if let (None, Some(line)) = (&address, &ready) {
        *address = listening_address(line);
        // The server waits for it, or has ended.
        let _ = print_line(line);
    }
    child.wait()
}

/// The line with which the service says that it listens; `None`: it has ended.
fn ready_line(child: &mut Child) -> io::Result<Option<String>> {
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let line = line.trim_end();
    Ok((!line.is_empty()).then(|| line.to_owned()))
}

/// The state directory of a service that runs as another account, which may not write to that of this one.
fn directory_of_account(account: &str) -> PathBuf {
    let directory = state_directory().join("advisor");
    if let Err(error) = privilege::make_directory_of(account, &directory) {
        // The settings may name another place for all that the service keeps.
        tracing::warn!(directory = %directory.display(), %error, "no state directory of the advice service");
    }
    directory
}

/// Waits; whether standard input ended meanwhile.
fn input_ends_within(delay: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    // The end is reported whatever events are asked for (poll(2)); what waits to be read is for the service.
    let mut watched = [PollFd::new(&stdin, PollFlags::empty())];
    let timeout = Timespec::try_from(delay).map_err(io::Error::other)?;
    match poll(&mut watched, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
