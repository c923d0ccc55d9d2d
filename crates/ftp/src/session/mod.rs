//! A logged-in control connection and what is known about its server.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::os::tcp_info;
use data::tunnel::DataRoute;
use proto::client::{
    CommandPlanner, IacHandling, SeriesWindow, is_toolkit_server, supports_pipelining,
};
use proto::command::{Command, TransferMode};
use proto::feature::ServerFeatures;
use proto::printable::printable;

use crate::failure::Sentence;
use crate::location::Server;
use crate::{Credential, Failure, ServerIdentity};

mod ahead;
pub mod checksum;
pub(crate) mod control;
pub(crate) mod data_protection;
mod directories;
mod explain;
pub(crate) mod files;
mod greeting;
mod habits;
pub mod links;
mod list;
mod listing_limits;
mod login;
mod metadata;
pub(crate) mod passive;
pub mod path_names;
pub(crate) mod replies;
mod right_sizing;
#[cfg(any(test, feature = "scripted-server"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it is a part of tests"
)]
pub mod scripted_server;
mod secure;
mod stat;
pub(crate) mod stripes;

use control::ClientControlConnection;
pub use control::dialogue::{DIALOGUE, log_dialogue};
pub use control::reach::{clean_far_end, connect_to_server, open_ssh_channel};
use data_protection::AgreedProtections;
pub(crate) use data_protection::DataPurpose;
pub use data_protection::{ListingUse, ThirdPartyProtocol};
use directories::CwdMeaning;
pub(crate) use habits::RestartEffect;
pub use habits::ServerHabits;
use secure::ClientSessionSecurity;

/// Longest wait for the reply to QUIT.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Round trip from which on texts that a server takes or sends compressed are worth the work at both ends.
pub const COMPRESSED_FROM: Duration = Duration::from_millis(2);

/// Most commands that are sent before a reply is read: their replies stay in the socket buffers.
const MAX_PIPELINED: usize = 128;

/// Longest wait for a reply, or for data, while commands are ahead at a server that does not announce pipelining: one that
/// discards commands is noticed by its silence.
pub const MAX_SILENCE: Duration = Duration::from_secs(20);

/// A logged-in control connection. Every method maps a refusal to a [`Failure`] with its exit
/// class (550 "no such file" → NotFound, 550 "permission" and 530 → Refused, 4xx → transient, ...).
/// Drop the session after a transient failure.
#[derive(Debug)]
pub struct ClientSession {
    server: Server,
    pub(crate) control: ClientControlConnection,
    pub(crate) planner: CommandPlanner,
    /// The data channel prepared for the next transfer, or kept from the last one.
    pub(crate) data_channel: Option<SessionDataChannel>,
    /// The host that `data_channel` connects to; `None` when the server connects.
    data_host: Option<IpAddr>,
    passive_preference: passive::PassivePreference,
    /// The data nodes of the server, as far as they are known.
    stripes: stripes::ServerStripes,
    given_warnings: HashSet<&'static str>,
    handshake_rtt: Duration,
    checksum_markers_requested: bool,
    /// Whether the server can connect to this machine, as far as is known.
    server_can_connect: bool,
    /// Commands to pipeline behind the next transfer command.
    pub(crate) followup_commands: Vec<Command>,
    /// Mode and window of the last series, with which the next one goes on.
    pub(crate) last_series: Option<(TransferMode, SeriesWindow)>,
    /// Dropped with the session.
    lease: Option<Arc<()>>,
    /// Data connections may be with other hosts than the server's own (striped servers).
    allow_foreign_data: bool,
    /// The other hosts last announced to the server by SITE DATAPEER.
    data_peers: Vec<IpAddr>,
    /// Habits of the server, as far as they are known.
    habits: ServerHabits,
    /// The server does not know MDTM.
    lacks_mdtm: bool,
    /// The directory of the last CWD, if that was accepted.
    current_directory: Option<Vec<u8>>,
    cwd_meaning: CwdMeaning,
    /// A directory was listed to find out how this server shows it.
    has_looked_above: bool,
    /// The facts of names of a listing are asked for.
    asks_for_listed_names: bool,
    /// Commands that were refused with a path in full.
    refused_in_full: HashSet<&'static str>,
    /// Protection of the control connection.
    security: ClientSessionSecurity,
    /// Protection of the data connections, once it is agreed.
    data_protection: AgreedProtections,
    listing_use: ListingUse,
}

