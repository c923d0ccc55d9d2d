//! Which lines go into which chart.
//!
//! A sweep of two axes over several programs has too many lines for one chart. It is drawn as small
//! multiples, twice: one chart for each row (its lines are the programs, with the published curve),
//! which compares programs; and one chart for each program (its lines are the rows), which is the
//! shape that papers draw.

use super::figure::{Entry, Figure, Horizontal, Look, Panel, Point, Series, Split};
use super::grid::{self, Grid, Place};
use super::scale::Vertical;
use super::theme::{self, Palette};
use super::{svg, tip};

/// The figures of an experiment, the most telling first; none if nothing was measured or published.
pub(super) fn all(grid: &Grid<'_>, palette: &Palette) -> Vec<Figure> {
    let drawer = Drawer { grid, palette };
    let mut figures = Vec::new();
    let (rows, programs) = (grid.rows(), grid.results.programs.len());
    if rows > 0 && (programs > 1 || rows == 1) {
        figures.push(drawer.by_row());
    }
    if rows > 1 && programs > 0 {
        figures.push(drawer.by_program());
    }
    figures.retain(|figure| {
        let series = figure.panels.iter().flat_map(|panel| &panel.series);
        series
            .flat_map(|series| &series.points)
            .any(Option::is_some)
    });
    figures
}

/// The key of everything that was published, and the class of its colour.
const PAPER: &str = "paper";

struct Drawer<'a> {
    grid: &'a Grid<'a>,
    palette: &'a Palette,
}

