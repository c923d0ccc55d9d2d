//! Files of iperf3 3.12, made on one machine, and of perfSONAR, written after its result schemas.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::path::{Path, PathBuf};

use advisor::import::ImportOptions;
use advisor::import::whole_file::{ImportError, ImportedFile, import_file};
use advisor::log_reader::client_names::LogSurroundings;
use advisor::measurement::{Measurement, Quantity};
use jiff::tz::TimeZone;
use proptest::prelude::*;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn import_with(path: &Path, options: &ImportOptions) -> Result<ImportedFile, ImportError> {
    let mut resolve = |name: &str| (name == "far.example").then(|| "2001:db8::7".parse().unwrap());
    let mut surroundings = LogSurroundings {
        zone: &TimeZone::UTC,
        resolve: &mut resolve,
    };
    import_file(path, options, &mut surroundings)
}

fn import(name: &str) -> ImportedFile {
    import_with(&data(name), &ImportOptions::default()).unwrap()
}

fn value(measurement: &Measurement, quantity: Quantity) -> Option<f64> {
    let mut values = measurement.values.iter();
    values
        .find(|(q, _)| *q == quantity)
        .map(|(_, value)| *value)
}

fn only(imported: ImportedFile) -> Measurement {
    let [one] = <[Measurement; 1]>::try_from(imported.measurements).unwrap();
    one
}

/// A file with this content.
fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

/// The reason why the only document of a file is skipped, with its place.
fn skipped(path: &Path, options: &ImportOptions) -> String {
    let imported = import_with(path, options).unwrap();
    assert_eq!(imported.measurements, []);
    assert_eq!(imported.skipped.len(), 1, "{imported:?}");
    imported.skipped[0].to_string()
}

#[test]
fn a_bad_result_takes_no_good_one_with_it_and_a_doubled_one_counts_once() {
    let read = |name: &str| std::fs::read_to_string(data(name)).unwrap();
    let (good, other) = (
        read("import/iperf3-client.json"),
        read("import/iperf3-reverse.json"),
    );
    let failed = read("import/iperf3-failed.json");
    let cut = &good[..good.len() / 2];
    let nan = good.replacen("\"bytes\"", "\"lost_percent\": nan, \"bytes\"", 1);
    let message = "iperf3: error - unable to send control message: Broken pipe\n";
    for (content, counts) in [
        // Measurements, repeated, other lines, failed tests, not understood.
        (format!("{good}\n{good}"), (1, 1, 0, 0, 0)),
        (format!("{good}\n{message}"), (1, 0, 1, 0, 0)),
        (format!("{message}{good}"), (1, 0, 1, 0, 0)),
        (format!("{good}{message}{other}"), (2, 0, 1, 0, 0)),
        (format!("{good}\n{failed}\n{other}"), (2, 0, 0, 1, 0)),
        (
            format!("[{good}, {failed}, {good}, {other}]"),
            (2, 1, 0, 1, 0),
        ),
        (format!("{nan}\n{good}"), (1, 0, 0, 0, 1)),
        (format!("{good}\n{cut}"), (1, 0, 0, 0, 1)),
        (failed.clone(), (0, 0, 0, 1, 0)),
    ] {
        let imported = import_with(file(content.as_bytes()).path(), &ImportOptions::default());
        let imported = imported.unwrap();
        let found = (
            imported.measurements.len(),
            imported.repeated,
            imported.other_lines,
            imported.failed_tests,
            imported.not_understood,
        );
        assert_eq!(found, counts, "{:?}", imported.skipped);
        let named = imported.failed_tests + imported.not_understood;
        assert_eq!(imported.skipped.len() as u64, named);
    }
    let text = skipped(
        &data("import/iperf3-failed.json"),
        &ImportOptions::default(),
    );
    assert!(text.contains("unable to connect to server"), "{text}");
}

#[test]
fn both_ends_of_one_iperf3_test_give_its_goodput() {
    let client = only(import("import/iperf3-client.json"));
    let server = only(import("import/iperf3-server.json"));
    assert_eq!(client.test, "iperf3");
    assert!(client.client.is_loopback());
    assert_eq!(value(&client, Quantity::Streams), Some(4.0));
    let sent = value(&client, Quantity::Goodput).unwrap();
    let received = value(&server, Quantity::ReverseGoodput).unwrap();
    assert!((sent / received - 1.0).abs() < 0.01, "{sent} {received}");
    assert!(value(&client, Quantity::Rtt).unwrap() < 0.01);
    assert!(value(&client, Quantity::Retransmits).is_some());
    let seconds = client.at.duration_since(server.at).as_secs();
    assert!(seconds.abs() <= 1, "{seconds}");
}

