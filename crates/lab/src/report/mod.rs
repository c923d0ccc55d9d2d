//! The report: results as one self-contained HTML page, with tables, figures, SVG and CSV.
//!
//! `load` reads the results and `grid` sorts their cells. `lines` decides which go into which
//! chart of a `figure`; `chart` draws one, `poster` makes an SVG file of several. `table` and `csv`
//! write the numbers, `summary` says what they come to, `page` puts all together. Every string
//! from a results file goes through `markup` or `csv`, which escape it.

mod chart;
mod csv;
mod figure;
mod grid;
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
mod tip;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::LabError;
use grid::Grid;
use load::Loaded;
use page::Section;
use theme::Palette;

/// What was written.
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
/// `NAME-programs.svg` where there is one) and `NAME-table.csv`. Other `*.json` files are skipped and
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
        for (figure, name) in &section.figures {
            let text = poster::file(&section.loaded.results, figure);
            files.push(save(out, name, &text)?);
        }
        files.push(save(out, &section.csv, &csv::table(&section.grid))?);
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

/// What is drawn from each experiment, and into which files.
fn plan<'a>(loaded: &'a [Loaded], palette: &Palette) -> Vec<Section<'a>> {
    loaded
        .iter()
        .map(|one| {
            let grid = Grid::of(&one.results);
            let drawn = lines::all(&grid, palette);
            let named = drawn.into_iter().enumerate().map(|(index, figure)| {
                let file = match index {
                    0 => format!("{}.svg", one.name),
                    _ => format!("{}-{}.svg", one.name, figure.split.name()),
                };
                (figure, file)
            });
            let figures = named.collect();
            // Not NAME.csv: an experiment keeps its samples under that name.
            Section {
                loaded: one,
                grid,
                figures,
                csv: format!("{}-table.csv", one.name),
            }
        })
        .collect()
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
    fn an_output_that_cannot_be_made_is_named() {
        let results = tempfile::tempdir().unwrap();
        let json = serde_json::to_string(&samples::two_by_two()).unwrap();
        let file = results.path().join("a.json");
        std::fs::write(&file, json).unwrap();
        let error = write(results.path(), &file.join("out")).unwrap_err();
        assert!(error.to_string().contains("a.json/out"), "{error}");
    }
}
