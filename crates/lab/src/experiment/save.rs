//! ExperimentResults as files: JSON for programs, CSV with one line a sample for spreadsheets.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use super::definition::Definition;
use super::merge;
use super::results::{ExperimentResults, ResultCell, RunRecord};
use crate::LabError;
use crate::quoting::{csv_line, csv_text};

/// The results of a run on their way to a file.
#[derive(Debug)]
pub(crate) struct Written {
    /// Content of the files now.
    pub(crate) results: ExperimentResults,
    /// `OUT/NAME-MODE.json`.
    pub(crate) json: PathBuf,
    /// `OUT/NAME-MODE.csv`.
    pub(crate) csv: PathBuf,
}

/// Where the results of an experiment are kept.
pub(crate) fn file(out: &Path, experiment: &str, mode: &str) -> PathBuf {
    out.join(format!("{experiment}-{mode}.json"))
}

/// Largest file of results that is read.
const LARGEST: u64 = 64 << 20;

/// The results that `file` holds; `None`: it is not there.
///
/// # Errors
/// It cannot be read, or holds something else, which is not to be overwritten.
pub(crate) fn read(file: &Path) -> Result<Option<ExperimentResults>, LabError> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(LabError::system(
                format!("cannot read {}", file.display()),
                e,
            ));
        }
    }
    serde_json::from_str(&text).map(Some).map_err(|e| {
        LabError::Usage(format!(
            "{} holds no results of an experiment ({e}): choose another --out, or set it aside with \
             --fresh",
            file.display()
        ))
    })
}

/// Moves results that are there out of the way, to a name that ends in `~`.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn set_aside(file: &Path) -> Result<(), LabError> {
    let mut aside = file.as_os_str().to_owned();
    aside.push("~");
    match std::fs::rename(file, &aside) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(LabError::system(
            format!("cannot move {}", file.display()),
            e,
        )),
        _ => Ok(()),
    }
}

/// Puts what a run has into `OUT/NAME-MODE.json` and `.csv`, beside the cells that are there. Runs
/// that write at the same time take turns, and each keeps the other's cells.
///
/// # Errors
/// A full disk, a directory that cannot be written, results of another seed or version.
pub(crate) fn save(
    out: &Path,
    definition: &Definition,
    fresh: &ExperimentResults,
) -> Result<Written, LabError> {
    let cannot = |e: std::io::Error| LabError::system(format!("cannot lock {}", out.display()), e);
    // Dropped at the end of this function.
    let turn = File::open(out).map_err(cannot)?;
    turn.lock().map_err(cannot)?;
    let json = file(out, &fresh.experiment, &fresh.mode);
    let kept = read(&json)?;
    if let Some(kept) = &kept {
        merge::check(&json, kept, fresh)?;
    }
    let results = merge::merged(definition, kept, fresh);
    let (json, csv) = write(out, &results)?;
    Ok(Written { results, json, csv })
}

/// Writes both files, each replacing what was there at once.
fn write(out: &Path, results: &ExperimentResults) -> Result<(PathBuf, PathBuf), LabError> {
    let stem = format!("{}-{}", results.experiment, results.mode);
    let json = file(out, &results.experiment, &results.mode);
    let mut document = serde_json::to_vec_pretty(results).map_err(|e| {
        LabError::system(
            format!("cannot write {}", json.display()),
            std::io::Error::from(e),
        )
    })?;
    document.push(b'\n');
    replace(out, &json, &document)?;
    let lines = out.join(format!("{stem}.csv"));
    replace(out, &lines, csv(results).as_bytes())?;
    Ok((json, lines))
}

