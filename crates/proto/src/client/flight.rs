//! Which steps go out together, so that they cost one round trip.
//!
//! RFC 959 asks for a reply before the next command, and some servers discard what was sent ahead or
//! close. A longhaul server takes the next line when the last is done and loses none, so a client
//! that knows it by its greeting need not wait for answers that change nothing.

use super::{Dialogue, Direction, Need, Refusal, Step};
use crate::command::{Command, Opts};
use crate::reply::Reply;
use crate::sizing::Sizing;

/// The name that a longhaul server's greeting begins with, before its version.
const NAME: &str = "longhaul ";

/// Whether a greeting is that of a server which takes commands ahead: `220 longhaul 1.2.3 ...`. A host
/// that has the word in its name is none, and neither is a server whose administrator says something
/// else in its place.
pub fn takes_commands_ahead(greeting: &Reply) -> bool {
    let names = |line: &Vec<u8>| {
        let rest = line.strip_prefix(NAME.as_bytes());
        rest.and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
    };
    greeting.code == 220 && greeting.lines.iter().any(names)
}

/// Whether nothing may be sent behind a command before it is answered, whatever the server takes ahead:
/// a security exchange changes how everything behind it travels, and what went out before its end went
/// out in the clear.
fn ends_flight(command: &Command) -> bool {
    matches!(command, Command::Auth(_) | Command::Adat(_) | Command::Ccc)
}

/// Whether commands may go out together to a server that takes commands ahead: only the last may be one
/// of a security exchange.
pub fn is_one_flight<'a>(commands: impl IntoIterator<Item = &'a Command>) -> bool {
    let mut ended = false;
    commands
        .into_iter()
        .all(|command| !std::mem::replace(&mut ended, ends_flight(command)))
}

/// A server's understanding of a byte 255 in a command, which begins a Telnet sequence (RFC 854).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TelnetEscape {
    /// It takes every byte as it is (vsftpd), as far as is known.
    #[default]
    Ignored,
    /// It reads two of them as one (longhaul, ProFTPD), so that one in a name is to be sent twice.
    Doubled,
    /// It drops them, and what follows as well (globus-gridftp-server), so that no name that holds one can
    /// be told.
    Dropped,
}

impl TelnetEscape {
    /// The understanding of a server with this greeting.
    pub fn of(greeting: &Reply) -> Self {
        let says = |word: &str| {
            let names = |line: &Vec<u8>| line.windows(word.len()).any(|w| w == word.as_bytes());
            greeting.lines.iter().any(names)
        };
        match () {
            () if takes_commands_ahead(greeting) || says("ProFTPD") => Self::Doubled,
            () if says("GridFTP Server") => Self::Dropped,
            () => Self::Ignored,
        }
    }
}

impl Dialogue {
    /// A server that takes commands ahead (see [`takes_commands_ahead`]).
    pub fn ahead(mut self) -> Self {
        self.takes_ahead = true;
        self
    }

    /// Whether the server takes commands ahead.
    pub fn takes_ahead(&self) -> bool {
        self.takes_ahead
    }

    /// The steps of [`Dialogue::plan`] in flights: what goes out together, and is answered before the
    /// next flight leaves.
    ///
    /// The transfer command is among them only where a step before it that is refused can do no harm.
    /// A server that sends leaves nothing behind when it is left alone; one that stores would have cut
    /// its file already, so there every setting that matters is answered first, which costs nothing:
    /// the data connections have to wait for the server's address anyway.
    pub fn flights(&self, need: &Need) -> Vec<Vec<Step>> {
        let mut steps = self.plan(need);
        if !self.takes_ahead {
            return one_by_one(steps);
        }
        let apart = match need.direction {
            Direction::Send => steps.contains(&Step::Listen),
            Direction::Receive => !steps.iter().all(is_courtesy),
        };
        if !apart || steps.len() < 2 {
            return cut(steps);
        }
        let transfer = steps.split_off(steps.len() - 1);
        let mut flights = cut(steps);
        flights.push(transfer);
        flights
    }

    /// Any steps in flights. What goes out together with a transfer command is for the caller to judge.
    pub fn in_flights(&self, steps: Vec<Step>) -> Vec<Vec<Step>> {
        match () {
            () if steps.is_empty() => Vec::new(),
            () if self.takes_ahead => cut(steps),
            () => one_by_one(steps),
        }
    }
}

impl Step {
    /// Whether a transfer whose command went out in one flight with this step must not be trusted when
    /// the step was refused: it goes on with other settings than this end believes.
    pub fn decides(&self) -> bool {
        match self {
            Self::Set(Command::Opts(Opts::Sizing(sizing)), _) if sizing.needs_peer() => true,
            Self::Set(_, refusal) => !matches!(refusal, Refusal::Harmless | Refusal::Warn(_)),
            Self::Listen | Self::Connect => true,
            // Without a DRS channel each end does its own.
            Self::DrsListen | Self::Transfer(_) => false,
        }
    }
}

fn is_courtesy(step: &Step) -> bool {
    !step.decides()
}

/// One flight, or several where a step ends one ([`ends_flight`]).
fn cut(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let last = |step: &Step| match step {
        Step::Set(command, _) | Step::Transfer(command) => ends_flight(command),
        Step::Listen | Step::Connect | Step::DrsListen => false,
    };
    let mut flights = vec![Vec::with_capacity(steps.len())];
    for step in steps {
        let ends = last(&step);
        if let Some(flight) = flights.last_mut() {
            flight.push(step);
        }
        if ends {
            flights.push(Vec::new());
        }
    }
    flights.retain(|flight| !flight.is_empty());
    flights
}

/// Only OPTS DRS and DPSV go together: both are known of a server that announces the former.
fn one_by_one(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let listens = steps.contains(&Step::DrsListen);
    let mut agreed = false;
    let mut flights = Vec::with_capacity(steps.len());
    for step in steps {
        let agrees = is_drs(&step);
        if step == Step::DrsListen && agreed {
            continue;
        }
        let mut flight = vec![step];
        if agrees && listens {
            flight.push(Step::DrsListen);
            agreed = true;
        }
        flights.push(flight);
    }
    flights
}

/// OPTS DRS for the policy that needs a channel.
fn is_drs(step: &Step) -> bool {
    matches!(step, Step::Set(Command::Opts(Opts::Sizing(Sizing::Drs)), _))
}
