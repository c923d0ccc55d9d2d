//! The driver of one session: carries out what the state machine asks for and reports back.
//!
//! It has no knowledge of the protocol. Bytes become lines in [`ServerControlConnection`], lines become
//! actions in [`ServerSession`], actions become [`SessionWork`], and its outcome goes back to the machine.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::drs;
use data::transport::ControlTransport;
use proto::server::{ExpectedInput, ServerSession, SessionConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::control::ServerControlConnection;
use crate::data_address::ControlAddresses;
use crate::files::ListingMemoryShare;
use crate::limits::SessionSlot;
use crate::login::Login;
use crate::shared::{ServerPhase, ServerState};
use crate::transfer::StopCause;
use crate::work::{SessionWork, WorkEvent};

mod actions;
mod order;
mod outcomes;
mod record;

use record::{ClientNotes, DeferredRecord};

/// Failed logins after which a session ends.
const MAX_LOGIN_FAILURES: u32 = 5;
/// Lines in a row that are no commands, after which a session ends.
const MAX_BAD_LINES: u32 = 100;
/// Commands before a login, after which a session ends: the longest security exchange needs a dozen.
const MAX_COMMANDS_BEFORE_LOGIN: u32 = 200;
/// Queued replies, bytes, above which they are sent before more lines are taken.
const REPLY_BATCH: usize = 16 * 1024;

/// A server that is to end leaves a session whose transfer is done until it was quiet for so long:
/// its client checks the sum, gives the file its name and sets its time.
const FOLLOW_UP: Duration = Duration::from_secs(2);
/// Why a session ends when its server does.
const SHUTTING_DOWN: &str = "server is shutting down";

/// Serves one control connection to its end, once its handshake is over.
pub(crate) async fn run(
    shared: Arc<ServerState>,
    handshake: impl Future<Output = io::Result<ControlTransport>>,
    ends: ControlAddresses,
    slot: SessionSlot,
) {
    let span = tracing::info_span!("session", peer = %ends.peer);
    async {
        if let Some(transport) = finish_handshake(&shared, handshake).await {
            Box::new(SessionDriver::new(shared, transport, ends, slot))
                .run()
                .await;
        }
    }
    .instrument(span)
    .await;
}

/// The outcome of a handshake, which has as long as a login may take, and no longer than the server
/// serves. Who is not done by then is left without a word: there is no way to say one.
async fn finish_handshake(
    shared: &ServerState,
    handshake: impl Future<Output = io::Result<ControlTransport>>,
) -> Option<ControlTransport> {
    let mut phases = shared.subscribe_phase();
    let shaken = tokio::select! {
        biased;
        shaken = timeout(shared.config.login_timeout, handshake) => shaken,
        _ = phases.wait_for(|phase| *phase > ServerPhase::Serving) => return None,
    };
    shaken
        .map_err(io::Error::from)
        .flatten()
        .inspect_err(|error| tracing::debug!(%error, "handshake failed"))
        .ok()
}

/// Who is at the other end.
enum LoginStatus {
    /// Nobody yet; must have logged in by then, and within so many commands.
    NotLoggedIn { until: Instant, commands: u32 },
    /// A user.
    LoggedIn(Box<Login>),
}

impl LoginStatus {
    fn not_logged_in(until: Instant) -> Self {
        Self::NotLoggedIn { until, commands: 0 }
    }

    /// Counts a command; whether a stranger has sent too many.
    fn has_sent_too_many_commands(&mut self) -> bool {
        match self {
            Self::LoggedIn(_) => false,
            Self::NotLoggedIn { commands, .. } => {
                *commands += 1;
                *commands > MAX_COMMANDS_BEFORE_LOGIN
            }
        }
    }
}

/// Why a session ends.
#[derive(Debug)]
enum SessionEnd {
    /// All is said: send what is queued and close.
    Closing,
    /// The client is gone or does not read: nothing more can be said.
    ConnectionLost(io::Error),
}

/// Events that a session waits for.
enum SessionEvent {
    Input(io::Result<()>),
    Work(WorkEvent),
    Phase(ServerPhase),
    Timeout,
}

struct SessionDriver {
    shared: Arc<ServerState>,
    control: ServerControlConnection,
    machine: ServerSession,
    addresses: ControlAddresses,
    login: LoginStatus,
    channel: Option<SessionDataChannel>,
    /// This end of the DRS channel, for all transfers from DPSV or DPRT on.
    drs: Option<Arc<drs::DrsEndpoint>>,
    /// Where data connections go to or are expected from, for the log of a transfer without any.
    data_peers: Vec<IpAddr>,
    work: SessionWork,
    client_notes: ClientNotes,
    idle_timeout: Duration,
    last_activity: Instant,
    /// A transfer has ended.
    has_transferred: bool,
    phases: watch::Receiver<ServerPhase>,
    phase: ServerPhase,
    closing: bool,
    /// Memory of a listing among the replies.
    reply_memory: Option<ListingMemoryShare>,
    /// Records of transfers on their way to the disk.
    record_task: Option<JoinHandle<()>>,
    /// The record of an upload whose name is not known yet.
    deferred_record: Option<Box<DeferredRecord>>,
    _slot: SessionSlot,
}

impl SessionDriver {
    fn new(
        shared: Arc<ServerState>,
        transport: ControlTransport,
        ends: ControlAddresses,
        slot: SessionSlot,
    ) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let mut phases = shared.subscribe_phase();
        let phase = *phases.borrow_and_update();
        Self {
            control: ServerControlConnection::new(transport, config.transfer.stall),
            machine: ServerSession::new(session_config(&shared, &ends)),
            login: LoginStatus::not_logged_in(now + config.login_timeout),
            channel: None,
            drs: None,
            data_peers: Vec::new(),
            work: SessionWork::None,
            client_notes: ClientNotes::default(),
            idle_timeout: config.idle_timeout,
            last_activity: now,
            has_transferred: false,
            phase,
            phases,
            closing: false,
            reply_memory: None,
            record_task: None,
            deferred_record: None,
            addresses: ends,
            shared,
            _slot: slot,
        }
    }

    async fn run(mut self: Box<Self>) {
        tracing::debug!("session begins");
        self.control.queue(&self.machine.greeting());
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        self.shut_down().await;
        match end {
            SessionEnd::Closing => self.control.close().await,
            SessionEnd::ConnectionLost(error) => tracing::debug!(%error, "session lost"),
        }
        tracing::debug!("session ended");
    }

    /// Stops a transfer that still runs, waits for its end (the log has a line for each) and
    /// closes the data channel.
    async fn shut_down(&mut self) {
        while let SessionWork::Transfer(running) = &mut self.work {
            running.stop(StopCause::ClientGone);
            let seen = running.next_update().await;
            if self.on_transfer_update(seen).is_err() {
                self.work = SessionWork::None;
            }
        }
        self.work = SessionWork::None;
        self.channel = None;
        self.write_deferred();
        if let Some(recording) = self.record_task.take() {
            // Fails only if the log panicked; there is nothing left to tell of it here.
            let _ = recording.await;
        }
    }

    /// Takes what lines may be taken, says what is to be said, waits for one thing to happen.
    async fn step(&mut self) -> Result<(), SessionEnd> {
        self.take_lines().await?;
        self.control
            .flush()
            .await
            .map_err(SessionEnd::ConnectionLost)?;
        self.reply_memory = None;
        if self.closing {
            return Err(SessionEnd::Closing);
        }
        if self.work.is_none() {
            if self.phase > ServerPhase::Serving && !self.is_in_follow_up() {
                return Err(self.close_with_reply(SHUTTING_DOWN));
            }
            if self.control.has_ended() {
                return Err(SessionEnd::Closing);
            }
        }
        match self.next_event().await {
            SessionEvent::Input(read) => self.on_input(read),
            SessionEvent::Work(step) => self.on_work_event(step),
            SessionEvent::Phase(phase) => {
                self.on_phase(phase);
                Ok(())
            }
            SessionEvent::Timeout => Err(self.close_with_reply(match self.login {
                _ if self.phase > ServerPhase::Serving => SHUTTING_DOWN,
                LoginStatus::NotLoggedIn { .. } => "no login in time",
                LoginStatus::LoggedIn(_) => "idle for too long",
            })),
        }
    }

    /// Feeds waiting lines to the machine for as long as it takes them.
    async fn take_lines(&mut self) -> Result<(), SessionEnd> {
        while !self.closing {
            let line = match self.machine.expected_input() {
                ExpectedInput::Line
                    if self.phase > ServerPhase::Serving && !self.is_in_follow_up() =>
                {
                    None
                }
                ExpectedInput::Line => self.control.next_line(),
                ExpectedInput::DriverEventOrUrgentLine => self
                    .control
                    .next_urgent(|line| self.machine.is_urgent(line)),
                ExpectedInput::DriverEvent => None,
            };
            let Some(line) = line else { break };
            self.last_activity = Instant::now();
            if self.login.has_sent_too_many_commands() {
                return Err(self.close_with_reply("too many commands before login"));
            }
            let actions = self.machine.on_line(&line);
            self.run_actions(actions);
            self.note_logout();
            if self.control.queued() > REPLY_BATCH {
                self.control
                    .flush()
                    .await
                    .map_err(SessionEnd::ConnectionLost)?;
            }
        }
        Ok(())
    }

    async fn next_event(&mut self) -> SessionEvent {
        let deadline = self.deadline();
        tokio::select! {
            biased;
            Ok(()) = self.phases.changed() => SessionEvent::Phase(*self.phases.borrow_and_update()),
            step = self.work.next_event(), if !self.work.is_none() => SessionEvent::Work(step),
            read = self.control.read(), if self.control.has_input_room() => SessionEvent::Input(read),
            () = sleep_until(deadline), if self.work.is_none() => SessionEvent::Timeout,
        }
    }

    /// When a session that waits for a line has waited too long. Lines do not put off the login's.
    fn deadline(&self) -> Instant {
        match self.login {
            _ if self.phase > ServerPhase::Serving => self.last_activity + FOLLOW_UP,
            LoginStatus::NotLoggedIn { until, .. } => until,
            LoginStatus::LoggedIn(_) => self.last_activity + self.idle_timeout,
        }
    }

    /// While the server drains: whether the client may still be at work on its last transfer.
    fn is_in_follow_up(&self) -> bool {
        self.phase == ServerPhase::Draining
            && self.has_transferred
            && matches!(self.login, LoginStatus::LoggedIn(_))
            && self.last_activity.elapsed() < FOLLOW_UP
    }

    fn close_with_reply(&mut self, reason: &str) -> SessionEnd {
        tracing::info!(reason, "closing session");
        self.control.queue(&closing_reply(reason));
        SessionEnd::Closing
    }

    /// Lines that came before the client closed its side are still carried out, but a transfer
    /// without a client is not worth its bytes.
    fn on_input(&mut self, read: io::Result<()>) -> Result<(), SessionEnd> {
        read.map_err(SessionEnd::ConnectionLost)?;
        if self.control.has_ended() {
            match &self.work {
                SessionWork::Transfer(_) | SessionWork::Admission(_) => {
                    return Err(SessionEnd::Closing);
                }
                SessionWork::File(work) => work.stop(),
                _ => {}
            }
        }
        Ok(())
    }

    fn on_phase(&mut self, phase: ServerPhase) {
        self.phase = phase;
        self.machine.drain();
        if phase < ServerPhase::Terminating {
            return;
        }
        match &mut self.work {
            SessionWork::Transfer(running) => running.stop(StopCause::Shutdown),
            SessionWork::Admission(waiting) => waiting.stop(StopCause::Shutdown),
            SessionWork::File(work) => work.stop(),
            _ => {}
        }
    }
}

fn session_config(shared: &ServerState, ends: &ControlAddresses) -> SessionConfig {
    let config = &shared.config;
    let version = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
    SessionConfig {
        congestion_controls: Arc::clone(&shared.congestion),
        banner: format!("{version} GridFTP server ready."),
        version: version.to_owned(),
        peer: ends.peer.ip(),
        perf_marker_seconds: config.perf_marker_seconds,
        range_marker_seconds: config.range_marker_seconds,
        max_streams: config.max_streams_per_transfer,
        max_login_failures: MAX_LOGIN_FAILURES,
        max_bad_lines: MAX_BAD_LINES,
        buffer_sizing: config.transfer.buffers.sizing,
        foreign_data_addresses: config.foreign_data_addresses,
        mechanisms: Arc::default(),
        max_idle_seconds: u32::try_from(config.idle_timeout.as_secs()).unwrap_or(u32::MAX),
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
