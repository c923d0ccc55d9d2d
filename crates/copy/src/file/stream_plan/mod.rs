//! Parameters of an attempt: the part of the source, the streams, the settings.

use std::sync::Arc;
use std::time::Duration;

use data::options::CongestionChoice;
use parking_lot::Mutex;
use proto::ranges::RangeSet;
use tune::Prior;
use tune::streams::chunked::{ChunkParameters, ChunkTuningMode};
use tune::streams::initial::{self, ADAPT_FROM};

use crate::batch::BatchContext;
use crate::options::{Parallelism, StreamOptions};
use crate::storage::capabilities::Capabilities;
use crate::storage::contract::Storage;
use crate::storage::local_copy;
use ftp::answers::SourceFacts;
use ftp::transfer::{Chunking, RestartProof, TransferSpec};
use ftp::{Failure, ModeChoice};
use units::show;

/// The bytes of the source that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyRange {
    /// Offset and length. `None`: the whole source.
    pub(crate) part: Option<(u64, u64)>,
    /// Number of bytes to copy, if known.
    pub(crate) size: Option<u64>,
}

impl CopyRange {
    /// Source offset of the copy's first byte.
    pub(crate) fn origin(self) -> u64 {
        self.part.map_or(0, |(offset, _)| offset)
    }

    /// Applies `--offset` and `--length` to a source. A range beyond the end of the source is an
    /// error.
    pub(crate) fn from_options(
        offset: Option<u64>,
        length: Option<u64>,
        facts: SourceFacts,
        display_name: &str,
    ) -> Result<Self, Failure> {
        if offset.is_none() && length.is_none() {
            return Ok(Self {
                part: None,
                size: facts.size,
            });
        }
        let usage = |message| Err(Failure::usage(message));
        let Some(size) = facts.size else {
            return usage(format!(
                "{display_name}: a part requires the size of the source, which is unknown"
            ));
        };
        let offset = offset.unwrap_or(0);
        if offset > size {
            return usage(format!(
                "{display_name}: offset {offset} is beyond the end, the file has {size} bytes"
            ));
        }
        let length = length.unwrap_or(size - offset);
        if length > size - offset {
            return usage(format!(
                "{display_name}: {length} bytes from offset {offset} go beyond the end, the file has \
                 {size} bytes"
            ));
        }
        Ok(Self {
            part: Some((offset, length)),
            size: Some(length),
        })
    }
}

/// Offset and length of a part, in the form of CKSM's arguments.
pub(crate) fn offset_and_length(part: Option<(u64, u64)>) -> (u64, Option<u64>) {
    part.map_or((0, None), |(offset, length)| (offset, Some(length)))
}

/// Size from which a file is cut into chunks between two servers, where the sender's TCP_INFO is not
/// available.
const CHUNK_FROM: u64 = 64 << 20;
/// Size from which further sessions may fetch ranges of a file.
const SEVERAL_SESSIONS_FROM: u64 = 16 << 20;
/// On paths with a shorter round trip, one stream is enough for any sender.
const MIN_PROBED_RTT: Duration = Duration::from_millis(5);

/// Abilities of both ends on which the number of streams depends.
#[derive(Debug, Clone, Copy)]
struct EndpointAbilities<'k> {
    /// Both ends support extended block mode.
    parallel: bool,
    /// The sender adapts the number of its streams.
    adapts_streams: bool,
    /// This end sends, and a program carries the streams: neither end sees the path, so that their number stays.
    is_carried: bool,
    /// The source sends ranges, and the destination stores them at their offset.
    takes_chunks: bool,
    /// This end fetches, and the source permits several sessions.
    several_sessions: bool,
    /// The source can open the connections that several streams of one session need.
    connects: bool,
    /// Both ends are on one machine, where no segments are lost and windows do not limit.
    on_this_machine: bool,
    rtt: Duration,
    /// Knowledge of the path from before the transfer.
    known: &'k Prior,
}

