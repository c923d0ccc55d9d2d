//! ExperimentResults for the unit tests of the report.

use std::collections::BTreeMap;

use crate::experiment::results::{
    ComparedProgram, ExperimentResults, FurtherMeasure, MeasureValue, PUBLISHED, ResultCell,
    RunRecord, SweepAxis, TestMachine, TimeChart, TimeSeries,
};

/// Two programs, two stream counts, two latencies, three runs each. Cells are in the order of
/// program, row, column; medians are 100, 200, ... 800.
pub(super) fn two_by_two() -> ExperimentResults {
    let across = axis("latency", "one-way latency", "ms", &["1", "50"]);
    let down = axis("streams", "parallel streams", "", &["1", "8"]);
    let programs = [("longhaul", "longhaul"), ("guc", "globus-url-copy")].map(|(key, label)| {
        ComparedProgram {
            key: key.to_owned(),
            label: label.to_owned(),
            published_ratio: None,
        }
    });
    let mut cells = Vec::new();
    for program in &programs {
        for row in &down.values {
            for column in &across.values {
                let median = 100.0 * f64::from(u32::try_from(cells.len() + 1).unwrap());
                cells.push(cell(&program.key, row, column, median));
            }
        }
    }
    ExperimentResults {
        experiment: "bbc-5.1".to_owned(),
        title: "Parallel streams against latency".to_owned(),
        source: "BBC WHP 178, table 5.1".to_owned(),
        reference: PUBLISHED.to_owned(),
        mode: "quick".to_owned(),
        started: "2026-11-20T13:55:00Z".to_owned(),
        seconds: 724.0,
        seed: 7,
        options: Vec::new(),
        definition: String::new(),
        unfinished: Vec::new(),
        planned: 0,
        environment: TestMachine {
            kernel: "6.18.0".to_owned(),
            cpus: 2,
            ..TestMachine::default()
        },
        unit: "Mbit/s".to_owned(),
        higher_is_better: true,
        also: Vec::new(),
        charts: Vec::new(),
        baseline: None,
        across,
        down: Some(down),
        programs: programs.to_vec(),
        cells,
        notes: Vec::new(),
    }
}

/// [`two_by_two`] with a third program that chooses the number of streams: its row is `auto`, its
/// medians are 900 and 1000.
pub(super) fn with_auto() -> ExperimentResults {
    let mut results = two_by_two();
    let key = "longhaul-auto";
    results.programs.push(ComparedProgram {
        key: key.to_owned(),
        label: "longhaul, which chooses".to_owned(),
        published_ratio: None,
    });
    if let Some(down) = &mut results.down {
        down.values.push("auto".to_owned());
    }
    for (column, median) in [("1", 900.0), ("50", 1000.0)] {
        results.cells.push(cell(key, "auto", column, median));
    }
    results
}

/// [`two_by_two`] whose runs also measured a time, 1 s for each 100 Mbit/s, and the first cell's
/// window over time.
pub(super) fn with_more() -> ExperimentResults {
    let mut results = two_by_two();
    results.also.push(FurtherMeasure {
        key: "seconds".to_owned(),
        label: "time".to_owned(),
        unit: "s".to_owned(),
        higher_is_better: false,
    });
    results.charts.push(TimeChart {
        title: "Window and flight size".to_owned(),
        unit: "kB".to_owned(),
    });
    for cell in &mut results.cells {
        let value = MeasureValue {
            median: cell.median.map(|median| median / 100.0),
            half_width: Some(0.5),
            paper: None,
        };
        cell.also.insert("seconds".to_owned(), value);
        for sample in &mut cell.samples {
            let seconds = sample.value.unwrap_or(0.0) / 100.0;
            sample.also.insert("seconds".to_owned(), seconds);
        }
    }
    for (line, values) in [
        ("window", [64.0, 128.0, 512.0]),
        ("flight size", [10.0, 90.0, 500.0]),
    ] {
        results.cells[0].series.push(TimeSeries {
            chart: 0,
            line: line.to_owned(),
            run: 0,
            times: vec![0.2, 0.4, 0.6],
            values: values.to_vec(),
        });
    }
    results
}

fn axis(key: &str, label: &str, unit: &str, values: &[&str]) -> SweepAxis {
    SweepAxis {
        key: key.to_owned(),
        label: label.to_owned(),
        unit: unit.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        logarithmic: false,
    }
}

fn cell(program: &str, row: &str, column: &str, median: f64) -> ResultCell {
    let run = |value: f64| RunRecord {
        value: Some(value),
        invalid: Vec::new(),
        spoiled: false,
        seconds: 8.0,
        bytes: 67_108_864,
        cpu_seconds: Some(0.4),
        seed: 7,
        command: format!("{program} -p {row}"),
        limited_by: None,
        also: BTreeMap::new(),
    };
    ResultCell {
        program: program.to_owned(),
        at: BTreeMap::from([
            ("streams".to_owned(), row.to_owned()),
            ("latency".to_owned(), column.to_owned()),
        ]),
        chosen: None,
        median: Some(median),
        half_width: Some(median / 20.0),
        paper: (program == "guc").then_some(median / 1.25),
        cpu_per_gigabyte: None,
        also: BTreeMap::new(),
        series: Vec::new(),
        samples: vec![run(median * 0.97), run(median), run(median * 1.02)],
    }
}
