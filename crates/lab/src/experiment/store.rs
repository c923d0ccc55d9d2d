//! Saved results: JSON for programs, and CSV with one line per run for spreadsheets. The cells of several
//! commands are merged into one file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::definition::ExperimentDefinition;
use super::results::csv_file::csv_text;
use super::results::{ComparedProgram, ExperimentResults, ResultCell, RunRecord, SweepAxis};
use super::schedule::is_spoiled;
use super::{SavedResults, best};
use crate::LabError;

/// The beginning of the note in the results of a command that ended early.
pub(crate) const ENDED_EARLY: &str = "Ended early: ";

/// Returns the path of an experiment's JSON results: `OUT/NAME-MODE.json`.
pub(crate) fn results_file(out: &Path, results: &ExperimentResults) -> PathBuf {
    out.join(format!("{}-{}.json", results.experiment, results.mode))
}

/// The largest results file that is read, bytes. It bounds the memory that a wrong file can take.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Reads the results in `file`. `None`: the file does not exist.
///
/// # Errors
/// The file cannot be read, or has other content, which must not be overwritten.
pub(crate) fn read(file: &Path) -> Result<Option<ExperimentResults>, LabError> {
    let mut text = String::new();
    let shown = file.display();
    match File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(LabError::system(format!("cannot read {shown}"), e)),
    }
    serde_json::from_str(&text).map(Some).map_err(|e| {
        LabError::Usage(format!(
            "{shown} holds no results of an experiment ({e}): choose another --out, or set it aside with \
             --fresh"
        ))
    })
}

/// Renames existing results: `~` is appended to the name. A file that has this name is replaced.
///
/// # Errors
/// [`LabError::System`]: the file cannot be renamed.
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

/// Checks that the saved results `kept` and new ones are of the same experiment, mode, seed and version of
/// the experiment's file.
///
/// # Errors
/// [`LabError::Usage`] names `file`, from which `kept` was read, and the difference.
pub(crate) fn check_compatible(
    file: &Path,
    kept: &ExperimentResults,
    fresh: &ExperimentResults,
) -> Result<(), LabError> {
    let other = if (&kept.experiment, &kept.mode) != (&fresh.experiment, &fresh.mode) {
        "of another experiment".to_owned()
    } else if kept.seed != fresh.seed {
        format!("of seed {}, not {}", kept.seed, fresh.seed)
    } else if kept.definition != fresh.definition {
        "of another version of this experiment".to_owned()
    } else {
        return Ok(());
    };
    Err(LabError::Usage(format!(
        "{} holds results {other}, which are not mixed with these: choose another --out, or set them \
         aside with --fresh",
        file.display()
    )))
}

/// Merges the cells of a run into `OUT/NAME-MODE.json` and `.csv`. Commands that save at the same time
/// wait for each other by a lock on `out`, and no cell is lost.
///
/// # Errors
/// A file cannot be written, or the saved results are of another seed or version.
pub(crate) fn save(
    out: &Path,
    definition: &ExperimentDefinition,
    fresh: &ExperimentResults,
) -> Result<SavedResults, LabError> {
    let cannot = |e| LabError::system(format!("cannot lock {}", out.display()), e);
    // The lock (flock(2)) is released when `lock` is dropped at the end of this function.
    let lock = File::open(out).map_err(cannot)?;
    lock.lock().map_err(cannot)?;
    let json = results_file(out, fresh);
    let kept = read(&json)?;
    if let Some(kept) = &kept {
        check_compatible(&json, kept, fresh)?;
    }
    let results = merged(definition, kept, fresh);
    let csv = json.with_extension("csv");
    let text = serde_json::to_string_pretty(&results).map(|text| text + "\n");
    replace(&json, text.map_err(io::Error::from))?;
    replace(&csv, Ok(self::csv(&results)?))?;
    let spoiled = fresh.cells.iter().filter(|cell| is_spoiled(cell)).count();
    Ok(SavedResults {
        results,
        json,
        csv,
        spoiled,
    })
}

/// Replaces a file, which others may read; the lock of the folder excludes other commands.
fn replace(path: &Path, content: io::Result<String>) -> Result<(), LabError> {
    let written =
        content.and_then(|content| smallfile::replace_with_mode(path, content.as_bytes(), 0o644));
    written.map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))
}

