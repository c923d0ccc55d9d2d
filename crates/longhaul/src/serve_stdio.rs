//! `longhaul serve --stdio`: the far end of an `ssh:` URL; `--sshftp`: that of an `sshftp:` URL.

use std::io::{self, BufRead, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use command_line::log::{LogFormat, log_to_stderr};
use copy::Exit;
use proto::carried::{CarriedEnds, CarriedRequest, DATA_ANSWER, MAX_LINE, session_version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use server::config::ServerConfig;
use server::{CarriedClient, CarriedServer};

/// Addresses of the connection that carries the session (ssh(1)).
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// Longest wait for the request: nothing else ends a process whose client has gone without a word.
const REQUEST_TIME: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// Longest wait for the last replies to leave.
const LAST_REPLIES: Duration = Duration::from_secs(10);

/// Serves one session on standard input and output.
///
/// # Errors
/// The session could not begin.
pub(crate) fn run(config: ServerConfig, client: CarriedClient) -> Result<Exit> {
    // The client shows the last line of standard error if no session begins.
    log_to_stderr(LogFormat::Text, "error");
    let ends = std::env::var(SSH_CONNECTION).unwrap_or_default();
    let mut ends = CarriedEnds::from_ssh_connection(&ends);
    // A client of sshftp: begins with the greeting.
    let announces = client == CarriedClient::Longhaul;
    let probe = match announces.then(read_request).transpose()? {
        Some(CarriedRequest::Data { port }) => return carry_data(&ends, port),
        Some(CarriedRequest::Session { probe }) => probe,
        None => None,
    };
    // Before the line, so that the client learns why there is no session.
    let server = CarriedServer::open(config, client).map_err(|error| anyhow::anyhow!("{error}"))?;
    ends.probe = probe.and_then(|probe| server.probe_ports(&ends, probe));
    let (session, pipes) = UnixStream::pair().context("cannot make a socket pair")?;
    if announces {
        answer(&ends.line())?;
    }
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

/// Carries the bytes of a connection to a port of a session that this machine serves.
fn carry_data(ends: &CarriedEnds, port: u16) -> Result<Exit> {
    let ip = ends.server.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let stream = TcpStream::connect((ip, port))
        .with_context(|| format!("no session listens at {ip} port {port}"))?;
    answer(DATA_ANSWER)?;
    let input = stream.try_clone()?;
    thread::spawn(move || {
        let _ = pass(io::stdin().lock(), &input);
        let _ = input.shutdown(Shutdown::Write);
    });
    // What ends it at the session's end ends it here; the input may still be open.
    let _ = pass(&stream, io::stdout().lock());
    Ok(Exit::Done)
}

fn answer(line: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(line.as_bytes())?;
    output.flush()?;
    Ok(())
}

/// Reads the line of a client that is longhaul.
fn read_request() -> Result<CarriedRequest> {
    let input = io::stdin();
    let ready = poll(
        &mut [PollFd::new(&input, PollFlags::IN)],
        Some(&REQUEST_TIME),
    );
    anyhow::ensure!(
        ready.is_ok_and(|ready| ready > 0),
        "no request came within a minute"
    );
    let mut line = Vec::new();
    let limit = MAX_LINE as u64;
    input.lock().take(limit).read_until(b'\n', &mut line)?;
    let request = CarriedRequest::parse(&line);
    if let Some(version) = session_version(&line).filter(|_| request.is_none()) {
        anyhow::bail!(
            "the other end begins sessions of version {version}, which longhaul {} at this end does not know: update the older one",
            env!("CARGO_PKG_VERSION")
        );
    }
    request.context(
        "--stdio is the far end of an ssh: URL: give `longhaul cp ssh://HOST/PATH .` on the other machine",
    )
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
