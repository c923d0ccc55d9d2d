//! What an attempt is asked for: the part of the source, the streams, the settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proto::ranges::RangeSet;
use tune::streams::chunked::{Mode, Parameters};

use super::Context;
use crate::session::Session;
use crate::transfer::{Chunks, TransferSpec};
use crate::tree::Facts;
use crate::{CopyOptions, Exit, Failure, ModeChoice, Parallelism};

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

/// Files from this size on are worth being adapted to the path while they move.
const LARGE: u64 = 16 << 20;
/// Files from this size on are worth being cut into chunks, where the sender cannot be looked at.
const WORTH_CHUNKS: u64 = 64 << 20;
/// On shorter paths one stream does, whatever the sender.
const PROBED_FROM: Duration = Duration::from_millis(5);

/// Between whom a file goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    /// From this server.
    Get(&'a Session),
    /// To this server.
    Put(&'a Session),
    /// From the first to the second.
    Between(&'a Session, &'a Session),
}

impl<'a> Way<'a> {
    fn sessions(self) -> impl Iterator<Item = &'a Session> {
        let (first, second) = match self {
            Self::Get(one) | Self::Put(one) => (one, None),
            Self::Between(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// Whether the sender changes the number of its streams by itself.
    fn adapts(self) -> bool {
        match self {
            Self::Put(_) => true,
            Self::Get(from) | Self::Between(from, _) => from.features().tune,
        }
    }

    /// Whether all of it is within one machine, where nothing is lost and no window is too small.
    fn is_here(self) -> bool {
        self.sessions().all(Session::is_on_this_machine)
    }

    /// Whether chunks can be asked for and sent to their place.
    fn takes_chunks(self) -> bool {
        match self {
            Self::Get(from) => from.features().eret,
            Self::Put(to) => to.features().esto,
            Self::Between(from, to) => from.features().eret && to.features().esto,
        }
    }

    fn rtt(self) -> Duration {
        self.sessions().map(Session::rtt).max().unwrap_or_default()
    }
}

/// How many streams, and in which order they bring the bytes: the same in all attempts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lanes {
    /// Streams to begin with.
    pub(super) streams: u32,
    /// Never more at a time.
    most: u32,
    /// It will be MODE S, so that bytes are stored strictly in order.
    pub(super) in_order: bool,
    /// How the file is cut into chunks.
    chunks: Option<Chunks>,
}

impl Lanes {
    /// For a transfer of `size` bytes, if that is known; a sequential end (`pipe`) takes one stream.
    pub(super) fn of(ctx: &Context, size: Option<u64>, pipe: bool, way: Way<'_>) -> Self {
        let options = &ctx.options;
        let fixed = |n: u32| Self {
            streams: n,
            most: n,
            ..Self::default()
        };
        let lanes = match options.parallelism {
            _ if pipe || options.mode == ModeChoice::Stream => fixed(1),
            Parallelism::Fixed(n) => fixed(n.max(1)),
            Parallelism::Auto => Self::auto(options, size, way),
            Parallelism::Chunked(mode) => Self::chunked(options, mode, way),
        };
        let impossible = way.sessions().any(|s| !s.dialogue.may_extend());
        Self {
            in_order: match options.mode {
                ModeChoice::Stream => true,
                ModeChoice::Extended => false,
                ModeChoice::Auto => lanes.most == 1 || impossible,
            },
            ..lanes
        }
    }

    /// The number that experience says, to begin with. Whoever sends goes on from there; where that
    /// is somebody else's server, chunks tell what streams are worth.
    fn auto(options: &CopyOptions, size: Option<u64>, way: Way<'_>) -> Self {
        let one = Self {
            streams: 1,
            most: 1,
            ..Self::default()
        };
        if !way.sessions().all(|s| s.features().parallel) {
            return one;
        }
        let (rtt, most) = (way.rtt(), options.max_streams.max(1));
        let streams = tune::streams::automatic(rtt, size, options.block).min(most);
        let large = size.is_none_or(|size| size >= LARGE);
        if way.adapts() {
            let grows = streams > 1 || (large && !way.is_here());
            return Self {
                streams,
                most: if grows { most } else { 1 },
                ..one
            };
        }
        let probes = most > 1
            && rtt >= PROBED_FROM
            && size.is_some_and(|size| size >= WORTH_CHUNKS)
            && way.takes_chunks();
        Self {
            streams,
            most: if probes { most } else { streams },
            chunks: probes.then_some(Chunks::Probe),
            ..one
        }
    }

    fn chunked(options: &CopyOptions, mode: Mode, way: Way<'_>) -> Self {
        let parameters = Parameters {
            most: options.autopar.most.min(options.max_streams).max(1),
            ..options.autopar
        };
        let streams = parameters.first.clamp(1, parameters.most);
        Self {
            streams,
            most: parameters.most.max(2),
            in_order: false,
            chunks: way.takes_chunks().then_some(Chunks::Mode(mode, parameters)),
        }
    }
}

/// The settings of one attempt; sums are for the caller to add.
pub(super) fn spec(ctx: &Context, span: Span, have: &RangeSet, lanes: Lanes) -> TransferSpec {
    let options = &ctx.options;
    TransferSpec {
        size: span.size,
        part: span.part,
        place: None,
        chunks: lanes.chunks,
        have: have.clone(),
        streams: lanes.streams,
        most_streams: lanes.most,
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