/// Writes the CSV text (RFC 4180): a heading, then one line per run.
fn csv(results: &ExperimentResults) -> Result<String, LabError> {
    let axes = || results.down.iter().chain([&results.across]);
    let before = ["experiment", "mode", "program"].map(str::to_owned);
    let after = [
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
    ];
    let also = results
        .also
        .iter()
        .map(|also| format!("{} ({})", also.label, also.unit));
    let keys = axes().map(|axis| axis.key.clone());
    let heading = before
        .into_iter()
        .chain(keys)
        .chain(after.map(str::to_owned))
        .chain(also);
    // The cell of a best repeats the runs of another cell, which already has their lines.
    let own = results.cells.iter().filter(|cell| cell.chosen.is_none());
    let lines = own.flat_map(|cell| {
        let runs = cell.samples.iter().enumerate();
        runs.map(move |(index, run)| {
            let at = axes().map(|axis| cell.at.get(&axis.key).cloned().unwrap_or_default());
            fields(results, cell, at, index, run)
        })
    });
    csv_text(std::iter::once(heading.collect()).chain(lines))
}

/// Lists the fields of one CSV line: those of run `index` (from 0) of a cell at the values `at`.
fn fields(
    results: &ExperimentResults,
    cell: &ResultCell,
    at: impl Iterator<Item = String>,
    index: usize,
    run: &RunRecord,
) -> Vec<String> {
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let mut fields = vec![
        results.experiment.clone(),
        results.mode.clone(),
        cell.program.clone(),
    ];
    fields.extend(at);
    fields.extend([
        (index + 1).to_string(),
        number(run.value),
        results.unit.clone(),
        number(cell.paper),
        run.invalid.join("; "),
        format!("{:.6}", run.seconds),
        run.bytes.to_string(),
        number(run.cpu_seconds),
        run.seed.to_string(),
        run.limited_by.clone().unwrap_or_default(),
        run.command.clone(),
    ]);
    let also = results.also.iter();
    fields.extend(also.map(|also| number(run.also.get(&also.key).copied())));
    fields
}

/// Merges results. A cell of `fresh` replaces the same cell of `kept`; unfinished cells stay until they
/// are finished.
fn merged(
    definition: &ExperimentDefinition,
    kept: Option<ExperimentResults>,
    fresh: &ExperimentResults,
) -> ExperimentResults {
    let mut all = fresh.clone();
    // The bests are determined again from the merged cells.
    let is_own = |program: &ComparedProgram| !definition.best.contains_key(&program.key);
    all.programs.retain(is_own);
    if let Some(mut kept) = kept {
        kept.cells.retain(|cell| cell.chosen.is_none());
        add_missing(&mut all.cells, kept.cells, is_same_cell);
        add_missing(&mut all.unfinished, kept.unfinished, is_same_cell);
        all.cells
            .iter_mut()
            .for_each(|cell| best::remove_ratios(&definition.best, cell));
        kept.programs.retain(is_own);
        add_missing(&mut all.programs, kept.programs, |a, b| a.key == b.key);
        add_missing(&mut all.across.values, kept.across.values, PartialEq::eq);
        match (&mut all.down, kept.down) {
            (Some(axis), Some(more)) => add_missing(&mut axis.values, more.values, PartialEq::eq),
            (axis, more) => *axis = axis.take().or(more),
        }
        let (now, before) = (&mut all.environment, kept.environment);
        kept.notes.retain(|note| !note.starts_with(ENDED_EARLY));
        let mut keep = |now: &mut BTreeMap<String, String>,
                        before: BTreeMap<String, String>,
                        of| {
            for (key, old) in before {
                let new = now.entry(key.clone()).or_insert_with(|| old.clone());
                let note =
                    format!("{key}{of} was '{old}' for some of the cells and '{new}' for others.");
                kept.notes.extend((*new != old).then_some(note));
            }
        };
        keep(&mut now.versions, before.versions, "");
        keep(&mut now.builds, before.builds, "'s build");
        for (key, value) in before.sysctls {
            now.sysctls.entry(key).or_insert(value);
        }
        add_missing(&mut all.notes, kept.notes, PartialEq::eq);
        // Only the options (pairs of name and value) that both commands had describe the merged results.
        let pairs = kept.options.chunks(2);
        let common = pairs.filter(|pair| all.options.chunks(2).any(|other| other == *pair));
        all.options = common.flatten().cloned().collect();
        all.started = kept.started.min(all.started);
        all.seconds += kept.seconds;
        all.planned = all.planned.max(kept.planned);
    }
    sort_results(definition, &mut all);
    all
}

/// Whether two cells are of the same program at the same point.
pub(crate) fn is_same_cell(one: &ResultCell, other: &ResultCell) -> bool {
    one.program == other.program && one.at == other.at
}

/// Appends the items of `more` that `known` does not contain.
fn add_missing<T>(known: &mut Vec<T>, more: Vec<T>, is_same: impl Fn(&T, &T) -> bool) {
    for item in more {
        if !known.iter().any(|other| is_same(other, &item)) {
            known.push(item);
        }
    }
}

