use proptest::prelude::*;

use super::*;

const WINDOW: u64 = 64 << 10;

/// The paper's path, as ns-2 shows it: windows of 64 KB fill 100 Mbit/s from five streams on, and all
/// of them stand in the queue, until it is full with 27.
fn on_the_papers_path(asked: Chunk) -> ChunkResult {
    let windows = f64::from(asked.streams) * WINDOW as f64;
    let (empty, path) = (0.0241, 97.333e6 / 8.0);
    let rtt = (windows / path).clamp(empty, 0.1334);
    let goodput = (windows * 0.98 / rtt).min(path);
    ChunkResult {
        streams: asked.streams,
        bytes: asked.bytes,
        time: Duration::from_secs_f64(asked.bytes as f64 / goodput),
        window: WINDOW,
        rtt: Duration::from_secs_f64(rtt),
    }
}

/// The numbers of streams that a mode asks for, until it is through or for 20 chunks.
fn numbers(mode: ChunkTuningMode, parameters: ChunkParameters) -> Vec<u32> {
    let mut tuner = super::super::mode_tuner(mode, parameters, WINDOW, Duration::from_millis(24));
    let mut numbers = Vec::new();
    let mut last = None;
    while numbers.len() < 20 {
        let chunk = tuner.next(last.as_ref());
        numbers.push(chunk.streams);
        if tuner.is_settled() {
            break;
        }
        last = Some(on_the_papers_path(chunk));
    }
    numbers
}

fn with(text: &str) -> ChunkParameters {
    ChunkParameters::parse(text).unwrap()
}

#[test]
fn mi_ends_with_32_as_in_the_paper() {
    assert_eq!(
        numbers(ChunkTuningMode::Mi, ChunkParameters::default()),
        [1, 2, 4, 8, 16, 32, 32]
    );
}

#[test]
fn mi_plus_ends_with_25_as_in_the_paper() {
    assert_eq!(
        numbers(ChunkTuningMode::MiPlus, ChunkParameters::default()),
        [1, 2, 4, 8, 16, 32, 25]
    );
}

#[test]
fn the_text_to_the_letter_ends_with_one_stream() {
    let literal = numbers(ChunkTuningMode::MiPlus, with("optimum=second"));
    assert_eq!(literal.last(), Some(&1));
}

#[test]
fn aimd_goes_up_by_two_and_back_by_half() {
    let numbers = numbers(ChunkTuningMode::Aimd, ChunkParameters::default());
    // With 31 the queue is full, and the windows would carry 0.8 times 97.5 Mbit/s.
    let up: Vec<u32> = (1..=31).step_by(2).collect();
    assert_eq!(numbers[..16], up);
    assert_eq!(numbers[16..], [15, 17, 19, 21]);
}

#[test]
fn parameters_are_used() {
    assert_eq!(numbers(ChunkTuningMode::Mi, with("eta=1")), [1, 1]);
    assert_eq!(
        numbers(ChunkTuningMode::Mi, with("n0=3,gamma=1.5")),
        [3, 5, 8, 12, 18, 27, 41, 41]
    );
    assert_eq!(
        numbers(ChunkTuningMode::Mi, with("most=12")),
        [1, 2, 4, 8, 12, 12]
    );
    assert_eq!(
        numbers(ChunkTuningMode::MiPlus, with("most=12")),
        [1, 2, 4, 8, 12, 12]
    );
    let slow = numbers(ChunkTuningMode::Aimd, with("n0=40,beta=0.1,alpha=1"));
    assert_eq!(slow[..7], [40, 36, 32, 28, 29, 30, 31]);
    assert_eq!(slow[7..13], [27, 28, 29, 30, 31, 27]);
}

#[test]
fn chunks_take_about_delta() {
    let mut tuner = super::super::mode_tuner(
        ChunkTuningMode::Mi,
        ChunkParameters::default(),
        WINDOW,
        Duration::from_millis(24),
    );
    let mut last = None;
    let mut times = Vec::new();
    for _ in 0..10 {
        let done = on_the_papers_path(tuner.next(last.as_ref()));
        times.push(done.time.as_secs_f64());
        last = Some(done);
    }
    // Where the link becomes full the growth before is expected once more (eq. 13).
    assert!((times[3] - 17.0).abs() < 2.0, "{times:?}");
    for time in [&times[..3], &times[5..]].concat() {
        assert!((time - 10.0).abs() < 0.5, "{times:?}");
    }
}

#[test]
fn streams_that_cannot_be_had_are_ruled_out() {
    let mut tuner = super::super::mode_tuner(
        ChunkTuningMode::Mi,
        ChunkParameters::default(),
        WINDOW,
        Duration::from_millis(24),
    );
    let mut last = None;
    for _ in 0..6 {
        let mut chunk = tuner.next(last.as_ref());
        chunk.streams = chunk.streams.min(3);
        last = Some(on_the_papers_path(chunk));
    }
    assert_eq!(tuner.next(last.as_ref()).streams, 3);
    assert!(tuner.is_settled());
    assert!(
        tuner.reason().contains("3 streams is the most"),
        "{}",
        tuner.reason()
    );
}

#[test]
fn what_is_not_known_decides_nothing() {
    for (window, rtt, lacking) in [(0, 24, "no window"), (WINDOW, 0, "no round trip")] {
        let rtt = Duration::from_millis(rtt);
        let mut tuner =
            super::super::mode_tuner(ChunkTuningMode::Mi, ChunkParameters::default(), window, rtt);
        let chunk = tuner.next(None);
        let done = ChunkResult {
            window,
            rtt,
            ..on_the_papers_path(chunk)
        };
        assert_eq!(tuner.next(Some(&done)).streams, 1);
        assert!(tuner.reason().starts_with(lacking), "{}", tuner.reason());
    }
}

#[test]
fn reasons_have_the_figures() {
    let mut tuner = super::super::mode_tuner(
        ChunkTuningMode::MiPlus,
        ChunkParameters {
            initial_streams: 32,
            ..ChunkParameters::default()
        },
        WINDOW,
        Duration::from_millis(24),
    );
    let chunk = tuner.next(None);
    tuner.next(Some(&on_the_papers_path(chunk)));
    assert_eq!(
        tuner.reason(),
        "97.3 Mbit/s of the windows' 126 Mbit/s at 133 ms: the windows do not limit, 25 streams by \
         the model of a path of 97.4 Mbit/s"
    );
}

proptest! {
    #[test]
    fn a_mode_ends_where_the_windows_are_no_longer_the_limit(
        gamma in 1.1..4.0_f64, eta in 0.3..0.95_f64, first in 1_u32..8,
    ) {
        let parameters = ChunkParameters { gamma, eta, initial_streams: first, ..ChunkParameters::default() };
        let ends = numbers(ChunkTuningMode::Mi, parameters);
        if ends.len() < 20 && ends[ends.len() - 1] < parameters.max_streams {
            let end = on_the_papers_path(Chunk { streams: ends[ends.len() - 1], bytes: 1 << 30 });
            let windows = f64::from(end.streams) * WINDOW as f64 / end.rtt.as_secs_f64();
            prop_assert!(end.goodput().unwrap() <= eta * windows);
        }
        prop_assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "{ends:?}");
    }
}