/// How a session is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionOpening<'a> {
    /// Habits of the server that are known.
    pub habits: ServerHabits,
    /// There is another session with the server, so that this one can be given up soon if it is not greeted.
    pub is_further: bool,
    /// The path whose facts will be needed first; MLST for it is pipelined behind the login.
    pub first_path: Option<&'a [u8]>,
    /// Kept for as long as the session lives.
    pub lease: Option<&'a Arc<()>>,
}

/// Opens sessions with the same server, as the same user.
#[derive(Debug, Clone)]
pub struct SessionOpener {
    server: Server,
    reply_timeout: Duration,
    habits: ServerHabits,
    allow_foreign_data: bool,
    listing_use: ListingUse,
}

impl SessionOpener {
    /// As [`ClientSession::open_another`].
    pub async fn open(self) -> Result<ClientSession, Failure> {
        let opening = SessionOpening {
            habits: self.habits,
            is_further: true,
            first_path: None,
            lease: None,
        };
        let mut session =
            ClientSession::open_with(&self.server, self.reply_timeout, opening).await?;
        session.allow_foreign_data = self.allow_foreign_data;
        session.listing_use = self.listing_use;
        Ok(session)
    }
}

impl ClientSession {
    /// Connects (tries all addresses of the name in turn), secures the connection, logs in, sends FEAT and, where
    /// supported, SITE CLIENTINFO, and sets TYPE I. `timeout` bounds every wait for a reply of the
    /// session.
    ///
    /// # Errors
    /// `Unreachable` when the server cannot be found (final) or reached (transient); `Refused` when
    /// the login is refused, or one end refuses the other's certificate or lack of security.
    pub async fn open(server: &Server, timeout: Duration) -> Result<Self, Failure> {
        Self::open_with(server, timeout, SessionOpening::default()).await
    }

    /// Like [`ClientSession::open`]. A server whose greeting shows support for pipelining gets the
    /// whole login at once, globus-gridftp-server all that follows PASS. If the connection is lost during that, as with a middlebox that follows
    /// the dialogue, the login is repeated one command at a time.
    pub async fn open_with(
        server: &Server,
        timeout: Duration,
        opening: SessionOpening<'_>,
    ) -> Result<Self, Failure> {
        // Checked before connecting, so that a bad login costs no connection.
        check_credential(server)?;
        let greeting::GreetedConnection {
            mut control,
            handshake_rtt,
            security,
            greeting,
            after,
        } = greeting::connect(server, timeout, &opening).await?;
        control.set_iac_handling(IacHandling::from_greeting(&greeting));
        let security = match security {
            Some(security) => security,
            None => secure::secure(&mut control, server).await?,
        };
        let credential = login::choose_credential(&mut control, server, &security).await?;
        let login = login::ClientLogin::new(server, &credential, &control, &security);
        // The path of the first MLST is part of the pipeline, so it must fit on a line.
        let first_path = opening.first_path.filter(|path| check_path(path).is_ok());
        let prefetch: Vec<Command> = first_path.map(mlst_command).into_iter().collect();
        let habits = opening.habits;
        let planner = match () {
            () if habits.lockstep => login::log_in(&mut control, &login).await,
            () if supports_pipelining(&greeting) => {
                login::log_in_pipelined(&mut control, &login, &prefetch).await
            }
            () if is_toolkit_server(&greeting) => {
                login::authenticate(&mut control, &login).await?;
                login::agree_on_settings_ahead(&mut control, &login, &prefetch).await
            }
            () => Ok(login::log_in(&mut control, &login).await?),
        };
        let planner = match planner {
            Ok(planner) => planner,
            Err(_) if control.connection_was_lost() && !habits.lockstep => {
                let without_pipelining = SessionOpening {
                    habits: habits.in_lockstep(),
                    ..opening
                };
                // Boxed: an async function cannot contain itself.
                return Box::pin(Self::open_with(server, timeout, without_pipelining)).await;
            }
            Err(failure) => return Err(failure),
        };
        let planner = match habits.lockstep {
            true => planner,
            false => planner.with_commands_ahead(),
        };
        control.end_login();
        let identity = ServerIdentity {
            certificate_sha256: security.fingerprint(&control),
            ..ServerIdentity::of_software(&greeting.summary())
        };
        server.security.note_identity(control.name(), identity);
        let reaches_this_machine = control.settle_data_route().await;
        let mut session = Self::from_connection(control, security, planner, server, handshake_rtt);
        session.habits = ServerHabits {
            greeting: habits.greeting.max(after),
            ..habits
        };
        session.lease = opening.lease.cloned();
        if let Some(reaches) = reaches_this_machine {
            session.server_can_connect = reaches;
        }
        session.note_restart(habits.restart);
        Ok(session)
    }