#[test]
fn reverse_and_bidirectional_iperf3_tests_measure_their_directions() {
    let reverse = only(import("import/iperf3-reverse.json"));
    assert!(value(&reverse, Quantity::ReverseGoodput).is_some());
    assert_eq!(value(&reverse, Quantity::Goodput), None);
    let both = import("import/iperf3-bidir.json").measurements;
    assert_eq!(both.len(), 2);
    assert!(value(&both[0], Quantity::Goodput).is_some());
    assert!(value(&both[1], Quantity::ReverseGoodput).is_some());
    assert_eq!(both[0].client.to_string(), "::1");
}

#[test]
fn iperf3_tests_that_say_little_give_little() {
    // 20 ms: no goodput, but the sender knows its round trip.
    let short = only(import("import/iperf3-short.json"));
    assert_eq!(value(&short, Quantity::Goodput), None);
    assert!(value(&short, Quantity::Rtt).is_some());
    let udp = only(import("import/iperf3-udp.json"));
    assert_eq!(udp.values, [(Quantity::Loss, 0.0)]);
    let full = std::fs::read_to_string(data("import/iperf3-udp.json")).unwrap();
    let zero = full.rfind("\"sum\":").unwrap();
    let (head, tail) = full.split_at(zero);
    let full = file(
        (head.to_owned() + &tail.replacen("\"lost_percent\":\t0", "\"lost_percent\":\t40", 1))
            .as_bytes(),
    );
    let full = only(import_with(full.path(), &ImportOptions::default()).unwrap());
    assert_eq!(full.values[0].0, Quantity::Bandwidth);
}

#[test]
fn a_perfsonar_throughput_test_gives_goodput_streams_and_round_trip() {
    let measurement = only(import("import/perfsonar-throughput.json"));
    assert_eq!(measurement.client.to_string(), "198.51.100.7");
    assert_eq!(measurement.at, "2026-11-20T10:00:29Z".parse().unwrap());
    assert_eq!(value(&measurement, Quantity::Goodput), Some(790e6));
    assert_eq!(value(&measurement, Quantity::Streams), Some(2.0));
    assert_eq!(value(&measurement, Quantity::Rtt), Some(0.0625));
    let share = value(&measurement, Quantity::Retransmits).unwrap();
    assert!((share - 10.0 / (1_975_000_000.0 / 8948.0 + 10.0)).abs() < 1e-9);
}

