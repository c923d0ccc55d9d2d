//! Sessions that ssh(1) carries: `ssh://[USER@]HOST[:PORT]/PATH`.
//!
//! The system's ssh is used, so that ssh_config(5), agents, jump hosts, certificates, hardware keys and one-time passwords work
//! as the user knows them. It starts `longhaul serve --stdio` at the far end, whose dialogue it carries. Data connections are
//! beside it: TLS with a credential of this run, which the server gets through ssh (DCSC).

use std::fmt;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use parking_lot::Mutex;
use proto::carried::{CarriedEnds, HELLO, MAX_LINE};
use tokio::time::timeout;

use crate::Failure;

mod host;
mod logins;
mod words;

pub(crate) use logins::SshLogins;

use host::SshHost;

/// Longest time for a login at which somebody may be asked for something.
const QUESTION_TIME: Duration = Duration::from_secs(600);
/// Bytes that the far end may print before the session begins.
const MAX_NOISE: usize = 64 << 10;
/// Bytes kept of what ssh says, from the end.
const KEPT_WORDS: usize = 4 << 10;
/// Longest wait for ssh to say why it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Interval of looks whether ssh has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Where ssh logs in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SshTarget {
    /// The host's name, which the user's configuration may explain.
    pub(crate) host: String,
    /// `None`: the user's configuration decides.
    pub(crate) port: Option<u16>,
    /// `None`: the user's configuration decides.
    pub(crate) user: Option<String>,
}

/// A session that has begun.
pub(crate) struct CarriedSession {
    /// The dialogue, from its greeting.
    pub(crate) transport: ControlTransport,
    /// Its ends, as the far end sees them.
    pub(crate) ends: CarriedEnds,
    /// The name of the far end; `None`: another host is on the way to it.
    pub(crate) direct_host: Option<String>,
    /// From the start of ssh to the session.
    pub(crate) after: Duration,
}

/// A process of ssh, and what it says. It is killed if no session of it is used.
struct SshProcess {
    /// `None`: it is left alone.
    child: Option<Child>,
    said: Arc<Mutex<Vec<u8>>>,
}

/// Starts the far end of a session, and waits until it is ready.
///
/// # Errors
/// `Refused`: the login, or the host's key; `Unreachable`: the host; `SessionLimit`: the login carries no further session.
pub(crate) async fn begin_session(
    logins: &SshLogins,
    program: &[String],
    target: &SshTarget,
    reply_timeout: Duration,
) -> Result<CarriedSession, Failure> {
    let host = logins.host(program, target).await?;
    // The first session logs in; those that want to begin meanwhile share its login.
    let first_login = host.login.lock().await;
    // One that has ended is replaced: the network was away, or nothing needed a session for a while.
    if host.is_logged_in() {
        drop(first_login);
        return begin(target, &host, true, reply_timeout).await;
    }
    begin(target, &host, false, reply_timeout).await
}

async fn begin(
    target: &SshTarget,
    host: &SshHost,
    is_further: bool,
    reply_timeout: Duration,
) -> Result<CarriedSession, Failure> {
    let local = |error: std::io::Error| Failure::local(format!("cannot start ssh: {error}"));
    let (near, far) = UnixStream::pair().map_err(local)?;
    let process = SshProcess::start(host.command(target, is_further, reply_timeout), far)?;
    near.set_nonblocking(true).map_err(local)?;
    let near = tokio::net::UnixStream::from_std(near).map_err(local)?;
    let mut transport = ControlTransport::carried(near);
    let patience = match !is_further && host::may_ask() {
        true => QUESTION_TIME.max(reply_timeout),
        false => reply_timeout,
    };
    let begun = Instant::now();
    let ends = match timeout(patience, read_line(&mut transport)).await {
        Ok(Some(ends)) => ends,
        Ok(None) => return Err(process.failure(target).await),
        Err(_) => {
            return Err(Failure::unreachable(format!(
                "ssh to {target} has not logged in within {} s",
                patience.as_secs()
            )));
        }
    };
    process.leave();
    Ok(CarriedSession {
        transport,
        ends,
        direct_host: host.direct_name(),
        after: begun.elapsed(),
    })
}

/// Asks for a session, and reads to the line that begins it; `None`: it did not come.
async fn read_line(transport: &mut ControlTransport) -> Option<CarriedEnds> {
    transport.write_all(HELLO).await.ok()?;
    let mut line = Vec::with_capacity(MAX_LINE);
    for _ in 0..MAX_NOISE {
        // Byte by byte: what follows the line is the dialogue's.
        let mut byte = [0];
        if transport.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        match byte {
            [b'\n'] => match CarriedEnds::parse(&line) {
                Some(ends) => return Some(ends),
                None => line.clear(),
            },
            [other] => line.push(other),
        }
    }
    None
}

/// `[USER@]HOST[:PORT]`.
impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl SshProcess {
    fn start(mut command: Command, far: UnixStream) -> Result<Self, Failure> {
        let output = far.try_clone();
        let output = output.map_err(|error| words::not_started(&command, &error))?;
        command
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(OwnedFd::from(output)))
            .stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|error| words::not_started(&command, &error))?;
        let said = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            // It ends with the last process that has the pipe, which may be the one that keeps the login.
            std::thread::spawn(move || listen(stderr, &said));
        }
        Ok(Self {
            child: Some(child),
            said,
        })
    }

    /// Leaves the process alone: it ends with the session, and is waited for.
    fn leave(mut self) {
        if let Some(mut child) = self.child.take() {
            std::thread::spawn(move || child.wait());
        }
    }

    /// Why no session has begun.
    async fn failure(mut self, target: &SshTarget) -> Failure {
        let status = self.status().await;
        let said = self.said.lock().clone();
        words::failure(target, status, &said)
    }

    /// How it has ended, within [`LAST_WORDS`].
    async fn status(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let begun = Instant::now();
        let mut ended = None;
        // Its last words may still be on their way through the pipe.
        while begun.elapsed() < LAST_WORDS && (ended.is_none() || self.said.lock().is_empty()) {
            ended = ended.or(child.try_wait().ok().flatten());
            tokio::time::sleep(LOOK).await;
        }
        ended
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error says that it has ended.
            let _ = child.kill();
            std::thread::spawn(move || child.wait());
        }
    }
}

fn listen(mut stderr: ChildStderr, said: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut said = said.lock();
        said.extend_from_slice(&buffer[..count]);
        let surplus = said.len().saturating_sub(KEPT_WORDS);
        said.drain(..surplus);
    }
}
