use super::*;
use crate::options::StreamOptions;
use ftp::FailureKind;

const NOTHING: Prior = Prior {
    streams: None,
    congestion_control: None,
    pacing_rate: None,
    send_buffer: None,
    path_rate: None,
    min_rtt: None,
    is_alone: false,
};

/// A path of 50 ms to a longhaul server.
const OURS: EndpointAbilities<'static> = EndpointAbilities {
    parallel: true,
    adapts_streams: true,
    is_carried: false,
    takes_chunks: true,
    several_sessions: false,
    connects: true,
    on_this_machine: false,
    rtt: Duration::from_millis(50),
    known: &NOTHING,
};

fn auto(size: u64, abilities: EndpointAbilities<'_>) -> StreamPlan {
    StreamPlan::auto(&StreamOptions::default(), Some(size), abilities)
}

#[test]
fn an_adapting_sender_starts_with_the_prior_and_may_add_streams() {
    let plan = auto(1 << 30, OURS);
    assert_eq!(
        (plan.streams, plan.max_streams, plan.chunks),
        (16, 128, None)
    );
    // A few streams at the start, more when the path needs them.
    let short = EndpointAbilities {
        rtt: Duration::from_millis(1),
        ..OURS
    };
    let plan = auto(1 << 30, short);
    assert_eq!((plan.streams, plan.max_streams), (4, 128));
    assert_eq!(
        StreamPlan::auto(&StreamOptions::default(), None, short).max_streams,
        128
    );
}

#[test]
fn streams_that_a_program_carries_keep_their_number() {
    let carried = EndpointAbilities {
        is_carried: true,
        ..OURS
    };
    let plan = auto(1 << 30, carried);
    assert_eq!(
        (plan.streams, plan.max_streams, plan.chunks),
        (16, 16, None)
    );
    let near = EndpointAbilities {
        rtt: Duration::from_millis(1),
        ..carried
    };
    assert_eq!(auto(1 << 30, near).max_streams, 1);
}

#[test]
fn a_known_number_of_streams_replaces_the_one_by_the_round_trip() {
    let known = EndpointAbilities {
        known: &Prior::with_streams(12),
        ..OURS
    };
    let plan = auto(1 << 30, known);
    assert_eq!((plan.streams, plan.max_streams), (12, 128));
    assert_eq!(auto(1 << 20, known).streams, 4);
    // Other servers leave a stream without a whole block empty.
    let foreign = EndpointAbilities {
        adapts_streams: false,
        takes_chunks: false,
        ..known
    };
    assert_eq!(auto(4 << 20, foreign).streams, 4);
    assert_eq!(auto(1 << 30, foreign).streams, 12);
    let plain = EndpointAbilities {
        parallel: false,
        ..known
    };
    assert_eq!(auto(1 << 30, plain).max_streams, 1);
}

#[test]
fn small_files_local_copies_and_servers_without_mode_e_use_one_stream() {
    let short = EndpointAbilities {
        rtt: Duration::from_micros(900),
        ..OURS
    };
    let local = EndpointAbilities {
        on_this_machine: true,
        ..short
    };
    let plain = EndpointAbilities {
        parallel: false,
        ..OURS
    };
    for plan in [
        auto(ADAPT_FROM - 1, short),
        auto(100_000, OURS),
        auto(1 << 40, local),
        auto(1 << 40, plain),
    ] {
        assert_eq!((plan.streams, plan.chunks), (1, None));
    }
    assert_eq!(auto(1 << 40, local).max_streams, 1);
    assert_eq!(auto(1 << 40, plain).max_streams, 1);
}

#[test]
fn large_files_of_other_servers_are_probed_in_chunks() {
    let foreign = EndpointAbilities {
        adapts_streams: false,
        ..OURS
    };
    let plan = auto(CHUNK_FROM, foreign);
    assert_eq!((plan.streams, plan.max_streams), (4, 128));
    assert_eq!(plan.chunks, Some(Chunking::Probe));
    let short = EndpointAbilities {
        rtt: Duration::from_millis(4),
        ..foreign
    };
    let whole = EndpointAbilities {
        takes_chunks: false,
        ..foreign
    };
    for (size, abilities, streams) in [
        (CHUNK_FROM - 1, foreign, 4),
        (1 << 40, short, 1),
        (1 << 40, whole, 4),
    ] {
        let plan = auto(size, abilities);
        let got = (plan.streams, plan.max_streams, plan.chunks);
        assert_eq!(got, (streams, streams, None));
    }
}

