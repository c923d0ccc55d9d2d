//! Reads a directory of results files, and sorts experiments by the paper that they reproduce.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::SkippedFile;
use crate::LabError;
use crate::experiment::count_shipped_cells;
use crate::experiment::results::statistics::MIN_INTERVAL_VALUES;
use crate::experiment::results::{ExperimentResults, FurtherMeasure, PUBLISHED};

/// Largest results file, bytes. The largest sweep with all command lines is far below 1 MiB.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// One file of results.
pub(super) struct LoadedResults {
    /// Prefix of the names of its files, and its anchor on the page. It has only letters, digits
    /// and `.-_`, and is unique in the report.
    pub(super) name: String,
    pub(super) results: ExperimentResults,
    /// The results with each further measure ([`ExperimentResults::also`]) as the main one, in their order.
    pub(super) also: Vec<ExperimentResults>,
}

impl LoadedResults {
    /// `name` must be unique.
    pub(super) fn new(name: String, results: ExperimentResults) -> Self {
        let also = results
            .also
            .iter()
            .map(|also| with_main_measure(&results, also))
            .collect();
        Self {
            name,
            results,
            also,
        }
    }

    /// The label `bbc-5.1 (quick)`, with the mode because an experiment may be there in both modes.
    pub(super) fn label(&self) -> String {
        format!("{}{}", self.base(), self.mode())
    }

    fn mode(&self) -> String {
        match self.results.mode.as_str() {
            "" => String::new(),
            mode => format!(" ({mode})"),
        }
    }

    /// The name of the file without the mode (`bbc-5.1-lan`), otherwise that of the experiment.
    fn base(&self) -> &str {
        let file = self.name.strip_suffix(&format!("-{}", self.results.mode));
        file.unwrap_or(&self.results.experiment)
    }

    /// The paper, and the table or figure in it. Experiments that reproduce none have the heading [`OWN`].
    fn citation(&self) -> (String, String) {
        let results = &self.results;
        if results.source.is_empty() || results.reference != PUBLISHED {
            return (OWN.to_owned(), self.label());
        }
        let is_place = |text: &str| PLACES.iter().any(|known| text.starts_with(known));
        match results
            .source
            .rsplit_once(", ")
            .filter(|(_, place)| is_place(place))
        {
            Some((paper, place)) => {
                // Several files may reproduce the same figure; their names tell them apart.
                let file = match self.base() {
                    base if base == file_name(&results.experiment) => String::new(),
                    base => format!(", {base}"),
                };
                (paper.to_owned(), format!("{place}{file}{}", self.mode()))
            }
            None => (results.source.clone(), self.label()),
        }
    }
}

/// `results` with the further measure `also` as the main one.
fn with_main_measure(results: &ExperimentResults, also: &FurtherMeasure) -> ExperimentResults {
    let mut projected = results.clone();
    projected.unit.clone_from(&also.unit);
    projected.higher_is_better = also.higher_is_better;
    projected.also.clear();
    projected.charts.clear();
    for cell in &mut projected.cells {
        let value = cell.also.get(&also.key).copied().unwrap_or_default();
        (cell.median, cell.half_width, cell.paper) = (value.median, value.half_width, value.paper);
        cell.series.clear();
        for run in &mut cell.samples {
            run.value = run.also.get(&also.key).copied();
        }
    }
    // A program without this measure would be an empty line in its table.
    projected
        .cells
        .retain(|cell| cell.median.is_some() || cell.paper.is_some());
    let named = |key: &String| projected.cells.iter().any(|cell| cell.program == *key);
    projected.programs.retain(|program| named(&program.key));
    projected
}

/// Heading of the experiments that reproduce no paper.
const OWN: &str = "longhaul's own experiments";

/// First words of the last part of a source if that part is a place in the paper.
const PLACES: [&str; 4] = ["table", "figure", "section", "network"];

/// A paper and the results that reproduce it.
#[derive(Debug, PartialEq)]
pub(super) struct CitedPaper {
    pub(super) title: String,
    /// Name of its page.
    pub(super) page: String,
    /// For each of its tables and figures the name and the index of the results.
    pub(super) entries: Vec<(String, usize)>,
}

