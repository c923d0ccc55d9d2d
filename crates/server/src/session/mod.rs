//! The driver of one session: carries out what the state machine asks for and reports back.
//!
//! It has no knowledge of the protocol. Bytes become lines in [`ControlConnection`], lines become
//! actions in [`Session`], actions become [`Work`], and its outcome goes back to the machine.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use data::channel::Channel;
use data::drs;
use data::transport::ControlTransport;
use proto::server::{Awaiting, Session, SessionConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use crate::control::ControlConnection;
use crate::data_address::Ends;
use crate::files::Share;
use crate::limits::SessionSlot;
use crate::login::Login;
use crate::shared::{Phase, Shared};
use crate::transfer::Stop;
use crate::work::{Step, Work};

mod actions;
mod order;
mod outcomes;
mod record;

use record::{Notes, Unnamed};

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
    shared: Arc<Shared>,
    handshake: impl Future<Output = io::Result<ControlTransport>>,
    ends: Ends,
    slot: SessionSlot,
) {
    let span = tracing::info_span!("session", peer = %ends.peer);
    async {
        if let Some(transport) = shaken(&shared, handshake).await {
            Box::new(Driver::new(shared, transport, ends, slot))
                .run()
                .await;
        }
    }
    .instrument(span)
    .await;
}

/// The outcome of a handshake, which has as long as a login may take, and no longer than the server
/// serves. Who is not done by then is left without a word: there is no way to say one.
async fn shaken(
    shared: &Shared,
    handshake: impl Future<Output = io::Result<ControlTransport>>,
) -> Option<ControlTransport> {
    let mut phases = shared.phases();
    let shaken = tokio::select! {
        biased;
        shaken = timeout(shared.config.login_timeout, handshake) => shaken,
        _ = phases.wait_for(|phase| *phase > Phase::Serving) => return None,
    };
    shaken
        .map_err(io::Error::from)
        .flatten()
        .inspect_err(|error| tracing::debug!(%error, "handshake failed"))
        .ok()
}

/// Who is at the other end.
enum Who {
    /// Nobody yet; must have logged in by then, and within so many commands.
    Stranger { until: Instant, commands: u32 },
    /// A user.
    User(Box<Login>),
}

impl Who {
    fn stranger(until: Instant) -> Self {
        Self::Stranger { until, commands: 0 }
    }

    /// Counts a command; whether a stranger has sent too many.
    fn is_tiresome(&mut self) -> bool {
        match self {
            Self::User(_) => false,
            Self::Stranger { commands, .. } => {
                *commands += 1;
                *commands > MAX_COMMANDS_BEFORE_LOGIN
            }
        }
    }
}

/// Why a session ends.
#[derive(Debug)]
enum End {
    /// All is said: send what is queued and close.
    Said,
    /// The client is gone or does not read: nothing more can be said.
    Gone(io::Error),
}

/// Events that a session waits for.
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
    /// This end of the DRS channel, for all transfers from DPSV or DPRT on.
    drs: Option<Arc<drs::Endpoint>>,
    /// Where data connections go to or are expected from, for the log of a transfer without any.
    data_peers: Vec<IpAddr>,
    work: Work,
    notes: Notes,
    idle_timeout: Duration,
    active: Instant,
    /// A transfer has ended.
    transferred: bool,
    phases: watch::Receiver<Phase>,
    phase: Phase,
    closing: bool,
    /// Memory of a listing among the replies.
    reply_share: Option<Share>,
    /// Records of transfers on their way to the disk.
    recording: Option<JoinHandle<()>>,
    /// The record of an upload whose name is not known yet.
    unnamed: Option<Box<Unnamed>>,
    _slot: SessionSlot,
}

impl Driver {
    fn new(
        shared: Arc<Shared>,
        transport: ControlTransport,
        ends: Ends,
        slot: SessionSlot,
    ) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let mut phases = shared.phases();
        let phase = *phases.borrow_and_update();
        Self {
            control: ControlConnection::new(transport, config.transfer.stall),
            machine: Session::new(machine_config(&shared, &ends)),
            who: Who::stranger(now + config.login_timeout),
            channel: None,
            drs: None,
            data_peers: Vec::new(),
            work: Work::None,
            notes: Notes::default(),
            idle_timeout: config.idle_timeout,
            active: now,
            transferred: false,
            phase,
            phases,
            closing: false,
            reply_share: None,
            recording: None,
            unnamed: None,
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
        self.wind_up().await;
        match end {
            End::Said => self.control.close().await,
            End::Gone(error) => tracing::debug!(%error, "session lost"),
        }
        tracing::debug!("session ended");
    }

