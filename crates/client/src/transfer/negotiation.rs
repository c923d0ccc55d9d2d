//! Choices that get, put and third-party transfers share: the mode, the data side's settings.

use data::job::TransferSettings;
use data::options::{CongestionChoice, TransferOptions};
use proto::client::{CONGESTION_CONTROL_REFUSED, TransferRequirements, longest_ranges};
use proto::command::{Command, DataType, TransferMode};
use proto::ranges::RangeSet;
use proto::sizing::BufferSizing;
use proto::sizing::SocketBuffers;
use proto::streams::ParallelismRange;

use super::TransferSpec;
use crate::session::ClientSession;
use crate::{CopyFailure, Exit, ModeChoice};

/// Message to the user when extended block mode was wanted and cannot be had.
pub(super) const EXTENDED_MODE_UNAVAILABLE: &str =
    "has no extended block mode (MODE E); one stream in MODE S is used instead";

/// Message to the user when the server cannot open the connections of a MODE E get.
const SERVER_CANNOT_CONNECT: &str = "cannot connect to this machine (a firewall or address translation \
     is between), as gets over several streams need; one stream in MODE S is used instead";

/// MODE for a get: as [`transfer_mode`], but MODE E only when the server can connect to this machine.
pub(super) fn get_mode(
    session: &mut ClientSession,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) -> TransferMode {
    let mode = transfer_mode(session, spec, warnings);
    if mode == TransferMode::Extended && !session.server_can_connect() {
        session.warn_once(warnings, SERVER_CANNOT_CONNECT);
        return TransferMode::Stream;
    }
    mode
}

/// Whether extended block mode is wanted at all.
pub(super) fn wants_extended_mode(spec: &TransferSpec) -> bool {
    match spec.mode {
        ModeChoice::Stream => false,
        ModeChoice::Extended => true,
        ModeChoice::Auto => spec.streams.max(spec.max_streams) > 1,
    }
}

/// MODE for a transfer with one server; says so once when MODE E is wanted and not there.
pub(super) fn transfer_mode(
    session: &mut ClientSession,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) -> TransferMode {
    if !wants_extended_mode(spec) {
        return TransferMode::Stream;
    }
    // An explicit wish is put to the server even if it announces nothing.
    let asked = spec.mode == ModeChoice::Extended && !session.planner.is_extended_mode_refused();
    if session.planner.may_use_extended_mode() || asked {
        return TransferMode::Extended;
    }
    session.warn_once(warnings, EXTENDED_MODE_UNAVAILABLE);
    TransferMode::Stream
}

/// How the destination server is asked to store: the whole file, or a chunk of it at its place
/// (GFD.20 §3.6), beside what is there already.
pub(super) fn store_command(spec: &TransferSpec, path: &[u8]) -> Command {
    match spec.destination_offset {
        None => Command::Stor(path.to_vec()),
        Some(place) => Command::Esto(place, path.to_vec()),
    }
}

/// Part of `spec.have` that the transfer can build on.
pub(super) fn usable_restart_ranges(mode: TransferMode, have: &RangeSet) -> RangeSet {
    match mode {
        TransferMode::Extended => longest_ranges(have),
        TransferMode::Stream => {
            let mut prefix = RangeSet::new();
            prefix.insert(0, have.prefix_len());
            prefix
        }
    }
}

/// Streams that the transfer opens. Only a server that says so changes their number by itself
/// (`features.tune`); others get the one to begin with.
pub(super) fn stream_range(
    session: &ClientSession,
    mode: TransferMode,
    spec: &TransferSpec,
) -> ParallelismRange {
    let start = spec.streams.max(1);
    match mode {
        TransferMode::Stream => ParallelismRange::fixed(1),
        TransferMode::Extended if spec.adapt && session.features().tunes_streams => {
            ParallelismRange {
                start,
                min: 1,
                max: spec.max_streams.max(start),
            }
        }
        TransferMode::Extended => ParallelismRange::fixed(start),
    }
}

/// The congestion control to ask a sending server for. `auto` is what it does by itself.
pub(super) fn requested_congestion_control(spec: &TransferSpec) -> Option<String> {
    match &spec.options.congestion {
        CongestionChoice::Auto => None,
        other => Some(other.name().to_owned()),
    }
}

/// Tells the user of a server that sends with its own congestion control, whatever --cc names.
pub(super) fn warn_of_ignored_congestion_control(
    session: &mut ClientSession,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) {
    if spec.options.congestion.pinned_name().is_some()
        && !session.features().takes_congestion_control
    {
        session.warn_once(warnings, CONGESTION_CONTROL_REFUSED);
    }
}

/// Who sizes the buffers, after the server was asked.
pub(super) fn agreed_buffers(session: &ClientSession, spec: &TransferSpec) -> SocketBuffers {
    let wish = spec.options.buffers;
    wish.with_sizing(session.planner.agreed_sizing(wish.sizing))
}

/// Data connections that a server may open to this end at a time: as many as `-p` takes.
const MAX_CONNECTIONS: usize = 256;

/// The data side's settings, after the server was asked for its part.
pub(super) fn data_settings(
    session: &ClientSession,
    mode: TransferMode,
    spec: &TransferSpec,
    have: &RangeSet,
) -> TransferSettings {
    let buffers = agreed_buffers(session, spec);
    TransferSettings {
        options: TransferOptions {
            buffers,
            ..spec.options.clone()
        },
        mode,
        type_: DataType::Image,
        streams: to_usize(match mode {
            TransferMode::Stream => 1,
            TransferMode::Extended => spec.streams.max(1),
        }),
        max_streams: to_usize(spec.max_streams.max(spec.streams)),
        min_streams: 1,
        max_connections: MAX_CONNECTIONS,
        adapt: spec.adapt,
        prior: spec.prior.clone(),
        checksum: spec.checksum.filter(|_| have.is_empty()),
        connect_timeout: spec.options.stall,
        drs: session
            .drs_endpoint()
            .filter(|_| buffers.sizing == BufferSizing::Drs),
        close_after: false,
    }
}

fn to_usize(streams: u32) -> usize {
    usize::try_from(streams).unwrap_or(usize::MAX)
}

/// Whether the last transfer's data connections at this end fit `need`.
pub(super) fn has_reusable_connections(
    session: &ClientSession,
    need: &TransferRequirements,
    sending: bool,
) -> bool {
    need.mode == TransferMode::Extended
        && session
            .data_channel
            .as_ref()
            .is_some_and(|channel| channel.has_cached(sending))
}

/// A transfer that ended well for both sides but did not move what it should have.
pub(super) fn incomplete_failure(
    server: &str,
    doing: &str,
    moved: u64,
    expected: u64,
) -> CopyFailure {
    CopyFailure {
        exit: Exit::Integrity,
        message: format!(
            "{server} reported the transfer to {doing} complete, but {moved} of {expected} bytes \
             moved: the file changed meanwhile, or the connection was cut unnoticed; copy it again"
        ),
        transient: false,
    }
}
