//! Sessions that ssh(1) carries: `ssh://[USER@]HOST[:PORT]/PATH`.
//!
//! The system's ssh is used, so that ssh_config(5), agents, jump hosts, certificates, hardware keys and one-time passwords work
//! as the user knows them. It starts `longhaul serve --stdio` at the far end, whose dialogue it carries. Data connections are
//! beside it, or carried, too, where no port can be reached: TLS with a credential of this run, which the server gets through ssh
//! (DCSC).

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::transport::ControlTransport;
use parking_lot::Mutex;
use proto::carried::{AnswerLines, CarriedEnds, CarriedRequest, session_version};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::{Failure, FailureKind};

mod carrier;
mod far_end;
mod host;
mod install;
mod logins;
mod ports;
mod program_file;
mod sshftp;
mod words;

pub use far_end::FarProgram;
pub use install::{FarEndCleanup, FarEndOptions, InstallChoice};

pub use host::{SshLogin, SshRun};

pub(crate) use carrier::SshCarrier;
pub(crate) use install::clean;
pub(crate) use logins::SshLogins;
pub(crate) use ports::OpenPorts;
pub use ports::PortMemory;
pub(crate) use sshftp::begin_sshftp;

use far_end::FarPlatform;

use carrier::SessionPlace;
use host::SshHost;
use ports::{NearPort, PortSearch};

/// Longest time for a login at which somebody may be asked for something.
const QUESTION_TIME: Duration = Duration::from_secs(600);
/// Bytes kept of what ssh says, from the end.
const KEPT_WORDS: usize = 4 << 10;
/// Longest wait for ssh to say why it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Exit code of a longhaul that does not know the words it is started with.
const USAGE: i32 = 2;
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
    /// From the start of ssh to the session.
    pub(crate) after: Duration,
    pub(crate) login: CarriedLogin,
    /// This end's part of the search for open ports, if no other session has begun one.
    near_port: Option<NearPort>,
}

/// The login that carries a session.
#[derive(Debug, Clone)]
pub(crate) struct CarriedLogin {
    host: Arc<SshHost>,
    target: SshTarget,
    /// The command that begins its sessions.
    command: String,
    reply_timeout: Duration,
}

impl CarriedSession {
    /// A session whose first line has come; `command` has begun it.
    fn begun(
        channel: SshChannel,
        transport: ControlTransport,
        ends: CarriedEnds,
        command: String,
    ) -> Self {
        let begun = Self {
            transport,
            ends,
            after: channel.begun.elapsed(),
            login: CarriedLogin {
                target: channel.target.clone(),
                reply_timeout: channel.reply_timeout,
                host: Arc::clone(&channel.host),
                command,
            },
            near_port: None,
        };
        channel.established();
        begun
    }

    /// Begins the search for open ports, unless it has begun. `local` and `far` are the addresses of both ends, with the port of ssh.
    pub(crate) fn search_ports(
        &mut self,
        local: IpAddr,
        far: SocketAddr,
        memory: Option<Arc<dyn PortMemory>>,
    ) {
        let Some(near_port) = self.near_port.take() else {
            return;
        };
        let host = Arc::clone(&self.login.host);
        let known = memory.as_ref();
        let were_closed = known.is_some_and(|memory| memory.were_closed(local, far));
        let begin = |search: &mut PortSearch| {
            let is_first = *search == PortSearch::Pending;
            if is_first {
                *search = PortSearch::Begun { were_closed };
            }
            is_first
        };
        if host.ports.send_if_modified(begin) {
            let (port, after) = (self.ends.probe, self.after);
            tokio::spawn(async move {
                let found = near_port.search(far.ip(), port, after).await;
                // Where nobody waited, it is for the next run.
                host.end_search(found);
                if let Some(memory) = memory {
                    tokio::task::spawn_blocking(move || memory.note(local, far, !found.far));
                }
            });
        }
    }
}

impl CarriedLogin {
    /// The name of the far end; `None`: another host is on the way to it.
    pub(crate) fn direct_host(&self) -> Option<String> {
        self.host.direct_name()
    }

    /// Waits for the result of the search for open ports.
    pub(crate) async fn open_ports(&self) -> OpenPorts {
        let mut searches = self.host.ports.subscribe();
        let were_closed = matches!(&*searches.borrow(), PortSearch::Begun { were_closed: true });
        let is_done = |search: &PortSearch| matches!(search, PortSearch::Done(_));
        let result = searches.wait_for(is_done);
        let result = match were_closed {
            // An open one would have answered in the round trip of the login.
            true => timeout(ports::LATER, result)
                .await
                .ok()
                .and_then(Result::ok),
            false => result.await.ok(),
        };
        match result.as_deref() {
            Some(PortSearch::Done(found)) => *found,
            // Nothing shows that a port is open.
            _ => self.host.end_search(OpenPorts {
                far: false,
                near: false,
            }),
        }
    }

