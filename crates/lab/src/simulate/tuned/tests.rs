use super::*;
use crate::simulate::{self, Flows, Measure, SimReport, SimShorthand};

/// The base setting with a shorter file and shorter chunks.
fn brief(flows: &str) -> SimRequest {
    let text = |text: &str| Some(text.to_owned());
    SimRequest::from_shorthand(&SimShorthand {
        flows: text(flows),
        autopar: text("delta=1s").filter(|_| flows != "4"),
        bytes: text("120MB"),
        jitter: text("120us"),
        ..SimShorthand::default()
    })
    .unwrap()
}

fn report(flows: &str) -> SimReport {
    simulate::run(&brief(flows)).unwrap()
}

#[test]
fn a_chunk_a_line() {
    let report = report("mi");
    let [point] = report.points.as_slice() else {
        panic!("one point");
    };
    let numbers: Vec<u32> = point.chunks.iter().map(|c| c.streams).collect();
    assert_eq!(numbers[..5], [1, 2, 4, 8, 16]);
    assert!(point.seconds.is_some());
    let text = report.to_text();
    assert!(
        text.contains("\nmi: N0 1, at most 256, eta 0.8, gamma 2, delta 1 s"),
        "{text}"
    );
    assert!(text.contains("1 stream to begin with"), "{text}");
    let csv = report.to_csv();
    assert_eq!(csv.lines().count(), point.chunks.len() + 1);
    let widths = csv.lines().map(|line| line.split(',').count());
    assert!(widths.clone().all(|width| width == 9), "{csv}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["points"][0]["chunks"][1]["streams"], 2);
}

#[test]
fn measures_are_of_the_last_chunk_of_its_own_size() {
    let report = report("mi+");
    let point = &report.points[0];
    let own = &point.chunks[point.chunks.len() - 2];
    let of = |name: &str| Measure::named(name).unwrap().of(point);
    assert_eq!(of("streams"), Some(own.streams.into()));
    assert_eq!(of("end_goodput"), Some(own.goodput_mbps));
    assert_eq!(of("end_queueing"), Some(own.queueing_ms));
    let first = point.chunks.iter().find(|chunk| chunk.settled).unwrap();
    let begun = first.time - first.seconds;
    assert!((of("settled").unwrap() - begun).abs() < 0.01);
    assert!(of("goodput").unwrap() < own.goodput_mbps);
}

#[test]
fn a_fixed_number_never_settles() {
    let report = report("4");
    let point = &report.points[0];
    assert!(point.chunks.is_empty());
    assert_eq!(Measure::Settled.of(point), None);
    assert_eq!(Measure::EndGoodput.of(point), None);
    assert_eq!(Measure::Streams.of(point), Some(4.0));
}

#[test]
fn the_file_is_the_papers_unless_said() {
    let request = SimRequest {
        flows: Flows::Tuned(Tuned::Probe),
        ..SimRequest::default()
    };
    assert_eq!(request.file(), Some(10_000_000_000));
    assert_eq!(request.effective_initial_window(), 2);
    assert_eq!(brief("aimd").file(), Some(120_000_000));
    assert_eq!(SimRequest::default().file(), None);
}
