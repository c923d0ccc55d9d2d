//! The session: which command is valid when, and what each one answers.

use std::net::IpAddr;
use std::sync::Arc;

use super::replies::{self, Failure};
use super::state::{ExchangeStep, Pending, State};
use super::{Action, Outcome, features, help, options};
use crate::command::{Command, CommandError, Opts, Site};
use crate::line::LineEvent;
use crate::listing::FactSet;
use crate::reply::Reply;
use crate::security::{Mechanism, Protection, Securing};
use crate::sizing::Sizing;

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
    pub congestion: Arc<[String]>,
    /// Failed logins after which the session ends with 421; 0: never.
    pub max_login_failures: u32,
    /// Consecutive unrecognizable lines after which the session ends with 421; 0: never.
    pub max_bad_lines: u32,
    /// Who sizes buffers until OPTS DRS names another than `auto`: [`Sizing::Auto`] or
    /// [`Sizing::Kernel`]; the others are the client's to ask for and count as `Auto`.
    pub sizing: Sizing,
    /// Users with the third-party right may have data connections with any host, without naming it
    /// (SITE DATAPEER).
    pub foreign_data_addresses: bool,
    /// Longest idle time-out that SITE IDLE gives, seconds.
    pub max_idle_seconds: u32,
    /// Security mechanisms that the driver can carry ([`Action::Secure`]). Empty: AUTH is refused.
    /// Sessions share it.
    pub mechanisms: Arc<[Mechanism]>,
}

impl SessionConfig {
    /// Who sizes the buffers of a client that has not asked for anything, and may know nothing of
    /// right-sizing.
    pub(super) fn own_sizing(&self) -> Sizing {
        match self.sizing {
            needs_peer if needs_peer.needs_peer() => Sizing::Auto,
            own => own,
        }
    }
}

/// The outcome that the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaiting {
    /// The next line.
    Line,
    /// An outcome; lines wait.
    Outcome,
    /// The end of what ABOR stops, a transfer or a checksum; urgent lines are taken.
    Stoppable,
}

/// How a command came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Travelled {
    /// As the line that it is.
    Bare,
    /// In MIC, CONF or ENC, whose protection was right.
    Protected,
}

/// One control connection's state.
#[derive(Debug)]
pub struct Session {
    pub(super) config: SessionConfig,
    pub(super) state: State,
    pub(super) securing: Securing<ExchangeStep>,
    /// The driver takes the protection off a command.
    pub(super) unprotecting: bool,
    pub(super) login_failures: u32,
    bad_lines: u32,
    draining: bool,
}

