//! The report in a real browser: figures are drawn, and pages fit a phone, in the light and the dark theme.
//!
//! The samples are committed results. Without a browser the tests print `SKIPPED`; with `LONGHAUL_REQUIRE_PEERS=1` they fail.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::experiment::results::{
    ExperimentResults, FurtherMeasure, MeasureValue, TimeChart, TimeSeries,
};
use lab::report::{self, WrittenReport};
use serde_json::Value;

/// The page that loads the report in frames and inspects it.
const PROBE: &str = include_str!("report_probe.html");

/// Time limit for a browser. It is long because other tests may run at the same time.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Number of figures in the report of the samples: by row and by program for each of two experiments; for the third one,
/// which has no axis down, one for each of its two measures and one over time.
const FIGURES: u64 = 7;

/// Colours of the page and of the labels of its figures.
const LIGHT: [&str; 2] = ["rgb(255, 255, 255)", "rgb(87, 96, 105)"];
const DARK: [&str; 2] = ["rgb(18, 21, 26)", "rgb(155, 165, 179)"];

#[test]
fn figures_are_drawn_and_pages_fit() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let written = sample_report(folder.path());
    let index = written.page.as_path();
    let paper = index.with_file_name("bbc-whp-178-2010.html");
    let light = [
        (paper.as_path(), 1280),
        (&paper, 360),
        (index, 1280),
        (index, 360),
    ];
    let light = inspect(&browser, folder.path(), &light, false);
    let dark = inspect(&browser, folder.path(), &[(&paper, 360)], true);
    for (seen, width, figures, [background, label]) in [
        (&light[0], 1280, FIGURES, LIGHT),
        (&light[1], 360, FIGURES, LIGHT),
        (&light[2], 1280, 0, LIGHT),
        (&light[3], 360, 0, LIGHT),
        (&dark[0], 360, FIGURES, DARK),
    ] {
        assert_eq!(seen["failed"], Value::Null, "{seen}");
        assert_eq!(
            (&seen["figures"], &seen["drawn"]),
            (&figures.into(), &figures.into()),
            "{seen}"
        );
        assert_eq!(seen["clientWidth"], width, "{seen}");
        assert_eq!(seen["scrollWidth"], width, "scrolls sideways: {seen}");
        assert_eq!(seen["background"], background, "{seen}");
        if figures > 0 {
            assert_eq!(seen["label"], label, "{seen}");
        }
    }
}

#[test]
fn svg_files_are_complete_without_the_page() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let written = sample_report(folder.path());
    let figures: Vec<(&Path, u32)> = written
        .files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "svg"))
        .map(|file| (file.as_path(), 1280))
        .collect();
    assert_eq!(figures.len(), 7);
    for seen in inspect(&browser, folder.path(), &figures, false) {
        assert_eq!(
            (&seen["root"], &seen["malformed"], &seen["drawn"]),
            (&"svg".into(), &false.into(), &1.into()),
            "{seen}"
        );
    }
}

/// Writes the report of three experiments: the two samples, and one of them reduced to one row without an
/// axis down, with a further measure and lines over time.
fn sample_report(folder: &Path) -> WrittenReport {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let results = folder.join("results");
    fs::create_dir(&results).unwrap();
    for name in ["bbc-5.1-quick.json", "bbc-5.4-quick.json"] {
        fs::copy(samples.join(name), results.join(name)).unwrap();
    }
    let text = fs::read_to_string(samples.join("bbc-5.1-quick.json")).unwrap();
    let mut single: ExperimentResults = serde_json::from_str(&text).unwrap();
    single.cells.retain(|cell| cell.at["p"] == "4");
    single.down = None;
    add_further_measure(&mut single);
    let json = serde_json::to_string(&single).unwrap();
    fs::write(results.join("single-quick.json"), json).unwrap();
    report::write(&results, &folder.join("out")).unwrap()
}

/// Adds a further measure, the time, to all cells, and the window over time to the first two.
fn add_further_measure(results: &mut ExperimentResults) {
    results.also.push(FurtherMeasure {
        key: "seconds".into(),
        label: "time".into(),
        unit: "s".into(),
        higher_is_better: false,
    });
    results.charts.push(TimeChart {
        title: "Window".into(),
        unit: "kB".into(),
    });
    for (index, cell) in results.cells.iter_mut().enumerate() {
        let value = MeasureValue {
            median: cell.median.map(|rate| 500.0 / rate),
            ..MeasureValue::default()
        };
        cell.also.insert("seconds".into(), value);
        if index < 2 {
            cell.series.push(TimeSeries {
                chart: 0,
                line: "window".into(),
                run: 0,
                times: (0..200).map(|i| f64::from(i) * 0.05).collect(),
                values: (0..200).map(|i| f64::from(i % 50) * 20.0).collect(),
            });
        }
    }
}

/// Loads each page in a frame of the given width in pixels, and returns what the probe found on it.
fn inspect(browser: &Path, folder: &Path, pages: &[(&Path, u32)], dark: bool) -> Vec<Value> {
    let probe = folder.join("probe.html");
    let frames: String = pages
        .iter()
        .map(|(page, width)| {
            let source = page.display();
            format!("<iframe style=\"width:{width}px\" src=\"file://{source}\"></iframe>\n")
        })
        .collect();
    fs::write(&probe, PROBE.replace("FRAMES", &frames)).unwrap();
    let dump = folder.join("dump.html");
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-extensions",
        ])
        // The probe and the page are files, which otherwise may not access each other.
        .args([
            "--allow-file-access-from-files",
            "--hide-scrollbars",
            "--window-size=1400,1000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ));
    if dark {
        command.arg("--force-dark-mode");
    }
    command
        .arg("--dump-dom")
        .arg(format!("file://{}", probe.display()));
    run(command, &dump);
    let dumped = fs::read_to_string(&dump).unwrap();
    let json = dumped
        .split("<pre>")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next());
    let json = json.unwrap_or_else(|| panic!("the browser wrote no page: {dumped:?}"));
    let json = json
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", "\u{a0}");
    let json = json.replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json:?}"))
}

/// Runs a browser until it exits, or kills it with all its processes at the time limit.
fn run(mut command: Command, output: &Path) {
    command
        .stdin(Stdio::null())
        .stdout(File::create(output).unwrap())
        .stderr(Stdio::null())
        .process_group(0);
    let mut running = Running(command.spawn().unwrap());
    let started = Instant::now();
    while running.0.try_wait().unwrap().is_none() {
        assert!(
            started.elapsed() < TIMEOUT,
            "the browser did not end within {TIMEOUT:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process group that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        // Killing fails if no process is left, which is fine.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Finds Chromium under one of its names; `None`, after a message, if the test is skipped.
fn browser() -> Option<PathBuf> {
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        let required = std::env::var_os("LONGHAUL_REQUIRE_PEERS").is_some_and(|value| value == "1");
        let why = "no Chromium on PATH (apt install chromium)";
        assert!(
            !required,
            "{why}, and nothing may be missing while LONGHAUL_REQUIRE_PEERS=1"
        );
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("test");
        // A direct write is not captured by the test runner, which hides the output of passing tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    }
    found
}
