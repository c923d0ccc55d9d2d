//! The session: which command is valid when, and what each one answers.

use std::net::IpAddr;
use std::sync::Arc;

use super::replies::{self, CommandFailure};
use super::session_state::{ExchangeWait, LoginState, PendingTask};
use super::{DriverEvent, SessionAction, features, help, options};
use crate::command::{Command, CommandError, OptsCommand, SiteCommand};
use crate::line::LineEvent;
use crate::listing::FactSet;
use crate::reply::Reply;
use crate::security::{CommandProtection, SecurityMechanism, SecurityState};
use crate::sizing::BufferSizing;

/// Digits of a size that fits 64 bits whatever they are.
const MAX_SIZE_DIGITS: usize = 19;

/// Facts that a session needs to know of its server.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Text after 220 (one line).
    pub banner: String,
    /// `longhaul 0.1.0`, for SITE VERSION and FEAT.
    pub version: String,
    /// The control connection's peer.
    pub peer: IpAddr,
    /// Seconds between 112 markers during MODE E stores.
    pub perf_marker_seconds: u32,
    /// Seconds between 111 markers during MODE E stores.
    pub range_marker_seconds: u32,
    /// Most data connections a client may ask for with Parallelism.
    pub max_streams: u32,
    /// Congestion controls that a client may ask for with OPTS TUNE, lower case; may hold `auto` and
    /// `system`. Empty: none, and nothing is announced. Sessions share it.
    pub congestion_controls: Arc<[String]>,
    /// Failed logins after which the session ends with 421; 0: never.
    pub max_login_failures: u32,
    /// Consecutive unrecognizable lines after which the session ends with 421; 0: never.
    pub max_bad_lines: u32,
    /// Who sizes buffers until OPTS DRS names another than `auto`: [`BufferSizing::Auto`] or
    /// [`BufferSizing::Kernel`]; the others are the client's to ask for and count as `Auto`.
    pub buffer_sizing: BufferSizing,
    /// Users with the third-party right may have data connections with any host, without naming it
    /// (SITE DATAPEER).
    pub foreign_data_addresses: bool,
    /// Longest idle time-out that SITE IDLE gives, seconds.
    pub max_idle_seconds: u32,
    /// Security mechanisms that the driver can carry ([`SessionAction::Secure`]). Empty: AUTH is refused.
    /// Sessions share it.
    pub mechanisms: Arc<[SecurityMechanism]>,
}

impl SessionConfig {
    /// Who sizes the buffers of a client that has not asked for anything, and may know nothing of
    /// right-sizing.
    pub(super) fn default_buffer_sizing(&self) -> BufferSizing {
        match self.buffer_sizing {
            needs_peer if needs_peer.needs_peer_support() => BufferSizing::Auto,
            own => own,
        }
    }
}

/// The outcome that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedInput {
    /// The next line.
    Line,
    /// An outcome; lines wait.
    DriverEvent,
    /// The end of what ABOR stops, a transfer or a checksum; urgent lines are taken.
    DriverEventOrUrgentLine,
}

/// How a command came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineProtection {
    /// As the line that it is.
    Clear,
    /// In MIC, CONF or ENC, whose protection was right.
    Protected,
}

/// One control connection's state.
#[derive(Debug)]
pub struct ServerSession {
    pub(super) config: SessionConfig,
    pub(super) state: LoginState,
    pub(super) security: SecurityState<ExchangeWait>,
    /// The driver takes the protection off a command.
    pub(super) unprotecting: bool,
    pub(super) login_failures: u32,
    bad_lines: u32,
    draining: bool,
}

impl ServerSession {
    /// A session before its greeting.
    pub fn new(config: SessionConfig) -> Self {
        Self {
            config,
            state: LoginState::Connected,
            security: SecurityState::Clear,
            unprotecting: false,
            login_failures: 0,
            bad_lines: 0,
            draining: false,
        }
    }

    /// The 220 reply.
    pub fn greeting(&self) -> Reply {
        Reply::new(220, &self.config.banner)
    }

