//! What an attempt is asked for: the part of the source, the streams, the settings.

use std::sync::{Arc, Mutex};

use proto::ranges::RangeSet;

use super::Context;
use crate::session::Session;
use crate::transfer::TransferSpec;
use crate::tree::Facts;
use crate::{Exit, Failure, ModeChoice, Parallelism};

/// The bytes of the source that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Offset and length; `None`: all of it.
    pub(super) part: Option<(u64, u64)>,
    /// Bytes to copy, if known.
    pub(super) size: Option<u64>,
}

impl Span {
    /// Source offset of the copy's first byte.
    pub(super) fn origin(self) -> u64 {
        self.part.map_or(0, |(offset, _)| offset)
    }

    /// `--offset` and `--length` applied to a source; beyond its end is an error.
    pub(super) fn of(
        offset: Option<u64>,
        length: Option<u64>,
        facts: Facts,
        shown: &str,
    ) -> Result<Self, Failure> {
        if offset.is_none() && length.is_none() {
            return Ok(Self {
                part: None,
                size: facts.size,
            });
        }
        let usage = |message| Err(Failure::new(Exit::Usage, message));
        let Some(size) = facts.size else {
            return usage(format!(
                "{shown}: a part needs the size of the source, which is not known"
            ));
        };
        let offset = offset.unwrap_or(0);
        if offset > size {
            return usage(format!(
                "{shown}: offset {offset} is beyond the end, the file has {size} bytes"
            ));
        }
        let length = length.unwrap_or(size - offset);
        if length > size - offset {
            return usage(format!(
                "{shown}: {length} bytes from offset {offset} go beyond the end, the file has \
                 {size} bytes"
            ));
        }
        Ok(Self {
            part: Some((offset, length)),
            size: Some(length),
        })
    }
}

/// How many streams, and in which order they bring the bytes: the same in all attempts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lanes {
    /// Streams that are asked for.
    pub(super) streams: u32,
    /// It will be MODE S, so that bytes are stored strictly in order.
    pub(super) in_order: bool,
}

impl Lanes {
    /// For a transfer over these sessions; a sequential end (`pipe`) takes one stream.
    pub(super) fn of(ctx: &Context, size: Option<u64>, pipe: bool, sessions: &[&Session]) -> Self {
        let streams = streams(ctx, size, pipe, sessions);
        let impossible = sessions.iter().any(|s| !s.dialogue.may_extend());
        Self {
            streams,
            in_order: match ctx.options.mode {
                ModeChoice::Stream => true,
                ModeChoice::Extended => false,
                ModeChoice::Auto => streams == 1 || impossible,
            },
        }
    }
}

/// Streams for a transfer over these sessions; a sequential end (`pipe`) takes one.
fn streams(ctx: &Context, size: Option<u64>, pipe: bool, sessions: &[&Session]) -> u32 {
    let options = &ctx.options;
    if pipe || options.mode == ModeChoice::Stream {
        return 1;
    }
    match options.parallelism {
        Parallelism::Fixed(n) => n.max(1),
        Parallelism::Auto if sessions.iter().all(|s| s.features().parallel) => {
            let rtt = sessions.iter().map(|s| s.rtt()).max().unwrap_or_default();
            tune::streams::automatic(rtt, size, options.block)
        }
        Parallelism::Auto | Parallelism::Chunked(_) => 1,
    }
}

/// The settings of one attempt; sums are for the caller to add.
pub(super) fn spec(ctx: &Context, span: Span, have: &RangeSet, streams: u32) -> TransferSpec {
    let options = &ctx.options;
    TransferSpec {
        size: span.size,
        part: span.part,
        have: have.clone(),
        streams,
        most_streams: options.max_streams,
        adapt: options.parallelism == Parallelism::Auto,
        mode: options.mode,
        sum: None,
        remote_sum: None,
        rate: ctx.rate,
        timeout: options.timeout,
        buffer: options.buffer.pinned(),
        sizing: options.buffer.sizing(),
        drs_interval: options.drs_interval,
        congestion: options.congestion.clone(),
        io: options.io,
        block: options.block,
        begun: Arc::default(),
        marked: Arc::new(Mutex::new(RangeSet::new())),
        data_ports: options.data_ports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(offset: Option<u64>, length: Option<u64>) -> Result<Span, Failure> {
        let facts = Facts {
            size: Some(100),
            modified: None,
        };
        Span::of(offset, length, facts, "f")
    }

    #[test]
    fn parts_inside_the_file() {
        let whole = span(None, None).unwrap();
        assert_eq!(
            (whole.part, whole.size, whole.origin()),
            (None, Some(100), 0)
        );
        assert_eq!(span(Some(40), None).unwrap().part, Some((40, 60)));
        assert_eq!(span(None, Some(7)).unwrap().part, Some((0, 7)));
        assert_eq!(span(Some(100), None).unwrap().size, Some(0));
    }

    #[test]
    fn beyond_the_end_is_refused() {
        for (offset, length) in [(Some(101), None), (Some(90), Some(11)), (None, Some(101))] {
            assert_eq!(span(offset, length).unwrap_err().exit, Exit::Usage);
        }
        assert!(span(Some(u64::MAX), Some(u64::MAX)).is_err());
        let unknown = Span::of(Some(0), None, Facts::default(), "f");
        assert!(unknown.unwrap_err().message.contains("size"));
    }
}