#[test]
fn gets_from_other_servers_begin_with_many_streams_and_may_use_several_sessions() {
    let foreign = EndpointAbilities {
        adapts_streams: false,
        several_sessions: true,
        ..OURS
    };
    let plain = EndpointAbilities {
        parallel: false,
        takes_chunks: false,
        ..foreign
    };
    for abilities in [foreign, plain] {
        let plan = auto(SEVERAL_SESSIONS_FROM, abilities);
        assert_eq!((plan.streams, plan.max_streams), (16, 128));
        assert_eq!(plan.chunks, Some(Chunking::Probe));
        assert!(auto(SEVERAL_SESSIONS_FROM - 1, abilities).chunks.is_none());
        let short = EndpointAbilities {
            rtt: Duration::from_millis(4),
            ..abilities
        };
        assert!(auto(1 << 40, short).chunks.is_none());
    }
}

#[test]
fn copies_by_several_threads_are_not_stored_in_order() {
    let plan = |parallelism, mode, sequential| {
        let options = StreamOptions {
            parallelism,
            mode,
            ..StreamOptions::default()
        };
        StreamPlan::for_local_copy(&options, Some(1 << 30), sequential)
    };
    for parallelism in [
        Parallelism::Auto,
        Parallelism::Fixed(1),
        Parallelism::Fixed(3),
        Parallelism::Chunked(ChunkTuningMode::Mi),
    ] {
        let many = plan(parallelism, ModeChoice::Auto, false);
        assert_eq!(many.in_order, many.streams == 1, "{many:?}");
        for single in [
            plan(parallelism, ModeChoice::Stream, false),
            plan(parallelism, ModeChoice::Extended, true),
        ] {
            assert_eq!((single.streams, single.in_order), (1, true));
        }
    }
    assert_eq!(
        StreamPlan::for_local_copy(&StreamOptions::default(), Some(1), false).streams,
        1
    );
    assert_eq!(
        plan(Parallelism::Fixed(3), ModeChoice::Auto, false).streams,
        3
    );
}

#[test]
fn max_streams_bounds_every_policy() {
    let options = StreamOptions {
        max_streams: 2,
        ..StreamOptions::default()
    };
    let plan = StreamPlan::auto(&options, Some(1 << 40), OURS);
    assert_eq!((plan.streams, plan.max_streams), (2, 2));
    let plan = StreamPlan::chunked(&options, ChunkTuningMode::Mi, OURS);
    let Some(Chunking::Mode(ChunkTuningMode::Mi, parameters)) = plan.chunks else {
        unreachable!("{plan:?}");
    };
    assert_eq!(parameters.max_streams, 2);
}

#[test]
fn chunk_modes_need_servers_that_support_ranges() {
    let whole = EndpointAbilities {
        takes_chunks: false,
        ..OURS
    };
    assert_eq!(
        StreamPlan::chunked(&StreamOptions::default(), ChunkTuningMode::Aimd, whole).chunks,
        None
    );
}

fn range(offset: Option<u64>, length: Option<u64>) -> Result<CopyRange, Failure> {
    let facts = SourceFacts {
        size: Some(100),
        ..SourceFacts::default()
    };
    CopyRange::from_options(offset, length, facts, "f")
}

#[test]
fn parts_inside_the_file_are_accepted() {
    let whole = range(None, None).unwrap();
    assert_eq!(
        (whole.part, whole.size, whole.origin()),
        (None, Some(100), 0)
    );
    assert_eq!(range(Some(40), None).unwrap().part, Some((40, 60)));
    assert_eq!(range(None, Some(7)).unwrap().part, Some((0, 7)));
    assert_eq!(range(Some(100), None).unwrap().size, Some(0));
}

#[test]
fn parts_beyond_the_end_are_refused() {
    for (offset, length) in [(Some(101), None), (Some(90), Some(11)), (None, Some(101))] {
        assert_eq!(
            range(offset, length).unwrap_err().kind(),
            FailureKind::Usage
        );
    }
    assert!(range(Some(u64::MAX), Some(u64::MAX)).is_err());
    let unknown = CopyRange::from_options(Some(0), None, SourceFacts::default(), "f");
    assert!(unknown.unwrap_err().to_string().contains("size"));
}

#[test]
fn a_source_that_cannot_connect_sends_one_stream_to_each_of_several_sessions() {
    let tunnelled = EndpointAbilities {
        connects: false,
        several_sessions: true,
        ..OURS
    };
    let plan = auto(1 << 30, tunnelled);
    assert!(plan.streams > 1 && plan.max_streams == 128 && plan.uses_several_sessions);
    let (plain, named) = (plan.in_words(), plan.with_mode());
    assert!(plain.contains("sessions of one stream, at most"), "{plain}");
    assert!(
        named.contains("sessions of one stream in MODE S, at most"),
        "{named}"
    );
    // No session is worth its login for a small file or on a short path.
    assert_eq!(auto(1 << 20, tunnelled).max_streams, 1);
    let short = EndpointAbilities {
        rtt: Duration::from_millis(1),
        ..tunnelled
    };
    assert_eq!(auto(1 << 30, short).max_streams, 1);
    let alone = EndpointAbilities {
        several_sessions: false,
        ..tunnelled
    };
    assert_eq!(auto(1 << 30, alone).max_streams, 1);
}