impl<'k> EndpointAbilities<'k> {
    fn of(from: Capabilities, to: Capabilities, known: &'k Prior) -> Self {
        let is_direct = from.third_party.is_some() && from.third_party == to.third_party;
        Self {
            parallel: from.parallel && to.parallel,
            adapts_streams: from.adapts_streams,
            is_carried: from.is_local && to.is_carried,
            takes_chunks: from.ranges && to.partial_writes,
            several_sessions: from.several_sessions && !is_direct && to.partial_writes,
            // Between two servers, the source connects to the other one.
            connects: from.connects_here || is_direct,
            on_this_machine: from.is_local && to.is_local,
            // For a third-party copy the path between the servers is unknown; the longer one is a
            // guess.
            rtt: from.rtt.max(to.rtt),
            known,
        }
    }
}

impl EndpointAbilities<'_> {
    /// Whether a get has several streams only by several sessions, and can.
    fn must_use_sessions(&self) -> bool {
        !self.connects && self.several_sessions
    }
}

/// Number of streams and order of the bytes. The same in all attempts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamPlan {
    /// Streams at the start.
    pub(crate) streams: u32,
    /// Most streams at a time.
    max_streams: u32,
    /// MODE S is used, so bytes are stored strictly in order.
    pub(crate) in_order: bool,
    /// How the file is cut into chunks.
    chunks: Option<Chunking>,
    /// MODE E is used for a single stream, too.
    extended: bool,
    /// Several sessions may fetch ranges of the file.
    uses_several_sessions: bool,
    /// Each of them has one stream: the source cannot open more.
    has_one_stream_each: bool,
    /// ssh carries the data.
    is_carried: bool,
}

impl StreamPlan {
    /// The same, where others move parts of the file: they are stored in any order.
    pub(crate) fn in_any_order(self) -> Self {
        Self {
            in_order: false,
            ..self
        }
    }

    /// One stream, which stays one.
    pub(crate) fn single() -> Self {
        Self {
            streams: 1,
            max_streams: 1,
            ..Self::default()
        }
    }

    /// For a transfer of `size` bytes, if known. A sequential end (`sequential`) allows one stream only. `known`: what
    /// earlier transfers taught about the path.
    pub(crate) fn for_transfer(
        ctx: &BatchContext,
        size: Option<u64>,
        sequential: bool,
        known: &Prior,
        from: &dyn Storage,
        to: &dyn Storage,
    ) -> Self {
        let options = &ctx.options.streams;
        let (source, destination) = (from.capabilities(), to.capabilities());
        let abilities = EndpointAbilities::of(source, destination, known);
        let fixed = |n: u32| Self {
            streams: n,
            max_streams: n,
            ..Self::default()
        };
        let plan = match options.parallelism {
            // MODE S has one data connection (RFC 959 section 3.4.1).
            _ if sequential || options.mode == ModeChoice::Stream => fixed(1),
            // As many streams, each of a session of its own.
            Parallelism::Fixed(n)
                if n > 1 && abilities.must_use_sessions() && options.mode == ModeChoice::Auto =>
            {
                Self {
                    chunks: Some(Chunking::Probe),
                    uses_several_sessions: true,
                    has_one_stream_each: true,
                    ..fixed(n)
                }
            }
            Parallelism::Fixed(n) => fixed(n.max(1)),
            Parallelism::Auto => Self::auto(options, size, abilities),
            Parallelism::Chunked(mode) => Self::chunked(options, mode, abilities),
        };
        // Warned once per batch: the same end lacks the ability for every file.
        if let (Parallelism::Chunked(_), None, false) =
            (options.parallelism, plan.chunks, sequential)
        {
            ctx.warn(chunking_unavailable_warning(options, from, to));
        }
        let in_order_only = !source.stores_any_order || !destination.stores_any_order;
        Self {
            is_carried: source.is_carried || destination.is_carried,
            in_order: match options.mode {
                ModeChoice::Stream => true,
                ModeChoice::Extended => false,
                // Several sessions store out of order in MODE S, too.
                ModeChoice::Auto if plan.uses_several_sessions => false,
                ModeChoice::Auto if !destination.length_shows_content => false,
                // One stream gains nothing from MODE E, and MODE S stores in order, which makes
                // resuming exact.
                ModeChoice::Auto => plan.max_streams == 1 || in_order_only,
            },
            ..plan
        }
    }

