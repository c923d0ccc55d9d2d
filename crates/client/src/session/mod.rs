//! A logged-in control connection and what is known of the server behind it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use data::channel::Channel;
use data::os::tcp_info;
use proto::client::{Dialogue, TelnetEscape, takes_commands_ahead};
use proto::command::Command;
use proto::feature::Features;
use proto::printable::printable;

use crate::location::Server;
use crate::{Exit, Failure};

mod checksum;
pub(crate) mod control;
mod explain;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod files;
pub(crate) mod links;
mod list;
mod login;
pub(crate) mod passive;
pub(crate) mod replies;
mod right_sizing;
mod stat;

use control::ControlChannel;

/// How long QUIT may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// A logged-in control connection. Every method maps the server's refusal to a [`Failure`] with
/// the right exit class (550 "no such file" → NotFound, 550 "permission" / 530 → Refused, 4xx →
/// transient ...). After a transient failure the session is to be dropped.
#[derive(Debug)]
pub struct Session {
    server: Server,
    pub(crate) control: ControlChannel,
    pub(crate) dialogue: Dialogue,
    /// The data channel prepared for the next transfer, or kept from the last one.
    pub(crate) channel: Option<Channel>,
    /// The host that `channel` connects to; `None`: the server connects.
    data_host: Option<IpAddr>,
    passive_order: passive::PassivePreference,
    said: HashSet<&'static str>,
    handshake: Duration,
    checksum_markers: bool,
    /// The server can connect to this machine, as far as is known.
    connectable: bool,
    /// Asked ahead with the next transfer command.
    pub(crate) then: Vec<Command>,
    /// Data connections may be with other hosts than the server's own (striped servers).
    foreign_data: bool,
    /// The other host of data connections that the server was told last.
    data_peer: Option<IpAddr>,
    /// The server refused something that was sent ahead of its time, or the connection ended over it.
    wary: bool,
}

/// How a session begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening<'a> {
    /// One command after the other, whoever the server says it is.
    pub(crate) careful: bool,
    /// The path whose facts will be asked for first.
    pub(crate) look_at: Option<&'a [u8]>,
}

impl Session {
    /// Connects (all addresses of the name in turn), logs in, asks FEAT, announces itself
    /// (CLIENTINFO when known), sets TYPE I. `timeout` bounds every wait for a reply of the
    /// session.
    ///
    /// # Errors
    /// `Unreachable` when the server cannot be found (final) or reached (transient); `Refused`
    /// when the login is refused or needs security that is not spoken.
    pub async fn open(server: &Server, timeout: Duration) -> Result<Self, Failure> {
        Self::begin(server, timeout, Opening::default()).await
    }

    /// As [`Session::open`]. A server whose greeting says that it takes commands ahead gets the whole
    /// login in one flight; if the connection ends over that (something between the two reads along
    /// and does not expect it), the next one is made with care.
    pub(crate) async fn begin(
        server: &Server,
        timeout: Duration,
        opening: Opening<'_>,
    ) -> Result<Self, Failure> {
        check_words(server)?;
        let (mut control, handshake) = ControlChannel::connect(server, timeout).await?;
        let greeting = login::greeting(&mut control).await?;
        control.speak_telnet(TelnetEscape::of(&greeting));
        if opening.careful || !takes_commands_ahead(&greeting) {
            let dialogue = login::in_turn(&mut control, server).await?;
            let mut session = Self::over(control, dialogue, server, handshake);
            session.wary = opening.careful;
            return Ok(session);
        }
        let look = opening.look_at.filter(|path| check_path(path).is_ok());
        let questions: Vec<Command> = look.map(facts_of).into_iter().collect();
        match login::at_once(&mut control, server, &questions).await {
            Ok(dialogue) => Ok(Self::over(control, dialogue, server, handshake)),
            Err(_) if control.was_cut() => {
                let careful = Opening {
                    careful: true,
                    ..opening
                };
                Box::pin(Self::begin(server, timeout, careful)).await
            }
            Err(failure) => Err(failure),
        }
    }

    fn over(
        control: ControlChannel,
        dialogue: Dialogue,
        server: &Server,
        handshake: Duration,
    ) -> Self {
        Self {
            server: server.clone(),
            passive_order: passive::PassivePreference::of(control.peer()),
            connectable: !passive::behind_translation(control.local().ip(), control.peer().ip()),
            control,
            dialogue,
            channel: None,
            data_host: None,
            said: HashSet::new(),
            handshake,
            checksum_markers: false,
            then: Vec::new(),
            foreign_data: false,
            data_peer: None,
            wary: false,
        }
    }