    /// The server is about to end: a transfer that begins from now on is refused with 421, which
    /// closes. Everything else goes on, so that a client can finish what belongs to the last one
    /// (a checksum, a rename, a time).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes the next line.
    pub fn on_line(&mut self, line: &LineEvent) -> Vec<SessionAction> {
        if matches!(self.state, LoginState::Closed) {
            return Vec::new();
        }
        let actions = self.process_line(line, LineProtection::Clear);
        self.close_if_requested(actions)
    }

    /// A line, bare or without the protection that it came in.
    pub(super) fn process_line(
        &mut self,
        line: &LineEvent,
        travelled: LineProtection,
    ) -> Vec<SessionAction> {
        match line {
            LineEvent::TooLong => self.on_bad_line(Reply::new(500, "Line too long.")),
            LineEvent::Line(bytes) => match Command::parse(bytes) {
                Ok(command) => {
                    self.bad_lines = 0;
                    match travelled {
                        LineProtection::Clear => self.refuse_clear_command(&command),
                        LineProtection::Protected => self.refuse_nested_command(&command),
                    }
                    .unwrap_or_else(|| self.on_command(command))
                }
                Err(error @ CommandError::UnknownVerb(_)) => {
                    self.on_bad_line(replies::failure_reply(&CommandFailure::Command(&error)))
                }
                Err(error) => {
                    self.bad_lines = 0;
                    replies::refuse(&CommandFailure::Command(&error))
                }
            },
        }
    }

    /// Takes what the driver reports.
    pub fn on_driver_event(&mut self, outcome: DriverEvent) -> Vec<SessionAction> {
        let actions = match (&mut self.state, outcome) {
            (_, DriverEvent::Security(answer)) => self.on_security(answer),
            (LoginState::Authenticating, DriverEvent::Login(result)) => self.on_login(result),
            (LoginState::LoggedIn(login), outcome) => login.on_driver_event(outcome),
            _ => Vec::new(),
        };
        self.close_if_requested(actions)
    }

    /// The outcome that is pending.
    pub fn expected_input(&self) -> ExpectedInput {
        match &self.state {
            _ if self.is_securing() => ExpectedInput::DriverEvent,
            LoginState::Connected | LoginState::UserGiven(_) | LoginState::Closed => {
                ExpectedInput::Line
            }
            LoginState::Authenticating => ExpectedInput::DriverEvent,
            LoginState::LoggedIn(login) => match login.pending {
                PendingTask::Nothing => ExpectedInput::Line,
                PendingTask::File(ref task) if task.is_abortable() => {
                    ExpectedInput::DriverEventOrUrgentLine
                }
                PendingTask::File(_) | PendingTask::Listen(_) | PendingTask::ListenDrs => {
                    ExpectedInput::DriverEvent
                }
                PendingTask::Transfer(_) => ExpectedInput::DriverEventOrUrgentLine,
            },
        }
    }

    /// Whether somebody is logged in: from the granted PASS until REIN.
    pub fn is_logged_in(&self) -> bool {
        matches!(self.state, LoginState::LoggedIn(_))
    }

