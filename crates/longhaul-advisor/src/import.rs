//! `longhaul advisor import`: results of other programs, reported to a server.

use std::net::IpAddr;
use std::path::Path;

use advisor::import::ImportOptions;
use advisor::import::whole_file::{ImportedFile, import_file};
use advisor::log_reader::client_names::{ClientNames, LogSurroundings};
use advisor::log_reader::format::host_zone;
use advisor::measurement::Measurement;
use enable::client::EnableClient;
use enable::method;
use serde_json::{Map, Value, json};

use super::asking::{AskingFailure, client_of};
use command_line::flags::advisor::AdvisorImportArgs;
use command_line::output::{print_line, print_to_stderr};
use units::show;

pub(crate) fn run(args: &AdvisorImportArgs) -> Result<(), AskingFailure> {
    let options = ImportOptions {
        local: args.local.clone(),
        client: args.client,
        at: None,
    };
    // Every file is read before anything is reported, so that one that is missing leaves nothing half done.
    let mut files = Vec::new();
    for path in &args.files {
        let imported =
            read(path, &options).map_err(|error| AskingFailure::Import(error.to_string()))?;
        print_summary(path, &imported);
        files.push(imported);
    }
    let measurements = files.iter().flat_map(|file| &file.measurements);
    if args.dry_run {
        for measurement in measurements {
            print_line(&report_of(measurement).to_string())?;
        }
    } else {
        let client = client_of(&args.server)?;
        for measurement in measurements {
            report(&client, measurement)?;
        }
    }
    let missing: u64 = files.iter().map(|file| file.not_understood).sum();
    if missing > 0 {
        let text = format!(
            "left out, because not understood: {}",
            show::count(missing, "result")
        );
        return Err(AskingFailure::Import(text));
    }
    Ok(())
}

/// Says what a file has, and names what gives no measurements.
fn print_summary(path: &Path, imported: &ImportedFile) {
    let path = path.display();
    print_to_stderr(&format!(
        "{path}: {}, {} without a word of a path, {}",
        show::count(imported.measurements.len(), "measurement"),
        show::count(imported.without_value, "result"),
        show::count(imported.other_lines, "other line")
    ));
    if imported.repeated > 0 {
        print_to_stderr(&format!(
            "{path}: there twice, and counted once: {}",
            show::count(imported.repeated, "result")
        ));
    }
    for skipped in &imported.skipped {
        print_to_stderr(&format!("{path}:{skipped}; skipped"));
    }
    let named = u64::try_from(imported.skipped.len()).unwrap_or(u64::MAX);
    let all = imported
        .failed_tests
        .saturating_add(imported.not_understood);
    if all > named {
        print_to_stderr(&format!(
            "{path}: skipped, too: {}",
            show::count(all - named, "further result")
        ));
    }
}

fn read(
    path: &Path,
    options: &ImportOptions,
) -> Result<ImportedFile, advisor::import::whole_file::ImportError> {
    let zone = host_zone();
    let mut names = ClientNames::default();
    let mut resolve = |name: &str| -> Option<IpAddr> { names.resolve(name) };
    let mut surroundings = LogSurroundings {
        zone: &zone,
        resolve: &mut resolve,
    };
    import_file(path, options, &mut surroundings)
}

fn report(client: &EnableClient, measurement: &Measurement) -> Result<(), AskingFailure> {
    client.call(&method::REPORT, vec![report_of(measurement)])?;
    Ok(())
}

/// The argument of EnableReport.
fn report_of(measurement: &Measurement) -> Value {
    let values: Map<String, Value> = measurement
        .values
        .iter()
        .map(|(quantity, value)| (quantity.name().to_owned(), json!(value)))
        .collect();
    let mut report = json!({
        "client": measurement.client.to_string(),
        "test": measurement.test,
        "at": measurement.at.to_string(),
        "values": values,
    });
    if let (Some(detail), Some(report)) = (&measurement.detail, report.as_object_mut()) {
        report.insert("detail".to_owned(), without_nulls(detail));
    }
    report
}

/// The same without members that are null, which XML-RPC does not have.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect(),
        Value::Array(values) => values
            .iter()
            .filter(|value| !value.is_null())
            .map(without_nulls)
            .collect(),
        other => other.clone(),
    }
}
