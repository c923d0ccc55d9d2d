//! The `longhaul` program: arguments, output and exit codes.

#![forbid(unsafe_code)]

mod args;
mod check_sums;
mod copying;
mod doctor;
mod help;
#[cfg(target_os = "linux")]
mod linux;
mod listing;
mod long_listing;
#[cfg(target_os = "macos")]
mod macos;
mod nodes;
mod output;
mod proxy;
mod receipt;
mod remote;
mod settings;
mod slurm_step;
mod ssh;
mod terminal;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use anyhow::Result;
use command_line::log::{LogFormat, log_to_stderr};
use command_line::programs;
use copy::{Exit, Failure};

use args::{LinuxVerb, Verb};
use data::os::core_dumps;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
use output::{print_failure, print_to_stderr};
use terminal::until_interrupted;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    programs::prepare_process(&arguments);
    // clap exits with 2 on a usage error, which equals `Exit::Usage`.
    let cli = match settings::parse_arguments(arguments.clone()) {
        Ok(cli) => cli,
        Err(failure) => {
            print_to_stderr(&format!("longhaul: {failure}"));
            return ExitCode::from(failure.exit() as u8);
        }
    };
    let code = run(cli.verb, &arguments).unwrap_or_else(|error| {
        print_to_stderr(&format!(
            "longhaul: {}",
            programs::error_in_one_line(&error)
        ));
        Exit::Local as u8
    });
    ExitCode::from(code)
}

/// Runs a verb of the command line `words`; returns the exit code.
fn run(verb: Verb, words: &[OsString]) -> Result<u8> {
    if holds_secrets(&verb)
        && let Err(error) = core_dumps::forbid_core_dumps()
    {
        print_to_stderr(&format!("longhaul: cannot forbid core dumps: {error}"));
    }
    let exit = match verb {
        Verb::Linux(verb) => return system::run(verb),
        Verb::Lab(_) => system::become_program_of("lab", &words[2..]),
        Verb::Advisor(_) => system::become_program_of("advisor", &words[2..]),
        Verb::Queue(_) => system::become_program_of("queue", &words[2..]),
        // `worker` is a verb of that program, too.
        Verb::Worker(_) => system::become_program_of("queue", &words[1..]),
        Verb::Cp(args) => copying::cp(&args),
        Verb::Sync(args) => copying::sync(&args),
        Verb::Node => nodes::serve_on_pipes(),
        Verb::Config(args) => settings::show::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Proxy(args) => Ok(proxy::run(&args)),
        Verb::Ssh(args) => run_remote_verb(ssh::run(&args)),
        Verb::Help(args) => help::help(&args.verb).map(|()| Exit::Done),
        Verb::Man(args) => help::man(&args.verb).map(|()| Exit::Done),
        Verb::Completions { shell } => help::completions(shell).map(|()| Exit::Done),
        Verb::Ls(args) => run_remote_verb(listing::ls(&args)),
        Verb::Stat(args) => run_remote_verb(listing::stat(&args)),
        Verb::Rm(args) => run_remote_verb(remote::rm(&args)),
        Verb::Mkdir(args) => run_remote_verb(remote::mkdir(&args)),
        Verb::Mv(args) => run_remote_verb(remote::mv(&args)),
        Verb::Cksum(args) => run_remote_verb(remote::cksum(&args)),
        Verb::Verify(args) => run_remote_verb(receipt::verify(&args)),
    }?;
    Ok(exit as u8)
}

/// Whether the process of a verb holds passwords, tokens or keys. `serve` and the processes that it starts forbid core
/// dumps themselves, and so do the programs of `advisor` and `queue`; what `demo` runs are such verbs.
fn holds_secrets(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Cp(_)
            | Verb::Node
            | Verb::Sync(_)
            | Verb::Ls(_)
            | Verb::Stat(_)
            | Verb::Rm(_)
            | Verb::Mkdir(_)
            | Verb::Mv(_)
            | Verb::Cksum(_)
            | Verb::Verify(_)
            | Verb::Config(_)
            | Verb::Linux(LinuxVerb::User(_))
            | Verb::Proxy(_)
            | Verb::Doctor(_)
    )
}

/// Runs a remote file verb. A failure prints one line and gives its exit code.
fn run_remote_verb(verb: impl Future<Output = Result<(), Failure>>) -> Result<Exit> {
    log_to_stderr(LogFormat::Text, "error");
    let result = until_interrupted(verb)?;
    if let Some(problem) = ftp::netrc_warning() {
        print_to_stderr(&format!("longhaul: warning: {problem}"));
    }
    Ok(match result {
        Some(Ok(())) => Exit::Done,
        Some(Err(failure)) => {
            print_failure(&failure);
            failure.exit()
        }
        None => Exit::Interrupted,
    })
}
