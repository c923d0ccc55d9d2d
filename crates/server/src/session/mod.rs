//! The driver of one session: it carries out the actions of the state machine and reports their
//! outcomes.
//!
//! It knows nothing of the protocol. Bytes become lines in [`ServerControlConnection`], lines become
//! actions in [`ServerSession`], actions become [`SessionWork`], and its outcome goes back to the state
//! machine.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::drs;
use data::transport::{ControlTransport, tls_error};
use proto::server::{ExpectedInput, ServerSession};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::control::ServerControlConnection;
use crate::data_address::ControlAddresses;
use crate::files::ListingMemoryShare;
use crate::limits::{HandshakeSlot, SessionSlot};
use crate::login::Login;
use crate::secure::SessionSecurity;
use crate::shared::{ServerPhase, ServerState};
use crate::transfer::StopCause;
use crate::work::{SessionWork, WorkEvent};

mod actions;
mod certificate;
mod order;
mod outcomes;
mod record;
mod refusals;
mod secure;
mod settings;

use certificate::CertificateWatch;
use record::{ClientNotes, DeferredRecord};
use refusals::RefusalLog;
use settings::session_config;

/// Number of commands without a login, after which a session ends. The longest security exchange
/// needs a dozen.
const MAX_COMMANDS_BEFORE_LOGIN: u32 = 200;
/// Bytes of queued replies above which they are sent before more lines are taken.
const REPLY_BATCH: usize = 16 * 1024;
/// Longest wait of a reply for those to the commands behind it. Sent one by one, the replies to commands that were sent
/// together are as many segments, and more than the initial window of ten (RFC 6928) cost a further round trip.
const REPLY_WAIT: Duration = Duration::from_millis(2);

/// While the server drains, a session goes on after its transfer until its client was silent for
/// this time. The client may still verify the checksum, rename the file and set its time.
const FOLLOW_UP_SILENCE: Duration = Duration::from_secs(2);
/// Reason in the 421 of sessions that end because the server stops.
const SHUTTING_DOWN: &str = "server is shutting down";
/// Reason in the 421 of sessions whose rights have ended. Transfers that had begun have ended in order.
const EXPIRED: &str =
    "the token, certificate or proxy of this login has expired, log in again with a new one";

/// The port through which a session came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEntry {
    /// The control port: the session begins in the clear.
    Control,
    /// The port with implicit TLS: a handshake precedes the greeting.
    ImplicitTls,
}

/// Serves one control connection, from its handshake to its end.
pub(crate) async fn run(
    shared: Arc<ServerState>,
    transport: ControlTransport,
    entry: SessionEntry,
    ends: ControlAddresses,
    slot: SessionSlot,
) {
    let span = tracing::info_span!("session", peer = %ends.peer);
    async {
        let mut driver = Box::new(SessionDriver::new(shared, transport, ends, slot));
        // A handshake that fails gets no reply, because no reply can be sent before it.
        if entry == SessionEntry::Control || driver.secure_from_start().await {
            driver.run().await;
        }
    }
    .instrument(span)
    .await;
}

/// Whether the client has logged in.
enum LoginStatus {
    /// Not yet: the login must succeed by the deadline, and within
    /// [`MAX_COMMANDS_BEFORE_LOGIN`] commands.
    NotLoggedIn {
        deadline: Instant,
        command_count: u32,
    },
    /// As this user, or anonymously.
    LoggedIn(Box<Login>),
}

impl LoginStatus {
    fn not_logged_in(deadline: Instant) -> Self {
        Self::NotLoggedIn {
            deadline,
            command_count: 0,
        }
    }

    /// Whether what the client has logged in with has expired.
    fn has_expired(&self) -> bool {
        match self {
            Self::NotLoggedIn { .. } => false,
            Self::LoggedIn(login) => login.time_left() == Some(Duration::ZERO),
        }
    }

    /// Counts a command; returns whether there were too many before the login.
    fn count_command(&mut self) -> bool {
        match self {
            Self::LoggedIn(_) => false,
            Self::NotLoggedIn { command_count, .. } => {
                *command_count += 1;
                *command_count > MAX_COMMANDS_BEFORE_LOGIN
            }
        }
    }
}

/// The reason why a session ends.
#[derive(Debug)]
enum SessionEnd {
    /// The last reply is queued: send it and close.
    Closing,
    /// The client has disconnected or does not read: no reply can be sent.
    ConnectionLost(io::Error),
}

