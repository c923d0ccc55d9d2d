//! The session of one control connection: which commands are valid in which state.

use super::data_protection::DataProtectionSettings;
use super::logged_in::{ExchangeWait, LoginState, PendingTask};
use super::replies::{self, CommandFailure};
use super::{DriverEvent, SessionAction, SessionConfig, features, help};
use crate::command::{Command, CommandError, OptsCommand, SiteCommand};
use crate::line::LineEvent;
use crate::listing::FactSet;
use crate::reply::Reply;
use crate::security::{ExchangeKind, SecurityMechanism, SecurityState};

/// Most decimal digits for which every number fits 64 bits.
const MAX_SIZE_DIGITS: usize = 19;

/// Input that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedInput {
    /// The next line from the client.
    Line,
    /// A driver event; lines wait.
    DriverEvent,
    /// A driver event of a transfer or checksum, which ABOR can stop. Urgent lines are accepted, see
    /// [`ServerSession::is_urgent`].
    DriverEventOrUrgentLine,
}

/// State machine of one control connection.
#[derive(Debug)]
pub struct ServerSession {
    pub(super) config: SessionConfig,
    pub(super) state: LoginState,
    pub(super) security: SecurityState<ExchangeWait>,
    /// The client has proved an identity by a certificate.
    pub(super) identified: bool,
    /// Protection of data connections. A login has a copy.
    pub(super) protection: DataProtectionSettings,
    pub(super) login_failures: u32,
    bad_lines: u32,
    draining: bool,
}

impl ServerSession {
    /// A session that has not sent its greeting.
    pub fn new(config: SessionConfig) -> Self {
        Self {
            protection: DataProtectionSettings::new(&config),
            config,
            state: LoginState::Connected,
            security: SecurityState::Clear,
            identified: false,
            login_failures: 0,
            bad_lines: 0,
            draining: false,
        }
    }

    /// A session on a connection whose handshake is complete before the greeting (implicit TLS).
    /// `identified`: the client has proved an identity by a certificate.
    pub fn secured_from_start(
        config: SessionConfig,
        mechanism: SecurityMechanism,
        identified: bool,
    ) -> Self {
        let mut session = Self::new(config);
        session.on_secured(mechanism, identified);
        session
    }

    /// The 220 reply.
    pub fn greeting(&self) -> Reply {
        let lines = self.config.greeting_lines.iter();
        let lines = lines.map(|line| line.clone().into_bytes());
        Reply::with_lines_before(220, lines.collect(), &self.config.banner)
    }

    /// Announces server shutdown. From now on a command that starts a transfer is refused with 421 and
    /// closes the session. Other commands still work, so that a client can complete its last transfer
    /// (checksum, rename, modification time).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Handles the next line from the client.
    pub fn on_line(&mut self, line: &LineEvent) -> Vec<SessionAction> {
        if matches!(self.state, LoginState::Closed) {
            return Vec::new();
        }
        let actions = self.process_line(line);
        self.close_if_requested(actions)
    }

    /// Whether commands and replies travel in tokens from now on (GSSAPI). The driver then passes every
    /// line through [`crate::command::unwrap_line`] as it arrives, and sends replies with
    /// [`Reply::encode_protected`]. The reply to the last ADAT is still sent in the clear.
    pub fn expects_protected_lines(&self) -> bool {
        matches!(&self.security, SecurityState::Secured(mechanism)
            if mechanism.exchange == ExchangeKind::Tokens)
    }

    /// Whether the commands are secured now.
    pub fn is_secured(&self) -> bool {
        matches!(self.security, SecurityState::Secured(_))
    }

    fn process_line(&mut self, line: &LineEvent) -> Vec<SessionAction> {
        let bytes = match line {
            LineEvent::TooLong => return self.on_bad_line(Reply::new(500, "Line too long.")),
            // The tokens of a session are a sequence, so no later one can be valid.
            LineEvent::Forged => {
                let mut actions = replies::reply(535, "The protection is not valid; closing.");
                actions.push(SessionAction::Close);
                return actions;
            }
            LineEvent::Line(_) if self.expects_protected_lines() => {
                let text = "Commands must be protected in this session.";
                return self.on_bad_line(Reply::new(533, text));
            }
            LineEvent::Protected(_) if !self.expects_protected_lines() => {
                return replies::reply(503, "No security exchange was made.");
            }
            LineEvent::Line(bytes) | LineEvent::Protected(bytes) => bytes,
        };
        match Command::parse(bytes) {
            Ok(command) => {
                self.bad_lines = 0;
                self.refuse_during_exchange(&command)
                    .unwrap_or_else(|| self.on_command(command))
            }
            Err(error @ CommandError::UnknownVerb(_)) => {
                self.on_bad_line(replies::failure_reply(&CommandFailure::Command(&error)))
            }
            // A known verb with a bad argument shows that the peer speaks FTP.
            Err(error) => {
                self.bad_lines = 0;
                replies::refuse(&CommandFailure::Command(&error))
            }
        }
    }