    /// Begins anew with a server that refused something which was sent ahead of the answer: from here
    /// on one command after the other. What the user was told, and what was learnt of the network,
    /// stays.
    pub(crate) async fn begin_carefully(&mut self) -> Result<(), Failure> {
        self.channel = None;
        self.control.abandon();
        let careful = Opening {
            careful: true,
            look_at: None,
        };
        let fresh = Self::begin(&self.server, self.control.patience(), careful).await?;
        let before = std::mem::replace(self, fresh);
        self.said = before.said;
        self.connectable = before.connectable;
        self.foreign_data = before.foreign_data;
        Ok(())
    }

    /// Whether the server is better asked one thing after the other, whatever its greeting says.
    pub(crate) fn is_wary(&self) -> bool {
        self.wary
    }

    /// Another session with the same server, as the same user.
    ///
    /// # Errors
    /// As [`Session::open`]; a server at its bound of sessions refuses with 421.
    pub fn another(&self) -> impl Future<Output = Result<Self, Failure>> + Send + use<> {
        let (server, patience) = (self.server.clone(), self.control.patience());
        let opening = Opening {
            careful: self.wary,
            look_at: None,
        };
        let foreign = self.foreign_data;
        async move {
            let mut session = Self::begin(&server, patience, opening).await?;
            session.foreign_data = foreign;
            Ok(session)
        }
    }

    /// Features that the server announced.
    pub fn features(&self) -> &Features {
        self.dialogue.features()
    }

    /// Round-trip time of the control connection, for the choice of streams: the smallest that
    /// the kernel saw, at most what the TCP handshake took.
    pub fn rtt(&self) -> Duration {
        let kernel = tcp_info::tcp_info(self.control.transport().as_fd())
            .map(|info| Duration::from_micros(u64::from(info.min_rtt_us)))
            .unwrap_or_default();
        if kernel.is_zero() {
            self.handshake
        } else {
            kernel.min(self.handshake)
        }
    }

    /// Whether data connections may be with other hosts than the server's own.
    pub(crate) fn allow_foreign_data(&mut self, allowed: bool) {
        self.foreign_data = allowed;
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        let ends = [self.control.local().ip(), self.control.peer().ip()];
        ends[0].to_canonical() == ends[1].to_canonical()
    }

    /// QUIT, politely and briefly. Servers of unknown manners are given the time to answer.
    pub async fn close(mut self) {
        self.channel = None;
        if self.dialogue.takes_ahead() {
            self.control.leave().await;
        } else if self.control.send(&Command::Quit).await.is_ok() {
            // The answer changes nothing; waiting for it lets the server end in order.
            let _ = self.control.reply_within(FAREWELL).await;
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
    pub(crate) fn takes_ahead(&self) -> bool {
        self.dialogue.takes_ahead()
    }

    /// Whether the server can connect to this machine, as MODE E gets need.
    pub(crate) fn is_connectable(&self) -> bool {
        self.connectable
    }

    /// Notes that the server could not connect to this machine.
    pub(crate) fn not_connectable(&mut self) {
        self.connectable = false;
    }

    /// A path that cannot be told to this server is refused before anything is done.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        check_path(path)?;
        if self.control.can_tell(path) {
            return Ok(());
        }
        Err(usage(format!(
            "the remote path \"{}\" contains the byte 0xFF, which {} (globus-gridftp-server) drops from \
             names; give another path",
            shown(path),
            self.name()
        )))
    }

    /// Adds a warning unless it was said in this session already.
    pub(crate) fn warn(&mut self, warnings: &mut Vec<String>, text: &'static str) {
        if self.said.insert(text) {
            warnings.push(format!("{} {text}", self.name()));
        }
    }
}

/// The question that [`Session::stat`] asks of a server with MLST.
fn facts_of(path: &[u8]) -> Command {
    Command::Mlst(Some(path.to_vec()))
}

/// A path cannot travel on a command line when it holds a line end or NUL.
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
    Err(usage(format!(
        "the remote path \"{}\" {fault}; give another path",
        shown(path)
    )))
}

fn check_words(server: &Server) -> Result<(), Failure> {
    let broken = |text: &[u8]| text.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
    let (user, password) = server.credential.words()?;
    if broken(user.as_bytes()) || broken(&password.0) {
        return Err(usage(
            "user name or password contains a line break or NUL, which FTP cannot express"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A path for people, fit for a terminal.
pub(crate) fn shown(path: &[u8]) -> String {
    printable(path).to_string()
}

fn usage(message: String) -> Failure {
    Failure {
        exit: Exit::Usage,
        message,
        transient: false,
    }
}

#[cfg(test)]
mod tests;
