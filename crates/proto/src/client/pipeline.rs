//! Command pipelining: steps that are sent together, so that they cost one round trip.
//!
//! RFC 959 §5.4 asks the client to wait for a reply before the next command, and some servers discard
//! pipelined commands or close the connection. A longhaul server queues lines until the previous command is
//! done and loses none. A client that recognizes it by its greeting therefore need not wait for every reply.

use super::{CommandPlanner, PlanStep, RefusalEffect, TransferDirection, TransferRequirements};
use crate::command::{Command, OptsCommand};
use crate::reply::Reply;

/// Start of a longhaul server's greeting; the version follows.
const GREETING_PREFIX: &str = "longhaul ";

/// Whether the greeting is that of a server with pipelining: `220 longhaul 1.2.3 ...`. A host name that
/// contains the word does not count, and a longhaul server with another banner is not recognized.
pub fn supports_pipelining(greeting: &Reply) -> bool {
    // The digit of the version distinguishes the program from a host that is called `longhaul`.
    let names = |line: &Vec<u8>| {
        let rest = line.strip_prefix(GREETING_PREFIX.as_bytes());
        rest.and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
    };
    greeting.code == 220 && greeting.lines.iter().any(names)
}

/// Whether the greeting is that of globus-gridftp-server, which reads one line after the other once somebody is logged
/// in.
pub fn is_toolkit_server(greeting: &Reply) -> bool {
    // A banner of ProFTPD may contain "GridFTP Server" too, and longhaul's does.
    let another = supports_pipelining(greeting) || contains(greeting, "ProFTPD");
    !another && contains(greeting, "GridFTP Server")
}

fn contains(greeting: &Reply, word: &str) -> bool {
    let names = |line: &Vec<u8>| line.windows(word.len()).any(|w| w == word.as_bytes());
    greeting.lines.iter().any(names)
}

/// Whether the reply to this command must be awaited before anything else is sent, even to a server with
/// pipelining. These commands change the protection of the connection: what is sent behind them before
/// the reply would have the old protection.
fn ends_pipeline(command: &Command) -> bool {
    matches!(command, Command::Auth(_) | Command::Adat(_) | Command::Ccc)
}

/// Whether these commands may be pipelined to a server that supports it. Only the last may belong to a
/// security exchange.
pub fn may_pipeline<'a>(commands: impl IntoIterator<Item = &'a Command>) -> bool {
    let mut ended = false;
    commands
        .into_iter()
        // Each command is checked against the state before it, so the last one may end the pipeline.
        .all(|command| !std::mem::replace(&mut ended, ends_pipeline(command)))
}

/// Treatment of a byte 255 in a command, the Telnet escape byte IAC (RFC 854), by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IacHandling {
    /// The byte is taken literally (vsftpd). Assumed for unknown servers.
    #[default]
    Literal,
    /// Two bytes 255 are read as one (longhaul, ProFTPD). The client must double them in names.
    Doubled,
    /// The byte and the next one are dropped (globus-gridftp-server). Names with a byte 255 cannot be
    /// sent.
    Dropped,
}

impl IacHandling {
    /// Handling of a server with this greeting.
    pub fn from_greeting(greeting: &Reply) -> Self {
        match () {
            () if supports_pipelining(greeting) || contains(greeting, "ProFTPD") => Self::Doubled,
            () if is_toolkit_server(greeting) => Self::Dropped,
            () => Self::Literal,
        }
    }
}

impl CommandPlanner {
    /// Enables pipelining (see [`supports_pipelining`]).
    pub fn with_pipelining(mut self) -> Self {
        self.pipelines = true;
        self
    }

    /// Allows several commands that move no data before the first is answered, where the server supports
    /// GridFTP: such servers read one line after the other, and globus-url-copy sends ahead to them, too.
    #[must_use]
    pub fn with_commands_ahead(mut self) -> Self {
        self.sends_ahead = self.features().parallel;
        self
    }

    /// Whether several commands that move no data may be sent before the first is answered.
    pub fn takes_commands_ahead(&self) -> bool {
        self.pipelines || self.sends_ahead
    }

    /// Whether commands to this server may be pipelined, also behind a transfer command.
    pub fn supports_pipelining(&self) -> bool {
        self.pipelines
    }