impl Session {
    /// A session before its greeting.
    pub fn new(config: SessionConfig) -> Self {
        Self {
            config,
            state: State::Connected,
            securing: Securing::Clear,
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
    pub fn on_line(&mut self, line: &LineEvent) -> Vec<Action> {
        if matches!(self.state, State::Closed) {
            return Vec::new();
        }
        let actions = self.take_line(line, Travelled::Bare);
        self.note_close(actions)
    }

    /// A line, bare or without the protection that it came in.
    pub(super) fn take_line(&mut self, line: &LineEvent, travelled: Travelled) -> Vec<Action> {
        match line {
            LineEvent::TooLong => self.on_bad_line(Reply::new(500, "Line too long.")),
            LineEvent::Line(bytes) => match Command::parse(bytes) {
                Ok(command) => {
                    self.bad_lines = 0;
                    match travelled {
                        Travelled::Bare => self.refused_in_the_clear(&command),
                        Travelled::Protected => self.refused_in_another(&command),
                    }
                    .unwrap_or_else(|| self.on_command(command))
                }
                Err(error @ CommandError::Unknown(_)) => {
                    self.on_bad_line(replies::failure(&Failure::Command(&error)))
                }
                Err(error) => {
                    self.bad_lines = 0;
                    replies::refuse(&Failure::Command(&error))
                }
            },
        }
    }

    /// Takes what the driver reports.
    pub fn on_outcome(&mut self, outcome: Outcome) -> Vec<Action> {
        let actions = match (&mut self.state, outcome) {
            (_, Outcome::Security(answer)) => self.on_security(answer),
            (State::Authenticating, Outcome::Login(result)) => self.on_login(result),
            (State::LoggedIn(login), outcome) => login.on_outcome(outcome),
            _ => Vec::new(),
        };
        self.note_close(actions)
    }

    /// The outcome that is pending.
    pub fn awaiting(&self) -> Awaiting {
        match &self.state {
            _ if self.is_securing() => Awaiting::Outcome,
            State::Connected | State::UserGiven(_) | State::Closed => Awaiting::Line,
            State::Authenticating => Awaiting::Outcome,
            State::LoggedIn(login) => match login.pending {
                Pending::Nothing => Awaiting::Line,
                Pending::File(ref task) if task.is_stoppable() => Awaiting::Stoppable,
                Pending::File(_) | Pending::Listen(_) | Pending::ListenDrs => Awaiting::Outcome,
                Pending::Transfer(_) => Awaiting::Stoppable,
            },
        }
    }

    /// Whether somebody is logged in: from the granted PASS until REIN.
    pub fn logged_in(&self) -> bool {
        matches!(self.state, State::LoggedIn(_))
    }

    /// Whether a line that arrives during [`Awaiting::Stoppable`] is to be fed at once: ABOR, STAT
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
        let is_size = || bytes.get(end..).is_some_and(is_size);
        verb.eq_ignore_ascii_case(b"ABOR")
            || text.eq_ignore_ascii_case(b"STAT")
            || (verb.eq_ignore_ascii_case(b"SBUF") && self.takes_sizes() && is_size())
    }

    fn takes_sizes(&self) -> bool {
        matches!(&self.state, State::LoggedIn(login) if login.takes_sizes())
    }

    /// Junk is answered so many times in a row (a port scan, a client that speaks HTTP).
    fn on_bad_line(&mut self, answer: Reply) -> Vec<Action> {
        self.bad_lines = self.bad_lines.saturating_add(1);
        let limit = self.config.max_bad_lines;
        if limit > 0 && self.bad_lines >= limit {
            let mut actions = replies::reply(421, "Too many unrecognized commands; closing.");
            actions.push(Action::Close);
            return actions;
        }
        vec![Action::Reply(answer)]
    }

    /// The facts that listings tell (OPTS MLST changes them).
    fn facts(&self) -> FactSet {
        match &self.state {
            State::LoggedIn(login) => login.settings.facts,
            _ => FactSet::default(),
        }
    }

    fn on_command(&mut self, command: Command) -> Vec<Action> {
        if self.awaiting() != Awaiting::Line {
            return self.while_busy(&command);
        }
        match command {
            Command::User(name) => self.user(name),
            Command::Pass(password) => self.pass(password),
            Command::Quit => vec![Action::Reply(Reply::new(221, "Goodbye.")), Action::Close],
            Command::Noop => replies::reply(200, "NOOP command successful."),
            Command::Feat => vec![Action::Reply(features::reply(self.facts(), &self.config))],
            Command::Help(topic) => vec![Action::Reply(help::help(topic.as_deref()))],
            Command::Site(Site::Help) => vec![Action::Reply(help::site_help())],
            Command::Clnt(name) => {
                let mut actions = vec![Action::Note("client", name)];
                actions.extend(replies::reply(200, "Noted."));
                actions
            }
            // Names are bytes here whatever is asked; lftp asks before it logs in.
            Command::Opts(Opts::Utf8(_)) => options::success(),
            Command::Auth(mechanism) => self.auth(&mechanism),
            Command::Adat(token) => self.adat(token),
            Command::Mic(token) => self.protected(Protection::Safe, token),
            Command::Conf(token) => self.protected(Protection::Confidential, token),
            Command::Enc(token) => self.protected(Protection::Private, token),
            Command::Ccc => self.clear_commands(),
            Command::Rein if matches!(self.state, State::LoggedIn(_)) => self.rein(),
            command => match &mut self.state {
                State::LoggedIn(_) if self.draining && moves_data(&command) => {
                    let mut actions =
                        replies::reply(421, "Service not available: server is shutting down.");
                    actions.push(Action::Close);
                    actions
                }
                State::LoggedIn(login) => login.on_command(&self.config, command),
                _ => replies::reply(530, "Please login with USER and PASS."),
            },
        }
    }

    /// During what ABOR stops the driver hands over what is urgent only; anything else is its
    /// mistake, answered all the same.
    fn while_busy(&mut self, command: &Command) -> Vec<Action> {
        let out_of_turn = || replies::reply(503, "The previous command is not finished.");
        let takes_sizes = self.takes_sizes();
        let State::LoggedIn(login) = &mut self.state else {
            return out_of_turn();
        };
        match (&mut login.pending, command) {
            (Pending::Transfer(running), Command::Sbuf(bytes)) if takes_sizes => {
                running.follow(*bytes)
            }
            (Pending::Transfer(running), Command::Abor) => running.aborts.take(),
            (Pending::Transfer(running), Command::Stat(None)) => running.status(),
            (Pending::File(task), Command::Abor) if task.is_stoppable() => task.aborts.take(),
            (Pending::File(task), Command::Stat(None)) if task.is_stoppable() => task.status(),
            _ => out_of_turn(),
        }
    }

    fn note_close(&mut self, actions: Vec<Action>) -> Vec<Action> {
        if actions.last() == Some(&Action::Close) {
            self.state = State::Closed;
        }
        actions
    }
}

/// Whether SBUF's argument is certainly a size; a cheap test, since a client may send any number
/// of lines.
fn is_size(argument: &[u8]) -> bool {
    let spaces = argument.iter().take_while(|b| **b == b' ').count();
    let (_, argument) = argument.split_at(spaces);
    (1..=MAX_SIZE_DIGITS).contains(&argument.len()) && argument.iter().all(u8::is_ascii_digit)
}

/// Whether a command needs a data connection.
fn moves_data(command: &Command) -> bool {
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