impl Drawer<'_> {
    fn by_row(&self) -> Figure {
        let heading = self
            .grid
            .results
            .down
            .as_ref()
            .map_or_else(String::new, |axis| format!("by {}", axis.label));
        let panels = (0..self.grid.rows())
            .filter(|row| !self.grid.is_free(*row))
            .map(|row| self.row_panel(row))
            .collect();
        let mut legend: Vec<Entry> = self
            .grid
            .programs()
            .map(|(index, program)| Entry {
                key: format!("p{index}"),
                label: program.label.clone(),
                look: self.program_look(index, false),
            })
            .collect();
        self.add_paper(&mut legend);
        self.figure(Split::Rows, heading, legend, panels)
    }

    fn by_program(&self) -> Figure {
        let panels = self
            .grid
            .programs()
            .map(|(index, program)| self.program_panel(index, &program.label))
            .collect();
        let mut legend: Vec<Entry> = (0..self.grid.rows())
            .map(|row| Entry {
                key: format!("r{row}"),
                label: self.row_name(row),
                look: self.row_look(row, false),
            })
            .collect();
        self.add_paper(&mut legend);
        self.figure(Split::Programs, "by program".to_owned(), legend, panels)
    }

    fn figure(
        &self,
        split: Split,
        heading: String,
        legend: Vec<Entry>,
        mut panels: Vec<Panel>,
    ) -> Figure {
        panels.retain(|panel| !panel.series.is_empty());
        if let [only] = panels.as_mut_slice() {
            only.title.clear();
        }
        let values = extremes(&panels);
        // Charts that compare programs are read point by point, so small values must show; those by
        // program have the shape that papers draw, from zero.
        let y = match split {
            Split::Rows => Vertical::fitting(&values),
            Split::Programs => Vertical::linear(&values),
        };
        let unit = &self.grid.results.unit;
        let logarithmic = if y.logarithmic { " (logarithmic)" } else { "" };
        let across = &self.grid.results.across;
        Figure {
            split,
            heading,
            legend,
            panels,
            x: Horizontal {
                name: grid::axis_name(across),
                values: across.values.clone(),
                logarithmic: across.logarithmic,
            },
            unit: format!("{unit}{logarithmic}"),
            y,
        }
    }

    fn row_panel(&self, row: usize) -> Panel {
        let mut series = Vec::new();
        if self.grid.one_publication {
            series.extend(self.published_of_row(row));
        } else {
            for (program, _) in self.grid.programs() {
                let keys = format!("p{program} {PAPER}");
                let look = self.program_look(program, true);
                series.extend(self.published_of_program(program, row, keys, look));
            }
        }
        // The first program is the one that matters most: it is drawn last, on top.
        for (program, named) in self.grid.programs().collect::<Vec<_>>().into_iter().rev() {
            let look = self.program_look(program, false);
            let keys = format!("p{program}");
            let row = self.grid.counterpart(program, row);
            series.extend(self.measured(program, row, keys, named.label.clone(), look));
        }
        Panel {
            title: self.row_name(row),
            series,
        }
    }

    fn program_panel(&self, program: usize, title: &str) -> Panel {
        let mut series = Vec::new();
        for row in 0..self.grid.rows() {
            let look = self.row_look(row, true);
            let keys = format!("r{row} {PAPER}");
            series.extend(self.published_of_program(program, row, keys, look));
        }
        for row in 0..self.grid.rows() {
            let look = self.row_look(row, false);
            series.extend(self.measured(program, row, format!("r{row}"), self.row_name(row), look));
        }
        Panel {
            title: title.to_owned(),
            series,
        }
    }

    fn measured(
        &self,
        program: usize,
        row: usize,
        keys: String,
        label: String,
        look: Look,
    ) -> Option<Series> {
        let points: Vec<Option<Point>> = (0..self.grid.columns())
            .map(|column| {
                let cell = self.grid.cell(program, row, column)?;
                let value = self.grid.median(program, row, column);
                if value.is_none() && cell.samples.is_empty() {
                    return None;
                }
                Some(Point {
                    value,
                    half_width: cell
                        .half_width
                        .filter(|half| half.is_finite() && *half > 0.0),
                    tip: tip::measured(
                        self.grid,
                        Place {
                            program,
                            row,
                            column,
                        },
                        cell,
                    ),
                })
            })
            .collect();
        let any = points.iter().any(Option::is_some);
        any.then_some(Series {
            keys,
            label,
            look,
            points,
        })
    }

    fn published_of_row(&self, row: usize) -> Option<Series> {
        let look = Look {
            colour: PAPER.to_owned(),
            marker: 0,
            published: true,
        };
        let value = |column| self.grid.published(row, column);
        let label = &self.grid.results.reference;
        self.published(row, PAPER.to_owned(), look, label, value)
    }

    fn published_of_program(
        &self,
        program: usize,
        row: usize,
        keys: String,
        look: Look,
    ) -> Option<Series> {
        let named = self.grid.results.programs.get(program)?;
        let label = format!("{}, {}", self.grid.results.reference, named.label);
        self.published(row, keys, look, &label, |column| {
            self.grid.paper(program, row, column)
        })
    }

    fn published(
        &self,
        row: usize,
        keys: String,
        look: Look,
        label: &str,
        value: impl Fn(usize) -> Option<f64>,
    ) -> Option<Series> {
        let points: Vec<Option<Point>> = (0..self.grid.columns())
            .map(|column| {
                let value = value(column)?;
                let tip = tip::published(self.grid, label, row, column, value);
                Some(Point {
                    value: Some(value),
                    half_width: None,
                    tip,
                })
            })
            .collect();
        let any = points.iter().any(Option::is_some);
        any.then(|| Series {
            keys,
            label: label.to_owned(),
            look,
            points,
        })
    }

    fn row_name(&self, row: usize) -> String {
        let down = self.grid.results.down.as_ref();
        down.map_or_else(String::new, |axis| grid::value_name(axis, row))
    }

    fn program_look(&self, program: usize, published: bool) -> Look {
        let key = self
            .grid
            .results
            .programs
            .get(program)
            .map_or("", |program| &program.key);
        Look {
            colour: self.palette.colour(key),
            marker: self.palette.marker(key),
            published,
        }
    }

    fn row_look(&self, row: usize, published: bool) -> Look {
        let step = theme::ramp(row, self.grid.rows());
        Look {
            colour: format!("r{step}"),
            marker: row % svg::MARKERS,
            published,
        }
    }

    fn add_paper(&self, legend: &mut Vec<Entry>) {
        if self.grid.has_paper() {
            legend.push(Entry {
                key: PAPER.to_owned(),
                label: self.grid.results.reference.clone(),
                look: Look {
                    colour: PAPER.to_owned(),
                    marker: 0,
                    published: true,
                },
            });
        }
    }
}

