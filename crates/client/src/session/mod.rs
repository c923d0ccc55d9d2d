//! A logged-in control connection and what is known of the server behind it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use data::channel::SessionDataChannel;
use data::os::tcp_info;
use proto::client::{CommandPlanner, IacHandling, supports_pipelining};
use proto::command::Command;
use proto::feature::ServerFeatures;
use proto::printable::printable;

use crate::location::Server;
use crate::{CopyFailure, Exit};

mod checksum;
pub(crate) mod control;
mod explain;
pub(crate) mod files;
pub(crate) mod links;
mod list;
mod login;
pub(crate) mod passive;
pub(crate) mod replies;
mod right_sizing;
#[cfg(test)]
pub(crate) mod scripted_server;
mod stat;

use control::ClientControlConnection;

/// How long QUIT may take.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A logged-in control connection. Every method maps the server's refusal to a [`CopyFailure`] with
/// the right exit class (550 "no such file" → NotFound, 550 "permission" / 530 → Refused, 4xx →
/// transient ...). After a transient failure the session is to be dropped.
#[derive(Debug)]
pub struct ClientSession {
    server: Server,
    pub(crate) control: ClientControlConnection,
    pub(crate) planner: CommandPlanner,
    /// The data channel prepared for the next transfer, or kept from the last one.
    pub(crate) data_channel: Option<SessionDataChannel>,
    /// The host that `channel` connects to; `None`: the server connects.
    data_host: Option<IpAddr>,
    passive_preference: passive::PassivePreference,
    given_warnings: HashSet<&'static str>,
    handshake_rtt: Duration,
    checksum_markers_requested: bool,
    /// The server can connect to this machine, as far as is known.
    server_can_connect: bool,
    /// Asked ahead with the next transfer command.
    pub(crate) followup_commands: Vec<Command>,
    /// Data connections may be with other hosts than the server's own (striped servers).
    allow_foreign_data: bool,
    /// The other host of data connections that the server was told last.
    data_peer: Option<IpAddr>,
    /// The server refused something that was sent ahead of its time, or the connection ended over it.
    avoids_pipelining: bool,
}

/// How a session begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SessionOpening<'a> {
    /// One command after the other, whoever the server says it is.
    pub(crate) avoid_pipelining: bool,
    /// The path whose facts will be asked for first.
    pub(crate) first_path: Option<&'a [u8]>,
}

impl ClientSession {
    /// Connects (all addresses of the name in turn), logs in, asks FEAT, announces itself
    /// (CLIENTINFO when known), sets TYPE I. `timeout` bounds every wait for a reply of the
    /// session.
    ///
    /// # Errors
    /// `Unreachable` when the server cannot be found (final) or reached (transient); `RefusedRenameStep`
    /// when the login is refused or needs security that is not spoken.
    pub async fn open(server: &Server, timeout: Duration) -> Result<Self, CopyFailure> {
        Self::open_with(server, timeout, SessionOpening::default()).await
    }

    /// As [`ClientSession::open`]. A server whose greeting says that it takes commands ahead gets the whole
    /// login in one flight; if the connection ends over that (something between the two reads along
    /// and does not expect it), the next one is made with care.
    pub(crate) async fn open_with(
        server: &Server,
        timeout: Duration,
        opening: SessionOpening<'_>,
    ) -> Result<Self, CopyFailure> {
        check_credential(server)?;
        let (mut control, handshake) = ClientControlConnection::connect(server, timeout).await?;
        let greeting = login::read_greeting(&mut control).await?;
        control.set_iac_handling(IacHandling::from_greeting(&greeting));
        if opening.avoid_pipelining || !supports_pipelining(&greeting) {
            let dialogue = login::log_in(&mut control, server).await?;
            let mut session = Self::from_connection(control, dialogue, server, handshake);
            session.avoids_pipelining = opening.avoid_pipelining;
            return Ok(session);
        }
        let look = opening.first_path.filter(|path| check_path(path).is_ok());
        let questions: Vec<Command> = look.map(mlst_command).into_iter().collect();
        match login::log_in_pipelined(&mut control, server, &questions).await {
            Ok(dialogue) => Ok(Self::from_connection(control, dialogue, server, handshake)),
            Err(_) if control.connection_was_lost() => {
                let careful = SessionOpening {
                    avoid_pipelining: true,
                    ..opening
                };
                Box::pin(Self::open_with(server, timeout, careful)).await
            }
            Err(failure) => Err(failure),
        }
    }

    fn from_connection(
        control: ClientControlConnection,
        dialogue: CommandPlanner,
        server: &Server,
        handshake: Duration,
    ) -> Self {
        Self {
            server: server.clone(),
            passive_preference: passive::PassivePreference::for_peer(control.peer_addr()),
            server_can_connect: !passive::is_behind_nat(
                control.local_addr().ip(),
                control.peer_addr().ip(),
            ),
            control,
            planner: dialogue,
            data_channel: None,
            data_host: None,
            given_warnings: HashSet::new(),
            handshake_rtt: handshake,
            checksum_markers_requested: false,
            followup_commands: Vec::new(),
            allow_foreign_data: false,
            data_peer: None,
            avoids_pipelining: false,
        }
    }

