//! Choices that get, put and third-party transfers share: the mode, the data side's settings.

use data::job::Settings;
use data::options::{Congestion, TransferOptions};
use proto::client::{NO_CONGESTION, Need, usable_ranges};
use proto::command::{Command, Mode, Type};
use proto::ranges::RangeSet;
use proto::sizing::Buffers;
use proto::sizing::Sizing;
use proto::streams::StreamRange;
use tune::Prior;

use super::TransferSpec;
use crate::session::Session;
use crate::{Exit, Failure, ModeChoice};

/// Message to the user when extended block mode was wanted and cannot be had.
pub(super) const NO_EXTENDED: &str =
    "has no extended block mode (MODE E); one stream in MODE S is used instead";

/// Message to the user when the server cannot open the connections of a MODE E get.
const NOT_CONNECTABLE: &str = "cannot connect to this machine (a firewall or address translation \
     is between), as gets over several streams need; one stream in MODE S is used instead";

/// MODE for a get: as [`mode`], but MODE E only when the server can connect to this machine.
pub(super) fn mode_of_get(
    session: &mut Session,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) -> Mode {
    let mode = mode(session, spec, warnings);
    if mode == Mode::Extended && !session.is_connectable() {
        session.warn(warnings, NOT_CONNECTABLE);
        return Mode::Stream;
    }
    mode
}

/// Whether extended block mode is wanted at all.
pub(super) fn wants_extended(spec: &TransferSpec) -> bool {
    match spec.mode {
        ModeChoice::Stream => false,
        ModeChoice::Extended => true,
        ModeChoice::Auto => spec.streams.max(spec.most_streams) > 1,
    }
}

/// MODE for a transfer with one server; says so once when MODE E is wanted and not there.
pub(super) fn mode(session: &mut Session, spec: &TransferSpec, warnings: &mut Vec<String>) -> Mode {
    if !wants_extended(spec) {
        return Mode::Stream;
    }
    // An explicit wish is put to the server even if it announces nothing.
    let asked = spec.mode == ModeChoice::Extended && !session.dialogue.extended_refused();
    if session.dialogue.may_extend() || asked {
        return Mode::Extended;
    }
    session.warn(warnings, NO_EXTENDED);
    Mode::Stream
}

/// How the destination server is asked to store: the whole file, or a chunk of it at its place
/// (GFD.20 §3.6), beside what is there already.
pub(super) fn store_verb(spec: &TransferSpec, path: &[u8]) -> Command {
    match spec.place {
        None => Command::Stor(path.to_vec()),
        Some(place) => Command::Esto(place, path.to_vec()),
    }
}

/// Part of `spec.have` that the transfer can build on.
pub(super) fn have_for(mode: Mode, have: &RangeSet) -> RangeSet {
    match mode {
        Mode::Extended => usable_ranges(have),
        Mode::Stream => {
            let mut prefix = RangeSet::new();
            prefix.insert(0, have.prefix());
            prefix
        }
    }
}

/// Streams that the transfer opens. Only a server that says so changes their number by itself
/// (`features.tune`); others get the one to begin with.
pub(super) fn streams(session: &Session, mode: Mode, spec: &TransferSpec) -> StreamRange {
    let start = spec.streams.max(1);
    match mode {
        Mode::Stream => StreamRange::fixed(1),
        Mode::Extended if spec.adapt && session.features().tune => StreamRange {
            start,
            least: 1,
            most: spec.most_streams.max(start),
        },
        Mode::Extended => StreamRange::fixed(start),
    }
}

/// The congestion control to ask a sending server for. `auto` is what it does by itself.
pub(super) fn congestion(spec: &TransferSpec) -> Option<String> {
    match &spec.options.congestion {
        Congestion::Auto => None,
        other => Some(other.name().to_owned()),
    }
}

/// Tells the user of a server that sends with its own congestion control, whatever --cc names.
pub(super) fn warn_of_congestion(
    session: &mut Session,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) {
    if spec.options.congestion.named().is_some() && !session.features().tune_congestion {
        session.warn(warnings, NO_CONGESTION);
    }
}

/// Who sizes the buffers, after the server was asked.
pub(super) fn buffers(session: &Session, spec: &TransferSpec) -> Buffers {
    let wish = spec.options.buffers;
    wish.with_sizing(session.dialogue.agreed(wish.sizing))
}

/// Data connections that a server may open to this end at a time: as many as `-p` takes.
const MOST_CONNECTIONS: usize = 256;

/// The data side's settings, after the server was asked for its part.
pub(super) fn settings(
    session: &Session,
    mode: Mode,
    spec: &TransferSpec,
    have: &RangeSet,
) -> Settings {
    let buffers = buffers(session, spec);
    Settings {
        options: TransferOptions {
            buffers,
            ..spec.options.clone()
        },
        mode,
        type_: Type::Image,
        streams: count(match mode {
            Mode::Stream => 1,
            Mode::Extended => spec.streams.max(1),
        }),
        most_streams: count(spec.most_streams.max(spec.streams)),
        least_streams: 1,
        most_connections: MOST_CONNECTIONS,
        adapt: spec.adapt,
        prior: Prior::default(),
        sum: spec.sum.filter(|_| have.is_empty()),
        connect: spec.options.stall,
        drs: session.drs().filter(|_| buffers.sizing == Sizing::Drs),
        close_after: false,
    }
}

fn count(streams: u32) -> usize {
    usize::try_from(streams).unwrap_or(usize::MAX)
}

/// Whether the last transfer's data connections at this end fit `need`.
pub(super) fn reusable(session: &Session, need: &Need, sending: bool) -> bool {
    need.mode == Mode::Extended
        && session
            .channel
            .as_ref()
            .is_some_and(|channel| channel.has_cached(sending))
}

/// A transfer that ended well for both sides but did not move what it should have.
pub(super) fn incomplete(server: &str, doing: &str, moved: u64, expected: u64) -> Failure {
    Failure {
        exit: Exit::Integrity,
        message: format!(
            "{server} reported the transfer to {doing} complete, but {moved} of {expected} bytes \
             moved: the file changed meanwhile, or the connection was cut unnoticed; copy it again"
        ),
        transient: false,
    }
}
