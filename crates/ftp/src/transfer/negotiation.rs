//! Choices shared by gets, puts and third-party transfers: the mode, the streams, the settings of
//! the data side.

use data::job::TransferSettings;
use data::options::{CongestionChoice, TransferOptions};
use proto::client::{CONGESTION_CONTROL_REFUSED, TransferRequirements, longest_ranges};
use proto::command::{Command, DataType, ExtendedStore, TransferMode};
use proto::ranges::RangeSet;
use proto::sizing::SocketBuffers;
use proto::streams::ParallelismRange;

use super::TransferSpec;
use crate::failure::{Operation, Sentence};
use crate::session::ClientSession;
use crate::{Failure, FailureKind, ModeChoice};

/// Warning when extended block mode is requested and the server does not support it.
pub(super) const EXTENDED_MODE_UNAVAILABLE: &str =
    "has no extended block mode (MODE E); one stream in MODE S is used instead";

/// Warning when the server cannot open the connections of a MODE E get.
const SERVER_CANNOT_CONNECT: &str = "cannot connect to this machine (a firewall or address translation \
     is between), as gets over several streams need; one stream in MODE S is used instead";

/// Warning when a proxy is between this machine and the server of a MODE E get.
const NO_CONNECTIONS_THROUGH_PROXY: &str = "cannot connect to this machine through the proxy, as gets over several \
     streams need; one stream in MODE S is used instead";

/// MODE for a get: like [`transfer_mode`], but MODE E only when the server can connect to this
/// machine. In MODE E the sender opens the connections (GFD.20 §3.4).
pub(super) fn get_mode(
    session: &mut ClientSession,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) -> TransferMode {
    let mode = transfer_mode(session, spec, warnings);
    if mode == TransferMode::Extended && !session.server_can_connect() {
        let proxy = session.control.route().and_then(|route| route.proxy());
        let reason = match proxy {
            Some(_) => NO_CONNECTIONS_THROUGH_PROXY,
            None => SERVER_CANNOT_CONNECT,
        };
        session.warn_once(warnings, reason);
        return TransferMode::Stream;
    }
    mode
}

/// Whether extended block mode is requested.
pub(super) fn wants_extended_mode(spec: &TransferSpec) -> bool {
    match spec.mode {
        ModeChoice::Stream => false,
        ModeChoice::Extended => true,
        ModeChoice::Auto => spec.streams.max(spec.max_streams) > 1,
    }
}

/// MODE for a transfer with one server. Warns once when MODE E is requested and unsupported.
pub(super) fn transfer_mode(
    session: &mut ClientSession,
    spec: &TransferSpec,
    warnings: &mut Vec<String>,
) -> TransferMode {
    if !wants_extended_mode(spec) {
        return TransferMode::Stream;
    }
    // `--mode e` is tried even if FEAT does not announce MODE E.
    let explicit = spec.mode == ModeChoice::Extended && !session.planner.is_extended_mode_refused();
    if session.planner.may_use_extended_mode() || explicit {
        return TransferMode::Extended;
    }
    session.warn_once(warnings, EXTENDED_MODE_UNAVAILABLE);
    TransferMode::Stream
}

/// The store command: STOR for a whole file, ESTO A for a chunk at an offset of an existing file
/// (GFD.20 §3.6).
pub(super) fn store_command(spec: &TransferSpec, path: &[u8]) -> Command {
    match spec.destination_offset {
        None => Command::Stor(path.to_vec()),
        Some(offset) => Command::Esto(ExtendedStore::Adjusted { offset }, path.to_vec()),
    }
}

/// The part of `spec.completed_ranges` that a restart marker in this mode can express.
pub(super) fn usable_restart_ranges(mode: TransferMode, kept_ranges: &RangeSet) -> RangeSet {
    match mode {
        TransferMode::Extended => longest_ranges(kept_ranges),
        TransferMode::Stream => {
            let mut prefix = RangeSet::new();
            // MODE S restarts at one offset, so only the prefix counts.
            prefix.insert(0, kept_ranges.prefix_len());
            prefix
        }
    }
}

/// Number of streams to request. Only a server that announces it (`features.tunes_streams`) changes
/// the number during a transfer; others keep the starting number.
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

/// The congestion control to request from a sending server. `auto` is the server's own choice, so
/// nothing is requested.
pub(super) fn requested_congestion_control(spec: &TransferSpec) -> Option<String> {
    match &spec.options.congestion {
        CongestionChoice::Auto => None,
        other => Some(other.name().to_owned()),
    }
}

/// Warns when the server sends with its own congestion control although --cc names one.
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

/// The buffer settings after agreement with the server.
pub(super) fn agreed_buffers(session: &ClientSession, spec: &TransferSpec) -> SocketBuffers {
    let requested = spec.options.buffers;
    requested.with_sizing(session.planner.agreed_sizing(requested.sizing))
}

/// Data connections that a server may open to this end at a time: the maximum of `-p`.
const MAX_CONNECTIONS: usize = 256;

/// Settings of the data side after agreement with the server.
pub(super) fn data_settings(
    session: &ClientSession,
    mode: TransferMode,
    spec: &TransferSpec,
    kept_ranges: &RangeSet,
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
        // A checksum on the way covers only what this attempt moves.
        checksum: spec.checksum.filter(|_| kept_ranges.is_empty()),
        connect_timeout: spec.options.stall,
        drs: session
            .drs_endpoint()
            .filter(|_| buffers.sizing.uses_drs_channel()),
        security: None,
        close_after: false,
    }
}

fn to_usize(streams: u32) -> usize {
    usize::try_from(streams).unwrap_or(usize::MAX)
}

/// Whether the data connections of the last transfer can be used again for these requirements.
pub(super) fn has_reusable_connections(
    session: &ClientSession,
    requirements: &TransferRequirements,
    sending: bool,
) -> bool {
    // MODE S closes the data connection at the end of each file (RFC 959 §3.4.1).
    requirements.mode == TransferMode::Extended
        && session
            .data_channel
            .as_ref()
            .is_some_and(|channel| !channel.is_striped() && channel.has_cached(sending))
}

/// The failure for a transfer that both sides report complete although bytes are missing.
pub(super) fn incomplete_failure(
    server: &str,
    operation: &Operation,
    moved: u64,
    expected: u64,
) -> Failure {
    let reason = Sentence::from(format!("{server} reported the transfer to "))
        .operation(operation)
        .words(format_args!(
            " complete, but {moved} of {expected} bytes moved: the file changed meanwhile, or the connection was cut unnoticed"
        ));
    Failure::new(FailureKind::Integrity, reason).advise("copy it again")
}
