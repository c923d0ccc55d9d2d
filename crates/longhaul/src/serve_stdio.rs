//! `longhaul serve --stdio`: the far end of an `ssh:` URL.

use std::io::{self, BufRead, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use command_line::log::{LogFormat, log_to_stderr};
use copy::Exit;
use proto::carried::{CarriedEnds, HELLO, MAX_LINE, session_version};
use server::CarriedServer;
use server::config::ServerConfig;

/// Addresses of the connection that carries the session (ssh(1)).
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// Longest wait for the last replies to leave.
const LAST_REPLIES: Duration = Duration::from_secs(10);

/// Serves one session on standard input and output.
///
/// # Errors
/// The session could not begin.
pub(crate) fn run(config: ServerConfig) -> Result<Exit> {
    // The client shows the last line of standard error if no session begins.
    log_to_stderr(LogFormat::Text, "error");
    let ends = std::env::var(SSH_CONNECTION).unwrap_or_default();
    let ends = CarriedEnds::from_ssh_connection(&ends);
    let mut hello = Vec::new();
    let limit = MAX_LINE as u64;
    io::stdin()
        .lock()
        .take(limit)
        .read_until(b'\n', &mut hello)?;
    if let Some(version) = session_version(&hello).filter(|_| hello != HELLO) {
        anyhow::bail!(
            "the other end begins sessions of version {version}, which longhaul {} at this end does not know: update the older one",
            env!("CARGO_PKG_VERSION")
        );
    }
    anyhow::ensure!(
        hello == HELLO,
        "--stdio is the far end of an ssh: URL: give `longhaul cp ssh://HOST/PATH .` on the other machine"
    );
    // Before the line, so that the client learns why there is no session.
    let server = CarriedServer::open(config).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (session, pipes) = UnixStream::pair().context("cannot make a socket pair")?;
    let mut output = io::stdout().lock();
    output.write_all(ends.line().as_bytes())?;
    output.flush()?;
    drop(output);
    let input = pipes.try_clone()?;
    thread::spawn(move || {
        // Whatever ends the input ends the session.
        let _ = pass(io::stdin().lock(), &input);
        let _ = input.shutdown(Shutdown::Write);
    });
    let (all_passed, passed) = mpsc::channel();
    thread::spawn(move || {
        if pass(&pipes, io::stdout().lock()).is_err() {
            // Nobody reads any more.
            let _ = pipes.shutdown(Shutdown::Both);
        }
        let _ = all_passed.send(());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(64)
        .enable_all()
        .build()?;
    let served = runtime.block_on(server.serve(session, ends));
    runtime.shutdown_timeout(Duration::from_secs(1));
    // A reader that has stopped must not keep this process.
    let _ = passed.recv_timeout(LAST_REPLIES);
    served.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(Exit::Done)
}

/// Passes bytes on as they come, to the end of the input.
fn pass(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                output.write_all(&buffer[..count])?;
                output.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