    /// Handles a driver event.
    pub fn on_driver_event(&mut self, event: DriverEvent) -> Vec<SessionAction> {
        let actions = match (&mut self.state, event) {
            (_, DriverEvent::Security(result)) => self.on_security(result),
            (LoginState::Authenticating(_), DriverEvent::Login(result)) => self.on_login(result),
            (LoginState::LoggedIn(login), event) => login.on_driver_event(event),
            _ => Vec::new(),
        };
        self.close_if_requested(actions)
    }

    /// Input that the session waits for now.
    pub fn expected_input(&self) -> ExpectedInput {
        match &self.state {
            // The security exchange comes before the login state: no command may be read during it.
            _ if self.awaits_security_response() => ExpectedInput::DriverEvent,
            LoginState::Connected | LoginState::UserGiven(_) | LoginState::Closed => {
                ExpectedInput::Line
            }
            LoginState::Authenticating(_) => ExpectedInput::DriverEvent,
            LoginState::LoggedIn(login) => match login.pending {
                PendingTask::Nothing => ExpectedInput::Line,
                PendingTask::File(ref task) if task.is_abortable() => {
                    ExpectedInput::DriverEventOrUrgentLine
                }
                PendingTask::File(_)
                | PendingTask::Listen(_)
                | PendingTask::ListenDrs
                | PendingTask::DataCredential => ExpectedInput::DriverEvent,
                PendingTask::Transfer(_) => ExpectedInput::DriverEventOrUrgentLine,
            },
        }
    }

    /// Whether a user is logged in: from an accepted PASS until REIN.
    pub fn is_logged_in(&self) -> bool {
        matches!(self.state, LoginState::LoggedIn(_))
    }

    /// Whether a line that arrives during [`ExpectedInput::DriverEventOrUrgentLine`] must be passed on
    /// at once: ABOR, STAT without path, and SBUF during a transfer under `OPTS DRS drs1`. QUIT is not
    /// urgent, since it must not overtake transfers that were pipelined before it. Neither is SBUF in
    /// any other session, nor SBUF with a bad argument, whose 501 the client would take for the end of
    /// the transfer. A line without the protection that the session demands is not urgent either.
    pub fn is_urgent(&self, line: &LineEvent) -> bool {
        let bytes = match (line, self.expects_protected_lines()) {
            (LineEvent::Line(bytes), false) | (LineEvent::Protected(bytes), true) => bytes,
            _ => return false,
        };
        // This runs on raw bytes without parsing, since a client may queue any number of lines.
        let text = bytes.trim_ascii_end();
        let end = text.iter().position(|b| *b == b' ').unwrap_or(text.len());
        let verb = &text[..end];
        let is_size = || bytes.get(end..).is_some_and(is_size_argument);
        verb.eq_ignore_ascii_case(b"ABOR")
            || text.eq_ignore_ascii_case(b"STAT")
            || (verb.eq_ignore_ascii_case(b"SBUF") && self.accepts_buffer_size() && is_size())
    }

    fn accepts_buffer_size(&self) -> bool {
        matches!(&self.state, LoginState::LoggedIn(login) if login.accepts_buffer_size())
    }

    /// Answers an unrecognized line, and closes the session after too many in a row. A port scanner or
    /// an HTTP client would otherwise hold the connection.
    fn on_bad_line(&mut self, reply: Reply) -> Vec<SessionAction> {
        self.bad_lines = self.bad_lines.saturating_add(1);
        let limit = self.config.max_bad_lines;
        if limit > 0 && self.bad_lines >= limit {
            let mut actions = replies::reply(421, "Too many unrecognized commands; closing.");
            actions.push(SessionAction::Close);
            return actions;
        }
        vec![SessionAction::Reply(reply)]
    }

    /// The facts that listings show (OPTS MLST changes them).
    fn facts(&self) -> FactSet {
        match &self.state {
            LoginState::LoggedIn(login) => login.parameters.facts,
            _ => FactSet::default(),
        }
    }

