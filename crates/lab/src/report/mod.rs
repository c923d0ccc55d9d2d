//! The report: results as one self-contained HTML page, with tables, figures, SVG and CSV.
//!
//! `load` reads the results, `also` makes results of what the same runs measured beside, and `grid`
//! sorts their cells. `lines` decides which go into which
//! chart of a `figure`; `chart` draws one, `poster` makes an SVG file of several. `table` and `csv`
//! write the numbers, `timeline` draws what was kept over time, `summary` says what the numbers come
//! to, `index` sorts experiments by paper and figure, `page` puts all together. Every string
//! from a results file goes through `markup` or `csv`, which escape it.

mod also;
mod chart;
mod csv;
mod figure;
mod grid;
mod index;
mod lines;
mod load;
mod markup;
mod number;
mod origin;
mod page;
mod poster;
mod rows;
#[cfg(test)]
mod samples;
mod scale;
mod strip;
mod summary;
mod svg;
mod table;
mod theme;
mod ticks;
mod timeline;
mod tip;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::experiment::results::Results;
use grid::Grid;
use load::Loaded;
use page::{Part, Section};
use theme::Palette;

/// Files that were written.
#[derive(Debug)]
pub struct Written {
    /// `OUT/index.html`.
    pub page: PathBuf,
    /// Each figure's SVG and each table's CSV.
    pub files: Vec<PathBuf>,
    /// `*.json` files that hold no results; the page names them too.
    pub skipped: Vec<Skipped>,
}

/// A file that is not in the report. Shown as one line: its name and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which.
    pub file: PathBuf,
    /// Why.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.file_name().unwrap_or(self.file.as_os_str());
        write!(out, "{}: {}", name.to_string_lossy(), self.why)
    }
}

/// Draws every results file (`*.json`) in `results` into `out`, which is made if missing.
///
/// `NAME.json` becomes a section of `index.html`, `NAME.svg` (with a second figure
/// `NAME-programs.svg` where there is one) and `NAME-table.csv`; what its runs measured beside has
/// files called `NAME-MEASURE...`. Other `*.json` files are skipped and
/// named in [`Written::skipped`].
///
/// # Errors
/// [`LabError::NotFound`]: no such directory, or no results in it. [`LabError::System`]: `out` cannot
/// be written.
pub fn write(results: &Path, out: &Path) -> Result<Written, LabError> {
    let (loaded, skipped) = load::all(results)?;
    let palette = Palette::of(&loaded);
    let sections = plan(&loaded, &palette);
    std::fs::create_dir_all(out)
        .map_err(|error| LabError::system(format!("cannot make {}", out.display()), error))?;
    let mut files = Vec::new();
    for section in &sections {
        for part in &section.parts {
            for (figure, name) in &part.figures {
                let text = poster::file(part.grid.results, figure);
                files.push(save(out, name, &text)?);
            }
            files.push(save(out, &part.csv, &csv::table(&part.grid))?);
        }
    }
    // Last: who finds the page finds its files.
    let page = save(
        out,
        "index.html",
        &page::write(&sections, &palette, &skipped),
    )?;
    Ok(Written {
        page,
        files,
        skipped,
    })
}

/// Drawings of each experiment, and their files.
fn plan<'a>(loaded: &'a [Loaded], palette: &Palette) -> Vec<Section<'a>> {
    loaded
        .iter()
        .map(|one| {
            let first = part(&one.results, one.name.clone(), String::new(), palette);
            let named = one.results.also.iter().zip(&one.also);
            let further = named.map(|(also, results)| {
                let name = format!("{}-{}", one.name, load::file_name(&also.key));
                part(results, name, also.label.clone(), palette)
            });
            Section {
                loaded: one,
                parts: std::iter::once(first).chain(further).collect(),
            }
        })
        .collect()
}

/// Drawings of one measure, into files whose names begin with `name`.
fn part<'a>(results: &'a Results, name: String, heading: String, palette: &Palette) -> Part<'a> {
    let grid = Grid::of(results);
    let drawn = lines::all(&grid, palette);
    let named = drawn.into_iter().enumerate().map(|(index, figure)| {
        let file = match index {
            0 => format!("{name}.svg"),
            _ => format!("{name}-{}.svg", figure.split.name()),
        };
        (figure, file)
    });
    let figures = named.collect();
    Part {
        heading,
        grid,
        figures,
        // Not NAME.csv: an experiment keeps its samples under that name.
        csv: format!("{name}-table.csv"),
        name,
    }
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

    #[test]
    fn page_figures_and_tables_are_written_and_others_named() {
        let results = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(&samples::two_by_two()).unwrap();
        std::fs::write(results.path().join("bbc-5.1-quick.json"), json).unwrap();
        std::fs::write(results.path().join("net.json"), "{}").unwrap();
        std::fs::write(results.path().join("bbc-5.1-quick.csv"), "samples").unwrap();
        let written = write(results.path(), results.path()).unwrap();
        let names: Vec<String> = written
            .files
            .iter()
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "bbc-5.1-quick.svg",
                "bbc-5.1-quick-programs.svg",
                "bbc-5.1-quick-table.csv"
            ]
        );
        assert!(
            written
                .files
                .iter()
                .all(|file| file.metadata().unwrap().len() > 100)
        );
        assert_eq!(written.skipped.len(), 1);
        assert!(
            written.skipped[0]
                .to_string()
                .starts_with("net.json: not results")
        );
        // What an experiment wrote beside its results stays as it was.
        let kept = std::fs::read_to_string(results.path().join("bbc-5.1-quick.csv")).unwrap();
        assert_eq!(kept, "samples");
    }

    #[test]
    fn what_was_measured_beside_has_files_of_its_own() {
        let results = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(&samples::with_more()).unwrap();
        std::fs::write(results.path().join("a.json"), json).unwrap();
        let written = write(results.path(), results.path()).unwrap();
        for name in [
            "a-seconds.svg",
            "a-seconds-programs.svg",
            "a-seconds-table.csv",
        ] {
            assert!(
                written.files.iter().any(|file| file.ends_with(name)),
                "{name}"
            );
        }
        let table = std::fs::read_to_string(results.path().join("a-seconds-table.csv")).unwrap();
        assert!(table.contains("median (s)"), "{table}");
    }

    #[test]
    fn an_output_that_cannot_be_made_is_named() {
        let results = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(&samples::two_by_two()).unwrap();
        let file = results.path().join("a.json");
        std::fs::write(&file, json).unwrap();
        let error = write(results.path(), &file.join("out")).unwrap_err();
        assert!(error.to_string().contains("a.json/out"), "{error}");
    }
}