    /// Carries data connections.
    pub(crate) fn carrier(&self) -> SshCarrier {
        SshCarrier {
            host: Arc::clone(&self.host),
            target: self.target.clone(),
            command: self.command.clone(),
            connect_time: self.reply_timeout,
        }
    }
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
    /// Among the channels of the shared login.
    place: Option<SessionPlace>,
    reply_timeout: Duration,
    begun: Instant,
}

impl SshChannel {
    /// Starts a program over the login that the host has; without one, it logs in.
    ///
    /// # Errors
    /// `Local`: there is no ssh; `Usage`: it refuses its configuration, or the name. That the login fails is seen by the end of the
    /// channel: see [`SshChannel::failure`].
    async fn open(end: &SshEnd<'_>, run: SshRun, login: SshLogin) -> Result<Self, Failure> {
        let host = end.host().await?;
        let (place, waited, is_further) = match login {
            SshLogin::Own => (None, None, false),
            SshLogin::Shared => {
                let place = SessionPlace::take(&host).ok_or_else(|| {
                    Failure::transient(
                        FailureKind::SessionLimit,
                        format!(
                            "the ssh login at {} carries no further session and its data",
                            end.target
                        ),
                    )
                })?;
                // The first channel logs in; those that are wanted meanwhile share its login.
                let waited = Arc::clone(&host.login).lock_owned().await;
                // One that has ended is replaced: the network was away, or nothing needed a channel for a while.
                let is_further = host.is_logged_in();
                (Some(place), (!is_further).then_some(waited), is_further)
            }
        };
        let (target, time) = (end.target, end.reply_timeout);
        let local = |error: std::io::Error| Failure::local(format!("cannot start ssh: {error}"));
        let (near, far) = UnixStream::pair().map_err(local)?;
        let command = match login {
            SshLogin::Own => host.command_with_login(target, time, run.clone(), None),
            SshLogin::Shared => host.command(target, is_further, time, run.clone()),
        };
        Ok(Self {
            near,
            process: SshProcess::start(command, far)?,
            host,
            target: target.clone(),
            run,
            first_login: waited,
            place,
            reply_timeout: time,
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
        let place = self.place;
        self.process.on_end(move |_, _| drop(place));
    }

    /// Why the program has ended without an answer.
    pub async fn failure(mut self) -> Failure {
        let (status, said) = self.process.end().await;
        words::failure(&self.target, &self.run, status, &said)
    }

    /// The last line on standard error of a program that ends.
    async fn last_words(mut self) -> String {
        words::last_line(&self.process.end().await.1)
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

/// Where programs are started: a target, and the way of a run to it.
#[derive(Clone, Copy)]
pub(crate) struct SshEnd<'a> {
    pub(crate) logins: &'a SshLogins,
    /// ssh and its first arguments.
    pub(crate) program: &'a [String],
    pub(crate) target: &'a SshTarget,
    pub(crate) reply_timeout: Duration,
}

impl SshEnd<'_> {
    /// Starts a program there.
    ///
    /// # Errors
    /// `Local`: there is no ssh; `Usage`: it refuses its configuration, or the name; `SessionLimit`: the shared login has no place
    /// left. That the login fails is seen by the end of the channel: see [`SshChannel::failure`].
    pub(crate) async fn open(&self, run: SshRun, login: SshLogin) -> Result<SshChannel, Failure> {
        SshChannel::open(self, run, login).await
    }

    async fn open_shared(&self, command: String) -> Result<SshChannel, Failure> {
        self.open(SshRun::Command(command), SshLogin::Shared).await
    }

    async fn host(&self) -> Result<Arc<SshHost>, Failure> {
        self.logins.host(self.program, self.target).await
    }

    /// Why no session has begun.
    async fn failure(&self, mut channel: SshChannel, program: Option<&FarProgram>) -> Failure {
        let (status, said) = channel.process.end().await;
        let channel_run = channel.run.clone();
        drop(channel);
        let code = status.and_then(|status| status.code());
        if code == Some(USAGE)
            && let Some(version) = self.version(program).await
            && version != far_end::VERSION
        {
            return words::too_old(self.target, &version);
        }
        match (program, code) {
            (Some(program), Some(code)) if words::NO_PROGRAM.contains(&code) => {
                words::not_run(self.target, program, &said)
            }
            _ => words::failure(self.target, &channel_run, status, &said),
        }
    }

    /// The version of the program there.
    async fn version(&self, program: Option<&FarProgram>) -> Option<String> {
        let command = far_end::command(program, far_end::VERSION_FLAG);
        let channel = self.open_shared(command).await.ok()?;
        let mut transport = ControlTransport::carried(channel.stream().ok()?);
        let version = |line: &[u8]| {
            let text = str::from_utf8(line.strip_prefix(b"longhaul ")?).ok()?;
            let is_version = text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 32;
            is_version.then(|| proto::printable::printable(text.trim_end()).to_string())
        };
        let answered = timeout(self.reply_timeout, answer(&mut transport, version));
        answered.await.ok()?
    }
}

/// The first line of a far end that means something.
enum FirstLine {
    Session(CarriedEnds),
    /// There is no longhaul.
    Absent(FarPlatform),
    /// A session of another version.
    OtherVersion(u32),
}

impl FirstLine {
    fn parse(line: &[u8]) -> Option<Self> {
        let session = CarriedEnds::parse(line).map(Self::Session);
        let absent = || FarPlatform::parse(line).map(Self::Absent);
        let other = || session_version(line).map(Self::OtherVersion);
        session.or_else(absent).or_else(other)
    }
}

/// Starts the far end of a session, and waits until it is ready.
///
/// # Errors
/// `Refused`: the login, or the host's key; `Unreachable`: the host; `SessionLimit`: the login carries no further session; `NoProgram`:
/// there is no longhaul, and none may be put there.
pub(crate) async fn begin_session(
    end: &SshEnd<'_>,
    options: &FarEndOptions,
    data_ports: Option<(u16, u16)>,
) -> Result<CarriedSession, Failure> {
    let program = options.program.as_ref();
    let command = far_end::command(program, far_end::SERVE);
    let mut is_provided = false;
    loop {
        let channel = end.open_shared(command.clone()).await?;
        let is_first = *channel.host.ports.borrow() == PortSearch::Pending;
        let is_direct = channel.host.direct_name().is_some();
        let near_port = is_first.then(|| NearPort::listen(is_direct, data_ports));
        let near_port = near_port
            .transpose()
            .map_err(|error| Failure::local(format!("cannot draw random numbers: {error}")))?;
        let request = CarriedRequest::Session {
            probe: near_port.as_ref().map(NearPort::probe),
        };
        let mut transport = ControlTransport::carried(channel.stream()?);
        // An error is seen by the lack of an answer.
        let _ = transport.write_all(request.line().as_bytes()).await;
        let first = answer(&mut transport, FirstLine::parse);
        match timeout(channel.patience(), first).await {
            Ok(Some(FirstLine::Session(ends))) => {
                return Ok(CarriedSession {
                    near_port,
                    ..CarriedSession::begun(channel, transport, ends, command)
                });
            }
            Ok(Some(FirstLine::Absent(platform))) if !is_provided => {
                // The login is good, and the next channel shares it.
                channel.established();
                install::provide(end, options, &platform).await?;
                is_provided = true;
            }
            Ok(Some(FirstLine::Absent(_))) => return Err(words::not_found_again(end.target)),
            Ok(Some(FirstLine::OtherVersion(version))) => {
                return Err(words::other_version(end.target, version));
            }
            Ok(None) => return Err(end.failure(channel, program).await),
            Err(_) => return Err(channel.silence()),
        }
    }
}

/// Reads to a line that means something; `None`: it did not come.
async fn answer<T>(
    transport: &mut ControlTransport,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    let mut lines = AnswerLines::default();
    loop {
        // Byte by byte: what follows the line is the dialogue's.
        let mut byte = [0];
        if transport.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        let line = lines.receive(byte[0]).ok()?;
        if let Some(found) = line.and_then(|line| parse(&line)) {
            return Some(found);
        }
    }
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
    fn start(mut command: Command, far: impl Into<OwnedFd>) -> Result<Self, Failure> {
        let far: OwnedFd = far.into();
        let output = far.try_clone();
        let output = output.map_err(|error| words::not_started(&command, &error))?;
        command
            .stdin(Stdio::from(far))
            .stdout(Stdio::from(output))
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

    /// Leaves the process alone: it ends with its session, and is waited for. `then` learns how it has ended, and what it said.
    fn on_end(mut self, then: impl FnOnce(Option<ExitStatus>, &[u8]) + Send + 'static) {
        if let Some(mut child) = self.child.take() {
            let said = Arc::clone(&self.said);
            std::thread::spawn(move || {
                let status = child.wait().ok();
                let said = said.lock().clone();
                then(status, &said);
            });
        }
    }

    /// How it has ended, and what it said.
    async fn end(&mut self) -> (Option<ExitStatus>, Vec<u8>) {
        let status = self.status().await;
        (status, self.said.lock().clone())
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
