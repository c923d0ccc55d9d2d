//! The report: HTML pages of tables and figures, one for each paper, with an SVG file for each figure and a
//! CSV file for each table.
//!
//! `load` reads the results files, `grid` finds a cell by program, row and column, and `lines` are what tables and
//! figures show. `figure` and `timeline` decide which lines a chart has, on the axes of `axis` and with the looks of
//! `palette`; `chart` draws them with plotters. `table` and `markdown` write the numbers, `summary` compares programs, and `page` assembles the pages with maud,
//! which escapes every string of a results file.

mod axis;
mod chart;
mod figure;
mod grid;
mod lines;
mod load;
mod markdown;
mod page;
mod palette;
#[cfg(test)]
mod samples;
mod summary;
mod table;
mod targets;
mod text;
mod timeline;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::experiment::results::ExperimentResults;
use figure::Figure;
use grid::ResultGrid;
use load::LoadedResults;

/// All tables as Markdown.
const TABLES: &str = "tables.md";

/// The targets of shipped experiments beside what the results give, as Markdown.
const TARGETS: &str = "targets.md";

/// The files that were written, and those that could not be read.
#[derive(Debug)]
pub struct WrittenReport {
    /// `OUT/index.html`.
    pub page: PathBuf,
    /// The page of each paper, the SVG file of each figure and the CSV file of each table.
    pub files: Vec<PathBuf>,
    /// `*.json` files without results; the index lists them too.
    pub skipped: Vec<SkippedFile>,
}

/// A file that is not in the report. It is shown as its name and the reason.
#[derive(Debug)]
pub struct SkippedFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Reason.
    pub why: String,
}

impl fmt::Display for SkippedFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        write!(out, "{}: {}", name.to_string_lossy(), self.why)
    }
}

/// The section of an experiment.
struct ExperimentSection<'a> {
    loaded: &'a LoadedResults,
    /// The experiment's main measure, then its further ones.
    measures: Vec<MeasureSection<'a>>,
    /// Charts over time.
    timelines: Vec<DrawnFigure>,
}

/// The figures and the table of one measure of an experiment.
struct MeasureSection<'a> {
    /// Prefix of the names of its files and anchors.
    name: String,
    /// The measure's label; empty for the main measure, which is below the experiment's title.
    heading: String,
    grid: ResultGrid<'a>,
    figures: Vec<DrawnFigure>,
    /// Name of its CSV file.
    csv: String,
}

/// A figure as an SVG document.
struct DrawnFigure {
    /// Name of its file.
    file: String,
    svg: String,
}

/// Writes the report of every results file (`*.json`) in `results` to the directory `out`, which is
/// created if it does not exist.
///
/// `index.html` links a page for each paper, `tables.md` has all tables as Markdown, and `targets.md` what was asked of shipped experiments. `NAME.json` becomes a section of one, the figure `NAME.svg`, possibly a
/// second one `NAME-programs.svg`, figures over time `NAME-time-NUMBER.svg`, and `NAME-table.csv`. The files of a
/// further measure are called `NAME-MEASURE...`. Other `*.json` files are listed in [`WrittenReport::skipped`].
///
/// # Errors
/// [`LabError::NotFound`]: `results` does not exist or holds no results. [`LabError::System`]: `out`
/// cannot be written.
pub fn write(results: &Path, out: &Path) -> Result<WrittenReport, LabError> {
    let (loaded, skipped) = load::read_all(results)?;
    let sections: Vec<_> = loaded.iter().map(section).collect::<Result<_, _>>()?;
    std::fs::create_dir_all(out)
        .map_err(|error| LabError::system(format!("cannot create {}", out.display()), error))?;
    let mut files = Vec::new();
    for section in &sections {
        let measured = section.measures.iter().flat_map(|measure| &measure.figures);
        for figure in measured.chain(&section.timelines) {
            let text = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
                figure.svg
            );
            files.push(save(out, &figure.file, &text)?);
        }
        for measure in &section.measures {
            files.push(save(out, &measure.csv, &table::csv(&measure.grid)?)?);
        }
    }
    // Pages are written after the files that they link, and the index last.
    let papers = load::by_paper(&loaded);
    files.push(save(out, TABLES, &markdown::text(&papers, &sections))?);
    files.push(save(out, TARGETS, &targets::markdown(TABLES, &sections)?)?);
    for paper in &papers {
        files.push(save(out, &paper.page, &page::paper(paper, &sections))?);
    }
    let index = page::index(&papers, &sections, &skipped);
    Ok(WrittenReport {
        page: save(out, "index.html", &index)?,
        files,
        skipped,
    })
}