    /// Whether a line that arrives during [`ExpectedInput::DriverEventOrUrgentLine`] is to be fed at once: ABOR, STAT
    /// without path, and in a transfer under `OPTS DRS drs1` SBUF. QUIT is not: it must not overtake
    /// transfers that were pipelined before it; neither is SBUF in any other session, nor one whose
    /// argument is wrong: its 501 would be taken for the transfer's end.
    pub fn is_urgent(&self, line: &LineEvent) -> bool {
        let LineEvent::Line(bytes) = line else {
            return false;
        };
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

    /// Junk is answered so many times in a row (a port scan, a client that speaks HTTP).
    fn on_bad_line(&mut self, answer: Reply) -> Vec<SessionAction> {
        self.bad_lines = self.bad_lines.saturating_add(1);
        let limit = self.config.max_bad_lines;
        if limit > 0 && self.bad_lines >= limit {
            let mut actions = replies::reply(421, "Too many unrecognized commands; closing.");
            actions.push(SessionAction::Close);
            return actions;
        }
        vec![SessionAction::Reply(answer)]
    }

    /// The facts that listings tell (OPTS MLST changes them).
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
            ))],
            Command::Help(topic) => vec![SessionAction::Reply(help::help(topic.as_deref()))],
            Command::Site(SiteCommand::Help) => vec![SessionAction::Reply(help::site_help())],
            Command::Clnt(name) => {
                let mut actions = vec![SessionAction::LogField("client", name)];
                actions.extend(replies::reply(200, "Noted."));
                actions
            }
            // Names are bytes here whatever is asked; lftp asks before it logs in.
            Command::Opts(OptsCommand::Utf8(_)) => options::success(),
            Command::Auth(mechanism) => self.auth(&mechanism),
            Command::Adat(token) => self.adat(token),
            Command::Mic(token) => self.protected_command(CommandProtection::Safe, token),
            Command::Conf(token) => self.protected_command(CommandProtection::Confidential, token),
            Command::Enc(token) => self.protected_command(CommandProtection::Private, token),
            Command::Ccc => self.clear_commands(),
            Command::Rein if matches!(self.state, LoginState::LoggedIn(_)) => self.rein(),
            command => match &mut self.state {
                LoginState::LoggedIn(_) if self.draining && needs_data_connection(&command) => {
                    let mut actions =
                        replies::reply(421, "Service not available: server is shutting down.");
                    actions.push(SessionAction::Close);
                    actions
                }
                LoginState::LoggedIn(login) => login.on_command(&self.config, command),
                _ => replies::reply(530, "Please login with USER and PASS."),
            },
        }
    }

    /// During what ABOR stops the driver hands over what is urgent only; anything else is its
    /// mistake, answered all the same.
    fn on_command_while_busy(&mut self, command: &Command) -> Vec<SessionAction> {
        let out_of_turn = || replies::reply(503, "The previous command is not finished.");
        let takes_sizes = self.accepts_buffer_size();
        let LoginState::LoggedIn(login) = &mut self.state else {
            return out_of_turn();
        };
        match (&mut login.pending, command) {
            (PendingTask::Transfer(running), Command::Sbuf(bytes)) if takes_sizes => {
                running.on_peer_buffer_size(*bytes)
            }
            (PendingTask::Transfer(running), Command::Abor) => running.aborts.on_abor(),
            (PendingTask::Transfer(running), Command::Stat(None)) => running.status(),
            (PendingTask::File(task), Command::Abor) if task.is_abortable() => {
                task.aborts.on_abor()
            }
            (PendingTask::File(task), Command::Stat(None)) if task.is_abortable() => task.status(),
            _ => out_of_turn(),
        }
    }

    fn close_if_requested(&mut self, actions: Vec<SessionAction>) -> Vec<SessionAction> {
        if actions.last() == Some(&SessionAction::Close) {
            self.state = LoginState::Closed;
        }
        actions
    }
}

/// Whether SBUF's argument is certainly a size; a cheap test, since a client may send any number
/// of lines.
fn is_size_argument(argument: &[u8]) -> bool {
    let spaces = argument.iter().take_while(|b| **b == b' ').count();
    let (_, argument) = argument.split_at(spaces);
    (1..=MAX_SIZE_DIGITS).contains(&argument.len()) && argument.iter().all(u8::is_ascii_digit)
}

/// Whether a command needs a data connection.
fn needs_data_connection(command: &Command) -> bool {
    matches!(
        command,
        Command::Retr(_)
            | Command::Eret(..)
            | Command::Stor(_)
            | Command::Appe(_)
            | Command::Stou(_)
            | Command::Esto(..)
            | Command::List(_)
            | Command::Nlst(_)
            | Command::Mlsd(_)
            | Command::Mlsr(_)
    )
}

#[cfg(test)]
mod tests;
