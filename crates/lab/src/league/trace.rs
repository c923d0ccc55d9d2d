//! One path of a league in detail: every fixed setting, the decisions of `auto`, and its course.

use std::fmt::Write;

use sim::fluid::{AutoFluidOutcome, SampledPath};
use tune::streams::auto::{TransferDecision, TransferSetting};
use units::show;

use super::report::show_seconds;
use super::{best_and_leanest, run_auto, run_static};

/// Lines of the course beside the decisions.
const LINES: usize = 60;

/// Runs the path of this seed and describes the runs as text. With `history`, `auto` begins with what an earlier
/// transfer learned.
pub fn trace(path_seed: u64, history: bool) -> String {
    let sampled = SampledPath::draw(path_seed);
    let mut text = format!("path {path_seed}: {}\n\n", sampled.describe());
    let settings = run_static(&sampled, true);
    let _ = writeln!(
        text,
        "{:>7} {:6} {:>12} {:>12} {:>9} {:>10} {:>12}",
        "streams", "", "time", "Mbit/s", "queue ms", "memory MB", "sent again"
    );
    let mut line = |streams: &str, control: &str, outcome: &sim::fluid::FluidOutcome| {
        let _ = writeln!(
            text,
            "{streams:>7} {control:6} {:>12} {:12.2} {:9.2} {:10.2} {:12}{}",
            show_seconds(outcome.elapsed),
            sampled.bytes as f64 * 8e-6 / outcome.elapsed,
            outcome.queueing_delay * 1e3,
            outcome.peak_memory / 1e6,
            outcome.retransmits,
            if outcome.is_extrapolated {
                "  extrapolated"
            } else {
                ""
            }
        );
    };
    for (setting, outcome) in &settings {
        line(
            &setting.streams.to_string(),
            setting.control.name(),
            outcome,
        );
    }
    let auto = run_auto(&sampled, history);
    let mean = format!("{:.1}", auto.outcome.mean_streams);
    line(&mean, "auto", &auto.outcome);
    if let Some([best, _]) = best_and_leanest(&settings) {
        let ratio = best.1.elapsed / auto.outcome.elapsed;
        let _ = writeln!(text, "\nratio {ratio:.3}");
    }
    write_course(&mut text, &auto);
    text
}

/// Decisions and points of the timeline, in order of time.
fn write_course(text: &mut String, auto: &AutoFluidOutcome) {
    let _ = writeln!(text, "\nauto begins with {} streams\n", auto.first_streams);
    let mut decisions = auto.decisions.iter().peekable();
    let mut write_until = |text: &mut String, at: f64| {
        while let Some(decision) = decisions.next_if(|d| d.at.as_secs_f64() <= at) {
            write_decision(text, decision);
        }
    };
    // Dense at the start, where most happens.
    let end = auto.timeline.last().map_or(1.0, |point| point.at);
    let mut next = 0.0;
    for point in &auto.timeline {
        write_until(text, point.at);
        if point.at >= next {
            let _ = writeln!(
                text,
                "{:9.2} s  {:>16}  {:3} streams  queue {:8.2} ms  {:8} sent again",
                point.at,
                show::rate(point.rate * 8.0),
                point.streams,
                point.queueing_delay * 1e3,
                point.retransmits
            );
            next = point.at + (point.at / 12.0).min(end / LINES as f64);
        }
    }
    write_until(text, f64::INFINITY);
}

fn write_decision(text: &mut String, decision: &TransferDecision) {
    let setting = match &decision.setting {
        None => "no change".to_owned(),
        Some(TransferSetting::PacingRate(Some(pace))) => {
            format!("pacing rate {}", show::bits(pace.saturating_mul(8)))
        }
        Some(other) => format!("{other:?}"),
    };
    let _ = writeln!(
        text,
        "{:9.2} s  * {setting}: {}",
        decision.at.as_secs_f64(),
        decision.reason
    );
}