fn replace(out: &Path, path: &Path, content: &[u8]) -> Result<(), LabError> {
    use std::os::unix::fs::PermissionsExt;
    let written = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(out)?;
        file.write_all(content)?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

/// One line a sample, with a heading (RFC 4180).
fn csv(results: &ExperimentResults) -> String {
    let axes: Vec<&str> = results
        .down
        .iter()
        .chain([&results.across])
        .map(|axis| axis.key.as_str())
        .collect();
    let also: Vec<String> = results
        .also
        .iter()
        .map(|also| format!("{} ({})", also.label, also.unit))
        .collect();
    let mut heading = vec!["experiment", "mode", "program"];
    heading.extend(&axes);
    heading.extend([
        "sample",
        "value",
        "unit",
        "paper",
        "invalid",
        "seconds",
        "bytes",
        "cpu_seconds",
        "seed",
        "limited_by",
        "command",
    ]);
    heading.extend(also.iter().map(String::as_str));
    let mut text = csv_line(heading.iter().map(|h| csv_text(h)));
    // A best repeats the runs of another cell.
    for cell in results.cells.iter().filter(|cell| cell.chosen.is_none()) {
        for (index, sample) in cell.samples.iter().enumerate() {
            text += &csv_line(
                fields(results, &axes, cell, index, sample)
                    .iter()
                    .map(|f| csv_text(f)),
            );
        }
    }
    text
}

fn fields(
    results: &ExperimentResults,
    axes: &[&str],
    cell: &ResultCell,
    index: usize,
    sample: &RunRecord,
) -> Vec<String> {
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let mut fields = vec![
        results.experiment.clone(),
        results.mode.clone(),
        cell.program.clone(),
    ];
    fields.extend(
        axes.iter()
            .map(|axis| cell.at.get(*axis).cloned().unwrap_or_default()),
    );
    fields.extend([
        (index + 1).to_string(),
        number(sample.value),
        results.unit.clone(),
        number(cell.paper),
        sample.invalid.join("; "),
        format!("{:.6}", sample.seconds),
        sample.bytes.to_string(),
        number(sample.cpu_seconds),
        sample.seed.to_string(),
        sample.limited_by.clone().unwrap_or_default(),
        sample.command.clone(),
    ]);
    let also = results.also.iter();
    fields.extend(also.map(|also| number(sample.also.get(&also.key).copied())));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::{FurtherMeasure, SweepAxis, TimeChart, TimeSeries};

    fn results() -> ExperimentResults {
        let mut cell = super::super::tally::empty("x", [("p".into(), "4".into())].into(), None);
        cell.paper = Some(9.5);
        cell.samples.push(RunRecord {
            value: Some(1.25),
            invalid: vec!["late, \"very\"".into()],
            spoiled: false,
            seconds: 2.0,
            bytes: 7,
            cpu_seconds: None,
            seed: 3,
            command: "cp a b".into(),
            limited_by: Some("loss".into()),
            also: [("seconds".into(), 2.5)].into(),
        });
        cell.series.push(TimeSeries {
            chart: 0,
            line: "window".into(),
            run: 0,
            times: vec![0.5, 1.0],
            values: vec![64.0, 128.0],
        });
        ExperimentResults {
            experiment: "e".into(),
            title: "t".into(),
            source: String::new(),
            reference: crate::experiment::results::PUBLISHED.into(),
            mode: "quick".into(),
            started: "2026-01-01T00:00:00Z".into(),
            seconds: 1.0,
            seed: 1,
            environment: super::super::results::TestMachine::default(),
            unit: "Mbit/s".into(),
            higher_is_better: true,
            across: SweepAxis {
                key: "p".into(),
                label: "streams".into(),
                unit: String::new(),
                values: vec!["4".into()],
                logarithmic: false,
            },
            down: None,
            programs: Vec::new(),
            cells: vec![cell],
            notes: Vec::new(),
            options: Vec::new(),
            definition: String::new(),
            unfinished: Vec::new(),
            planned: 0,
            also: vec![FurtherMeasure {
                key: "seconds".into(),
                label: "time".into(),
                unit: "s".into(),
                higher_is_better: false,
            }],
            charts: vec![TimeChart {
                title: "Window".into(),
                unit: "kB".into(),
            }],
            baseline: Some("x".into()),
        }
    }

    #[test]
    fn what_is_saved_can_be_read_again() {
        let out = tempfile::tempdir().unwrap();
        write(out.path(), &results()).unwrap();
        let (json, lines) = write(out.path(), &results()).unwrap();
        assert_eq!(json, out.path().join("e-quick.json"));
        let read: ExperimentResults =
            serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!(read, results());
        assert_eq!(
            std::fs::read_to_string(lines).unwrap(),
            "experiment,mode,program,p,sample,value,unit,paper,invalid,seconds,bytes,cpu_seconds,\
             seed,limited_by,command,time (s)\r\n\
             e,quick,x,4,1,1.25,Mbit/s,9.5,\"late, \"\"very\"\"\",2.000000,7,,3,loss,cp a b,2.5\r\n"
        );
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 2);
    }
}
