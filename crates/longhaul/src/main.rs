//! The `longhaul` program: arguments, output and exit codes.

#![forbid(unsafe_code)]

mod args;
mod beside_server;
mod check_sums;
mod copying;
mod demo;
mod doctor;
mod help;
mod listing;
mod long_listing;
mod nodes;
mod output;
mod proxy;
mod receipt;
mod remote;
mod serve_check;
mod serve_import;
mod serve_stdio;
mod served_bucket;
mod service;
mod settings;
mod slurm_step;
mod ssh;
mod sshftp_script;
mod terminal;
mod user;

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use command_line::log::{LogFormat, log_filter, log_to_stderr};
use command_line::programs;
use copy::{Exit, Failure};

use args::{KeyHolderArgs, PamArgs, ServeArgs, Verb};
use beside_server::{AdvisorInput, AdvisorProcess};
use data::os::core_dumps;
use history::PathHistory;
use output::journal;
use output::{print_failure, print_to_stderr};
use server::CarriedClient;
use server::config::{MessageFormat, ServerConfig};
use server::key_holder::KeyHolder;
use server::pam::PamChecker;
use server::sandbox::{self, FileAccess};
use service::Service;
use terminal::until_interrupted;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
        Verb::Lab(_) => become_program_of("lab", &words[2..]),
        Verb::Advisor(_) => become_program_of("advisor", &words[2..]),
        Verb::Queue(_) => become_program_of("queue", &words[2..]),
        // `worker` is a verb of that program, too.
        Verb::Worker(_) => become_program_of("queue", &words[1..]),
        Verb::Cp(args) => copying::cp(&args),
        Verb::Sync(args) => copying::sync(&args),
        Verb::Node => nodes::serve_on_pipes(),
        Verb::Serve(args) => serve(*args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Config(args) => settings::show::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::KeyHolder(args) => hold_key(&args),
        Verb::PamChecker(args) => check_by_pam(&args),
        Verb::PamAttempt(args) => attempt_by_pam(&args),
        Verb::NetworkInit { arguments } => return Ok(demo::init(&arguments)),
        Verb::OnHost { host, command } => return Ok(demo::on_host(&host, &command)),
        Verb::User(args) => user::run(args),
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
            | Verb::User(_)
            | Verb::Proxy(_)
            | Verb::Doctor(_)
    )
}

/// Goes on as the program of a verb, which parses these words again.
fn become_program_of(verb: &str, words: &[OsString]) -> Result<Exit> {
    match programs::become_program_of(verb, words) {
        Ok(never) => match never {},
        Err(error) => {
            print_to_stderr(&format!("longhaul: {error}"));
            Ok(Exit::Local)
        }
    }
}

/// Says on standard error what people need to check a server for a try-out, and where its other ports are.
fn print_details(ready: &server::ServerAnnouncement) {
    if let Some(address) = ready.implicit_tls {
        print_to_stderr(&format!("implicit TLS on {address}"));
    }
    if let Some(address) = ready.metrics {
        print_to_stderr(&format!("metrics at http://{address}/metrics"));
    }
    if let Some(fingerprint) = &ready.self_signed {
        print_to_stderr(&format!(
            "self-signed certificate, SHA-256 {fingerprint}; it is valid until this server ends"
        ));
    }
}

/// Runs the process that holds the private key of a server.
fn hold_key(args: &KeyHolderArgs) -> Result<Exit> {
    log_to_stderr(LogFormat::Text, "warn");
    server::key_holder::process::run(&args.cert, &args.key)?;
    Ok(Exit::Done)
}

/// Runs the process that asks PAM for a server.
fn check_by_pam(args: &PamArgs) -> Result<Exit> {
    log_to_stderr(LogFormat::Text, "warn");
    server::pam::process::run(&args.service, args.min_uid)?;
    Ok(Exit::Done)
}

/// Runs the process that asks PAM about one login.
fn attempt_by_pam(args: &PamArgs) -> Result<Exit> {
    server::pam::process::run_attempt(&args.service, args.min_uid)?;
    Ok(Exit::Done)
}