fn section(loaded: &LoadedResults) -> Result<ExperimentSection<'_>, LabError> {
    let (results, name) = (&loaded.results, &loaded.name);
    let main = measure(results, name.clone(), String::new())?;
    let timelines = drawn(results, "", timeline::timelines(&main.grid, name))?;
    let mut measures = vec![main];
    for (also, results) in results.also.iter().zip(&loaded.also) {
        let name = format!("{name}-{}", load::file_name(&also.key));
        measures.push(measure(results, name, also.label.clone())?);
    }
    Ok(ExperimentSection {
        loaded,
        measures,
        timelines,
    })
}

fn measure(
    results: &ExperimentResults,
    name: String,
    heading: String,
) -> Result<MeasureSection<'_>, LabError> {
    let grid = ResultGrid::of(results);
    Ok(MeasureSection {
        figures: drawn(results, &heading, figure::sweeps(&grid, &name))?,
        // An experiment writes its runs to NAME.csv, which must not be overwritten.
        csv: format!("{name}-table.csv"),
        heading,
        grid,
        name,
    })
}

/// Draws the figures of a measure, whose label is empty for the main one.
fn drawn(
    results: &ExperimentResults,
    measure: &str,
    figures: Vec<Figure<'_>>,
) -> Result<Vec<DrawnFigure>, LabError> {
    let origin = text::describe_origin(results);
    let draw = |figure: Figure<'_>| {
        let subject = text::joined(&[measure, &figure.heading], " ");
        let heading = text::joined(&[&text::capitalize(&subject), &results.title], ": ");
        let origin = text::joined(&[&results.source, &origin], "; ");
        let svg = chart::svg(&heading, &origin, &figure)
            .map_err(|error| LabError::system(format!("cannot draw {}", figure.file), error))?;
        Ok(DrawnFigure {
            file: figure.file,
            svg,
        })
    };
    figures.into_iter().map(draw).collect()
}

fn save(out: &Path, name: &str, text: &str) -> Result<PathBuf, LabError> {
    let path = out.join(name);
    std::fs::write(&path, text)
        .map_err(|error| LabError::system(format!("cannot write {}", path.display()), error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(results: &ExperimentResults) -> (tempfile::TempDir, WrittenReport) {
        let folder = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(results).unwrap();
        std::fs::write(folder.path().join("bbc-5.1-quick.json"), json).unwrap();
        std::fs::write(folder.path().join("net.json"), "{}").unwrap();
        std::fs::write(folder.path().join("bbc-5.1-quick.csv"), "runs").unwrap();
        let written = write(folder.path(), folder.path()).unwrap();
        (folder, written)
    }

    #[test]
    fn each_measure_has_figures_and_a_table_and_skipped_files_are_listed() {
        let (folder, written) = written(&samples::with_more());
        let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
        let names: Vec<String> = written.files.iter().map(name).collect();
        let expected = [
            "bbc-5.1-quick.svg",
            "bbc-5.1-quick-programs.svg",
            "bbc-5.1-quick-seconds.svg",
            "bbc-5.1-quick-seconds-programs.svg",
            "bbc-5.1-quick-time-0.svg",
            "bbc-5.1-quick-table.csv",
            "bbc-5.1-quick-seconds-table.csv",
            "tables.md",
            "targets.md",
            "bbc-whp-178.html",
        ];
        assert_eq!(names, expected);
        let skipped: Vec<String> = written.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(skipped.len(), 1);
        assert!(skipped[0].starts_with("net.json: not results"));
        let csv = std::fs::read_to_string(&written.files[6]).unwrap();
        assert!(csv.contains("median (s)"), "{csv}");
        let runs = std::fs::read_to_string(folder.path().join("bbc-5.1-quick.csv")).unwrap();
        assert_eq!(runs, "runs", "an experiment's own file stays as it was");
    }

    #[test]
    fn the_error_names_an_output_directory_that_cannot_be_created() {
        let (folder, _) = written(&samples::two_by_two());
        let out = folder.path().join("net.json/out");
        let error = write(folder.path(), &out).unwrap_err();
        assert!(error.to_string().contains("net.json/out"), "{error}");
    }
}