    fn on_command(&mut self, command: Command) -> Vec<SessionAction> {
        if self.expected_input() != ExpectedInput::Line {
            return self.on_command_while_busy(&command);
        }
        match command {
            Command::User(name) => self.user(name),
            Command::Pass(password) => self.pass(password),
            Command::Quit => vec![
                SessionAction::Reply(Reply::new(221, "Goodbye.")),
                SessionAction::Close,
            ],
            Command::Noop => replies::reply(200, "NOOP command successful."),
            Command::Feat => vec![SessionAction::Reply(features::reply(
                self.facts(),
                &self.config,
                self.protection.has_credentials(),
            ))],
            Command::Help(topic) => vec![SessionAction::Reply(help::help(topic.as_deref()))],
            Command::Site(SiteCommand::Help) => vec![SessionAction::Reply(help::site_help())],
            Command::Clnt(name) => {
                let mut actions = vec![SessionAction::LogField("client", name)];
                actions.extend(replies::reply(200, "Noted."));
                actions
            }
            // File names are byte strings, so UTF8 ON and OFF have no effect. lftp sends this
            // before login.
            Command::Opts(OptsCommand::Utf8(_)) => replies::options_accepted(),
            Command::Auth(mechanism) => self.auth(&mechanism),
            Command::Adat(token) => self.adat(token),
            // Nested protection has no use, and would allow any depth of decoding from one line.
            Command::Mic(_) | Command::Conf(_) | Command::Enc(_) => match self.is_secured() {
                true => replies::reply(503, "A protected command holds another one."),
                false => replies::reply(503, "No security exchange was made."),
            },
            Command::Ccc => self.clear_commands(),
            // RFC 4217 §12.1: PBSZ and PROT may precede the login.
            Command::Pbsz(_) | Command::Prot(_) | Command::Dcau(_)
                if self.is_logged_in() || self.is_secured() =>
            {
                self.set_data_protection(&command)
            }
            Command::Rein if matches!(self.state, LoginState::LoggedIn(_)) => self.rein(),
            command => match &mut self.state {
                // RFC 959 §4.2 allows 421 as reply to any command when the service shuts down.
                LoginState::LoggedIn(_) if self.draining && command.needs_data_connection() => {
                    let mut actions =
                        replies::reply(421, "Service not available: server is shutting down.");
                    actions.push(SessionAction::Close);
                    actions
                }
                LoginState::LoggedIn(login) => login.on_command(&self.config, command),
                // RFC 959 §5.4 lists 530 for commands before login.
                _ => replies::reply(530, "Please login with USER and PASS."),
            },
        }
    }

    /// Handles a command while the session waits for the driver. The driver passes only urgent lines
    /// then; any other line is a driver error, answered with 503.
    fn on_command_while_busy(&mut self, command: &Command) -> Vec<SessionAction> {
        let unfinished = || replies::reply(503, "The previous command is not finished.");
        let accepts_size = self.accepts_buffer_size();
        let LoginState::LoggedIn(login) = &mut self.state else {
            return unfinished();
        };
        match (&mut login.pending, command) {
            (PendingTask::Transfer(running), Command::Sbuf(bytes)) if accepts_size => {
                running.on_peer_buffer_size(*bytes)
            }
            (PendingTask::Transfer(running), Command::Abor) => running.aborts.on_abor(),
            (PendingTask::Transfer(running), Command::Stat(None)) => running.status(),
            (PendingTask::File(task), Command::Abor) if task.is_abortable() => {
                task.aborts.on_abor()
            }
            (PendingTask::File(task), Command::Stat(None)) if task.is_abortable() => task.status(),
            _ => unfinished(),
        }
    }

    fn close_if_requested(&mut self, actions: Vec<SessionAction>) -> Vec<SessionAction> {
        if actions.last() == Some(&SessionAction::Close) {
            self.state = LoginState::Closed;
        }
        actions
    }
}

/// Whether the argument of SBUF is certainly a valid size. The test is cheap, since it runs on every
/// queued line and a client may send any number of them.
fn is_size_argument(argument: &[u8]) -> bool {
    let spaces = argument.iter().take_while(|b| **b == b' ').count();
    let (_, argument) = argument.split_at(spaces);
    (1..=MAX_SIZE_DIGITS).contains(&argument.len()) && argument.iter().all(u8::is_ascii_digit)
}