    /// The first number of streams, for people.
    pub(crate) fn in_words(&self) -> String {
        self.described("")
    }

    /// The same with the protocol's name of the mode, for those who want to see every decision.
    pub(crate) fn with_mode(&self) -> String {
        let is_stream_mode = self.in_order || self.has_one_stream_each;
        self.described(match is_stream_mode {
            true => " in MODE S",
            false => " in MODE E",
        })
    }

    fn described(&self, mode: &str) -> String {
        let way = match self.is_carried {
            true => " through ssh",
            false => "",
        };
        if self.has_one_stream_each {
            let sessions = show::count(self.streams, "session");
            let most = self.max_streams;
            return format!(
                "begins with {sessions} of one stream{mode}{way}, at most {most}: the server cannot connect to \
                 this machine, as several streams of one session need"
            );
        }
        let growth = match self.max_streams > self.streams {
            true => format!(", at most {}", self.max_streams),
            false => String::new(),
        };
        format!(
            "begins with {}{mode}{way}{growth}",
            show::count(self.streams, "stream")
        )
    }

    /// The plan for the ranges of the same file that arrived wrong. Only MODE E moves them without what is between
    /// them.
    pub(crate) fn for_repair(self, ends: [Capabilities; 2]) -> Self {
        Self {
            chunks: None,
            in_order: false,
            extended: ends.iter().all(|end| end.stores_any_order),
            ..self
        }
    }

    /// For a copy of `size` bytes between two open files. Streams are threads here.
    pub(crate) fn for_local_copy(
        options: &StreamOptions,
        size: Option<u64>,
        sequential: bool,
    ) -> Self {
        let threads = match options.parallelism {
            _ if sequential || options.mode == ModeChoice::Stream => 1,
            Parallelism::Fixed(n) => n.max(1),
            Parallelism::Auto | Parallelism::Chunked(_) => local_copy::default_threads(size),
        };
        Self {
            streams: threads,
            max_streams: threads,
            in_order: threads == 1,
            ..Self::default()
        }
    }

    /// Starts with the number of streams from the prior. An adapting sender continues from there. If the
    /// sender is another program's server, this end watches how much arrives.
    fn auto(options: &StreamOptions, size: Option<u64>, abilities: EndpointAbilities<'_>) -> Self {
        let single = Self {
            streams: 1,
            max_streams: 1,
            ..Self::default()
        };
        let max_streams = options.max_streams.max(1);
        let is_long = max_streams > 1 && abilities.rtt >= MIN_PROBED_RTT;
        let reaches = |least| size.is_some_and(|size| size >= least);
        if (!abilities.adapts_streams || !abilities.connects)
            && abilities.several_sessions
            && is_long
            && reaches(SEVERAL_SESSIONS_FROM)
        {
            return Self {
                streams: first_streams(options, size, abilities, initial::fixed_from_rtt),
                max_streams,
                chunks: Some(Chunking::Probe),
                uses_several_sessions: true,
                has_one_stream_each: !abilities.connects,
                ..single
            };
        }
        if !abilities.parallel || !abilities.connects {
            return single;
        }
        if abilities.is_carried {
            let streams = first_streams(options, size, abilities, initial::fixed_from_rtt);
            return Self {
                streams,
                max_streams: streams,
                ..single
            };
        }
        let is_large = size.is_none_or(|size| size >= ADAPT_FROM);
        let rule = if abilities.adapts_streams && !abilities.on_this_machine {
            initial::adapting_from_rtt
        } else {
            initial::advised_from_rtt
        };
        let streams = first_streams(options, size, abilities, rule);
        if abilities.adapts_streams {
            let may_grow = streams > 1 || (is_large && !abilities.on_this_machine);
            return Self {
                streams,
                max_streams: if may_grow { max_streams } else { 1 },
                ..single
            };
        }
        let probes = is_long && reaches(CHUNK_FROM) && abilities.takes_chunks;
        Self {
            streams,
            max_streams: if probes { max_streams } else { streams },
            chunks: probes.then_some(Chunking::Probe),
            ..single
        }
    }

