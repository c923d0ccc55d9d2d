//! `longhaul advisor serve`: the service until SIGTERM.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use advisor::config::{AdvisorConfig, LogSource};
use advisor::log_reader::format::TransferLogFormat;
use advisor::service::Advisor;
use advisor::service::log_feed::LogFeed;
use advisor::{http, notify};
use anyhow::{Context, Result};
use data::os::privilege;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use units::Exit;

use command_line::flags::advisor::AdvisorServeArgs;
use command_line::log::log_to_stderr;
use command_line::output::{print_line, print_to_stderr, unless_reader_gone};

pub(crate) fn run(args: &AdvisorServeArgs) -> Result<Exit> {
    log_to_stderr(args.log, "info");
    let config = match settings(args) {
        Ok(config) => config,
        Err(error) => {
            print_to_stderr(&format!("longhaul advisor serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    if args.check {
        return check_all(&config);
    }
    if let Some(account) = &args.run_as
        && let Err(error) = privilege::become_account(account)
    {
        print_to_stderr(&format!("longhaul advisor serve: {error}"));
        return Ok(Exit::Local);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(args, config));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Says whether the service could use a settings file. The reason why not is one line on standard error, for the program
/// that asks.
pub(crate) fn check(file: &Path) -> Exit {
    match AdvisorConfig::load(file) {
        Ok(_) => Exit::Done,
        Err(error) => {
            print_to_stderr(&error.to_string());
            Exit::Usage
        }
    }
}

/// Checks the settings and what they name on this machine, and prints what is wrong.
///
/// # Errors
/// Standard output cannot be written.
fn check_all(config: &AdvisorConfig) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(advisor::check::check(config));
    for text in found.refusals.iter().chain(&found.shortcomings) {
        print_to_stderr(&format!("longhaul advisor serve: {text}"));
    }
    if !found.refusals.is_empty() {
        return Ok(Exit::Usage);
    }
    if !found.shortcomings.is_empty() {
        return Ok(Exit::Local);
    }
    unless_reader_gone(print_line("the settings can be used as they are"))?;
    Ok(Exit::Done)
}

/// The settings of the file, overridden by the flags.
fn settings(args: &AdvisorServeArgs) -> Result<AdvisorConfig, String> {
    let mut config = match &args.config {
        Some(path) => AdvisorConfig::load(path).map_err(|error| error.to_string())?,
        None => AdvisorConfig::default(),
    };
    if let Some(address) = args.listen {
        config.listen = address;
    }
    if let Some(path) = &args.learn_from
        && !config.log.iter().any(|log| log.path == *path)
    {
        config.log.push(LogSource {
            path: path.clone(),
            format: TransferLogFormat::Longhaul,
        });
    }
    Ok(config)
}

async fn serve(args: &AdvisorServeArgs, config: AdvisorConfig) -> Result<Exit> {
    let signals = ServiceSignals::watch(args.end_with_stdin).context("cannot watch for signals")?;
    let asked = config.listen;
    let listener = TcpListener::bind(asked)
        .await
        .with_context(|| format!("cannot listen on {asked}"))?;
    let advisor = match Advisor::start(config).await {
        Ok(advisor) => advisor,
        Err(error) => {
            print_to_stderr(&format!("longhaul advisor serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let logs = LogFeed::start(&advisor).context("cannot follow logs")?;
    let notices = match notify::start(&advisor) {
        Ok(notices) => notices,
        Err(error) => {
            print_to_stderr(&format!("longhaul advisor serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let http = match http::serve_on(&advisor, listener, http::ServerLimits::default()) {
        Ok(server) => server,
        Err(error) => {
            print_to_stderr(&format!("longhaul advisor serve: {error}"));
            return Ok(Exit::Usage);
        }
    };
    announce(http.address());
    signals.handle(args, &advisor).await;
    http.stop().await;
    // Waits for a log that is being read, and for the last notices.
    tokio::task::spawn_blocking(move || drop(logs)).await?;
    advisor.shutdown().await;
    if let Some(notices) = notices {
        notices.abort();
    }
    Ok(Exit::Done)
}

/// Says that requests are answered from now on.
fn announce(address: SocketAddr) {
    // The service must run even if nothing reads its standard output.
    let _ = print_line(&format!("listening on {address}"));
}

/// The signals that the service obeys.
struct ServiceSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Orders of standard input to read the settings again. It closes with standard input.
    input: mpsc::Receiver<()>,
    /// Open for as long as standard input has no meaning.
    _input_ignored: Option<mpsc::Sender<()>>,
}

impl ServiceSignals {
    /// Watches from now on, so that an early signal is not lost.
    fn watch(end_with_stdin: bool) -> std::io::Result<Self> {
        let (orders, input) = mpsc::channel(1);
        let input_ignored = match end_with_stdin {
            true => {
                std::thread::Builder::new()
                    .name("input".to_owned())
                    .spawn(move || {
                        // An error is an end, too.
                        while std::io::stdin()
                            .read(&mut [0; 64])
                            .is_ok_and(|read| read > 0)
                        {
                            // One that waits already reads all that has changed until then.
                            let _ = orders.try_send(());
                        }
                    })?;
                None
            }
            false => Some(orders),
        };
        Ok(Self {
            input,
            _input_ignored: input_ignored,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns when the service is to end. SIGHUP reads the settings again.
    async fn handle(mut self, args: &AdvisorServeArgs, advisor: &Advisor) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                order = self.input.recv() => match order {
                    Some(()) => reload(args, advisor),
                    None => return,
                },
                _ = self.hangup.recv() => reload(args, advisor),
            }
        }
    }
}

/// Adds the clients of the settings file that are new. Says which settings need a new start.
fn reload(args: &AdvisorServeArgs, advisor: &Advisor) {
    let mut config = match settings(args) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("the settings stay as they are: {error}");
            return;
        }
    };
    let clients = std::mem::take(&mut config.clients);
    let mut running = advisor.config().clone();
    running.clients.clear();
    if config != running {
        tracing::warn!(
            "settings other than `clients` have changed; they count from the next start"
        );
    }
    tracing::info!(clients = clients.len(), "the settings were read again");
    advisor.monitor(clients);
}
