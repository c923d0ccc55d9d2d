//! The driver of one session: it carries out the actions of the state machine and reports their
//! outcomes.
//!
//! It knows nothing of the protocol. Bytes become lines in [`ServerControlConnection`], lines become
//! actions in [`ServerSession`], actions become [`SessionWork`], and its outcome goes back to the state
//! machine. The security exchange is in [`secure`].

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use data::transport::{ControlTransport, tls_error};
use proto::command::Secret;
use proto::path::VPath;
use proto::ranges::RangeSet;
use proto::server::{
    CarriedRules, DriverEvent, ExpectedInput, FileError, FileErrorKind, FileRequest, LoginFailure,
    ServerSession, SessionAction, TransferError, TransferProgress, TransferRequest,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::limits::{QueuePermit, SessionSlot};
use crate::login::{Login, LoginRefusal, LoginRequest};
use crate::secure::{DataProtectionError, SessionSecurity};
use crate::state::{ServerPhase, ServerState};
use crate::stripes::NodeAccess;
use crate::transfer::{
    AdmissionResult, ControlAddresses, DataAddresses, FinishedTransfer, LocalHandles,
    QueuedTransfer, StopCause, StripedWork, TransferHandle, TransferMemory, TransferOrder,
    TransferTerms, TransferUpdate, WorkerEvent, seconds_since_1970, stripe_obstacle,
};
use crate::transfer_log::LoggedTransferKind;
use crate::users::UserAccount;
use crate::work::{FileWork, SessionWork, WorkEvent};

mod certificate;
mod control;
mod data_connections;
mod records;
mod refusals;
mod secure;
mod settings;

use certificate::CertificateWatch;
use control::ServerControlConnection;
use data_connections::DataConnections;
use records::{RecordedEnd, RecordedSession, TransferRecords};
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

/// Serves the session of the user of this process's `account`, from its greeting to its end.
pub(crate) async fn run_carried(
    shared: Arc<ServerState>,
    transport: ControlTransport,
    account: UserAccount,
    rules: CarriedRules,
    ends: ControlAddresses,
    slot: SessionSlot,
) {
    let mut driver = Box::new(SessionDriver::new(shared, transport, ends, slot));
    driver.secure_as_carried(account, rules);
    driver.run().await;
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
    /// The server is in another phase.
    Phase,
    Timeout,
    /// The server's certificates and authorities were read again.
    Reload,
    /// Newer security exchanges have displaced this session's.
    Displaced,
}

/// Whether further lines are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialogue {
    /// Yes.
    Open,
    /// CCC: not before all replies are sent, and the protection of commands has ended. The next line must be
    /// read in the clear.
    ClearingCommands,
    /// No: the last reply is queued.
    Closing,
}

/// When the client was heard last, and how long it may be silent.
struct ClientActivity {
    last: Instant,
    idle_timeout: Duration,
    /// At least one transfer has ended, so that commands may follow that belong to it.
    has_transferred: bool,
}

struct SessionDriver {
    shared: Arc<ServerState>,
    addresses: ControlAddresses,
    control: ServerControlConnection,
    machine: ServerSession,
    dialogue: Dialogue,
    login: LoginStatus,
    security: SessionSecurity,
    /// Whether the client's certificate is still accepted.
    certificate: CertificateWatch,
    data: DataConnections,
    work: SessionWork,
    activity: ClientActivity,
    server_phase: watch::Receiver<ServerPhase>,
    records: TransferRecords,
    refusals: RefusalLog,
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
        let server_phase = shared.subscribe_phase();
        Self {
            control: ServerControlConnection::new(transport, config.transfer.stall),
            machine: ServerSession::new(session_config(&shared, &ends)),
            dialogue: Dialogue::Open,
            login: LoginStatus::not_logged_in(now + config.login_timeout),
            security: SessionSecurity::default(),
            certificate: CertificateWatch::new(&shared, now),
            data: DataConnections::default(),
            work: SessionWork::None,
            activity: ClientActivity {
                last: now,
                idle_timeout: config.idle_timeout,
                has_transferred: false,
            },
            server_phase,
            records: TransferRecords::new(Arc::clone(&shared)),
            refusals: RefusalLog::new(now.into_std()),
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
        self.data.channel = None;
        self.records.finish().await;
    }