    /// The steps of [`CommandPlanner::plan`], grouped into pipelines. The commands of one pipeline are
    /// sent together, and all of them are answered before the next pipeline is sent.
    ///
    /// The transfer command shares a pipeline with other steps only if their refusal does no harm. When
    /// the server sends, the client can simply abandon the transfer. When the server stores, it could
    /// have truncated its file by then, so the replies to all mandatory steps are awaited first. This
    /// costs no extra round trip, since the data connections need the server's address anyway. Behind a
    /// change of the protection the transfer command always waits: a server that refuses PROT would send
    /// the file in the clear.
    pub fn pipelined_plan(&self, requirements: &TransferRequirements) -> Vec<Vec<PlanStep>> {
        let mut steps = self.plan(requirements);
        if !self.pipelines {
            let listens = steps.contains(&PlanStep::DrsListen);
            return match self.takes_commands_ahead() && !listens && !steps.is_empty() {
                // The transfer command waits for the replies to everything before it.
                true => {
                    let transfer = steps.split_off(steps.len() - 1);
                    let mut pipelines = split_after_mode(steps);
                    pipelines.push(transfer);
                    pipelines
                }
                false => without_pipelining(steps),
            };
        }
        let transfer_apart = match requirements.direction {
            // The client must know the passive address before the server starts to wait for connections.
            TransferDirection::Send => steps.contains(&PlanStep::Listen),
            TransferDirection::Receive => !steps.iter().all(is_optional),
        };
        if !(transfer_apart || steps.iter().any(changes_protection)) || steps.len() < 2 {
            return split_pipelines(steps);
        }
        // `plan` puts the transfer command last.
        let transfer = steps.split_off(steps.len() - 1);
        let mut pipelines = split_pipelines(steps);
        pipelines.push(transfer);
        pipelines
    }

    /// Groups any steps into pipelines. The caller decides which steps may be sent together with a
    /// transfer command.
    pub fn group_for_pipelining(&self, steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
        match () {
            () if steps.is_empty() => Vec::new(),
            () if self.pipelines => split_pipelines(steps),
            () => without_pipelining(steps),
        }
    }
}

impl PlanStep {
    /// Whether the step is OPTS DRS for a sizing that needs a DRS channel.
    pub fn agrees_on_drs_channel(&self) -> bool {
        matches!(
            self,
            Self::Set(Command::Opts(OptsCommand::BufferSizing(sizing)), _)
                if sizing.uses_drs_channel()
        )
    }

    /// Whether the step is mandatory: if it is refused, a transfer command from the same pipeline runs
    /// with settings that the client does not expect, and its result must be discarded.
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
            // Without a DRS channel each end sizes its own buffers.
            Self::DrsListen | Self::Transfer(_) => false,
        }
    }
}

/// Whether the step changes how data connections are protected.
fn changes_protection(step: &PlanStep) -> bool {
    matches!(
        step,
        PlanStep::Set(Command::Prot(_) | Command::Dcau(_) | Command::Dcsc(_), _)
    )
}

fn is_optional(step: &PlanStep) -> bool {
    !step.must_succeed()
}

/// One pipeline, or several if a step ends one ([`ends_pipeline`]).
fn split_pipelines(steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
    let last = |step: &PlanStep| match step {
        PlanStep::Set(command, _) | PlanStep::Transfer(command) => ends_pipeline(command),
        PlanStep::Listen | PlanStep::Connect | PlanStep::DrsListen => false,
    };
    let mut pipelines = vec![Vec::with_capacity(steps.len())];
    for step in steps {
        let ends = last(&step);
        if let Some(pipeline) = pipelines.last_mut() {
            pipeline.push(step);
        }
        if ends {
            pipelines.push(Vec::new());
        }
    }
    // A step that ends a pipeline may be the last one, which leaves an empty pipeline behind it.
    pipelines.retain(|pipeline| !pipeline.is_empty());
    pipelines
}

/// One step per group, for servers without pipelining. Only OPTS DRS and DPSV are sent together: a
/// server that announces DRS is known to queue the second.
/// Pipelines of settings for a server that may refuse MODE E: the rest depends on it.
fn split_after_mode(mut steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
    let is_mode =
        |step: &PlanStep| matches!(step, PlanStep::Set(_, RefusalEffect::FallBackToStreamMode));
    let rest = match steps.iter().rposition(is_mode) {
        Some(at) => steps.split_off(at + 1),
        None => std::mem::take(&mut steps),
    };
    let mut pipelines = split_pipelines(steps);
    pipelines.extend(split_pipelines(rest));
    pipelines
}

fn without_pipelining(steps: Vec<PlanStep>) -> Vec<Vec<PlanStep>> {
    let listens = steps.contains(&PlanStep::DrsListen);
    let mut drs_listen_sent = false;
    let mut pipelines = Vec::with_capacity(steps.len());
    for step in steps {
        let is_opts_drs_step = step.agrees_on_drs_channel();
        if step == PlanStep::DrsListen && drs_listen_sent {
            continue;
        }
        let mut pipeline = vec![step];
        if is_opts_drs_step && listens {
            pipeline.push(PlanStep::DrsListen);
            drs_listen_sent = true;
        }
        pipelines.push(pipeline);
    }
    pipelines
}
