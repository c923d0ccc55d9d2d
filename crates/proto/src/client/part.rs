//! How a server is asked for a whole file, the rest of one, or a part (REST, ERET; RFC 3659 §5,
//! GFD.20 §3.7).

use crate::command::{Command, Mode, Restart, Retrieve};
use crate::feature::Features;
use crate::ranges::{ByteRange, RangeSet};

/// Most ranges sent in one REST command; servers bound the length of a line.
const MAX_REST_RANGES: usize = 200;

/// The commands that fetch what is missing of a file or part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrieval {
    /// REST, if anything is there already.
    pub restart: Option<Restart>,
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
pub struct NoPartial;

/// Chooses the commands for `part` (offset and length in the source; `None`: the whole file) when
/// the destination has `have` of it already, in destination offsets.
///
/// MODE S uses only the run of `have` that starts at 0. Extended block mode implies GridFTP, where
/// ERET and REST with ranges work whether announced or not.
pub fn retrieval(
    features: &Features,
    mode: Mode,
    path: &[u8],
    part: Option<(u64, u64)>,
    have: &RangeSet,
) -> Result<Retrieval, NoPartial> {
    match mode {
        Mode::Extended => Ok(extended(path, part, have)),
        Mode::Stream => stream(features, path, part, have.prefix()),
    }
}

fn extended(path: &[u8], part: Option<(u64, u64)>, have: &RangeSet) -> Retrieval {
    let verb = match part {
        Some((offset, length)) => {
            Command::Eret(Retrieve::Partial { offset, length }, path.to_vec())
        }
        None => Command::Retr(path.to_vec()),
    };
    let restart = (!have.is_empty()).then(|| Restart::Ranges(have.clone()));
    Retrieval {
        restart,
        verb,
        start: 0,
        overruns: false,
    }
}

fn stream(
    features: &Features,
    path: &[u8],
    part: Option<(u64, u64)>,
    have: u64,
) -> Result<Retrieval, NoPartial> {
    let may_restart = features.rest_stream || features.parallel || !features.known;
    let whole = |from: u64, start: u64, overruns: bool| Retrieval {
        restart: (from > 0).then_some(Restart::Offset(from)),
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
            Retrieve::Partial {
                offset: offset.saturating_add(start),
                length: length - start,
            },
            path.to_vec(),
        );
        return Ok(Retrieval {
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
    Err(NoPartial)
}

/// The ranges that are worth naming in a REST command: all of them, or the longest when there are
/// too many for one line. What is left out is sent again.
pub fn usable_ranges(have: &RangeSet) -> RangeSet {
    if have.count() <= MAX_REST_RANGES {
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