    fn chunked(
        options: &StreamOptions,
        mode: ChunkTuningMode,
        abilities: EndpointAbilities<'_>,
    ) -> Self {
        let parameters = ChunkParameters {
            max_streams: options.autopar.max_streams.min(options.max_streams).max(1),
            ..options.autopar
        };
        let streams = parameters.initial_streams.clamp(1, parameters.max_streams);
        Self {
            streams,
            // At least 2, because a plan with one stream selects MODE S and chunks need MODE E.
            max_streams: parameters.max_streams.max(2),
            chunks: abilities
                .takes_chunks
                .then_some(Chunking::Mode(mode, parameters)),
            ..Self::default()
        }
    }
}

/// The first number of streams: the known one, or that of `rule` for the round trip.
fn first_streams(
    options: &StreamOptions,
    size: Option<u64>,
    abilities: EndpointAbilities<'_>,
    rule: fn(Duration, Option<u64>, usize, u32) -> Prior,
) -> u32 {
    // A longhaul sender uses smaller blocks when there are more streams than blocks. Another
    // sender does not, and for a small file MODE E would only add round trips.
    let block = match abilities.adapts_streams {
        true => 0,
        false => options.transfer.block,
    };
    let max_streams = options.max_streams.max(1);
    let usual = || {
        rule(abilities.rtt, size, block, max_streams)
            .streams
            .unwrap_or(1)
    };
    let streams = match abilities.known.streams {
        // Only a sender that adapts closes those that help to start.
        _ if abilities.adapts_streams => abilities.known.first_streams(size, usual()),
        Some(known) => {
            let blocks = size.map_or(u64::MAX, |size| size.div_ceil(block.max(1) as u64));
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            Prior::with_streams(known)
                .first_streams(size, known)
                .min(blocks)
        }
        None => usual(),
    };
    streams.clamp(1, max_streams)
}

/// Warning when a chunk tuning mode was requested and is not possible.
fn chunking_unavailable_warning(
    options: &StreamOptions,
    from: &dyn Storage,
    to: &dyn Storage,
) -> String {
    if options.mode == ModeChoice::Stream {
        return "--mode s uses one stream: -p has no effect".to_owned();
    }
    let source_lacks = (!from.capabilities().ranges).then(|| from.name());
    let destination_lacks = (!to.capabilities().partial_writes).then(|| to.name());
    let names: Vec<&str> = source_lacks.into_iter().chain(destination_lacks).collect();
    format!(
        "{}: ranges of a file cannot be fetched and stored at an offset (ERET, ESTO), so the \
         initial number of streams is kept",
        names.join(", ")
    )
}

/// Parameters of one attempt. The caller adds the checksums.
pub(crate) fn new_transfer_spec(
    ctx: &BatchContext,
    range: CopyRange,
    completed: &RangeSet,
    plan: StreamPlan,
) -> TransferSpec {
    let options = &ctx.options.streams;
    let mut transfer = options.transfer.clone();
    // The modes of 2008 assume TCP as the system runs it by default.
    if let (CongestionChoice::Auto, Parallelism::Chunked(_)) =
        (&transfer.congestion, options.parallelism)
    {
        transfer.congestion = CongestionChoice::System;
    }
    TransferSpec {
        size: range.size,
        part: range.part,
        restart_proof: RestartProof::default(),
        destination_offset: None,
        chunks: plan.chunks,
        completed_ranges: completed.clone(),
        streams: plan.streams,
        max_streams: plan.max_streams,
        adapt: options.parallelism == Parallelism::Auto,
        prior: Prior::default(),
        mode: match (options.mode, plan.extended) {
            (ModeChoice::Auto, true) => ModeChoice::Extended,
            (mode, _) => mode,
        },
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
mod tests;