    fn from_connection(
        control: ClientControlConnection,
        security: ClientSessionSecurity,
        planner: CommandPlanner,
        server: &Server,
        handshake_rtt: Duration,
    ) -> Self {
        Self {
            server: server.clone(),
            passive_preference: match control.route() {
                // The port is enough, and the server's addresses may be of any family.
                Some(_) => passive::PassivePreference::by_route(control.peer_addr()),
                None => passive::PassivePreference::for_peer(control.peer_addr()),
            },
            // A proxy opens connections to servers only.
            server_can_connect: control.route().is_none()
                && !passive::is_behind_nat(control.local_addr().ip(), control.peer_addr().ip()),
            control,
            planner,
            data_channel: None,
            stripes: stripes::ServerStripes::default(),
            data_host: None,
            given_warnings: HashSet::new(),
            handshake_rtt,
            checksum_markers_requested: false,
            followup_commands: Vec::new(),
            last_series: None,
            lease: None,
            allow_foreign_data: false,
            data_peers: Vec::new(),
            habits: ServerHabits::default(),
            lacks_mdtm: false,
            current_directory: None,
            cwd_meaning: CwdMeaning::default(),
            has_looked_above: false,
            asks_for_listed_names: false,
            refused_in_full: HashSet::new(),
            security,
            data_protection: AgreedProtections::default(),
            listing_use: ListingUse::default(),
        }
    }

    /// Opens a new session in place of this one after the server refused a pipelined command; it
    /// sends one command at a time. Warnings already given and what is known about the network are
    /// kept.
    pub async fn reopen_without_pipelining(&mut self) -> Result<(), Failure> {
        self.data_channel = None;
        // Nothing unread on the old connection can be trusted, so it is abandoned rather than
        // closed with QUIT.
        self.control.abandon();
        let without_pipelining = SessionOpening {
            habits: self.habits.in_lockstep(),
            is_further: false,
            first_path: None,
            lease: None,
        };
        let reopened = Self::open_with(
            &self.server,
            self.control.reply_timeout(),
            without_pipelining,
        )
        .await?;
        let before = std::mem::replace(self, reopened);
        self.given_warnings = before.given_warnings;
        self.lease = before.lease;
        self.server_can_connect = before.server_can_connect;
        self.allow_foreign_data = before.allow_foreign_data;
        self.listing_use = before.listing_use;
        Ok(())
    }

    /// Opens another session with the same server, as the same user.
    ///
    /// # Errors
    /// As [`ClientSession::open`]; a server at its session limit refuses with 421.
    pub fn open_another(&self) -> impl Future<Output = Result<Self, Failure>> + Send + use<> {
        self.opener().open()
    }

    /// Opens further sessions like this one while this one is busy.
    pub fn opener(&self) -> SessionOpener {
        SessionOpener {
            server: self.server.clone(),
            reply_timeout: self.control.reply_timeout(),
            habits: self.habits,
            allow_foreign_data: self.allow_foreign_data,
            listing_use: self.listing_use,
        }
    }

    /// The features that the server announced.
    pub fn features(&self) -> &ServerFeatures {
        self.planner.features()
    }

    /// Round-trip time of the control connection, for choosing the number of streams: the kernel's
    /// minimum (tcpi_min_rtt), at most the duration of the TCP handshake. Behind a proxy it is the shortest wait for a reply.
    pub fn rtt(&self) -> Duration {
        if let Some(rtt) = self.control.tunnel_rtt() {
            return rtt;
        }
        // A min_rtt of 0 means that the kernel has no sample yet.
        let kernel_min = tcp_info::tcp_info(self.control.transport().as_fd())
            .map(|info| info.min_rtt)
            .unwrap_or_default();
        if kernel_min.is_zero() {
            self.handshake_rtt
        } else {
            kernel_min.min(self.handshake_rtt)
        }
    }

    /// Sets whether data connections may be with other hosts than the server's own.
    pub fn set_allow_foreign_data(&mut self, allowed: bool) {
        self.allow_foreign_data = allowed;
    }

