//! `longhaul serve --stdio`: the far end of an `ssh:` URL; `--sshftp`: that of an `sshftp:` URL.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

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
const REQUEST_TIME: Duration = Duration::from_secs(60);

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
    // Nothing may be buffered here, behind the request.
    let mut from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let request = announces.then(|| read_request(&mut from)).transpose()?;
    let probe = match request {
        Some(CarriedRequest::Data { port }) => return carry_data(&ends, port, from, to),
        Some(CarriedRequest::Session { probe }) => probe,
        None => None,
    };
    // Before the line, so that the client learns why there is no session.
    let server = CarriedServer::open(config, client).map_err(|error| anyhow::anyhow!("{error}"))?;
    ends.probe = probe.and_then(|probe| server.probe_ports(&ends, probe));
    let (session, pipes) = UnixStream::pair().context("cannot make a socket pair")?;
    if announces {
        to.write_all(ends.line().as_bytes())?;
    }
    let input = pipes.try_clone()?;
    thread::spawn(move || {
        // Whatever ends the input ends the session.
        let _ = pass(from, &input);
        let _ = input.shutdown(Shutdown::Write);
    });
    let (all_passed, passed) = mpsc::channel();
    thread::spawn(move || {
        if pass(&pipes, to).is_err() {
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
fn carry_data(ends: &CarriedEnds, port: u16, from: File, mut to: File) -> Result<Exit> {
    let ip = ends.server.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let stream = TcpStream::connect((ip, port))
        .with_context(|| format!("no session listens at {ip} port {port}"))?;
    to.write_all(DATA_ANSWER.as_bytes())?;
    let input = stream.try_clone()?;
    thread::spawn(move || {
        let _ = pass(from, &input);
        let _ = input.shutdown(Shutdown::Write);
    });
    // The session's end ends it; the input may still be open.
    let _ = pass(&stream, to);
    Ok(Exit::Done)
}

/// Passes bytes on as they come, to the end of the input. splice(2), which io::copy uses, would hold some back.
fn pass(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    // As much as a pipe holds (pipe(7)).
    let mut buffer = vec![0; 64 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => output.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads the line of a client that is longhaul, and nothing behind it.
fn read_request(input: &mut File) -> Result<CarriedRequest> {
    let until = Instant::now() + REQUEST_TIME;
    let mut line = Vec::new();
    while line.len() < MAX_LINE && !line.ends_with(b"\n") {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
        let ready = poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&left))?;
        anyhow::ensure!(ready > 0, "no request came within a minute");
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            break;
        }
        line.push(byte[0]);
    }
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
