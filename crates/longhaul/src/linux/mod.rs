//! The verbs that need Linux: the server, the demo, and the programs that `longhaul` becomes.

mod beside_server;
mod demo;
mod serve_check;
mod serve_import;
mod serve_stdio;
mod served_bucket;
mod service;
mod sshftp_script;
mod user;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use command_line::log::{LogFormat, log_to_stderr};
use command_line::programs;
use copy::Exit;
use history::PathHistory;
use server::CarriedClient;
use server::config::{MessageFormat, ServerConfig};
use server::key_holder::KeyHolder;
use server::pam::PamChecker;
use server::sandbox::{self, FileAccess};

use crate::args::{KeyHolderArgs, LinuxVerb, PamArgs, ServeArgs};
use crate::output::{print_line, print_to_stderr};
use beside_server::{AdvisorInput, AdvisorProcess};
use service::Service;

/// Runs a verb; returns the exit code.
pub(crate) fn run(verb: LinuxVerb) -> Result<u8> {
    let exit = match verb {
        LinuxVerb::Serve(args) => serve(*args),
        LinuxVerb::Demo(args) => demo::run(&args),
        LinuxVerb::User(args) => user::run(args),
        LinuxVerb::KeyHolder(args) => hold_key(&args),
        LinuxVerb::PamChecker(args) => check_by_pam(&args),
        LinuxVerb::PamAttempt(args) => attempt_by_pam(&args),
        LinuxVerb::NetworkInit { arguments } => return Ok(demo::init(&arguments)),
        LinuxVerb::OnHost { host, command } => return Ok(demo::on_host(&host, &command)),
    }?;
    Ok(exit as u8)
}

/// Goes on as the program of a verb, which parses these words again.
pub(crate) fn become_program_of(verb: &str, words: &[OsString]) -> Result<Exit> {
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
            let _ = print_line(&format!("listening on {}", ready.address));
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

/// Begins the log of a server. Returns its format, for the programs that it starts.
fn begin_server_log(form: MessageFormat) -> LogFormat {
    let format = match form {
        MessageFormat::Json => LogFormat::Json,
        MessageFormat::Text => LogFormat::Text,
    };
    log_to_stderr(format, "info");
    format
}
