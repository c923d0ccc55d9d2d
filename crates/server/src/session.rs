//! The driver of one session: carries out what the state machine asks for and reports back.
//!
//! It has no knowledge of the protocol. Bytes become lines in [`ControlConnection`], lines become
//! actions in [`Session`], actions become [`Work`], and its outcome goes back to the machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data::channel::Channel;
use proto::ranges::RangeSet;
use proto::server::{
    Action, Awaiting, FileError, FileErrorKind, Outcome, Progress, Session, SessionConfig,
    TransferError, TransferRequest,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use crate::control::ControlConnection;
use crate::data_address::{Ends, told};
use crate::limits::SessionSlot;
use crate::login::{Login, Refusal};
use crate::shared::{Phase, Shared};
use crate::transfer::{Ended, Event, Running, Seen, Stop};
use crate::work::{FileWork, Step, Work, seconds_since_1970};

mod notes;
mod order;
mod record;

use notes::Notes;

/// Failed logins after which a session ends.
const MAX_LOGIN_FAILURES: u32 = 5;
/// Lines in a row that are no commands, after which a session ends.
const MAX_BAD_LINES: u32 = 100;
/// Queued replies, bytes, above which they are sent before more lines are taken.
const REPLY_BATCH: usize = 16 * 1024;

/// Serves one control connection to its end.
pub(crate) async fn run(shared: Arc<Shared>, stream: TcpStream, ends: Ends, slot: SessionSlot) {
    let span = tracing::info_span!("session", peer = %ends.peer);
    let driver = Box::new(Driver::new(shared, stream, ends, slot));
    driver.run().instrument(span).await;
}

/// Who is at the other end.
enum Who {
    /// Nobody yet; must have logged in by then.
    Stranger { until: Instant },
    /// A user.
    User(Box<Login>),
}

/// Why a session ends.
#[derive(Debug)]
enum End {
    /// All is said: send what is queued and close.
    Said,
    /// The client is gone or does not read: nothing more can be said.
    Gone(io::Error),
}

/// What a session waits for.
enum Occurrence {
    Input(io::Result<()>),
    Step(Step),
    Phase(Phase),
    TimeOut,
}

struct Driver {
    shared: Arc<Shared>,
    control: ControlConnection,
    machine: Session,
    ends: Ends,
    who: Who,
    channel: Option<Channel>,
    /// Where data connections go to or are expected from, for the log.
    data_peers: Vec<IpAddr>,
    work: Work,
    notes: Notes,
    idle_timeout: Duration,
    active: Instant,
    phases: watch::Receiver<Phase>,
    phase: Phase,
    closing: bool,
    _slot: SessionSlot,
}

impl Driver {
    fn new(shared: Arc<Shared>, stream: TcpStream, ends: Ends, slot: SessionSlot) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let mut phases = shared.phases();
        let phase = *phases.borrow_and_update();
        Self {
            control: ControlConnection::new(stream, config.stall_timeout),
            machine: Session::new(machine_config(&shared, &ends)),
            who: Who::Stranger {
                until: now + config.login_timeout,
            },
            channel: None,
            data_peers: Vec::new(),
            work: Work::None,
            notes: Notes::default(),
            idle_timeout: config.idle_timeout,
            active: now,
            phase,
            phases,
            closing: false,
            ends,
            shared,
            _slot: slot,
        }
    }

    async fn run(mut self: Box<Self>) {
        tracing::debug!("session begins");
        self.control.queue(&self.machine.greeting());
        let end = loop {
            if let Err(end) = self.turn().await {
                break end;
            }
        };
        match end {
            End::Said => {
                // A transfer that still runs is stopped and the channel closed first.
                let Self { control, .. } = *self;
                control.close().await;
                tracing::debug!("session ended");
            }
            End::Gone(error) => tracing::debug!(%error, "session lost"),
        }
    }

    /// Takes what lines may be taken, says what is to be said, waits for one thing to happen.
    async fn turn(&mut self) -> Result<(), End> {
        self.take_lines().await?;
        self.control.flush().await.map_err(End::Gone)?;
        if self.closing {
            return Err(End::Said);
        }
        if self.work.is_none() {
            if self.phase > Phase::Serving {
                return Err(self.farewell("server is shutting down"));
            }
            if self.control.ended() {
                return Err(End::Said);
            }
        }
        match self.next_occurrence().await {
            Occurrence::Input(read) => self.on_input(read),
            Occurrence::Step(step) => self.on_step(step),
            Occurrence::Phase(phase) => {
                self.on_phase(phase);
                Ok(())
            }
            Occurrence::TimeOut => Err(self.farewell("timeout")),
        }
    }

    /// Feeds waiting lines to the machine for as long as it takes them.
    async fn take_lines(&mut self) -> Result<(), End> {
        while !self.closing {
            let line = match self.machine.awaiting() {
                Awaiting::Line if self.phase > Phase::Serving => None,
                Awaiting::Line => self.control.next_line(),
                Awaiting::Transfer => self.control.next_urgent(),
                Awaiting::Outcome => None,
            };
            let Some(line) = line else { break };
            self.active = Instant::now();
            let actions = self.machine.on_line(&line);
            self.carry_out(actions);
            if self.control.queued() > REPLY_BATCH {
                self.control.flush().await.map_err(End::Gone)?;
            }
        }
        Ok(())
    }

    async fn next_occurrence(&mut self) -> Occurrence {
        let deadline = self.deadline();
        tokio::select! {
            biased;
            Ok(()) = self.phases.changed() => Occurrence::Phase(*self.phases.borrow_and_update()),
            step = self.work.next(), if !self.work.is_none() => Occurrence::Step(step),
            read = self.control.read(), if self.control.wants_input() => Occurrence::Input(read),
            () = sleep_until(deadline), if self.work.is_none() => Occurrence::TimeOut,
        }
    }

    /// When a session that waits for a line has waited too long. Lines do not put off the login's.
    fn deadline(&self) -> Instant {
        match self.who {
            Who::Stranger { until } => until,
            Who::User(_) => self.active + self.idle_timeout,
        }
    }

    fn farewell(&mut self, reason: &str) -> End {
        tracing::info!(reason, "closing session");
        self.control.queue(&closing_reply(reason));
        End::Said
    }

    fn on_input(&mut self, read: io::Result<()>) -> Result<(), End> {
        let gone = match read {
            Ok(()) if !self.control.ended() => return Ok(()),
            Ok(()) => None,
            Err(error) => Some(error),
        };
        match &mut self.work {
            // Its end is awaited: the log has a line for it.
            Work::Transfer(running) => running.stop(Stop::ClientGone),
            Work::File(work) => work.stop(),
            _ => {}
        }
        match gone {
            Some(error) if !matches!(self.work, Work::Transfer(_)) => Err(End::Gone(error)),
            Some(_) => {
                self.control.abandon();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn on_phase(&mut self, phase: Phase) {
        self.phase = phase;
        if phase < Phase::Ending {
            return;
        }
        match &mut self.work {
            Work::Transfer(running) => running.stop(Stop::Shutdown),
            Work::File(work) => work.stop(),
            _ => {}
        }
    }

    fn on_step(&mut self, step: Step) -> Result<(), End> {
        let outcome = match step {
            Step::Summed(bytes) => Outcome::ChecksumProgress {
                now: seconds_since_1970(),
                bytes,
            },
            Step::Transfer(seen) => return self.on_transfer(seen),
            Step::Known(outcome) => self.done(outcome),
            Step::File(answer) => self.done(Outcome::File(answer)),
            Step::Listen(made) => {
                let made = made.and_then(|channel| self.keep_listener(channel));
                self.done(Outcome::Listening(made))
            }
            Step::Login(Ok(login)) => {
                let grant = login.grant.clone();
                tracing::info!(user = %grant.user, "logged in");
                self.who = Who::User(Box::new(login));
                self.done(Outcome::Login(Ok(grant)))
            }
            Step::Login(Err(Refusal::Denied(text))) => {
                tracing::info!("login refused");
                self.done(Outcome::Login(Err(text)))
            }
            Step::Login(Err(Refusal::Busy(text))) => return Err(self.farewell(&text)),
        };
        self.report(outcome);
        Ok(())
    }

    /// The work is over: the clock of idleness begins again.
    fn done(&mut self, outcome: Outcome) -> Outcome {
        self.work = Work::None;
        self.active = Instant::now();
        outcome
    }

    fn keep_listener(&mut self, channel: Channel) -> Result<SocketAddr, FileError> {
        let address = channel.local_addr().ok_or_else(|| FileError {
            kind: FileErrorKind::Other,
            errno: None,
            text: "no listener".to_owned(),
        })?;
        self.channel = Some(channel);
        Ok(told(address, self.shared.config.public_address))
    }

    fn on_transfer(&mut self, seen: Seen) -> Result<(), End> {
        match seen {
            Seen::Tick(progress) => self.report(Outcome::Progress(progress)),
            Seen::Event(Event::Listening(Ok(address))) => {
                self.report(Outcome::Listening(Ok(address)));
            }
            Seen::Event(Event::Listening(Err(error))) => {
                let outcome = self.done(Outcome::Listening(Err(error)));
                self.report(outcome);
            }
            Seen::Event(Event::Opened {
                reused,
                unique_name,
            }) => {
                self.report(Outcome::Opened {
                    reused,
                    unique_name,
                });
                self.report(Outcome::Progress(nothing_moved()));
            }
            Seen::Event(Event::Ended(ended)) => return self.on_transferred(*ended),
            Seen::Lost => return Err(self.farewell("internal error")),
        }
        Ok(())
    }

    /// Tells the machine, and carries out what it answers.
    fn report(&mut self, outcome: Outcome) {
        let actions = self.machine.on_outcome(outcome);
        self.carry_out(actions);
    }

    fn on_transferred(&mut self, ended: Ended) -> Result<(), End> {
        let stopped = match &self.work {
            Work::Transfer(running) => running.stopped(),
            _ => None,
        };
        let Ended {
            result,
            last,
            channel,
            summary,
        } = ended;
        self.channel = channel;
        if result.is_err() {
            // The last 111 must tell everything that is safe.
            self.report(Outcome::Progress(last));
        }
        let error = result.as_ref().err().map(record::describe);
        let outcome = self.done(Outcome::Transferred(result));
        let actions = self.machine.on_outcome(outcome);
        self.record(summary, record::final_code(&actions), error);
        self.carry_out(actions);
        match stopped {
            Some(Stop::ClientGone) => Err(End::Said),
            _ => Ok(()),
        }
    }

    /// Carries out actions in order. The machine puts the one that has an outcome last.
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Reply(reply) => self.control.queue(&reply),
                Action::Authenticate { user, password } => self.authenticate(user, password),
                Action::File(request) => self.work = self.file_work(request),
                Action::Listen(request) => {
                    self.channel = None;
                    self.work = match self.ends.listen_options(&request, &self.shared.config) {
                        Ok(options) => Work::listen(options),
                        Err(error) => Work::Known(Outcome::Listening(Err(error))),
                    };
                }
                Action::ConnectTo(targets) => {
                    let local = self.ends.connect_from(&targets);
                    self.data_peers = targets.iter().map(SocketAddr::ip).collect();
                    self.channel = Some(Channel::connect_to(targets, local));
                }
                Action::DropChannel => self.channel = None,
                Action::Transfer(request) => self.work = self.transfer(*request),
                Action::Abort => {
                    if let Work::Transfer(running) = &mut self.work {
                        running.stop(Stop::Abort);
                    }
                }
                Action::Note(key, value) => self.notes.set(key, value),
                Action::IdleTimeout(seconds) => self.set_idle_timeout(seconds),
                Action::Close => self.closing = true,
            }
        }
    }

    fn authenticate(&mut self, user: String, password: Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        let peer = self.ends.peer.ip();
        self.work = Work::Login(Box::pin(async move {
            shared
                .logins
                .check(user, password, peer, &shared.limits)
                .await
        }));
    }

    fn file_work(&self, request: proto::server::FileRequest) -> Work {
        match &self.who {
            Who::User(login) => {
                let shared = Arc::clone(&self.shared);
                Work::File(Box::new(FileWork::start(
                    shared,
                    login.files.clone(),
                    request,
                )))
            }
            Who::Stranger { .. } => Work::Known(Outcome::File(Err(not_logged_in()))),
        }
    }

    fn transfer(&mut self, request: TransferRequest) -> Work {
        let started = self.order(request).and_then(|order| {
            Running::start(order).map_err(|error| order::busy(error.to_string()))
        });
        match started {
            Ok(running) => Work::Transfer(Box::new(running)),
            Err(error) => Work::Known(Outcome::Transferred(Err(TransferError::File(error)))),
        }
    }

    /// Between one second and what the administrator allows.
    fn set_idle_timeout(&mut self, seconds: u32) {
        let wanted = Duration::from_secs(seconds.max(1).into());
        self.idle_timeout = wanted.min(self.shared.config.idle_timeout);
    }
}

fn machine_config(shared: &Shared, ends: &Ends) -> SessionConfig {
    let config = &shared.config;
    let version = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
    SessionConfig {
        banner: format!("{version} GridFTP server ready."),
        version: version.to_owned(),
        peer: ends.peer.ip(),
        perf_marker_seconds: config.perf_marker_seconds,
        range_marker_seconds: config.range_marker_seconds,
        max_streams: config.max_streams_per_transfer,
        max_login_failures: MAX_LOGIN_FAILURES,
        max_bad_lines: MAX_BAD_LINES,
    }
}

/// 421 is the driver's own: it says that the service ends, whatever the session's state (RFC 959
/// §4.2, "any command if the service knows it must shut down").
fn closing_reply(reason: &str) -> proto::reply::Reply {
    proto::reply::Reply::new(
        421,
        format!("Service not available: {reason}. Closing control connection."),
    )
}

fn nothing_moved() -> Progress {
    Progress {
        now: seconds_since_1970(),
        bytes: 0,
        stored: RangeSet::new(),
    }
}

fn not_logged_in() -> FileError {
    FileError {
        kind: FileErrorKind::Denied,
        errno: None,
        text: "not logged in".to_owned(),
    }
}
