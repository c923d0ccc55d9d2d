//! Reading a directory of results.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Skipped, also};
use crate::LabError;
use crate::experiment::results::Results;
use crate::experiment::{FEWEST, planned_cells};

/// Largest file that is read; the fullest sweep with every command line is far below one mebibyte.
const LARGEST: u64 = 64 * 1024 * 1024;

/// One file of results.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Begins the names of all that is drawn from it, and is its anchor on the page: letters, digits
    /// and `.-_`, unique in this report.
    pub(super) name: String,
    /// Its content.
    pub(super) results: Results,
    /// The same for each of [`Results::also`], in their order.
    pub(super) also: Vec<Results>,
}

impl Loaded {
    /// `bbc-5.1 (quick)`: one experiment may be there in both modes, and in files of several names.
    pub(super) fn label(&self) -> String {
        let (own, mode) = (self.base(), self.results.mode.as_str());
        match mode {
            "" => own.to_owned(),
            mode => format!("{own} ({mode})"),
        }
    }

    /// The experiment's name, or the name of its file where that says more (`bbc-5.1-lan`).
    pub(super) fn base(&self) -> &str {
        let mode = format!("-{}", self.results.mode);
        let file = self.name.strip_suffix(&mode);
        file.unwrap_or(&self.results.experiment)
    }

    /// `results` under a name that is unique.
    pub(super) fn new(name: String, results: Results) -> Self {
        let also = also::all(&results);
        Self {
            name,
            results,
            also,
        }
    }
}

/// All results in `directory`, by file name, and the `*.json` files that hold none.
///
/// # Errors
/// The directory cannot be read or has no results.
pub(super) fn all(directory: &Path) -> Result<(Vec<Loaded>, Vec<Skipped>), LabError> {
    let mut loaded = Vec::new();
    let mut skipped = Vec::new();
    let mut names = BTreeSet::new();
    for path in candidates(directory)? {
        match one(&path) {
            Ok(results) => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let name = unique(&file_name(&stem), &mut names);
                loaded.push(Loaded::new(name, results));
            }
            Err(why) => skipped.push(Skipped { file: path, why }),
        }
    }
    if loaded.is_empty() {
        return Err(nothing(directory, &skipped));
    }
    Ok((loaded, skipped))
}

/// The `*.json` files, sorted so that `bbc-5.2` comes before `bbc-5.10`.
fn candidates(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = std::fs::read_dir(directory).map_err(|error| cannot_list(directory, error))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| cannot_list(directory, error))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            paths.push(path);
        }
    }
    paths.sort_by_cached_key(|path| natural(&path.to_string_lossy()));
    Ok(paths)
}

fn cannot_list(directory: &Path, error: std::io::Error) -> LabError {
    let shown = directory.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => LabError::NotFound(format!(
            "no directory {shown}: run an experiment first (`longhaul lab run NAME`), or name the \
             directory of its results with --results"
        )),
        _ => LabError::system(format!("cannot list the results in {shown}"), error),
    }
}

fn one(path: &Path) -> Result<Results, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    file.take(LARGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > LARGEST {
        return Err(format!("larger than {} MiB: no results", LARGEST >> 20));
    }
    let results = serde_json::from_str(&text)
        .map_err(|error| format!("not results of an experiment: {error}"))?;
    Ok(with_extent(without_guesses(results)))
}

/// Older files do not say how many cells their experiment has.
fn with_extent(mut results: Results) -> Results {
    if results.planned == 0 {
        let cells = planned_cells(&results.experiment, &results.mode);
        results.planned = cells.unwrap_or(0);
    }
    results
}

/// Intervals of too few runs are left out: older files have those of two.
fn without_guesses(mut results: Results) -> Results {
    for cell in &mut results.cells {
        let valid = cell.samples.iter().filter(|s| s.invalid.is_empty());
        if valid.count() < FEWEST {
            cell.half_width = None;
            let also = cell.also.values_mut();
            also.for_each(|value| value.half_width = None);
        }
    }
    results
}

fn nothing(directory: &Path, skipped: &[Skipped]) -> LabError {
    let mut message = format!(
        "no results in {}: run an experiment first (`longhaul lab run NAME`)",
        directory.display()
    );
    if let Some(first) = skipped.first() {
        message.push_str("; ");
        message.push_str(&first.to_string());
    }
    if skipped.len() > 1 {
        message.push_str(&format!(", and {} more", skipped.len() - 1));
    }
    LabError::NotFound(message)
}

/// A part of a file name, an anchor and an XML name at once.
pub(super) fn file_name(stem: &str) -> String {
    let plain: String = stem
        .chars()
        .map(|character| match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => character,
            _ => '_',
        })
        .take(100)
        .collect();
    match plain.chars().next() {
        Some('a'..='z' | 'A'..='Z') => plain,
        _ => format!("r{plain}"),
    }
}

fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut candidate = name.to_owned();
    let mut number = 2_u32;
    while !taken.insert(candidate.clone()) {
        candidate = format!("{name}-{number}");
        number += 1;
    }
    candidate
}

/// Sorts numbers inside names by their size.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest
            .find(|character: char| character.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, tail) = rest.split_at(digits);
        let end = tail
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(tail.len());
        let (number, next) = tail.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = next;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_unique() {
        assert_eq!(file_name("bbc-5.1-quick"), "bbc-5.1-quick");
        assert_eq!(file_name("../x \"y\""), "r.._x__y_");
        assert_eq!(file_name(""), "r");
        let mut taken = BTreeSet::new();
        assert_eq!(unique("a", &mut taken), "a");
        assert_eq!(unique("a", &mut taken), "a-2");
        assert_eq!(unique("a", &mut taken), "a-3");
    }

    #[test]
    fn numbers_in_names_sort_by_size() {
        let mut names = ["bbc-5.10", "loopback", "bbc-5.2", "bbc-5.1"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["bbc-5.1", "bbc-5.2", "bbc-5.10", "loopback"]);
    }

    #[test]
    fn a_directory_without_results_names_what_it_found() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("net.json"), "{\"seconds\": 1}").unwrap();
        let error = all(directory.path()).unwrap_err();
        assert!(matches!(error, LabError::NotFound(_)));
        assert!(
            error.to_string().contains("net.json: not results"),
            "{error}"
        );
        let missing = all(&directory.path().join("absent")).unwrap_err();
        assert!(matches!(missing, LabError::NotFound(_)), "{missing}");
    }

    #[test]
    fn an_older_full_run_says_how_much_of_the_experiment_it_is() {
        let mut results = super::super::samples::two_by_two();
        results.mode = "full".to_owned();
        // Of 8 latencies: 7 numbers of connections for the 5 programs that set them, curl with one, and
        // longhaul that chooses.
        assert_eq!(with_extent(results.clone()).planned, 8 * (7 * 5 + 1 + 1));
        results.experiment = "mine".to_owned();
        assert_eq!(with_extent(results).planned, 0);
    }

    #[test]
    fn an_interval_of_two_runs_is_not_shown() {
        let mut results = super::super::samples::with_more();
        results.cells[0].samples.pop();
        let shown = without_guesses(results);
        assert_eq!(shown.cells[0].half_width, None);
        assert!(
            shown.cells[0]
                .also
                .values()
                .all(|value| value.half_width.is_none())
        );
        assert!(shown.cells[1].half_width.is_some());
    }

    #[test]
    fn a_file_that_is_not_text_is_skipped_by_name() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.json"), [0xff, 0xfe]).unwrap();
        let why = one(&directory.path().join("a.json")).unwrap_err();
        assert!(why.contains("cannot be read"), "{why}");
    }
}