    /// The addresses of this machine and of the server, of the control connection. `None` behind a proxy: what is learned
    /// of that path does not hold for the direct one, nor the other way round.
    pub fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        if self.control.route().is_some() {
            return None;
        }
        let (local, peer) = (self.control.local_addr(), self.control.peer_addr());
        Some((local.ip().to_canonical(), peer.ip().to_canonical()))
    }

    /// Whether the server is on this machine.
    pub fn is_on_this_machine(&self) -> bool {
        self.path_ends().is_some_and(|(local, peer)| local == peer)
    }

    /// Closes the session with QUIT. A server that takes no commands ahead is given a short time to reply, so
    /// that it can end the session in order.
    pub async fn close(mut self) {
        // The data channel closes first: a server may wait for its connections before it answers
        // QUIT.
        self.data_channel = None;
        if self.planner.takes_commands_ahead() {
            self.control.quit_without_reply().await;
        } else if self.control.send(&Command::Quit).await.is_ok() {
            // The reply has no consequences; waiting for it lets the server finish first.
            let _ = self.control.wait_for_reply_within(QUIT_TIMEOUT).await;
        }
    }

    /// `host:port`, for messages.
    pub fn name(&self) -> &str {
        self.control.name()
    }

    /// Whether the session can be used again. After a successful early close of a data connection
    /// the server's final reply may still be outstanding.
    pub fn is_usable(&self) -> bool {
        self.control.is_usable()
    }

    /// Sends NOOP, so that the server does not end a session that is silent for long. A session that does not answer is not
    /// usable afterwards.
    pub async fn keep_alive(&mut self) {
        // The next command tells of a failure.
        let _ = self.control.call(&Command::Noop).await;
    }

    /// Whether the server accepts commands before the last one is answered.
    pub fn supports_pipelining(&self) -> bool {
        self.planner.supports_pipelining()
    }

    /// Whether several commands that move no data may be sent before the first is answered.
    pub fn takes_commands_ahead(&self) -> bool {
        self.planner.takes_commands_ahead()
    }

    /// Whether MODE E may be tried.
    pub fn may_use_extended_mode(&self) -> bool {
        self.planner.may_use_extended_mode()
    }

    /// Whether the server can connect to this machine, which MODE E gets need.
    pub fn server_can_connect(&self) -> bool {
        self.server_can_connect
    }

    /// Whether a program carries the data connections that this end opens.
    pub fn is_carried(&self) -> bool {
        matches!(
            self.control.route().map(Arc::as_ref),
            Some(DataRoute::Carried(_))
        )
    }

    /// Records that the server could not connect to this machine.
    pub fn set_server_cannot_connect(&mut self) {
        self.server_can_connect = false;
    }

    /// Refuses a path that cannot be sent to this server unchanged.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        check_path(path)?;
        if self.control.can_send_name(path) {
            return Ok(());
        }
        let reason = Sentence::from("the remote path \"")
            .name(display_path(path))
            .words(format_args!(
                "\" contains the byte 0xFF, which {} (globus-gridftp-server) drops from names",
                self.name()
            ));
        Err(Failure::usage(reason).advise("give another path"))
    }

    /// Adds a warning unless this session has given it before.
    pub fn warn_once(&mut self, warnings: &mut Vec<String>, text: &'static str) {
        if self.given_warnings.insert(text) {
            warnings.push(format!("{} {text}", self.name()));
        }
    }
}

/// The command by which [`ClientSession::stat`] asks for facts.
fn mlst_command(path: &[u8]) -> Command {
    Command::Mlst(Some(path.to_vec()))
}

/// Refuses a path that no command line can carry: one with a line break or NUL, or an empty one.
///
/// # Errors
/// `Usage`.
fn check_path(path: &[u8]) -> Result<(), Failure> {
    let fault = if path.is_empty() {
        "is empty"
    } else if path.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        "contains a line break or NUL, which FTP cannot express"
    } else {
        return Ok(());
    };
    let reason = Sentence::from("the remote path \"")
        .name(display_path(path))
        .words(format_args!("\" {fault}"));
    Err(Failure::usage(reason).advise("give another path"))
}

fn check_credential(server: &Server) -> Result<(), Failure> {
    let may_be_clear = !server.security.requires_tls(server.scheme);
    if may_be_clear && matches!(server.credential, Credential::Token(_)) {
        return Err(Failure::usage(
            "a token is sent inside TLS only: use ftps:, or --tls require".to_owned(),
        ));
    }
    // CR LF in a login would let a URL inject commands.
    let has_line_break = |text: &[u8]| text.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
    let (user, password) = server.credential.user_and_password();
    if has_line_break(user.as_bytes()) || has_line_break(&password.0) {
        return Err(Failure::usage(
            "user name or password contains a line break or NUL, which FTP cannot express"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A path for messages, without control characters.
pub fn display_path(path: &[u8]) -> String {
    printable(path).to_string()
}

#[cfg(test)]
mod tests;