    /// Stops a transfer that still runs, waits for its end (the log has a line for each) and
    /// closes the data channel.
    async fn wind_up(&mut self) {
        while let Work::Transfer(running) = &mut self.work {
            running.stop(Stop::ClientGone);
            let seen = running.next().await;
            if self.on_transfer(seen).is_err() {
                self.work = Work::None;
            }
        }
        self.work = Work::None;
        self.channel = None;
        self.write_unnamed();
        if let Some(recording) = self.recording.take() {
            // Fails only if the log panicked; there is nothing left to tell of it here.
            let _ = recording.await;
        }
    }

    /// Takes what lines may be taken, says what is to be said, waits for one thing to happen.
    async fn turn(&mut self) -> Result<(), End> {
        self.take_lines().await?;
        self.control.flush().await.map_err(End::Gone)?;
        self.reply_share = None;
        if self.closing {
            return Err(End::Said);
        }
        if self.work.is_none() {
            if self.phase > Phase::Serving && !self.follows_up() {
                return Err(self.farewell(SHUTTING_DOWN));
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
            Occurrence::TimeOut => Err(self.farewell(match self.who {
                _ if self.phase > Phase::Serving => SHUTTING_DOWN,
                Who::Stranger { .. } => "no login in time",
                Who::User(_) => "idle for too long",
            })),
        }
    }

    /// Feeds waiting lines to the machine for as long as it takes them.
    async fn take_lines(&mut self) -> Result<(), End> {
        while !self.closing {
            let line = match self.machine.awaiting() {
                Awaiting::Line if self.phase > Phase::Serving && !self.follows_up() => None,
                Awaiting::Line => self.control.next_line(),
                Awaiting::Stoppable => self
                    .control
                    .next_urgent(|line| self.machine.is_urgent(line)),
                Awaiting::Outcome => None,
            };
            let Some(line) = line else { break };
            self.active = Instant::now();
            if self.who.is_tiresome() {
                return Err(self.farewell("too many commands before login"));
            }
            let actions = self.machine.on_line(&line);
            self.carry_out(actions);
            self.note_logout();
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
            _ if self.phase > Phase::Serving => self.active + FOLLOW_UP,
            Who::Stranger { until, .. } => until,
            Who::User(_) => self.active + self.idle_timeout,
        }
    }

    /// While the server drains: whether the client may still be at work on its last transfer.
    fn follows_up(&self) -> bool {
        self.phase == Phase::Draining
            && self.transferred
            && matches!(self.who, Who::User(_))
            && self.active.elapsed() < FOLLOW_UP
    }

    fn farewell(&mut self, reason: &str) -> End {
        tracing::info!(reason, "closing session");
        self.control.queue(&closing_reply(reason));
        End::Said
    }

    /// Lines that came before the client closed its side are still carried out, but a transfer
    /// without a client is not worth its bytes.
    fn on_input(&mut self, read: io::Result<()>) -> Result<(), End> {
        read.map_err(End::Gone)?;
        if self.control.ended() {
            match &self.work {
                Work::Transfer(_) | Work::Admission(_) => return Err(End::Said),
                Work::File(work) => work.stop(),
                _ => {}
            }
        }
        Ok(())
    }

    fn on_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.machine.drain();
        if phase < Phase::Ending {
            return;
        }
        match &mut self.work {
            Work::Transfer(running) => running.stop(Stop::Shutdown),
            Work::Admission(waiting) => waiting.stop(Stop::Shutdown),
            Work::File(work) => work.stop(),
            _ => {}
        }
    }
}

fn machine_config(shared: &Shared, ends: &Ends) -> SessionConfig {
    let config = &shared.config;
    let version = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
    SessionConfig {
        congestion: Arc::clone(&shared.congestion),
        banner: format!("{version} GridFTP server ready."),
        version: version.to_owned(),
        peer: ends.peer.ip(),
        perf_marker_seconds: config.perf_marker_seconds,
        range_marker_seconds: config.range_marker_seconds,
        max_streams: config.max_streams_per_transfer,
        max_login_failures: MAX_LOGIN_FAILURES,
        max_bad_lines: MAX_BAD_LINES,
        sizing: config.transfer.buffers.sizing,
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