#[test]
fn the_far_end_of_a_perfsonar_test_is_the_client() {
    let path = data("import/perfsonar-throughput.json");
    let at = |local: &str| ImportOptions {
        local: vec![local.parse().unwrap()],
        ..ImportOptions::default()
    };
    let received = only(import_with(&path, &at("198.51.100.7")).unwrap());
    assert_eq!(received.client.to_string(), "192.0.2.1");
    assert_eq!(value(&received, Quantity::ReverseGoodput), Some(790e6));
    let error = skipped(&path, &at("192.0.2.99"));
    assert!(
        error.contains("neither its source nor its destination"),
        "{error}"
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let reverse = file(
        text.replace("\"parallel\": 2", "\"reverse\": true")
            .as_bytes(),
    );
    let reverse = only(import_with(reverse.path(), &at("192.0.2.1")).unwrap());
    assert_eq!(value(&reverse, Quantity::ReverseGoodput), Some(790e6));
}

#[test]
fn round_trips_losses_and_routes_of_perfsonar_are_read_line_by_line() {
    let runs = import("import/perfsonar-runs.jsonl").measurements;
    assert_eq!(runs.len(), 3);
    assert!(
        (value(&runs[0], Quantity::Rtt).unwrap() - 0.061).abs() < 1e-9,
        "the first is left out"
    );
    assert_eq!(value(&runs[0], Quantity::Loss), Some(0.2));
    assert_eq!(runs[1].client.to_string(), "2001:db8::7");
    assert_eq!(runs[1].values, [(Quantity::Loss, 0.005)]);
    assert_eq!(value(&runs[2], Quantity::Hops), Some(3.0));
    assert_eq!(value(&runs[2], Quantity::Rtt), Some(0.0605));
}

#[test]
fn a_bare_result_needs_a_client_and_a_time() {
    let bare = file(br#"{"succeeded": true, "sent": 1, "lost": 0, "roundtrips": [{"seq": 1, "rtt": "PT0.02S"}]}"#);
    let error = skipped(bare.path(), &ImportOptions::default());
    assert!(error.contains("names no client"), "{error}");
    let mut options = ImportOptions {
        client: "192.0.2.5".parse().ok(),
        ..ImportOptions::default()
    };
    let error = skipped(bare.path(), &options);
    assert!(error.contains("has no time"), "{error}");
    options.at = "2026-11-20T10:00:00Z".parse().ok();
    let measurement = only(import_with(bare.path(), &options).unwrap());
    assert_eq!(value(&measurement, Quantity::Rtt), Some(0.02));
}

#[test]
fn errors_name_the_file_and_the_place() {
    for (content, place) in [
        (&b"{\"start\": 1,\n  \"end\" 2}"[..], ":2:9:"),
        (b"\n\n  {\"a\": 1}", ":3:3: this is neither"),
        (b"[{\"a\": 1}]", ":1:1: this is neither"),
        (b"{\"a\":\n", ":2:0:"),
        (b"\n\n  {\"a\": tru}", ":3:12: expected ident"),
        (b"begun\n\n{\"a\": tru}", ":3:10: expected ident"),
    ] {
        let file = file(content);
        let text = skipped(file.path(), &ImportOptions::default());
        assert!(format!(":{text}").starts_with(place), "{text}: not {place}");
    }
    let junk = file(b"junk\nmore junk\n");
    let error = import_with(junk.path(), &ImportOptions::default()).unwrap_err();
    assert!(matches!(error, ImportError::Unknown { .. }), "{error}");
    let missing = import_with(Path::new("/nowhere/x"), &ImportOptions::default());
    assert!(matches!(missing, Err(ImportError::Read { .. })));
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let deep = file(&[b'['; 1_000_000]);
    assert!(skipped(deep.path(), &ImportOptions::default()).contains("recursion limit"));
}

#[test]
fn whole_logs_are_imported() {
    let line = |seconds: u32, bytes: u64| {
        format!(
            "DATE=202611200103{seconds:02}.5 HOST=vm PROG=globus-gridftp-server NL.EVNT=FTP_INFO \
             START=20261120010300.5 USER=a FILE=/f BUFFER=0 BLOCK=1 NBYTES={bytes} VOLUME=/ STREAMS=4 STRIPES=1 \
             DEST=[192.0.2.7] TYPE=RETR CODE=226 TASKID=none\n"
        )
    };
    let long = "x".repeat(300_000) + "\n";
    let log = file((line(10, 125_000_000) + &long + "half a li\n" + &line(1, 5)).as_bytes());
    let imported = import_with(log.path(), &ImportOptions::default()).unwrap();
    assert_eq!((imported.without_value, imported.other_lines), (1, 2));
    let measurement = only(imported);
    assert_eq!(value(&measurement, Quantity::Goodput), Some(100e6));
    assert_eq!(value(&measurement, Quantity::Streams), Some(4.0));
    let servers = import("logs/globus.ftp-info");
    assert_eq!(servers.without_value, 3, "too short to say something");
    let own = "{\"end\":\"2026-11-20T11:03:55Z\",\"seconds\":10,\"bytes\":12500000,\"direction\":\"store\",\
               \"client\":\"192.0.2.9:4711\",\"data_peers\":[],\"result\":\"ok\"}\n";
    let own = file(own.as_bytes());
    let measurement = only(import_with(own.path(), &ImportOptions::default()).unwrap());
    assert_eq!(value(&measurement, Quantity::ReverseGoodput), Some(10e6));
}

proptest! {
    #[test]
    fn no_change_of_a_file_makes_the_import_panic(
        which in 0..4_usize,
        at in 0..4000_usize,
        cut in 0..40_usize,
        piece in "[0-9eE.+PTS\\[\\]{}\",:a-z-]{0,10}",
    ) {
        let names = ["iperf3-short.json", "iperf3-udp.json", "perfsonar-throughput.json", "perfsonar-runs.jsonl"];
        let mut bytes = std::fs::read(data("import").join(names[which])).unwrap();
        let from = at.min(bytes.len());
        let to = (from + cut).min(bytes.len());
        bytes.splice(from..to, piece.bytes());
        let changed = file(&bytes);
        if let Ok(imported) = import_with(changed.path(), &ImportOptions::default()) {
            let mut values = imported.measurements.iter().flat_map(|one| &one.values);
            prop_assert!(values.all(|(_, value)| value.is_finite() && *value >= 0.0));
        }
    }
}
