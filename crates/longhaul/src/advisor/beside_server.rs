//! The advice service of `longhaul serve`: a process of its own, because the service needs sockets and programs
//! that the confined server must not have.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use server::config::ServerConfig;

use crate::args::LogFormat;

/// The running service. When this is dropped, it ends.
#[derive(Debug)]
pub(crate) struct AdvisorProcess {
    child: Child,
    /// The service ends when this closes, however the server ends.
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
}

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
        let mut child = command(&settings, config, log).spawn().map_err(failed)?;
        let mut process = Self {
            stdin: child.stdin.take(),
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

    /// Waits until the service listens; `None`: it has ended.
    fn ready(&mut self) -> std::io::Result<Option<SocketAddr>> {
        let mut line = String::new();
        if let Some(stdout) = &mut self.stdout {
            stdout.read_line(&mut line)?;
        }
        let address = line.trim_end().strip_prefix("listening on ");
        Ok(address.and_then(|address| address.parse().ok()))
    }
}

impl Drop for AdvisorProcess {
    fn drop(&mut self) {
        self.stdin = None;
        // The end of its output is the end of the service, which takes some seconds at most. No signal is sent: the
        // sandbox permits none.
        if let Some(mut stdout) = self.stdout.take() {
            let _ = stdout.read_to_end(&mut Vec::new());
        }
        let _ = self.child.wait();
    }
}

fn command(settings: &Path, config: &ServerConfig, log: LogFormat) -> Command {
    // The program itself: a binary that was replaced meanwhile would be another version.
    let mut command = Command::new("/proc/self/exe");
    command.args(["advisor", "serve", "--end-with-stdin", "--config"]);
    command.arg(settings);
    command.args(["--log", log.name()]);
    if let Some(account) = &config.run_as {
        command.args(["--run-as", account]);
    }
    match &config.transfer_log {
        Some(path) => {
            command.arg("--learn-from").arg(path);
        }
        None => tracing::warn!(
            "the advice service learns nothing from transfers: give --transfer-log FILE"
        ),
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}
