//! Commands that retrieve a whole file, the rest of one, or a part (REST and ERET; RFC 3659 §5,
//! GFD.20 §3.7).

use crate::command::{Command, ExtendedRetrieve, RestartMarker, TransferMode};
use crate::feature::ServerFeatures;
use crate::ranges::{ByteRange, RangeSet};

/// Most ranges sent in one REST command, since servers limit the length of a line.
const MAX_REST_RANGES: usize = 200;

/// Commands that retrieve the missing bytes of a file or part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrievalPlan {
    /// REST, if the destination has some bytes already.
    pub restart: Option<RestartMarker>,
    /// RETR or ERET.
    pub command: Command,
    /// MODE S: offset in the destination of the first byte on the wire.
    pub start: u64,
    /// The server may send beyond the end of the part, so the receiver must stop it. Otherwise the end of its data shows
    /// that a REST had effect: a server that ignores it sends more.
    pub overruns: bool,
}

/// The server supports neither ERET nor REST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server can neither send a part of a file (ERET) nor start inside one (REST)")]
pub struct PartialRetrievalUnsupported;

/// Chooses the commands that retrieve `part` (offset and length in the source; `None` for the whole file)
/// when the destination has the ranges `have` already, in destination offsets. `reaches_end`: the part ends where the file
/// does.
///
/// MODE S uses only the prefix of `have`. A server with MODE E supports GridFTP, so ERET and REST with
/// ranges are used there even if it does not announce them.
///
/// # Errors
/// The part does not start at 0, and the server supports neither ERET nor REST.
pub fn plan_retrieval(
    features: &ServerFeatures,
    mode: TransferMode,
    path: &[u8],
    part: Option<(u64, u64)>,
    reaches_end: bool,
    have: &RangeSet,
) -> Result<RetrievalPlan, PartialRetrievalUnsupported> {
    match mode {
        TransferMode::Extended => Ok(plan_extended_mode(path, part, have)),
        TransferMode::Stream => {
            plan_stream_mode(features, path, part, reaches_end, have.prefix_len())
        }
    }
}

fn plan_extended_mode(path: &[u8], part: Option<(u64, u64)>, have: &RangeSet) -> RetrievalPlan {
    let command = match part {
        Some((offset, length)) => {
            Command::Eret(ExtendedRetrieve::Partial { offset, length }, path.to_vec())
        }
        None => Command::Retr(path.to_vec()),
    };
    // MODE E blocks carry offsets, so the ranges may have gaps. REST is relative to the part.
    let restart = (!have.is_empty()).then(|| RestartMarker::Ranges(have.clone()));
    RetrievalPlan {
        restart,
        command,
        start: 0,
        overruns: false,
    }
}

fn plan_stream_mode(
    features: &ServerFeatures,
    path: &[u8],
    part: Option<(u64, u64)>,
    reaches_end: bool,
    have: u64,
) -> Result<RetrievalPlan, PartialRetrievalUnsupported> {
    // GridFTP servers and servers without FEAT usually support REST without announcing it.
    let may_restart = features.rest_stream || features.parallel || !features.feat_answered;
    let may_restart = may_restart && !features.ignores_rest;
    let whole = |from: u64, start: u64, overruns: bool| RetrievalPlan {
        restart: (from > 0).then_some(RestartMarker::Offset(from)),
        command: Command::Retr(path.to_vec()),
        start,
        overruns,
    };
    let Some((offset, length)) = part else {
        // Without REST the server sends the whole file again, from offset 0.
        let start = if may_restart { have } else { 0 };
        return Ok(whole(start, start, false));
    };
    // ERET can skip the received prefix itself, so REST is not needed, and the server stops at
    // the end of the part.
    if features.eret || features.parallel {
        let start = have.min(length);
        let command = Command::Eret(
            ExtendedRetrieve::Partial {
                offset: offset.saturating_add(start),
                length: length - start,
            },
            path.to_vec(),
        );
        return Ok(RetrievalPlan {
            restart: None,
            command,
            start,
            overruns: false,
        });
    }
    if may_restart {
        return Ok(whole(offset.saturating_add(have), have, !reaches_end));
    }
    // The part is a prefix of the file: the receiver can close the connection at its end.
    if offset == 0 {
        return Ok(whole(0, 0, true));
    }
    Err(PartialRetrievalUnsupported)
}

/// The ranges to list in a REST command: all of them, or only the longest if there are too many for one
/// line. The server sends the others again.
pub fn longest_ranges(have: &RangeSet) -> RangeSet {
    if have.range_count() <= MAX_REST_RANGES {
        return have.clone();
    }
    let mut ranges: Vec<ByteRange> = have.iter().collect();
    // The longest ranges save the most retransmission.
    ranges.sort_by_key(|r| std::cmp::Reverse(r.len()));
    let mut kept = RangeSet::new();
    for r in ranges.into_iter().take(MAX_REST_RANGES) {
        kept.insert(r.start, r.end);
    }
    kept
}