    /// One iteration: handles the waiting lines, sends the replies, and waits for one event.
    async fn step(&mut self) -> Result<(), SessionEnd> {
        if self.work.is_none()
            && let Some(reason) = self.certificate.refusal(self.security.peer()).await
        {
            tracing::info!(reason, "the client's certificate is no longer accepted");
            return Err(self.close_with_reply("your certificate is no longer accepted here"));
        }
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
        // Matched after the flush: the reply to QUIT must be sent before the connection closes.
        match self.dialogue {
            Dialogue::Open => {}
            Dialogue::Closing => return Err(SessionEnd::Closing),
            Dialogue::ClearingCommands => {
                self.dialogue = Dialogue::Open;
                let ended = self.control.end_protection().await;
                return ended.map_err(SessionEnd::ConnectionLost);
            }
        }
        if matches!(self.work, SessionWork::Handshake) {
            return self.perform_handshake().await;
        }
        if self.work.is_none() {
            if !self.is_served() {
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
            && self.dialogue == Dialogue::Open
    }

    fn on_event(&mut self, event: SessionEvent) -> Result<(), SessionEnd> {
        match event {
            SessionEvent::Input(read) => self.on_input(read),
            SessionEvent::Work(step) => self.on_work_event(*step),
            SessionEvent::Phase => {
                self.on_phase();
                Ok(())
            }
            // The next step looks at the certificate.
            SessionEvent::Reload => Ok(()),
            SessionEvent::Displaced => {
                Err(self.close_with_reply("too many security exchanges are in progress"))
            }
            SessionEvent::Timeout => Err(self.close_with_reply(match &self.login {
                _ if self.phase() > ServerPhase::Serving => SHUTTING_DOWN,
                LoginStatus::NotLoggedIn { .. } => "no login in time",
                login if login.has_expired() => EXPIRED,
                LoginStatus::LoggedIn(_) => "idle for too long",
            })),
        }
    }

    /// Feeds waiting lines to the state machine for as long as it accepts them.
    async fn take_lines(&mut self) -> Result<(), SessionEnd> {
        while self.dialogue == Dialogue::Open {
            let line = match self.machine.expected_input() {
                ExpectedInput::Line if !self.is_served() => None,
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
            self.activity.last = Instant::now();
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
            Ok(()) = self.server_phase.changed() => SessionEvent::Phase,
            () = self.certificate.reloaded(), if self.work.is_none() => SessionEvent::Reload,
            step = self.work.next_event(), if !self.work.is_none() => SessionEvent::Work(Box::new(step)),
            read = self.control.read(), if self.control.has_input_room() => SessionEvent::Input(read),
            () = sleep_until(deadline), if self.work.is_none() => SessionEvent::Timeout,
            () = secure::displaced(self.security.exchange_slot()) => SessionEvent::Displaced,
        }
    }

    /// The time at which a session that waits for a line is closed. Commands extend the idle timeout but
    /// not the login timeout.
    fn deadline(&self) -> Instant {
        match &self.login {
            _ if self.phase() > ServerPhase::Serving => self.activity.last + FOLLOW_UP_SILENCE,
            LoginStatus::NotLoggedIn { deadline, .. } => *deadline,
            LoginStatus::LoggedIn(login) => {
                let idle = self.activity.last + self.activity.idle_timeout;
                // Later than its file requests, which refuse from the end of the token on.
                match login.time_left() {
                    Some(left) => idle.min(Instant::now() + left),
                    None => idle,
                }
            }
        }
    }

    fn phase(&self) -> ServerPhase {
        *self.server_phase.borrow()
    }

    /// Whether lines are taken, as far as the server's phase goes.
    fn is_served(&self) -> bool {
        self.phase() == ServerPhase::Serving || self.is_in_follow_up()
    }

    /// Whether, while the server drains, the client may still send commands that belong to its last
    /// transfer.
    fn is_in_follow_up(&self) -> bool {
        self.phase() == ServerPhase::Draining
            && self.activity.has_transferred
            && matches!(self.login, LoginStatus::LoggedIn(_))
            && self.activity.last.elapsed() < FOLLOW_UP_SILENCE
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

    fn on_phase(&mut self) {
        // The state machine refuses new transfers from here on; the one that runs may finish.
        self.machine.drain();
        if self.phase() >= ServerPhase::Terminating {
            self.work.stop(StopCause::Shutdown);
        }
    }

    /// Carries out actions in order. The state machine puts an action with an outcome last.
    fn run_actions(&mut self, actions: Vec<SessionAction>) {
        for action in actions {
            match action {
                SessionAction::Reply(reply) => self.control.queue(&reply),
                SessionAction::Secure(request) => self.secure(request),
                SessionAction::Authenticate { user, password } => self.authenticate(user, password),
                SessionAction::SetDataCredential(credential) => {
                    self.set_data_credential(&credential);
                }
                SessionAction::ClearCommands => {
                    if self.dialogue == Dialogue::Open {
                        self.dialogue = Dialogue::ClearingCommands;
                    }
                    self.security.clear_commands();
                }
                SessionAction::File(request) => {
                    self.records.note_rename(&request);
                    self.work = self.start_file_work(request);
                }
                SessionAction::Listen(request) => {
                    let nodes = request.striped.as_ref();
                    let nodes = nodes.and_then(|place| self.nodes_with(place));
                    let ends = &self.addresses;
                    self.work = self.data.listen(&request, nodes, ends, &self.shared);
                }
                SessionAction::ConnectTo { to, striped } => {
                    self.data
                        .connect_to(&to, striped, &self.addresses, &self.shared);
                }
                SessionAction::ReportForeignHost(host) => log_foreign_host(host),
                SessionAction::ListenDrs(family) => {
                    self.work = self.data.listen_drs(family, &self.addresses, &self.shared);
                }
                SessionAction::ConnectDrs(to) => {
                    let foreign = self.shared.config.foreign_data_addresses;
                    self.data.connect_drs(to, &self.addresses, foreign);
                }
                SessionAction::DropDrs => self.data.drs = None,
                SessionAction::SetSendBuffer(bytes) => {
                    if let SessionWork::Transfer(running) = &mut self.work {
                        running.follow_buffer(bytes);
                    }
                }
                SessionAction::DropChannel => self.data.drop_channel(),
                SessionAction::Transfer(request) => self.work = self.queue_transfer(*request),
                SessionAction::Abort => self.work.stop(StopCause::Abort),
                SessionAction::LogField(key, value) => self.records.set_note(key, value),
                SessionAction::IdleTimeout(seconds) => {
                    self.activity.idle_timeout = Duration::from_secs(seconds.into());
                }
                SessionAction::Close => self.dialogue = Dialogue::Closing,
            }
        }
    }

    fn authenticate(&mut self, user: String, password: Option<Secret>) {
        let shared = Arc::clone(&self.shared);
        let request = LoginRequest {
            user,
            password,
            peer: self.addresses.peer.ip(),
            client: self.security.client(),
            certified_until: self.security.certified_until(),
        };
        self.work = SessionWork::Login(Box::pin(async move {
            let limits = &shared.session_limits;
            shared.authenticator.authenticate(request, limits).await
        }));
    }

    fn start_file_work(&self, request: FileRequest) -> SessionWork {
        match &self.login {
            LoginStatus::LoggedIn(login) => {
                let shared = Arc::clone(&self.shared);
                SessionWork::File(Box::new(FileWork::start(
                    shared,
                    self.addresses.peer.ip(),
                    login.files.clone(),
                    request,
                )))
            }
            LoginStatus::NotLoggedIn { .. } => {
                SessionWork::Immediate(DriverEvent::File(Err(not_logged_in_error())))
            }
        }
    }

    /// Queues a transfer for its permit.
    fn queue_transfer(&self, request: TransferRequest) -> SessionWork {
        let max_wait = self.shared.config.queue_timeout;
        SessionWork::Admission(Box::new(QueuedTransfer::new(
            request,
            &self.shared.transfer_queue,
            self.addresses.peer.ip(),
            max_wait,
        )))
    }

    /// Starts a transfer that has its permit, unless its client has disconnected meanwhile.
    fn start_transfer(&mut self, request: TransferRequest, permit: QueuePermit) -> SessionWork {
        // Nobody would read the final reply, and an upload must not replace a file for nobody.
        if self.control.has_ended() {
            let gone = TransferError::Broken("the client has disconnected".to_owned());
            return SessionWork::Immediate(DriverEvent::Transferred(Err(gone)));
        }
        let kind = LoggedTransferKind::of(&request.kind);
        let started = self
            .transfer_order(request, permit)
            .and_then(|(order, handles)| {
                let counted = self.shared.metrics.transfer_begins(kind);
                TransferHandle::start(order, handles, counted)
                    .map_err(|error| FileError::new(FileErrorKind::Busy, error.to_string()))
            });
        match started {
            Ok(running) => SessionWork::Transfer(Box::new(running)),
            Err(error) => {
                SessionWork::Immediate(DriverEvent::Transferred(Err(TransferError::File(error))))
            }
        }
    }

    /// After REIN (RFC 959 section 4.1.1) a new login must succeed in time. Dropping the old login ends
    /// its count.
    fn note_logout(&mut self) {
        if matches!(self.login, LoginStatus::LoggedIn(_))
            && !self.machine.is_logged_in()
            && self.dialogue != Dialogue::Closing
        {
            self.security.set_data_credential(None);
            self.login =
                LoginStatus::not_logged_in(Instant::now() + self.shared.config.login_timeout);
        }
    }

    /// The order, and the local handles that carry it out. Takes the session's data channel.
    fn transfer_order(
        &mut self,
        request: TransferRequest,
        permit: QueuePermit,
    ) -> Result<(TransferOrder, LocalHandles), FileError> {
        let LoginStatus::LoggedIn(login) = &self.login else {
            return Err(not_logged_in_error());
        };
        let files = login.files.clone();
        let line = self
            .control
            .control_socket()
            .map_err(|e| FileError::new(FileErrorKind::Busy, e.to_string()))?;
        let uploader = login.uploader(self.addresses.peer.ip());
        let rate = self.shared.transfer_rate(self.addresses.peer.ip(), login);
        if let Some(listen) = &request.delayed_passive {
            self.data.note_expected_hosts(listen, &self.addresses);
        }
        let security = self
            .security
            .data_security(&request.protection, &self.shared.material)
            .map_err(|error| protection_error(&error))?;
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        let connections = match &request.delayed_passive {
            None => DataAddresses::of(self.data.channel.as_ref()),
            Some(listen) => DataAddresses::ToListen {
                options: self.addresses.listen_options(listen, config)?,
                public: config.public_address,
            },
        };
        let sends = request.kind.is_retrieve();
        let memory = self.shared.history.clone().filter(|_| sends);
        let memory = memory.map(|history| {
            let control = &self.addresses;
            let peer = match &connections {
                DataAddresses::Targets(targets) => targets.first().ip(),
                _ => control.peer.ip(),
            };
            TransferMemory::new(history, control.local.ip(), peer, control.direct_peer())
        });
        let striped = self.striped_work(&request, &connections)?;
        let order = TransferOrder {
            terms: TransferTerms::of(&request, config),
            request,
            connections,
            uploader,
        };
        let handles = LocalHandles {
            files,
            control_socket: Arc::new(line),
            // The channel moves to the worker and comes back with the result, so no lock is needed.
            channel: self.data.channel.take(),
            stream_budget: self.shared.client_stream_budget(self.addresses.peer.ip()),
            rate,
            drs: self.data.drs.clone(),
            security: security.map(Arc::new),
            memory,
            permit,
            striped,
        };
        Ok((order, handles))
    }

    /// Whether data nodes could carry out this session's transfers.
    fn may_use_nodes(&self) -> bool {
        matches!(self.login, LoginStatus::LoggedIn(_)) && self.security.suits_nodes()
    }

    /// The session's root, below that of the server; `None`: it is elsewhere, or the user has not logged in.
    fn root_at_nodes(&self) -> Option<&Path> {
        let LoginStatus::LoggedIn(login) = &self.login else {
            return None;
        };
        let main = self.shared.authenticator.root_path();
        login.root_path.strip_prefix(main).ok()
    }

    /// The data nodes that have this file or directory and could carry out this session's transfers.
    fn nodes_with(&self, path: &VPath) -> Option<NodeAccess> {
        let root = self.root_at_nodes().filter(|_| self.may_use_nodes())?;
        let path = root.join(OsStr::from_bytes(path.relative()));
        self.shared.node_access(&path)
    }

    /// The data nodes for a transfer: those that listen for it, or those that shall connect. `None`: this process carries it out.
    fn striped_work(
        &mut self,
        request: &TransferRequest,
        connections: &DataAddresses,
    ) -> Result<Option<StripedWork>, FileError> {
        let listening = self.data.stripes.take();
        let root = self.root_at_nodes();
        let security = self
            .security
            .node_security(&request.protection, &self.shared.material);
        let obstacle = match root {
            Some(_) => stripe_obstacle(request).or(security.as_ref().err().copied()),
            None => Some("your directory is not on the file system of the data nodes"),
        };
        let obstacle = obstacle
            .or((!self.may_use_nodes())
                .then_some("this session's data connections have no credential"));
        let nodes_connect =
            self.data.nodes_connect && matches!(connections, DataAddresses::Targets(_));
        let access = self.nodes_with(request.kind.path());
        let is_elsewhere = listening.as_ref().is_some_and(|set| {
            let access = access.as_ref();
            !access.is_some_and(|access| set.is_within(access))
        });
        let obstacle = obstacle.or((is_elsewhere && *connections == DataAddresses::Unknown)
            .then_some("they do not have this file: enter its directory (CWD) before SPAS"));
        match (obstacle, access, root) {
            (None, Some(access), Some(root)) if listening.is_some() || nodes_connect => {
                Ok(Some(StripedWork {
                    access,
                    listening,
                    root: root.to_owned(),
                    security: security.unwrap_or_default(),
                }))
            }
            (Some(obstacle), ..)
                if *connections == DataAddresses::Unknown && listening.is_some() =>
            {
                let text = format!("data nodes listen for this transfer (SPAS), but {obstacle}");
                self.data.stripes = listening;
                Err(FileError::new(FileErrorKind::Other, text))
            }
            _ => Ok(None),
        }
    }

    fn on_work_event(&mut self, step: WorkEvent) -> Result<(), SessionEnd> {
        let outcome = match step {
            WorkEvent::ChecksumProgress(bytes) => DriverEvent::ChecksumProgress {
                now: seconds_since_1970(),
                bytes,
            },
            WorkEvent::Transfer(update) => return self.on_transfer_update(update),
            WorkEvent::Admitted(admitted) => match *admitted {
                AdmissionResult::Granted(request, permit) => {
                    self.work = self.start_transfer(*request, permit);
                    return Ok(());
                }
                AdmissionResult::Refused(error) => {
                    // One that was aborted meanwhile was not refused.
                    if let TransferError::File(_) = error {
                        self.shared.metrics.count_refused_transfer();
                    }
                    self.finish_work(DriverEvent::Transferred(Err(error)))
                }
            },
            WorkEvent::Immediate(outcome) => self.finish_work(outcome),
            WorkEvent::File(answer, share) => {
                if let Some(share) = share {
                    self.control.hold_until_sent(share);
                }
                if let Err(error) = &answer {
                    self.refusals.log_denied_request(error);
                }
                self.records.on_file_answer(answer.is_ok());
                self.finish_work(DriverEvent::File(answer))
            }
            WorkEvent::Listen(opened) => {
                let public = self.shared.config.public_address;
                let opened = opened.and_then(|channel| self.data.keep_listener(channel, public));
                self.finish_work(DriverEvent::Listening(opened))
            }
            WorkEvent::ListenDrs(opened) => {
                let public = self.shared.config.public_address;
                let advertised = opened.map(|endpoint| self.data.keep_drs(endpoint, public));
                self.finish_work(DriverEvent::DrsListening(advertised))
            }
            WorkEvent::Exchange(step) => return self.on_exchange_step(step),
            WorkEvent::Login(Ok(login)) => {
                self.shared.metrics.count_login(true);
                let grant = login.grant.clone();
                tracing::info!(
                    user = %grant.user,
                    identity = self.security.identity().map(tracing::field::display),
                    protocol = %self.security.description(),
                    "logged in"
                );
                // Boxed: a session without a login should not pay for the size of one.
                self.login = LoginStatus::LoggedIn(Box::new(login));
                // A user may pipeline more than a client without a login; see `AFTER_LOGIN`.
                self.control.raise_input_limits();
                self.finish_work(DriverEvent::Login(Ok(grant)))
            }
            WorkEvent::Login(Err(LoginRefusal::PasswordNeeded)) => {
                self.finish_work(DriverEvent::Login(Err(LoginFailure::PasswordNeeded)))
            }
            WorkEvent::Login(Err(refusal)) if refusal.ends_session() => {
                self.shared.metrics.count_login(false);
                return Err(self.close_with_reply(&refusal.to_string()));
            }
            WorkEvent::Login(Err(refusal)) => {
                self.shared.metrics.count_login(false);
                let refusal = LoginFailure::Refused(refusal.to_string());
                self.finish_work(DriverEvent::Login(Err(refusal)))
            }
        };
        self.report_outcome(outcome);
        Ok(())
    }

    /// Ends the work and restarts the idle timeout.
    fn finish_work(&mut self, outcome: DriverEvent) -> DriverEvent {
        self.work = SessionWork::None;
        self.activity.last = Instant::now();
        outcome
    }

    fn on_transfer_update(&mut self, update: TransferUpdate) -> Result<(), SessionEnd> {
        match update {
            TransferUpdate::Tick(progress) => self.report_outcome(DriverEvent::Progress(progress)),
            TransferUpdate::Resized(bytes) => {
                self.report_outcome(DriverEvent::BufferResized(bytes));
            }
            TransferUpdate::Event(WorkerEvent::Listening(Ok(addresses))) => {
                self.report_outcome(DriverEvent::Listening(Ok(addresses)));
            }
            TransferUpdate::Event(WorkerEvent::Listening(Err(error))) => {
                let outcome = self.finish_work(DriverEvent::Listening(Err(error)));
                self.report_outcome(outcome);
            }
            TransferUpdate::Event(WorkerEvent::Opened {
                reused,
                unique_name,
                stripes,
            }) => {
                self.report_outcome(DriverEvent::Opened {
                    reused,
                    unique_name,
                });
                // The first 112 marker is due at the start of a transfer, before any data. It tells the number of stripes, too, for which
                // globus-url-copy takes memory.
                self.report_outcome(DriverEvent::Progress(zero_progress(stripes)));
            }
            TransferUpdate::Event(WorkerEvent::Ended(ended)) => self.on_transferred(*ended),
            TransferUpdate::WorkerLost => return Err(self.close_with_reply("internal error")),
        }
        Ok(())
    }

    /// Reports an outcome to the state machine and carries out the actions it returns.
    fn report_outcome(&mut self, outcome: DriverEvent) {
        let actions = self.machine.on_driver_event(outcome);
        self.run_actions(actions);
    }

    fn on_transferred(&mut self, ended: FinishedTransfer) {
        let FinishedTransfer {
            result,
            last,
            channel,
            stripes,
            summary,
        } = ended;
        // Kept before the outcome is reported: the next command may use its connections at once.
        self.data.channel = channel;
        self.data.stripes = stripes;
        self.activity.has_transferred = true;
        if result.is_err() {
            // The last 111 marker must name all bytes that are safe: the client resumes from it.
            self.report_outcome(DriverEvent::Progress(last));
        }
        // Taken here, because the result moves into the outcome.
        let error = result.as_ref().err().map(records::describe);
        let outcome = self.finish_work(DriverEvent::Transferred(result));
        let actions = self.machine.on_driver_event(outcome);
        // No transfer begins without a login.
        if let LoginStatus::LoggedIn(login) = &self.login {
            let session = RecordedSession {
                login,
                client: self.addresses.peer,
                identity: self.security.identity(),
                expected_hosts: &self.data.expected_hosts,
            };
            let code = records::final_code(&actions);
            let end = RecordedEnd { code, error };
            self.records.record(&session, summary, end);
        }
        self.run_actions(actions);
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

fn zero_progress(stripes: usize) -> TransferProgress {
    TransferProgress {
        now: seconds_since_1970(),
        bytes: 0,
        stripes: vec![0; stripes],
        stored: RangeSet::new(),
    }
}

fn log_foreign_host(host: IpAddr) {
    tracing::warn!(
        %host,
        "data connections to another host refused; the setting foreign-data-addresses allows them"
    );
}

/// The error of a transfer whose protection cannot be had. It never goes on with less.
fn protection_error(error: &DataProtectionError) -> FileError {
    tracing::warn!(%error, "transfer refused for lack of protection");
    FileError::new(FileErrorKind::Other, error.to_string())
}

/// The error of a request without a login.
fn not_logged_in_error() -> FileError {
    FileError::new(FileErrorKind::Denied, "not logged in")
}
