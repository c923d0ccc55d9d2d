//! What an attempt is asked for: the part of the source, the streams, the settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use data::options::CongestionChoice;
use proto::ranges::RangeSet;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use tune::streams::initial;

use super::BatchContext;
use crate::answers::SourceFacts;
use crate::storage::contract::{Capabilities, Storage};
use crate::storage::local_copy;
use crate::transfer::{Chunking, TransferSpec};
use crate::{CopyFailure, CopyOptions, Exit, ModeChoice, Parallelism};

/// The bytes of the source that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyRange {
    /// Offset and length; `None`: all of it.
    pub(super) part: Option<(u64, u64)>,
    /// Bytes to copy, if known.
    pub(super) size: Option<u64>,
}

impl CopyRange {
    /// Source offset of the copy's first byte.
    pub(super) fn origin(self) -> u64 {
        self.part.map_or(0, |(offset, _)| offset)
    }

    /// `--offset` and `--length` applied to a source; beyond its end is an error.
    pub(super) fn of(
        offset: Option<u64>,
        length: Option<u64>,
        facts: SourceFacts,
        shown: &str,
    ) -> Result<Self, CopyFailure> {
        if offset.is_none() && length.is_none() {
            return Ok(Self {
                part: None,
                size: facts.size,
            });
        }
        let usage = |message| Err(CopyFailure::new(Exit::Usage, message));
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

/// Offset and length of a part as CKSM has them.
pub(super) fn extent(part: Option<(u64, u64)>) -> (u64, Option<u64>) {
    part.map_or((0, None), |(offset, length)| (offset, Some(length)))
}

/// Files from this size on are worth being adapted to the path while they move.
const LARGE: u64 = 16 << 20;
/// Files from this size on are worth being cut into chunks, where the sender cannot be looked at.
const WORTH_CHUNKS: u64 = 64 << 20;
/// On shorter paths one stream does, whatever the sender.
const PROBED_FROM: Duration = Duration::from_millis(5);

/// What the number of streams depends on.
#[derive(Debug, Clone, Copy)]
struct EndpointAbilities {
    /// All have extended block mode.
    parallel: bool,
    /// The sender changes the number of its streams by itself.
    adapts: bool,
    /// Chunks can be asked for, and stored at their place.
    takes_chunks: bool,
    /// All is within one machine, where nothing is lost and no window is too small.
    on_this_machine: bool,
    rtt: Duration,
}

impl EndpointAbilities {
    fn of(from: Capabilities, to: Capabilities) -> Self {
        Self {
            parallel: from.parallel && to.parallel,
            adapts: from.adapts_streams,
            takes_chunks: from.ranges && to.partial_writes,
            on_this_machine: from.is_here && to.is_here,
            rtt: from.rtt.max(to.rtt),
        }
    }
}

/// How many streams, and in which order they bring the bytes: the same in all attempts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamPlan {
    /// Streams to begin with.
    pub(super) streams: u32,
    /// Never more at a time.
    most: u32,
    /// It will be MODE S, so that bytes are stored strictly in order.
    pub(super) in_order: bool,
    /// How the file is cut into chunks.
    chunks: Option<Chunking>,
}

impl StreamPlan {
    /// For a transfer of `size` bytes, if that is known; a sequential end (`pipe`) takes one stream.
    pub(super) fn of(
        ctx: &BatchContext,
        size: Option<u64>,
        pipe: bool,
        (from, to): (&dyn Storage, &dyn Storage),
    ) -> Self {
        let options = &ctx.options;
        let (source, destination) = (from.capabilities(), to.capabilities());
        let ends = EndpointAbilities::of(source, destination);
        let fixed = |n: u32| Self {
            streams: n,
            most: n,
            ..Self::default()
        };
        let lanes = match options.parallelism {
            _ if pipe || options.mode == ModeChoice::Stream => fixed(1),
            Parallelism::Fixed(n) => fixed(n.max(1)),
            Parallelism::Auto => Self::auto(options, size, ends),
            Parallelism::Chunked(mode) => Self::chunked(options, mode, ends),
        };
        if let (Parallelism::Chunked(_), None, false) = (options.parallelism, lanes.chunks, pipe) {
            ctx.warn(one_piece(options, (from, to)));
        }
        let impossible = !source.any_order || !destination.any_order;
        Self {
            in_order: match options.mode {
                ModeChoice::Stream => true,
                ModeChoice::Extended => false,
                ModeChoice::Auto => lanes.most == 1 || impossible,
            },
            ..lanes
        }
    }

