use proptest::prelude::*;

use super::*;

/// The paper's base setting (section 4) with the round trip that its MI mode ends with in ns-2, in
/// packets of 1460 bytes of payload.
const PAPER: ModelPath = ModelPath {
    bandwidth: 100e6 / 8.0 / 1500.0,
    rtt: 0.1334,
    window: 65_536.0 / 1460.0,
};

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    let off = (value / expected - 1.0).abs();
    assert!(off <= tolerance, "{value} is not near {expected}");
}

#[test]
fn both_terms_of_equation_1() {
    // One connection: 44.9 packets a round trip of 133.4 ms.
    near(PAPER.goodput(1), 65_536.0 / 1460.0 / 0.1334, 1e-12);
    // 32: the path is full, but for what is lost.
    near(PAPER.goodput(32), PAPER.bandwidth, 0.002);
    assert!(PAPER.goodput(32) < PAPER.bandwidth);
    assert_eq!(PAPER.goodput(0), 0.0);
}

#[test]
fn the_second_term_is_the_bandwidth_less_what_is_lost() {
    for connections in [1, 2, 25, 32, 100, 500] {
        let expected = PAPER.bandwidth * (1.0 - PAPER.loss(connections));
        near(PAPER.loss_bound(connections), expected, 1e-9);
    }
}

#[test]
fn the_papers_25_is_where_the_windows_stop_to_limit() {
    assert_eq!(PAPER.best_connections(256), 25);
    assert_eq!(PAPER.best_connections(20), 20);
    assert_eq!(PAPER.best_connections(1), 1);
    assert_eq!(PAPER.best_connections(0), 1);
}

#[test]
fn a_path_of_nothing_carries_nothing() {
    let nothing = ModelPath {
        bandwidth: f64::NAN,
        rtt: 0.0,
        window: f64::NAN,
    };
    assert_eq!(nothing.goodput(4), 0.0);
    assert_eq!(nothing.best_connections(64), 1);
    assert_eq!(bandwidth(f64::NAN, 4, 0.1), 0.0);
    assert_eq!(bandwidth(1.0, 0, 0.1), 0.0);
}

/// Any number there is.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(0.0),
        1e-6..1e9_f64,
    ]
}

prop_compose! {
    fn real_path()(
        bandwidth in 1.0..1e8_f64, rtt in 1e-4..2.0_f64, window in 1.0..1e5_f64,
    ) -> ModelPath {
        ModelPath { bandwidth, rtt, window }
    }
}

proptest! {
    #[test]
    fn always_finite(
        bandwidth in any_number(), rtt in any_number(), window in any_number(), n: u32,
    ) {
        let path = ModelPath { bandwidth, rtt, window };
        for goodput in [path.goodput(n), path.window_bound(n), path.loss_bound(n)] {
            prop_assert!(goodput.is_finite() && goodput >= 0.0, "{path:?} {goodput}");
        }
        prop_assert!((0.0..=1.0).contains(&path.loss(n)));
        let best = path.best_connections(n);
        prop_assert!((1..=n.max(1)).contains(&best));
        let inverted = super::bandwidth(bandwidth, n, rtt);
        prop_assert!(inverted.is_finite() && inverted >= 0.0, "{inverted}");
    }

    #[test]
    fn more_windows_carry_more_and_more_shares_lose_more(path in real_path(), n in 1_u32..2000) {
        prop_assert!(path.window_bound(n + 1) > path.window_bound(n));
        prop_assert!(path.loss_bound(n + 1) <= path.loss_bound(n) * (1.0 + 1e-12));
        prop_assert!(path.loss(n + 1) >= path.loss(n));
        prop_assert!(path.goodput(n) <= path.bandwidth * (1.0 + 1e-12));
    }

    #[test]
    fn a_wider_path_carries_no_less(path in real_path(), n in 1_u32..2000, more in 1.0..10.0_f64) {
        let wider = ModelPath { bandwidth: path.bandwidth * more, ..path };
        prop_assert!(wider.goodput(n) >= path.goodput(n) * (1.0 - 1e-12));
    }

    #[test]
    fn no_number_is_better_than_the_best(path in real_path(), most in 1_u32..300) {
        let best = path.best_connections(most);
        for n in 1..=most {
            let (here, there) = (path.goodput(best), path.goodput(n));
            prop_assert!(there <= here * (1.0 + 1e-9), "{n}: {there}, {best}: {here}");
        }
    }

    #[test]
    fn the_bandwidth_is_found_again(path in real_path(), n in 1_u32..500) {
        let carried = path.loss_bound(n);
        // Where the equations have no answer, none is found.
        prop_assume!(path.loss(n) < 0.9);
        let found = bandwidth(carried, n, path.rtt);
        prop_assert!((found / path.bandwidth - 1.0).abs() < 1e-6, "{found} of {path:?}");
    }

    #[test]
    fn what_was_found_carries_the_goodput(goodput in 1e-3..1e8_f64, n in 1_u32..500, rtt in 1e-4..2.0_f64) {
        let path = ModelPath { bandwidth: bandwidth(goodput, n, rtt), rtt, window: 1.0 };
        prop_assert!(path.bandwidth >= goodput * (1.0 - 1e-9));
        prop_assert!((path.loss_bound(n) / goodput - 1.0).abs() < 1e-6);
    }
}