/// Groups results by paper, in the order in which the papers first occur, with longhaul's own experiments
/// last. The results of a paper are in the order of the numbers of their tables or figures.
pub(super) fn by_paper(results: &[LoadedResults]) -> Vec<CitedPaper> {
    let mut papers: Vec<CitedPaper> = Vec::new();
    let mut pages = BTreeSet::from(["index".to_owned()]);
    for (index, one) in results.iter().enumerate() {
        let (title, figure) = one.citation();
        match papers.iter_mut().find(|paper| paper.title == title) {
            Some(paper) => paper.entries.push((figure, index)),
            None => papers.push(CitedPaper {
                page: unique(&page_name(&title), &mut pages) + ".html",
                title,
                entries: vec![(figure, index)],
            }),
        }
    }
    papers.sort_by_key(|paper| paper.title == OWN);
    for paper in papers.iter_mut().filter(|paper| paper.title != OWN) {
        let number = |(figure, _): &(String, usize)| figure_number(figure);
        paper
            .entries
            .sort_by(|one, other| number(one).total_cmp(&number(other)));
    }
    papers
}

/// The words of a paper's title as the name of its page, at most 60 characters: `bbc-whp-178-2010`.
fn page_name(title: &str) -> String {
    let plain = title.to_lowercase().replace('\'', "");
    let words = plain
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let name: String = words
        .collect::<Vec<_>>()
        .join("-")
        .chars()
        .take(60)
        .collect();
    file_name(name.trim_end_matches('-'))
}

/// The first number in the name of a table or figure: 5.1 in `table 5.1 (quick)`; infinity without one.
fn figure_number(figure: &str) -> f64 {
    let from = figure.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = from.find(|c: char| !c.is_ascii_digit() && c != '.');
    from[..end.unwrap_or(from.len())]
        .parse()
        .unwrap_or(f64::INFINITY)
}

/// Reads all results in `directory` in the order of their file names, and lists the `*.json` files that
/// hold none.
///
/// # Errors
/// [`LabError::NotFound`]: the directory does not exist or holds no results. [`LabError::System`]: it
/// cannot be listed.
pub(super) fn read_all(
    directory: &Path,
) -> Result<(Vec<LoadedResults>, Vec<SkippedFile>), LabError> {
    let (mut loaded, mut skipped, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for path in candidates(directory)? {
        match read(&path) {
            Ok(results) => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let name = unique(&file_name(&stem), &mut names);
                loaded.push(LoadedResults::new(name, results));
            }
            Err(why) => skipped.push(SkippedFile { file: path, why }),
        }
    }
    if !loaded.is_empty() {
        return Ok((loaded, skipped));
    }
    let first = skipped.first().map(|first| format!("; {first}"));
    let more = skipped.len().saturating_sub(1);
    let more = (more > 0).then(|| format!(", and {more} more"));
    Err(LabError::NotFound(format!(
        "no results in {}: run an experiment first (`longhaul lab run NAME`){}{}",
        directory.display(),
        first.unwrap_or_default(),
        more.unwrap_or_default()
    )))
}

/// The `*.json` files of a directory in the order of their names.
fn candidates(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let shown = directory.display();
    let cannot = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => LabError::NotFound(format!(
            "no directory {shown}: run an experiment first (`longhaul lab run NAME`), or name the \
             directory of its results with --results"
        )),
        _ => LabError::system(format!("cannot list the results in {shown}"), error),
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<ExperimentResults, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > MAX_FILE {
        let limit = MAX_FILE >> 20;
        return Err(format!("larger than {limit} MiB, so no results file"));
    }
    let mut results: ExperimentResults = serde_json::from_str(&text)
        .map_err(|error| format!("not results of an experiment: {error}"))?;
    // Older files lack the number of planned cells, and have intervals of only two runs.
    if results.planned == 0 {
        results.planned = count_shipped_cells(&results.experiment, &results.mode).unwrap_or(0);
    }
    for cell in &mut results.cells {
        let valid = cell.samples.iter().filter(|run| run.invalid.is_empty());
        if valid.count() < MIN_INTERVAL_VALUES {
            cell.half_width = None;
            cell.also
                .values_mut()
                .for_each(|value| value.half_width = None);
        }
    }
    Ok(results)
}

/// Turns `stem` into a text that is valid in file names, as an anchor, and as an XML name: other characters
/// become `_`, and the first is a letter.
pub(super) fn file_name(stem: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || ".-_".contains(c) {
            c
        } else {
            '_'
        }
    };
    let plain: String = stem.chars().map(safe).take(100).collect();
    match plain.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => plain,
        false => format!("r{plain}"),
    }
}

