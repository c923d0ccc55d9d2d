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
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::Failure;
use crate::location::Server;

mod host;
mod logins;
mod words;

pub(crate) use logins::SshLogins;

pub use host::{SshLogin, SshRun};

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

impl SshTarget {
    /// Where the sessions of a server log in.
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            host: server.host.clone(),
            port: Some(server.port).filter(|port| *port != server.scheme.default_port()),
            user: server.credential.user().map(str::to_owned),
        }
    }
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

/// A program at the far end, with its input and output.
pub struct SshChannel {
    /// The near end of its input and output.
    near: UnixStream,
    process: SshProcess,
    host: Arc<SshHost>,
    target: SshTarget,
    run: SshRun,
    /// Held while this login is not known to have succeeded, so that others wait for it.
    first_login: Option<OwnedMutexGuard<()>>,
    reply_timeout: Duration,
    begun: Instant,
}

impl SshChannel {
    /// Starts a program over the login that the host has; without one, it logs in.
    ///
    /// # Errors
    /// `Local`: there is no ssh; `Usage`: it refuses its configuration, or the name. That the login fails is seen by the end of the
    /// channel: see [`SshChannel::failure`].
    pub async fn open(
        server: &Server,
        run: SshRun,
        login: SshLogin,
        reply_timeout: Duration,
    ) -> Result<Self, Failure> {
        let target = SshTarget::of(server);
        let program = &server.security.options().ssh;
        let host = server.security.ssh_logins().host(program, &target).await?;
        let (waited, is_further) = match login {
            SshLogin::Own => (None, None),
            SshLogin::Shared => {
                // The first channel logs in; those that are wanted meanwhile share its login.
                let waited = Arc::clone(&host.login).lock_owned().await;
                // One that has ended is replaced: the network was away, or nothing needed a channel for a while.
                let is_further = host.is_logged_in();
                ((!is_further).then_some(waited), Some(is_further))
            }
        };
        let local = |error: std::io::Error| Failure::local(format!("cannot start ssh: {error}"));
        let (near, far) = UnixStream::pair().map_err(local)?;
        let command = host.command(&target, is_further, reply_timeout, run.clone());
        Ok(Self {
            near,
            process: SshProcess::start(command, far)?,
            host,
            target,
            run,
            first_login: waited,
            reply_timeout,
            begun: Instant::now(),
        })
    }

    /// Longest wait for the program's first answer: somebody may be asked for a password.
    pub fn patience(&self) -> Duration {
        match self.first_login.is_some() && host::may_ask() {
            true => QUESTION_TIME.max(self.reply_timeout),
            false => self.reply_timeout,
        }
    }

    /// The near end of the program's input and output, for tokio.
    ///
    /// # Errors
    /// `Local`: no descriptor is left.
    pub fn stream(&self) -> Result<tokio::net::UnixStream, Failure> {
        let near = self.near.try_clone().and_then(|near| {
            near.set_nonblocking(true)?;
            tokio::net::UnixStream::from_std(near)
        });
        near.map_err(|error| Failure::local(format!("cannot start ssh: {error}")))
    }

    /// The program has answered: the login is good, and ssh is left alone. It ends with its input.
    pub fn established(self) {
        self.process.leave();
    }

    /// Why the program has ended without an answer.
    pub async fn failure(self) -> Failure {
        self.process.failure(&self.target, &self.run).await
    }

    /// The failure of a program that has not answered within [`SshChannel::patience`].
    pub fn silence(&self) -> Failure {
        Failure::unreachable(format!(
            "ssh to {} has not logged in within {} s",
            self.target,
            self.patience().as_secs()
        ))
    }
}

/// Starts the far end of a session, and waits until it is ready.
///
/// # Errors
/// `Refused`: the login, or the host's key; `Unreachable`: the host; `SessionLimit`: the login carries no further session.
pub(crate) async fn begin_session(
    server: &Server,
    reply_timeout: Duration,
) -> Result<CarriedSession, Failure> {
    let channel = SshChannel::open(server, SshRun::FarEnd, SshLogin::Shared, reply_timeout).await?;
    let mut transport = ControlTransport::carried(channel.stream()?);
    let ends = match timeout(channel.patience(), read_line(&mut transport)).await {
        Ok(Some(ends)) => ends,
        Ok(None) => return Err(channel.failure().await),
        Err(_) => return Err(channel.silence()),
    };
    let after = channel.begun.elapsed();
    let direct_host = channel.host.direct_name();
    channel.established();
    Ok(CarriedSession {
        transport,
        ends,
        direct_host,
        after,
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
    async fn failure(mut self, target: &SshTarget, run: &SshRun) -> Failure {
        let status = self.status().await;
        let said = self.said.lock().clone();
        words::failure(target, run, status, &said)
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