    /// For a copy of `size` bytes from an open file to an open file: its streams are threads.
    pub(super) fn within(options: &CopyOptions, size: Option<u64>, sequential: bool) -> Self {
        let threads = match options.parallelism {
            _ if sequential || options.mode == ModeChoice::Stream => 1,
            Parallelism::Fixed(n) => n.max(1),
            Parallelism::Auto | Parallelism::Chunked(_) => local_copy::threads(size),
        };
        Self {
            streams: threads,
            most: threads,
            in_order: threads == 1,
            chunks: None,
        }
    }

    /// The number that experience says, to begin with. Whoever sends goes on from there; where that
    /// is somebody else's server, chunks tell what streams are worth.
    fn auto(options: &CopyOptions, size: Option<u64>, ends: EndpointAbilities) -> Self {
        let one = Self {
            streams: 1,
            most: 1,
            ..Self::default()
        };
        if !ends.parallel {
            return one;
        }
        let (rtt, most) = (ends.rtt, options.max_streams.max(1));
        // A sender of ours makes blocks smaller where there are more streams than blocks; of another
        // one a small file has nothing but MODE E's round trips.
        let block = if ends.adapts {
            0
        } else {
            options.transfer.block
        };
        let streams = initial::prior_from_rtt(rtt, size, block, most)
            .streams
            .unwrap_or(1);
        let large = size.is_none_or(|size| size >= LARGE);
        if ends.adapts {
            let grows = streams > 1 || (large && !ends.on_this_machine);
            return Self {
                streams,
                most: if grows { most } else { 1 },
                ..one
            };
        }
        let probes = most > 1
            && rtt >= PROBED_FROM
            && size.is_some_and(|size| size >= WORTH_CHUNKS)
            && ends.takes_chunks;
        Self {
            streams,
            most: if probes { most } else { streams },
            chunks: probes.then_some(Chunking::Probe),
            ..one
        }
    }

