//! The advice service of `longhaul serve`: a process of its own, because the service needs sockets and programs
//! that the confined server must not have. Another process (`longhaul-advisor keep`) keeps it running.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use command_line::log::LogFormat;
use command_line::programs::{find_program_of, listening_address};
use parking_lot::Mutex;
use server::config::ServerConfig;

/// The running service. When this is dropped, it ends.
#[derive(Debug)]
pub(crate) struct AdvisorProcess {
    child: Child,
    stdin: AdvisorInput,
    stdout: Option<BufReader<ChildStdout>>,
}

/// Standard input of the service. Each line has it read its settings again; the service ends when this closes, however
/// the server ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdvisorInput(Arc<Mutex<Option<ChildStdin>>>);

impl AdvisorProcess {
    /// Starts the service that the server's settings name, and notes its port there; without one, nothing. Call it
    /// before the server is confined.
    ///
    /// # Errors
    /// One line: it did not start. It has said why on standard error.
    pub(crate) fn start(config: &mut ServerConfig, log: LogFormat) -> Result<Option<Self>, String> {
        let Some(settings) = config.advisor.clone() else {
            return Ok(None);
        };
        let failed = |error: std::io::Error| format!("cannot start the advice service: {error}");
        let program = find_program_of("advisor")?;
        let mut child = command(&program, &settings, config, log)
            .spawn()
            .map_err(failed)?;
        let mut process = Self {
            stdin: AdvisorInput::new(child.stdin.take()).map_err(failed)?,
            stdout: child.stdout.take().map(BufReader::new),
            child,
        };
        let address = process.ready().map_err(failed)?;
        let address = address.ok_or_else(|| {
            format!(
                "the advice service with the settings {} did not start",
                settings.display()
            )
        })?;
        // A client elsewhere cannot reach a service on the loopback interface.
        if !address.ip().is_loopback() || config.listen.ip().is_loopback() {
            config.advisor_port = Some(address.port());
        }
        tracing::info!(%address, "the advice service runs beside the server");
        Ok(Some(process))
    }

    /// Where the service is told to read its settings again.
    pub(crate) fn input(&self) -> AdvisorInput {
        self.stdin.clone()
    }

    /// Waits until the service listens; `None`: it has ended.
    fn ready(&mut self) -> std::io::Result<Option<SocketAddr>> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.stdout {
            stdout.read_line(&mut line)?;
        }
        Ok(listening_address(&line))
    }
}

impl AdvisorInput {
    fn new(stdin: Option<ChildStdin>) -> std::io::Result<Self> {
        if let Some(stdin) = &stdin {
            // A service that reads nothing must not hold up the server.
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(Self(Arc::new(Mutex::new(stdin))))
    }

    /// Has the service read its settings again.
    pub(crate) fn reload(&self) {
        let mut stdin = self.0.lock();
        if let Some(stdin) = stdin.as_mut()
            && let Err(error) = stdin.write_all(b"\n")
        {
            tracing::error!(%error, "the advice service cannot be told to read its settings again");
        }
    }

    fn close(&self) {
        *self.0.lock() = None;
    }
}

impl Drop for AdvisorProcess {
    fn drop(&mut self) {
        self.stdin.close();
        // The end of its output is the end of the service, which takes some seconds at most. No signal is sent: the
        // sandbox permits none.
        if let Some(mut stdout) = self.stdout.take() {
            let _ = stdout.read_to_end(&mut Vec::new());
        }
        let _ = self.child.wait();
    }
}

fn command(program: &Path, settings: &Path, config: &ServerConfig, log: LogFormat) -> Command {
    let mut command = Command::new(program);
    command.args(["keep", "--log", log.name()]);
    if let Some(account) = &config.run_as {
        command.args(["--run-as", account]);
    }
    command.args(["--", "--config"]).arg(settings);
    match &config.transfer_log {
        Some(path) => {
            command.arg("--learn-from").arg(path);
        }
        None => tracing::warn!(
            "the advice service learns nothing from transfers: give --transfer-log FILE"
        ),
    }
    // Signals of a terminal are for the server, which goes on while it drains.
    command.process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