    /// Begins anew with a server that refused something which was sent ahead of the answer: from here
    /// on one command after the other. What the user was told, and what was learnt of the network,
    /// stays.
    pub(crate) async fn reopen_without_pipelining(&mut self) -> Result<(), CopyFailure> {
        self.data_channel = None;
        self.control.abandon();
        let careful = SessionOpening {
            avoid_pipelining: true,
            first_path: None,
        };
        let fresh = Self::open_with(&self.server, self.control.reply_timeout(), careful).await?;
        let before = std::mem::replace(self, fresh);
        self.given_warnings = before.given_warnings;
        self.server_can_connect = before.server_can_connect;
        self.allow_foreign_data = before.allow_foreign_data;
        Ok(())
    }

    /// Whether the server is better asked one thing after the other, whatever its greeting says.
    pub(crate) fn avoids_pipelining(&self) -> bool {
        self.avoids_pipelining
    }

    /// Another session with the same server, as the same user.
    ///
    /// # Errors
    /// As [`ClientSession::open`]; a server at its bound of sessions refuses with 421.
    pub fn open_another(&self) -> impl Future<Output = Result<Self, CopyFailure>> + Send + use<> {
        let (server, patience) = (self.server.clone(), self.control.reply_timeout());
        let opening = SessionOpening {
            avoid_pipelining: self.avoids_pipelining,
            first_path: None,
        };
        let foreign = self.allow_foreign_data;
        async move {
            let mut session = Self::open_with(&server, patience, opening).await?;
            session.allow_foreign_data = foreign;
            Ok(session)
        }
    }

    /// Features that the server announced.
    pub fn features(&self) -> &ServerFeatures {
        self.planner.features()
    }

    /// Round-trip time of the control connection, for the choice of streams: the smallest that
    /// the kernel saw, at most what the TCP handshake took.
    pub fn rtt(&self) -> Duration {
        let kernel = tcp_info::tcp_info(self.control.transport().as_fd())
            .map(|info| Duration::from_micros(u64::from(info.min_rtt_us)))
            .unwrap_or_default();
        if kernel.is_zero() {
            self.handshake_rtt
        } else {
            kernel.min(self.handshake_rtt)
        }
    }

    /// Whether data connections may be with other hosts than the server's own.
    pub(crate) fn set_allow_foreign_data(&mut self, allowed: bool) {
        self.allow_foreign_data = allowed;
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        let ends = [
            self.control.local_addr().ip(),
            self.control.peer_addr().ip(),
        ];
        ends[0].to_canonical() == ends[1].to_canonical()
    }

    /// QUIT, politely and briefly. Servers of unknown manners are given the time to answer.
    pub async fn close(mut self) {
        self.data_channel = None;
        if self.planner.supports_pipelining() {
            self.control.quit_without_reply().await;
        } else if self.control.send(&Command::Quit).await.is_ok() {
            // The answer changes nothing; waiting for it lets the server end in order.
            let _ = self.control.wait_for_reply_within(QUIT_TIMEOUT).await;
        }
    }

    /// `host:port` for messages.
    pub(crate) fn name(&self) -> &str {
        self.control.name()
    }

    /// Whether the session can still be used; after a transfer that ended well, a server may have
    /// left its last word unsaid.
    pub(crate) fn is_usable(&self) -> bool {
        self.control.is_usable()
    }

    /// Whether the server takes commands before the last one is answered.
    pub(crate) fn supports_pipelining(&self) -> bool {
        self.planner.supports_pipelining()
    }

    /// Whether the server can connect to this machine, as MODE E gets need.
    pub(crate) fn server_can_connect(&self) -> bool {
        self.server_can_connect
    }

    /// Notes that the server could not connect to this machine.
    pub(crate) fn set_server_cannot_connect(&mut self) {
        self.server_can_connect = false;
    }

    /// A path that cannot be told to this server is refused before anything is done.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check_path(&self, path: &[u8]) -> Result<(), CopyFailure> {
        check_path(path)?;
        if self.control.can_send_name(path) {
            return Ok(());
        }
        Err(usage_error(format!(
            "the remote path \"{}\" contains the byte 0xFF, which {} (globus-gridftp-server) drops from \
             names; give another path",
            display_path(path),
            self.name()
        )))
    }

    /// Adds a warning unless it was said in this session already.
    pub(crate) fn warn_once(&mut self, warnings: &mut Vec<String>, text: &'static str) {
        if self.given_warnings.insert(text) {
            warnings.push(format!("{} {text}", self.name()));
        }
    }
}

/// The question that [`ClientSession::stat`] asks of a server with MLST.
fn mlst_command(path: &[u8]) -> Command {
    Command::Mlst(Some(path.to_vec()))
}

/// A path cannot travel on a command line when it holds a line end or NUL.
///
/// # Errors
/// `Usage`.
fn check_path(path: &[u8]) -> Result<(), CopyFailure> {
    let fault = if path.is_empty() {
        "is empty"
    } else if path.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        "contains a line break or NUL, which FTP cannot express"
    } else {
        return Ok(());
    };
    Err(usage_error(format!(
        "the remote path \"{}\" {fault}; give another path",
        display_path(path)
    )))
}

fn check_credential(server: &Server) -> Result<(), CopyFailure> {
    let broken = |text: &[u8]| text.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
    let (user, password) = server.credential.user_and_password()?;
    if broken(user.as_bytes()) || broken(&password.0) {
        return Err(usage_error(
            "user name or password contains a line break or NUL, which FTP cannot express"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A path for people, fit for a terminal.
pub(crate) fn display_path(path: &[u8]) -> String {
    printable(path).to_string()
}

fn usage_error(message: String) -> CopyFailure {
    CopyFailure {
        exit: Exit::Usage,
        message,
        transient: false,
    }
}

#[cfg(test)]
mod tests;