/// Moves the private key, and what asks PAM, to processes of their own, and confines this one. All must come before
/// the first thread starts.
fn confine_server(
    config: &mut ServerConfig,
    settings: Option<&Path>,
    directories_of_keys: Vec<PathBuf>,
) -> Result<(), String> {
    let security = &config.security;
    if let (Some(cert), Some(key)) = (&security.certificate, &security.key) {
        let holder = KeyHolder::start(cert, key).map_err(|error| error.to_string())?;
        config.key_holder = Some(Arc::new(holder));
    }
    if let Some(service) = &config.pam.service {
        let checker = PamChecker::start(service, config.pam.min_uid, config.run_as.as_deref())
            .map_err(|error| error.to_string())?;
        config.pam_checker = Some(Arc::new(checker));
    }
    if let Some(file) = config.history.clone().file() {
        // Makes the directory: only what exists can be permitted.
        PathHistory::at(file).is_writable();
    }
    let mut access = FileAccess::of_server(config, settings);
    access.read.extend(directories_of_keys);
    let key = config.security.key.as_deref();
    if config.run_as.is_none() && key.is_some_and(|key| access.permits_reading(key)) {
        tracing::warn!(
            "the process that serves may read the private key itself: put the key outside /etc and the \
             directories that the server uses, or start as root with --run-as"
        );
    }
    sandbox::enter(config.sandbox, &access)
        .map_err(|error| format!("{error}; --sandbox auto serves without this protection"))
}

fn serve(args: ServeArgs) -> Result<Exit> {
    if let Some(path) = &args.import {
        return Ok(serve_import::import(path, args.import_format.server()));
    }
    if args.is_carried() {
        return match args.carried_config() {
            Ok(_) if args.sshftp_script => sshftp_script::print(),
            Ok(config) if served_bucket::is_named(&config) => {
                print_to_stderr(
                    "longhaul serve: --stdio and --sshftp serve a directory; name the bucket itself (s3:) at the other end",
                );
                Ok(Exit::Usage)
            }
            Ok(config) if args.sshftp => serve_stdio::run(config, CarriedClient::Sshftp),
            Ok(config) => serve_stdio::run(config, CarriedClient::Longhaul),
            Err(error) => {
                print_to_stderr(&format!("longhaul serve: {error}"));
                Ok(Exit::Usage)
            }
        };
    }
    // First: its sockets must not reach the processes that are started below.
    let service = Service::from_environment()?;
    let mut config = match service.settings(&args) {
        Ok(config) => config,
        Err(error) => {
            print_to_stderr(&format!("longhaul serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let directories_of_keys = match served_bucket::open(&mut config) {
        Ok(directories) => directories,
        Err(error) => {
            print_to_stderr(&format!("longhaul serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    if args.check {
        log_to_stderr(LogFormat::Text, "error");
        return Ok(serve_check::check(&config));
    }
    let log = begin_server_log(config.log);
    // Dropped at the end, which ends it.
    let advice = match AdvisorProcess::start(&mut config, log) {
        Ok(process) => process,
        Err(error) => {
            print_to_stderr(&format!("longhaul serve: {error}"));
            return Ok(Exit::Local);
        }
    };
    let confined = confine_server(&mut config, args.settings_file(), directories_of_keys);
    if let Err(error) = confined {
        print_to_stderr(&format!("longhaul serve: {error}"));
        return Ok(Exit::Local);
    }
    // They do short file operations. More at a time would only wait for the disk; requests to a bucket wait for the network.
    let blocking_threads = match config.served_store {
        Some(_) => 512,
        None => 64,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(blocking_threads)
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let shutdown = server::Shutdown::on_signals().context("cannot watch for signals")?;
        let print_address = |ready: &server::ServerAnnouncement| {
            // The server must run even if nothing reads its standard output.
            let _ = output::print_line(&format!("listening on {}", ready.address));
            print_details(ready);
        };
        let input = advice.as_ref().map(AdvisorProcess::input);
        let reload = move || {
            input.iter().for_each(AdvisorInput::reload);
            service.reload(&args)
        };
        let reloads =
            server::ReloadRequests::on_hangup(reload).context("cannot watch for signals")?;
        server::serve_with_reloads(config, print_address, shutdown, reloads)
            .await
            // The text already contains the cause; `error_in_one_line` would repeat it.
            .map_err(|error| anyhow::anyhow!("{error}"))
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    served.map(|()| Exit::Done)
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

/// Begins the log of a server. Returns the format on standard error for the programs that it starts.
fn begin_server_log(form: MessageFormat) -> LogFormat {
    let to_journal = match form {
        MessageFormat::Journal => true,
        MessageFormat::Auto => journal::is_standard_error(),
        MessageFormat::Text | MessageFormat::Json => false,
    };
    if to_journal {
        match journal::writer() {
            Ok(writer) => {
                let entries = tracing_subscriber::registry().with(writer);
                let _ = entries.with(log_filter("info")).try_init();
                return LogFormat::Text;
            }
            Err(error) => print_to_stderr(&format!(
                "longhaul serve: the journal cannot be written, so messages go to standard error: {error}"
            )),
        }
    }
    let format = match form {
        MessageFormat::Json => LogFormat::Json,
        _ => LogFormat::Text,
    };
    log_to_stderr(format, "info");
    format
}
