//! How a server is asked for a whole file, the rest of one, or a part (REST, ERET; RFC 3659 §5,
//! GFD.20 §3.7).

use crate::command::{Command, ExtendedRetrieve, RestartMarker, TransferMode};
use crate::feature::ServerFeatures;
use crate::ranges::{ByteRange, RangeSet};

/// Most ranges sent in one REST command; servers bound the length of a line.
const MAX_REST_RANGES: usize = 200;

/// The commands that fetch what is missing of a file or part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrievalPlan {
    /// REST, if anything is there already.
    pub restart: Option<RestartMarker>,
    /// RETR or ERET.
    pub verb: Command,
    /// MODE S: where in the destination the first byte on the wire belongs.
    pub start: u64,
    /// The server goes on past the end of the part, so the receiver has to stop it.
    pub overruns: bool,
}

/// The server can neither send parts nor restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server can neither send a part of a file (ERET) nor start inside one (REST)")]
pub struct PartialRetrievalUnsupported;

/// Chooses the commands for `part` (offset and length in the source; `None`: the whole file) when
/// the destination has `have` of it already, in destination offsets.
///
/// MODE S uses only the run of `have` that starts at 0. Extended block mode implies GridFTP, where
/// ERET and REST with ranges work whether announced or not.
pub fn plan_retrieval(
    features: &ServerFeatures,
    mode: TransferMode,
    path: &[u8],
    part: Option<(u64, u64)>,
    have: &RangeSet,
) -> Result<RetrievalPlan, PartialRetrievalUnsupported> {
    match mode {
        TransferMode::Extended => Ok(plan_extended_mode(path, part, have)),
        TransferMode::Stream => plan_stream_mode(features, path, part, have.prefix_len()),
    }
}

fn plan_extended_mode(path: &[u8], part: Option<(u64, u64)>, have: &RangeSet) -> RetrievalPlan {
    let verb = match part {
        Some((offset, length)) => {
            Command::Eret(ExtendedRetrieve::Partial { offset, length }, path.to_vec())
        }
        None => Command::Retr(path.to_vec()),
    };
    let restart = (!have.is_empty()).then(|| RestartMarker::Ranges(have.clone()));
    RetrievalPlan {
        restart,
        verb,
        start: 0,
        overruns: false,
    }
}

fn plan_stream_mode(
    features: &ServerFeatures,
    path: &[u8],
    part: Option<(u64, u64)>,
    have: u64,
) -> Result<RetrievalPlan, PartialRetrievalUnsupported> {
    let may_restart = features.rest_stream || features.parallel || !features.feat_answered;
    let whole = |from: u64, start: u64, overruns: bool| RetrievalPlan {
        restart: (from > 0).then_some(RestartMarker::Offset(from)),
        verb: Command::Retr(path.to_vec()),
        start,
        overruns,
    };
    let Some((offset, length)) = part else {
        let start = if may_restart { have } else { 0 };
        return Ok(whole(start, start, false));
    };
    if features.eret || features.parallel {
        let start = have.min(length);
        let verb = Command::Eret(
            ExtendedRetrieve::Partial {
                offset: offset.saturating_add(start),
                length: length - start,
            },
            path.to_vec(),
        );
        return Ok(RetrievalPlan {
            restart: None,
            verb,
            start,
            overruns: false,
        });
    }
    if may_restart {
        return Ok(whole(offset.saturating_add(have), have, true));
    }
    if offset == 0 {
        return Ok(whole(0, 0, true));
    }
    Err(PartialRetrievalUnsupported)
}

/// The ranges that are worth naming in a REST command: all of them, or the longest when there are
/// too many for one line. What is left out is sent again.
pub fn longest_ranges(have: &RangeSet) -> RangeSet {
    if have.range_count() <= MAX_REST_RANGES {
        return have.clone();
    }
    let mut ranges: Vec<ByteRange> = have.iter().collect();
    ranges.sort_by_key(|r| std::cmp::Reverse(r.len()));
    let mut kept = RangeSet::new();
    for r in ranges.into_iter().take(MAX_REST_RANGES) {
        kept.insert(r.start, r.end);
    }
    kept
}