    fn chunked(options: &CopyOptions, mode: ChunkTuningMode, ends: EndpointAbilities) -> Self {
        let parameters = ChunkParameters {
            max_streams: options.autopar.max_streams.min(options.max_streams).max(1),
            ..options.autopar
        };
        let streams = parameters.initial_streams.clamp(1, parameters.max_streams);
        Self {
            streams,
            most: parameters.max_streams.max(2),
            in_order: false,
            chunks: ends
                .takes_chunks
                .then_some(Chunking::Mode(mode, parameters)),
        }
    }
}

/// What the user is told when a mode of 2008 was asked for and cannot be had.
fn one_piece(options: &CopyOptions, (from, to): (&dyn Storage, &dyn Storage)) -> String {
    if options.mode == ModeChoice::Stream {
        return "--mode s has one stream: -p is of no use with it".to_owned();
    }
    let asked = (!from.capabilities().ranges).then(|| from.name());
    let stored = (!to.capabilities().partial_writes).then(|| to.name());
    let names: Vec<&str> = asked.into_iter().chain(stored).collect();
    format!(
        "{}: parts of a file cannot be asked for and stored at their place (ERET, ESTO), so that the \
         number of streams stays what it is at first",
        names.join(", ")
    )
}

/// The settings of one attempt; sums are for the caller to add.
pub(super) fn spec(
    ctx: &BatchContext,
    span: CopyRange,
    have: &RangeSet,
    lanes: StreamPlan,
) -> TransferSpec {
    let options = &ctx.options;
    let mut transfer = options.transfer.clone();
    // The modes of 2008 are about TCP as the system runs it.
    if let (CongestionChoice::Auto, Parallelism::Chunked(_)) =
        (&transfer.congestion, options.parallelism)
    {
        transfer.congestion = CongestionChoice::System;
    }
    TransferSpec {
        size: span.size,
        part: span.part,
        destination_offset: None,
        chunks: lanes.chunks,
        completed_ranges: have.clone(),
        streams: lanes.streams,
        max_streams: lanes.most,
        adapt: options.parallelism == Parallelism::Auto,
        prior: tune::Prior::default(),
        mode: options.mode,
        checksum: None,
        server_checksum: None,
        options: transfer,
        started: Arc::default(),
        stored_ranges: Arc::new(Mutex::new(RangeSet::new())),
        confirmation: Arc::default(),
        data_ports: options.data_ports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::options;

    /// A path of 50 ms to a server like ours.
    const OURS: EndpointAbilities = EndpointAbilities {
        parallel: true,
        adapts: true,
        takes_chunks: true,
        on_this_machine: false,
        rtt: Duration::from_millis(50),
    };

    fn auto(size: u64, ends: EndpointAbilities) -> StreamPlan {
        StreamPlan::auto(&options(), Some(size), ends)
    }

    #[test]
    fn a_sender_that_adapts_goes_on_from_what_experience_says() {
        let lanes = auto(1 << 30, OURS);
        assert_eq!((lanes.streams, lanes.most, lanes.chunks), (4, 64, None));
        // One stream to begin with, and others when the path asks for them.
        let short = EndpointAbilities {
            rtt: Duration::from_millis(1),
            ..OURS
        };
        let lanes = auto(1 << 30, short);
        assert_eq!((lanes.streams, lanes.most), (1, 64));
        assert_eq!(StreamPlan::auto(&options(), None, short).most, 64);
    }

    #[test]
    fn what_is_over_at_once_has_one_stream() {
        let short = EndpointAbilities {
            rtt: Duration::from_millis(1),
            ..OURS
        };
        let here = EndpointAbilities {
            on_this_machine: true,
            ..short
        };
        let plain = EndpointAbilities {
            parallel: false,
            ..OURS
        };
        for lanes in [
            auto(LARGE - 1, short),
            auto(100_000, OURS),
            auto(1 << 40, here),
            auto(1 << 40, plain),
        ] {
            assert_eq!((lanes.streams, lanes.chunks), (1, None));
        }
        assert_eq!(auto(1 << 40, here).most, 1);
        assert_eq!(auto(1 << 40, plain).most, 1);
    }

    #[test]
    fn chunks_tell_where_the_sender_cannot_be_looked_at() {
        let foreign = EndpointAbilities {
            adapts: false,
            ..OURS
        };
        let lanes = auto(WORTH_CHUNKS, foreign);
        assert_eq!((lanes.streams, lanes.most), (4, 64));
        assert_eq!(lanes.chunks, Some(Chunking::Probe));
        let short = EndpointAbilities {
            rtt: Duration::from_millis(4),
            ..foreign
        };
        let whole = EndpointAbilities {
            takes_chunks: false,
            ..foreign
        };
        for (size, ends, streams) in [
            (WORTH_CHUNKS - 1, foreign, 4),
            (1 << 40, short, 1),
            (1 << 40, whole, 4),
        ] {
            let lanes = auto(size, ends);
            let got = (lanes.streams, lanes.most, lanes.chunks);
            assert_eq!(got, (streams, streams, None));
        }
    }

    #[test]
    fn threads_that_share_a_file_do_not_store_it_in_order() {
        let lanes = |parallelism, mode, sequential| {
            let options = CopyOptions {
                parallelism,
                mode,
                ..options()
            };
            StreamPlan::within(&options, Some(1 << 30), sequential)
        };
        for parallelism in [
            Parallelism::Auto,
            Parallelism::Fixed(1),
            Parallelism::Fixed(3),
            Parallelism::Chunked(ChunkTuningMode::Mi),
        ] {
            let many = lanes(parallelism, ModeChoice::Auto, false);
            assert_eq!(many.in_order, many.streams == 1, "{many:?}");
            for one in [
                lanes(parallelism, ModeChoice::Stream, false),
                lanes(parallelism, ModeChoice::Extended, true),
            ] {
                assert_eq!((one.streams, one.in_order), (1, true));
            }
        }
        assert_eq!(StreamPlan::within(&options(), Some(1), false).streams, 1);
        assert_eq!(
            lanes(Parallelism::Fixed(3), ModeChoice::Auto, false).streams,
            3
        );
    }

    #[test]
    fn never_more_than_the_user_allows() {
        let options = CopyOptions {
            max_streams: 2,
            ..options()
        };
        let lanes = StreamPlan::auto(&options, Some(1 << 40), OURS);
        assert_eq!((lanes.streams, lanes.most), (2, 2));
        let lanes = StreamPlan::chunked(&options, ChunkTuningMode::Mi, OURS);
        let Some(Chunking::Mode(ChunkTuningMode::Mi, parameters)) = lanes.chunks else {
            unreachable!("{lanes:?}");
        };
        assert_eq!(parameters.max_streams, 2);
    }

    #[test]
    fn the_modes_need_servers_that_take_chunks() {
        let whole = EndpointAbilities {
            takes_chunks: false,
            ..OURS
        };
        assert_eq!(
            StreamPlan::chunked(&options(), ChunkTuningMode::Aimd, whole).chunks,
            None
        );
    }

    fn span(offset: Option<u64>, length: Option<u64>) -> Result<CopyRange, CopyFailure> {
        let facts = SourceFacts {
            size: Some(100),
            modified: None,
        };
        CopyRange::of(offset, length, facts, "f")
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
        let unknown = CopyRange::of(Some(0), None, SourceFacts::default(), "f");
        assert!(unknown.unwrap_err().message.contains("size"));
    }
}