/// The events that a session waits for.
enum SessionEvent {
    Input(io::Result<()>),
    Work(Box<WorkEvent>),
    Phase(ServerPhase),
    Timeout,
    /// The server's certificates and authorities were read again.
    Reload,
    /// Newer security exchanges have displaced this session's.
    Displaced,
}

struct SessionDriver {
    shared: Arc<ServerState>,
    control: ServerControlConnection,
    machine: ServerSession,
    addresses: ControlAddresses,
    login: LoginStatus,
    security: SessionSecurity,
    /// Whether the client's certificate is still accepted.
    certificate: CertificateWatch,
    /// Counts the security exchange until it is complete.
    handshake_slot: Option<HandshakeSlot>,
    channel: Option<SessionDataChannel>,
    /// This end of the DRS channel, for all transfers after DPSV or DPRT.
    drs: Option<Arc<drs::DrsEndpoint>>,
    /// Expected hosts of data connections, for the log of a transfer without any connection.
    data_peers: Vec<IpAddr>,
    work: SessionWork,
    client_notes: ClientNotes,
    refusals: RefusalLog,
    idle_timeout: Duration,
    last_activity: Instant,
    /// At least one transfer has ended.
    has_transferred: bool,
    phases: watch::Receiver<ServerPhase>,
    phase: ServerPhase,
    closing: bool,
    /// CCC: the protection of commands ends when all replies are sent.
    clearing: bool,
    /// Memory reserved for a listing among the queued replies.
    reply_memory: Option<ListingMemoryShare>,
    /// The task that writes transfer records.
    record_task: Option<JoinHandle<()>>,
    /// The record of an upload whose final name is not known yet.
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
            security: SessionSecurity::default(),
            certificate: CertificateWatch::new(&shared, now),
            handshake_slot: None,
            channel: None,
            drs: None,
            data_peers: Vec::new(),
            work: SessionWork::None,
            client_notes: ClientNotes::default(),
            refusals: RefusalLog::new(now.into_std()),
            idle_timeout: config.idle_timeout,
            last_activity: now,
            has_transferred: false,
            phase,
            phases,
            closing: false,
            clearing: false,
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
            // Other reasons are everyday ones. A broken record may be an attack.
            SessionEnd::ConnectionLost(error) if tls_error(&error).is_some() => {
                tracing::info!(%error, "session lost: its TLS is broken");
            }
            SessionEnd::ConnectionLost(error) => tracing::debug!(%error, "session lost"),
        }
        tracing::debug!("session ended");
    }

    /// Stops a running transfer, waits for its end, because each transfer has a log record, and closes
    /// the data channel.
    async fn shut_down(&mut self) {
        // A transfer must not outlive its session: its data connections and the file's ownership would
        // stay without anybody to answer for them.
        while let SessionWork::Transfer(running) = &mut self.work {
            running.stop(StopCause::ClientGone);
            let update = running.next_update().await;
            if self.on_transfer_update(update).is_err() {
                self.work = SessionWork::None;
            }
        }
        self.work = SessionWork::None;
        self.channel = None;
        self.write_deferred();
        if let Some(record_task) = self.record_task.take() {
            // Fails only if the log panicked; the panic hook has logged that.
            let _ = record_task.await;
        }
    }

    /// One iteration: handles the waiting lines, sends the replies, and waits for one event.
    async fn step(&mut self) -> Result<(), SessionEnd> {
        self.check_certificate().await?;
        self.take_lines().await?;
        if self.has_more_replies_soon()
            && let Ok(event) = timeout(REPLY_WAIT, self.next_event()).await
        {
            return self.on_event(event);
        }
        self.control
            .flush()
            .await
            .map_err(SessionEnd::ConnectionLost)?;
        self.reply_memory = None;
        // Checked after the flush: the reply to QUIT must be sent before the connection closes.
        if self.closing {
            return Err(SessionEnd::Closing);
        }
        if std::mem::take(&mut self.clearing) {
            let ended = self.control.end_protection().await;
            return ended.map_err(SessionEnd::ConnectionLost);
        }
        if matches!(self.work, SessionWork::Handshake) {
            return self.perform_handshake().await;
        }
        if self.work.is_none() {
            if self.phase > ServerPhase::Serving && !self.is_in_follow_up() {
                return Err(self.close_with_reply(SHUTTING_DOWN));
            }
            if self.control.has_ended() {
                return Err(SessionEnd::Closing);
            }
        }
        let event = self.next_event().await;
        self.on_event(event)
    }

    /// Whether the replies that are queued may wait for that of the present command, and of those behind it.
    fn has_more_replies_soon(&self) -> bool {
        let queued = self.control.queued();
        (1..REPLY_BATCH).contains(&queued)
            && matches!(self.work, SessionWork::File(_))
            && !self.closing
            && !self.clearing
    }

    fn on_event(&mut self, event: SessionEvent) -> Result<(), SessionEnd> {
        match event {
            SessionEvent::Input(read) => self.on_input(read),
            SessionEvent::Work(step) => self.on_work_event(*step),
            SessionEvent::Phase(phase) => {
                self.on_phase(phase);
                Ok(())
            }
            // The next step looks at the certificate.
            SessionEvent::Reload => Ok(()),
            SessionEvent::Displaced => {
                Err(self.close_with_reply("too many security exchanges are in progress"))
            }
            SessionEvent::Timeout => Err(self.close_with_reply(match &self.login {
                _ if self.phase > ServerPhase::Serving => SHUTTING_DOWN,
                LoginStatus::NotLoggedIn { .. } => "no login in time",
                login if login.has_expired() => EXPIRED,
                LoginStatus::LoggedIn(_) => "idle for too long",
            })),
        }
    }

    /// Feeds waiting lines to the state machine for as long as it accepts them.
    async fn take_lines(&mut self) -> Result<(), SessionEnd> {
        // After CCC the next line must be read in the clear.
        while !self.closing && !self.clearing {
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
            if self.work.is_none() && self.login.has_expired() {
                return Err(self.close_with_reply(EXPIRED));
            }
            self.last_activity = Instant::now();
            if self.login.count_command() {
                return Err(self.close_with_reply("too many commands before login"));
            }
            let actions = self.machine.on_line(&line);
            self.refusals.log_refused_line(&line, &actions);
            self.run_actions(actions);
            self.note_logout();
            // A client that pipelines thousands of commands must not make the replies grow without
            // bound.
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
            // A change of phase comes before work and input, or a busy session would not notice the
            // shutdown.
            biased;
            Ok(()) = self.phases.changed() => SessionEvent::Phase(*self.phases.borrow_and_update()),
            () = self.certificate.reloaded(), if self.work.is_none() => SessionEvent::Reload,
            step = self.work.next_event(), if !self.work.is_none() => SessionEvent::Work(Box::new(step)),
            read = self.control.read(), if self.control.has_input_room() => SessionEvent::Input(read),
            () = sleep_until(deadline), if self.work.is_none() => SessionEvent::Timeout,
            () = secure::displaced(self.handshake_slot.as_ref()) => SessionEvent::Displaced,
        }
    }

    /// The time at which a session that waits for a line is closed. Commands extend the idle timeout but
    /// not the login timeout.
    fn deadline(&self) -> Instant {
        match &self.login {
            _ if self.phase > ServerPhase::Serving => self.last_activity + FOLLOW_UP_SILENCE,
            LoginStatus::NotLoggedIn { deadline, .. } => *deadline,
            LoginStatus::LoggedIn(login) => {
                let idle = self.last_activity + self.idle_timeout;
                // Later than its file requests, which refuse from the end of the token on.
                match login.time_left() {
                    Some(left) => idle.min(Instant::now() + left),
                    None => idle,
                }
            }
        }
    }

    /// Whether, while the server drains, the client may still send commands that belong to its last
    /// transfer.
    fn is_in_follow_up(&self) -> bool {
        self.phase == ServerPhase::Draining
            && self.has_transferred
            && matches!(self.login, LoginStatus::LoggedIn(_))
            && self.last_activity.elapsed() < FOLLOW_UP_SILENCE
    }

    fn close_with_reply(&mut self, reason: &str) -> SessionEnd {
        tracing::info!(reason, "closing session");
        self.control.queue(&closing_reply(reason));
        SessionEnd::Closing
    }

    /// Handles input or its end. Commands received before the client closed its side are still carried
    /// out, but a transfer stops when its client leaves.
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
        // The state machine refuses new transfers from here on; the one that runs may finish.
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

/// The 421 reply. The driver makes it, because it does not depend on the state of the session (RFC 959
/// section 4.2: "a reply to any command if the service knows it must shut down").
fn closing_reply(reason: &str) -> proto::reply::Reply {
    proto::reply::Reply::new(
        421,
        format!("Service not available: {reason}. Closing control connection."),
    )
}