/// Sorts axes, programs and cells in the experiment's order, and adds the bests.
fn sort_results(definition: &ExperimentDefinition, results: &mut ExperimentResults) {
    let place = |value: &String, all: &[String]| {
        let place = all.iter().position(|known| known == value);
        place.unwrap_or(usize::MAX)
    };
    let sort = |axis: &mut SweepAxis| {
        if let Some(known) = definition.axes().find(|known| known.key == axis.key) {
            axis.values.sort_by_key(|value| place(value, &known.full));
        }
    };
    sort(&mut results.across);
    results.down.as_mut().into_iter().for_each(sort);
    let programs: Vec<String> = definition.all_programs().cloned().collect();
    results
        .programs
        .sort_by_key(|program| place(&program.key, &programs));
    let keys: Vec<String> = results.programs.iter().map(|p| p.key.clone()).collect();
    let bests = best::to_compared_programs(&definition.best, &results.programs);
    results.programs.extend(bests);
    let order = |cell: &ResultCell| -> (Vec<usize>, usize) {
        let at = definition.axes().map(|axis| {
            let value = cell.at.get(&axis.key);
            value.map_or(usize::MAX, |value| place(value, &axis.full))
        });
        (at.collect(), place(&cell.program, &keys))
    };
    let mut cells = std::mem::take(&mut results.cells);
    cells.sort_by_cached_key(order);
    results
        .unfinished
        .retain(|half| !cells.iter().any(|whole| is_same_cell(half, whole)));
    for point in cells.chunk_by(|one, other| one.at == other.at) {
        let mut point = point.to_vec();
        best::add_bests(&definition.best, definition.higher_is_better, &mut point);
        results.cells.extend(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::statistics::empty_cell;

    const EXPERIMENT: &str = r#"
title = "T"
kind = "loopback"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["one", "two"], quick = ["two"] }
repetitions = { full = 1, quick = 1 }
limit = { full = 1, quick = 1 }
[across]
key = "rtt"
label = "round trip"
full = ["1", "10", "100"]
quick = ["1"]
[best.better]
label = "better one"
of = ["one", "two"]
"#;

    /// Makes results of `program` with a median for each round-trip time.
    fn results(program: &str, medians: &[(&str, f64)]) -> ExperimentResults {
        let values: Vec<&str> = medians.iter().map(|(rtt, _)| *rtt).collect();
        let text = serde_json::json!({
            "experiment": "t", "title": "T", "source": "", "mode": "full", "seconds": 1.0, "seed": 1,
            "started": "2026-01-02T00:00:00Z", "definition": "f", "unit": "Mbit/s", "planned": 6,
            "environment": {"kernel": "", "cpus": 1, "versions": {}, "sysctls": {}},
            "higher_is_better": true, "down": null, "cells": [], "notes": [],
            "also": [{"key": "seconds", "label": "time", "unit": "s", "higher_is_better": false}],
            "across": {"key": "rtt", "label": "", "unit": "ms", "values": values, "logarithmic": false},
            "programs": [{"key": program, "label": program}],
        });
        let mut results: ExperimentResults = serde_json::from_value(text).unwrap();
        let cell = |(rtt, median): &(&str, f64)| ResultCell {
            median: Some(*median),
            ..empty_cell(
                program,
                [("rtt".to_owned(), (*rtt).to_owned())].into(),
                None,
            )
        };
        results.cells = medians.iter().map(cell).collect();
        results
    }

    fn merge(kept: Option<ExperimentResults>, fresh: &ExperimentResults) -> ExperimentResults {
        let definition = ExperimentDefinition::parse("t.toml", EXPERIMENT).unwrap();
        merged(&definition, kept, fresh)
    }

    fn summaries(results: &ExperimentResults) -> Vec<String> {
        let cells = results.cells.iter();
        cells
            .map(|c| format!("{} {} {}", c.program, c.at["rtt"], c.median.unwrap()))
            .collect()
    }

    #[test]
    fn saved_cells_stay_and_those_measured_again_are_replaced() {
        let first = merge(None, &results("one", &[("10", 5.0)]));
        let all = merge(Some(first), &results("one", &[("1", 6.0), ("10", 7.0)]));
        assert_eq!(all.across.values, ["1", "10"]);
        assert_eq!(
            summaries(&all),
            ["one 1 6", "better 1 6", "one 10 7", "better 10 7"]
        );
        assert_eq!(all.seconds, 2.0);
    }

    #[test]
    fn the_best_is_chosen_among_the_programs_of_several_commands() {
        let two = merge(None, &results("two", &[("1", 50.0)]));
        assert_eq!(summaries(&two), ["two 1 50", "better 1 50"]);
        let all = merge(Some(two), &results("one", &[("1", 100.0)]));
        assert_eq!(summaries(&all), ["one 1 100", "two 1 50", "better 1 100"]);
        assert_eq!(all.cells[1].also["of-better"].median, Some(0.5));
        let keys: Vec<_> = all.programs.iter().map(|p| &*p.key).collect();
        assert_eq!(keys, ["one", "two", "better"]);
    }

    #[test]
    fn an_unfinished_cell_is_kept_apart_until_it_is_finished() {
        let mut first = results("one", &[("1", 5.0)]);
        first.unfinished = std::mem::take(&mut first.cells);
        first.notes = vec![format!("{ENDED_EARLY}interrupted after 0 of 1 points.")];
        let first = merge(None, &first);
        assert_eq!((first.cells.len(), first.unfinished.len()), (0, 1));
        let both = merge(Some(first), &results("one", &[("10", 6.0)]));
        assert_eq!((both.cells.len(), both.unfinished.len()), (2, 1));
        assert!(both.notes.is_empty(), "a note on an early end is dropped");
        let all = merge(Some(both), &results("one", &[("1", 7.0)]));
        assert!(all.unfinished.is_empty());
        assert!(summaries(&all).contains(&"one 1 7".to_owned()));
    }

    #[test]
    fn two_versions_of_a_program_are_noted_and_only_common_options_are_kept() {
        let with = |version: &str, rtt: &str| {
            let mut results = results("one", &[]);
            results
                .environment
                .versions
                .insert("one".into(), version.into());
            let words = ["--repetitions", "1", "--only", rtt];
            results.options = words.map(str::to_owned).into();
            results
        };
        let all = merge(Some(with("1.0", "rtt=1")), &with("1.1", "rtt=10"));
        assert!(all.notes[0].contains("'1.0'") && all.notes[0].contains("'1.1'"));
        assert_eq!(all.environment.versions["one"], "1.1");
        assert_eq!(all.options, ["--repetitions", "1"]);
    }

    #[test]
    fn other_seeds_and_other_versions_of_the_file_are_refused() {
        let kept = results("one", &[]);
        let mut fresh = kept.clone();
        let file = Path::new("t-full.json");
        let refusal = |fresh: &ExperimentResults| {
            check_compatible(file, &kept, fresh).map_err(|e| e.to_string())
        };
        assert_eq!(refusal(&fresh), Ok(()));
        fresh.definition = "g".into();
        assert!(refusal(&fresh).unwrap_err().contains("another version"));
        fresh.seed = 2;
        let refused = refusal(&fresh).unwrap_err();
        assert!(
            refused.contains("seed 1, not 2") && refused.contains("--fresh"),
            "{refused}"
        );
    }

    #[test]
    fn cells_that_the_lab_spoiled_are_counted_only_for_the_command_that_measured_them() {
        let out = tempfile::tempdir().unwrap();
        let definition = ExperimentDefinition::parse("t.toml", EXPERIMENT).unwrap();
        let mut spoiled = results("one", &[("1", 1.0), ("10", 2.0)]);
        let run = serde_json::json!({
            "value": 1.25, "invalid": ["late"], "spoiled": true, "seconds": 2.0, "bytes": 7, "seed": 3,
            "cpu_seconds": null, "command": "cp a b", "limited_by": null,
        });
        spoiled.cells[1]
            .samples
            .push(serde_json::from_value(run).unwrap());
        assert_eq!(save(out.path(), &definition, &spoiled).unwrap().spoiled, 1);
        let other = results("two", &[("1", 3.0)]);
        assert_eq!(save(out.path(), &definition, &other).unwrap().spoiled, 0);
    }

    #[test]
    fn saved_results_can_be_read_again_and_have_a_csv_line_for_each_run() {
        let out = tempfile::tempdir().unwrap();
        let mut results = results("one", &[("1", 1.25)]);
        let run = serde_json::json!({
            "value": 1.25, "invalid": ["late, \"very\""], "seconds": 2.0, "bytes": 7, "seed": 3,
            "cpu_seconds": null, "command": "cp a b", "limited_by": "loss", "also": {"seconds": 2.5},
        });
        results.cells[0]
            .samples
            .push(serde_json::from_value(run).unwrap());
        results.cells[0].paper = Some(9.5);
        let definition = ExperimentDefinition::parse("t.toml", EXPERIMENT).unwrap();
        save(out.path(), &definition, &results).unwrap();
        let saved = save(out.path(), &definition, &results).unwrap();
        assert_eq!(saved.json, out.path().join("t-full.json"));
        assert_eq!(read(&saved.json).unwrap(), Some(saved.results));
        assert_eq!(
            std::fs::read_to_string(saved.csv).unwrap(),
            "experiment,mode,program,rtt,sample,value,unit,paper,invalid,seconds,bytes,cpu_seconds,\
             seed,limited_by,command,time (s)\r\n\
             t,full,one,1,1,1.25,Mbit/s,9.5,\"late, \"\"very\"\"\",2.000000,7,,3,loss,cp a b,2.5\r\n"
        );
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 2);
    }
}