/// Values that the vertical axis must have room for: every value, and error bars as far as they do not
/// make the values themselves small.
fn extremes(panels: &[Panel]) -> Vec<f64> {
    let points: Vec<&Point> = panels
        .iter()
        .flat_map(|panel| &panel.series)
        .flat_map(|series| series.points.iter().flatten())
        .collect();
    let highest = points
        .iter()
        .filter_map(|point| point.value)
        .fold(0.0, f64::max);
    let bar = |point: &&Point| {
        let end = point.value? + point.half_width?;
        Some(end.min(highest * 1.15))
    };
    let values = points.iter().filter_map(|point| point.value);
    values.chain(points.iter().filter_map(bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::Results;

    fn figures(results: &Results) -> Vec<Figure> {
        all(&Grid::of(results), &Palette::default())
    }

    #[test]
    fn a_table_of_programs_is_drawn_by_row_and_by_program() {
        let results = samples::two_by_two();
        let drawn = figures(&results);
        let shapes: Vec<(Split, usize)> = drawn
            .iter()
            .map(|figure| (figure.split, figure.panels.len()))
            .collect();
        assert_eq!(shapes, [(Split::Rows, 2), (Split::Programs, 2)]);
        assert_eq!(drawn[0].panels[1].title, "parallel streams 8");
        let labels: Vec<&str> = drawn[0].panels[0]
            .series
            .iter()
            .map(|series| series.label.as_str())
            .collect();
        assert_eq!(labels, ["published", "globus-url-copy", "longhaul"]);
        assert_eq!(drawn[0].y.marks.last(), Some(&1000.0));
    }

    #[test]
    fn a_program_that_chooses_is_in_every_chart_that_compares() {
        let results = samples::with_auto();
        let drawn = figures(&results);
        assert_eq!(drawn[0].panels.len(), 2);
        for panel in &drawn[0].panels {
            let auto = &panel.series[1];
            assert_eq!(auto.label, "longhaul, which chooses");
            assert_eq!(auto.points[0].as_ref().unwrap().value, Some(900.0));
        }
        assert_eq!(drawn[1].panels.len(), 3);
        assert_eq!(drawn[1].panels[2].series.len(), 1);
    }

    #[test]
    fn without_an_axis_down_there_is_one_chart() {
        let mut results = samples::two_by_two();
        results.down = None;
        let drawn = figures(&results);
        assert_eq!(drawn.len(), 1);
        assert!(drawn[0].is_single() && drawn[0].panels[0].title.is_empty());
    }

    #[test]
    fn one_program_is_one_chart_of_rows() {
        let mut results = samples::two_by_two();
        results.programs.truncate(1);
        let drawn = figures(&results);
        assert_eq!((drawn.len(), drawn[0].split), (1, Split::Programs));
        assert!(drawn[0].is_single());
    }

    #[test]
    fn a_paper_with_a_value_for_each_program_has_a_line_for_each() {
        let mut results = samples::two_by_two();
        results.cells[0].paper = Some(1.0);
        let drawn = figures(&results);
        let published: Vec<(&str, &str)> = drawn[0].panels[0]
            .series
            .iter()
            .filter(|series| series.look.published)
            .map(|series| (series.keys.as_str(), series.label.as_str()))
            .collect();
        assert_eq!(
            published,
            [
                ("p0 paper", "published, longhaul"),
                ("p1 paper", "published, globus-url-copy")
            ]
        );
    }

    #[test]
    fn a_failed_measurement_is_a_point_without_a_value() {
        let mut results = samples::two_by_two();
        results.cells[0].median = None;
        for run in &mut results.cells[0].samples {
            run.value = None;
            run.invalid = vec!["exit code 5".to_owned()];
        }
        let drawn = figures(&results);
        let point = drawn[0].panels[0].series[2].points[0].as_ref().unwrap();
        assert_eq!(point.value, None);
        assert!(
            point.tip.contains("failed") && point.tip.contains("exit code 5"),
            "{}",
            point.tip
        );
        results.cells[0].samples.clear();
        assert!(figures(&results)[0].panels[0].series[2].points[0].is_none());
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        let mut results = samples::two_by_two();
        results.cells.clear();
        assert!(figures(&results).is_empty());
        results.across.values.clear();
        results.down.as_mut().unwrap().values.clear();
        results.programs.clear();
        assert!(figures(&results).is_empty());
    }
}
