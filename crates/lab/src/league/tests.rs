use super::*;

/// Paths of the small league: none is extrapolated, so that they take a few seconds together.
const SMALL_LEAGUE: [u64; 24] = [
    1_000_004, 1_000_009, 1_000_011, 1_000_013, 1_000_016, 1_000_024, 1_000_029, 1_000_030,
    1_000_033, 1_000_034, 1_000_045, 1_000_049, 1_000_060, 1_000_068, 1_000_072, 1_000_085,
    1_000_088, 1_000_089, 1_000_094, 1_000_108, 1_000_111, 1_000_113, 1_000_120, 1_000_134,
];
/// Smallest ratios that `auto` may have there: the worst, the 10th percentile and the median, and the largest share of paths with
/// more than twice the streams that are needed. To be raised with the policy.
const FLOORS: [f64; 3] = [0.58, 0.67, 0.92];
const MOST_WITH_MANY_STREAMS: f64 = 0.3;

#[test]
fn auto_keeps_its_place_in_the_small_league() {
    let report = LeagueReport {
        request: LeagueRequest {
            paths: SMALL_LEAGUE.len(),
            seed: 1,
            history: false,
        },
        entries: compare_all(&SMALL_LEAGUE, false),
    };
    assert_eq!(report.entries.len(), SMALL_LEAGUE.len());
    let ratios = report.ratios();
    let is_below = |(ratio, floor): (&f64, &f64)| ratio < floor;
    assert!(
        !ratios.iter().zip(&FLOORS).any(is_below),
        "{ratios:?} below {FLOORS:?}\n{}",
        report.to_text()
    );
    let many = report.share_with_many_streams();
    assert!(many <= MOST_WITH_MANY_STREAMS, "{many}");
}

#[test]
fn the_same_path_gives_the_same_result_and_a_trace_shows_it() {
    let path = [1_000_045];
    let one = compare_all(&path, true);
    assert_eq!(one, compare_all(&path, true));
    let text = trace(path[0], true);
    let ratio = format!("ratio {:.3}", one[0].ratio);
    assert!(text.contains(&ratio), "{ratio} is not in: {text}");
}
