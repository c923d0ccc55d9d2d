use super::*;

const RTT: Duration = Duration::from_millis(100);

fn window(congestion: CongestionAlgorithm) -> CongestionWindow {
    let mut window = CongestionWindow::new(congestion, 10);
    window.cwnd = 1000.0;
    window
}

/// Simulates one round trip in which every segment is acknowledged.
fn round(window: &mut CongestionWindow, now: &mut Duration, rtt: Duration) {
    let acks = window.cwnd().floor();
    let mut acked = 0.0;
    while acked < acks {
        acked += 1.0;
        *now += rtt.div_f64(acks);
        window.on_ack(*now, rtt, 1, false);
    }
}

#[test]
fn newreno_adds_one_segment_a_round_trip() {
    let mut w = window(CongestionAlgorithm::NewReno);
    w.on_loss(1000);
    assert_eq!(w.cwnd(), 500.0);
    let mut now = Duration::ZERO;
    for rounds in 1..=50 {
        round(&mut w, &mut now, RTT);
        let expected = 500.0 + f64::from(rounds);
        assert!((w.cwnd() - expected).abs() < 0.5, "{} {expected}", w.cwnd());
    }
}

/// RFC 9438 figure 1 with `W_max` = 1000 and K = cbrt(300 / 0.4) = 9.09 s: concave, flat at
/// the old window, convex.
#[test]
fn cubic_follows_its_function() {
    let mut w = window(CongestionAlgorithm::Cubic);
    w.on_loss(1000);
    assert_eq!(w.cwnd(), 700.0);
    let k = (300.0_f64 / 0.4).cbrt();
    let mut now = Duration::from_secs(7);
    w.on_ack(now, RTT, 1, false);
    let start = now;
    while now - start < Duration::from_secs(16) {
        round(&mut w, &mut now, RTT);
        let t = (now - start).as_secs_f64();
        let expected = 0.4 * (t - k).powi(3) + 1000.0;
        let error = (w.cwnd() / expected - 1.0).abs();
        assert!(
            error < 0.01,
            "after {t:.1} s {} not {expected:.1}",
            w.cwnd()
        );
    }
    assert!(w.cwnd() > 1100.0, "the convex part was reached");
}

/// Section 4.3: on a short path CUBIC is no slower than AIMD with its own factor of reduction.
#[test]
fn cubic_is_reno_friendly_on_short_paths() {
    let mut w = window(CongestionAlgorithm::Cubic);
    w.cwnd = 40.0;
    w.on_loss(40);
    let short = Duration::from_millis(1);
    let mut now = Duration::ZERO;
    for _ in 0..20 {
        round(&mut w, &mut now, short);
    }
    let expected = 28.0 + 3.0 * 0.3 / 1.7 * 20.0;
    assert!((w.cwnd() - expected).abs() < 1.0, "{} {expected}", w.cwnd());
}

#[test]
fn fast_convergence_lowers_the_plateau_after_two_losses() {
    let mut w = window(CongestionAlgorithm::Cubic);
    w.on_loss(1000);
    w.on_loss(700);
    assert!((w.cwnd() - 490.0).abs() < 1e-9);
    let mut now = Duration::ZERO;
    // Fast convergence: the plateau is at 700 (1 + 0.7) / 2 = 595, K = cbrt(105 / 0.4) = 6.4 s.
    while now < Duration::from_millis(6400) {
        round(&mut w, &mut now, RTT);
    }
    assert!((w.cwnd() - 595.0).abs() < 6.0, "{}", w.cwnd());
}

#[test]
fn time_without_a_window_limit_does_not_count() {
    let mut paused = window(CongestionAlgorithm::Cubic);
    paused.on_loss(1000);
    let mut steady = paused;
    let mut now = Duration::ZERO;
    for _ in 0..20 {
        round(&mut paused, &mut now, RTT);
    }
    let mut later = now + Duration::from_secs(30);
    paused.on_ack_not_cwnd_limited(later);
    for _ in 0..20 {
        round(&mut paused, &mut later, RTT);
    }
    let mut now = Duration::ZERO;
    for _ in 0..40 {
        round(&mut steady, &mut now, RTT);
    }
    assert!((paused.cwnd() / steady.cwnd() - 1.0).abs() < 0.01);
}

#[test]
fn a_second_timeout_keeps_the_threshold() {
    let mut w = window(CongestionAlgorithm::NewReno);
    w.on_timeout(1000, false);
    assert_eq!((w.cwnd(), w.ssthresh()), (1.0, 500.0));
    w.on_timeout(1000, true);
    assert_eq!((w.cwnd(), w.ssthresh()), (1.0, 500.0));
}
