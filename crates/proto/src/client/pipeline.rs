//! Which steps go out together, so that they cost one round trip.
//!
//! RFC 959 asks for a reply before the next command, and some servers discard what was sent ahead or
//! close. A longhaul server takes the next line when the last is done and loses none, so a client
//! that knows it by its greeting need not wait for answers that change nothing.

use super::{CommandPlanner, PlanStep, RefusalEffect, TransferDirection, TransferRequirements};
use crate::command::{Command, OptsCommand};
use crate::reply::Reply;
use crate::sizing::BufferSizing;

/// The name that a longhaul server's greeting begins with, before its version.
const NAME: &str = "longhaul ";

/// Whether a greeting is that of a server which takes commands ahead: `220 longhaul 1.2.3 ...`. A host
/// that has the word in its name is none, and neither is a server whose administrator says something
/// else in its place.
pub fn supports_pipelining(greeting: &Reply) -> bool {
    let names = |line: &Vec<u8>| {
        let rest = line.strip_prefix(NAME.as_bytes());
        rest.and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
    };
    greeting.code == 220 && greeting.lines.iter().any(names)
}

/// Whether nothing may be sent behind a command before it is answered, whatever the server takes ahead:
/// a security exchange changes how everything behind it travels, and what went out before its end went
/// out in the clear.
fn ends_pipeline(command: &Command) -> bool {
    matches!(command, Command::Auth(_) | Command::Adat(_) | Command::Ccc)
}

/// Whether commands may go out together to a server that takes commands ahead: only the last may be one
/// of a security exchange.
pub fn may_pipeline<'a>(commands: impl IntoIterator<Item = &'a Command>) -> bool {
    let mut ended = false;
    commands
        .into_iter()
        .all(|command| !std::mem::replace(&mut ended, ends_pipeline(command)))
}

/// A server's understanding of a byte 255 in a command, which begins a Telnet sequence (RFC 854).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IacHandling {
    /// It takes every byte as it is (vsftpd), as far as is known.
    #[default]
    Literal,
    /// It reads two of them as one (longhaul, ProFTPD), so that one in a name is to be sent twice.
    Doubled,
    /// It drops them, and what follows as well (globus-gridftp-server), so that no name that holds one can
    /// be told.
    Dropped,
}

impl IacHandling {
    /// The understanding of a server with this greeting.
    pub fn from_greeting(greeting: &Reply) -> Self {
        let says = |word: &str| {
            let names = |line: &Vec<u8>| line.windows(word.len()).any(|w| w == word.as_bytes());
            greeting.lines.iter().any(names)
        };
        match () {
            () if supports_pipelining(greeting) || says("ProFTPD") => Self::Doubled,
            () if says("GridFTP Server") => Self::Dropped,
            () => Self::Literal,
        }
    }
}

impl CommandPlanner {
    /// A server that takes commands ahead (see [`supports_pipelining`]).
    pub fn with_pipelining(mut self) -> Self {
        self.pipelines = true;
        self
    }

    /// Whether the server takes commands ahead.
    pub fn supports_pipelining(&self) -> bool {
        self.pipelines
    }

    /// The steps of [`CommandPlanner::plan`] in flights: what goes out together, and is answered before the
    /// next flight leaves.
    ///
    /// The transfer command is among them only where a step before it that is refused can do no harm.
    /// A server that sends leaves nothing behind when it is left alone; one that stores would have cut
    /// its file already, so there every setting that matters is answered first, which costs nothing:
    /// the data connections have to wait for the server's address anyway.
    pub fn pipelined_plan(&self, need: &TransferRequirements) -> Vec<Vec<PlanStep>> {
        let mut steps = self.plan(need);
        if !self.pipelines {
            return without_pipelining(steps);
        }
        let apart = match need.direction {
            TransferDirection::Send => steps.contains(&PlanStep::Listen),
            TransferDirection::Receive => !steps.iter().all(is_optional),
        };
        if !apart || steps.len() < 2 {
            return split_pipelines(steps);
        }
        let transfer = steps.split_off(steps.len() - 1);
        let mut flights = split_pipelines(steps);
        flights.push(transfer);
        flights
    }

    /// Any steps in flights. What goes out together with a transfer command is for the caller to judge.
    pub fn group_for_pipelining(&self, steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
        match () {
            () if steps.is_empty() => Vec::new(),
            () if self.pipelines => split_pipelines(steps),
            () => without_pipelining(steps),
        }
    }
}

impl PlanStep {
    /// Whether a transfer whose command went out in one flight with this step must not be trusted when
    /// the step was refused: it goes on with other settings than this end believes.
    pub fn must_succeed(&self) -> bool {
        match self {
            Self::Set(Command::Opts(OptsCommand::BufferSizing(sizing)), _)
                if sizing.needs_peer_support() =>
            {
                true
            }
            Self::Set(_, refusal) => {
                !matches!(refusal, RefusalEffect::Ignore | RefusalEffect::Warn(_))
            }
            Self::Listen | Self::Connect => true,
            // Without a DRS channel each end does its own.
            Self::DrsListen | Self::Transfer(_) => false,
        }
    }
}

fn is_optional(step: &PlanStep) -> bool {
    !step.must_succeed()
}

/// One flight, or several where a step ends one ([`ends_pipeline`]).
fn split_pipelines(steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
    let last = |step: &PlanStep| match step {
        PlanStep::Set(command, _) | PlanStep::Transfer(command) => ends_pipeline(command),
        PlanStep::Listen | PlanStep::Connect | PlanStep::DrsListen => false,
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
fn without_pipelining(steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
    let listens = steps.contains(&PlanStep::DrsListen);
    let mut agreed = false;
    let mut flights = Vec::with_capacity(steps.len());
    for step in steps {
        let agrees = is_opts_drs(&step);
        if step == PlanStep::DrsListen && agreed {
            continue;
        }
        let mut flight = vec![step];
        if agrees && listens {
            flight.push(PlanStep::DrsListen);
            agreed = true;
        }
        flights.push(flight);
    }
    flights
}

/// OPTS DRS for the policy that needs a channel.
fn is_opts_drs(step: &PlanStep) -> bool {
    matches!(
        step,
        PlanStep::Set(
            Command::Opts(OptsCommand::BufferSizing(BufferSizing::Drs)),
            _
        )
    )
}