/// Returns `name`, or `name` with the first free number from 2, and adds it to `taken`.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
    let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
    let free = candidates.find(|candidate| taken.insert(candidate.clone()));
    free.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn names_are_safe_and_unique() {
        assert_eq!(file_name("bbc-5.1-quick"), "bbc-5.1-quick");
        assert_eq!(file_name("../x \"y\""), "r.._x__y_");
        assert_eq!(file_name(""), "r");
        let mut taken = BTreeSet::new();
        let names = [(); 3].map(|()| unique("a", &mut taken));
        assert_eq!(names, ["a", "a-2", "a-3"]);
    }

    #[test]
    fn a_directory_without_results_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| read_all(path).map(|_| ()).unwrap_err().to_string();
        assert!(message(folder.path()).contains("longhaul lab run"));
        assert!(message(&folder.path().join("absent")).contains("--results"));
        std::fs::write(folder.path().join("x.json"), "no").unwrap();
        std::fs::write(folder.path().join("y.json"), "[]").unwrap();
        let both = message(folder.path());
        assert!(
            both.contains("x.json: not results") && both.ends_with("and 1 more"),
            "{both}"
        );
    }

    #[test]
    fn intervals_of_two_runs_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = samples::two_by_two();
        results.cells[0].samples.pop();
        let json = serde_json::to_string(&results).unwrap();
        std::fs::write(folder.path().join("a.json"), json).unwrap();
        let cells = &read_all(folder.path()).unwrap().0[0].results.cells;
        assert_eq!(cells[0].half_width, None);
        assert!(cells[1].half_width.is_some());
    }

    #[test]
    fn a_further_measure_has_its_own_values_unit_and_direction() {
        let mut results = samples::with_more();
        results.cells[7].also.clear();
        let loaded = LoadedResults::new("a".to_owned(), results);
        let [time] = loaded.also.as_slice() else {
            panic!("{}", loaded.also.len());
        };
        assert_eq!((&*time.unit, time.higher_is_better), ("s", false));
        assert_eq!(time.cells.len(), 7, "one has none");
        assert_eq!(time.cells[2].median, Some(3.0));
        assert_eq!(time.cells[2].samples[1].value, Some(3.0));
        assert!(time.charts.is_empty() && time.cells[0].series.is_empty());
    }

    #[test]
    fn experiments_are_found_under_their_papers_figures() {
        let of = |file: &str, experiment: &str, source: &str| {
            let results = ExperimentResults {
                experiment: experiment.to_owned(),
                source: source.to_owned(),
                ..samples::two_by_two()
            };
            LoadedResults::new(file.to_owned(), results)
        };
        let bbc = "BBC WHP 178 (2010), table 5.1";
        let mut tool = of("ns2-static-quick", "ns2-static", "ns-2 2.35, section 4");
        tool.results.reference = "ns-2".to_owned();
        let all = [
            of("auto-oracle-lan-quick", "auto-oracle", ""),
            of("bbc-5.1-quick", "bbc-5.1", bbc),
            of("drs-b-quick", "drs-b", "A, B: Title (2004), figure 10"),
            of("drs-quick", "drs", "A, B: Title (2004), figures 6 to 8"),
            of("bbc-5.1-lan-quick", "bbc-5.1", bbc),
            tool,
            of("odd-quick", "odd", "Some memo, 1999"),
        ];
        let entry = |figure: &str, index| (figure.to_owned(), index);
        let bbc = vec![
            entry("table 5.1 (quick)", 1),
            entry("table 5.1, bbc-5.1-lan (quick)", 4),
        ];
        let drs = vec![
            entry("figures 6 to 8 (quick)", 3),
            entry("figure 10 (quick)", 2),
        ];
        let own = vec![
            entry("auto-oracle-lan (quick)", 0),
            entry("ns2-static (quick)", 5),
        ];
        let expected = [
            ("BBC WHP 178 (2010)", "bbc-whp-178-2010.html", bbc),
            ("A, B: Title (2004)", "a-b-title-2004.html", drs),
            (
                "Some memo, 1999",
                "some-memo-1999.html",
                vec![entry("odd (quick)", 6)],
            ),
            (OWN, "longhauls-own-experiments.html", own),
        ];
        let papers = by_paper(&all);
        let papers = papers
            .iter()
            .map(|paper| (&*paper.title, &*paper.page, paper.entries.clone()));
        assert_eq!(papers.collect::<Vec<_>>(), expected);
        assert_eq!(by_paper(&[of("i", "i", "Index")])[0].page, "index-2.html");
    }
}
