//! A figure as data: charts, lines, points, legend. [`lines`](super::lines) fills it,
//! [`chart`](super::chart) draws it.

use super::scale::Vertical;

/// One drawn figure: a chart or several with the same axes.
#[derive(Debug)]
pub(super) struct Figure {
    /// The difference between the charts.
    pub(super) split: Split,
    /// Title of a chart: `by parallel streams`.
    pub(super) heading: String,
    /// Lines and their names, in the order of the legend.
    pub(super) legend: Vec<Entry>,
    /// The charts.
    pub(super) panels: Vec<Panel>,
    /// The horizontal axis, the same in all.
    pub(super) x: Horizontal,
    /// Unit of the measure.
    pub(super) unit: String,
    /// The vertical axis, the same in all.
    pub(super) y: Vertical,
}

/// The difference between the charts of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// One chart for each row; its lines are the programs.
    Rows,
    /// One chart for each program; its lines are the rows.
    Programs,
}

impl Split {
    /// For file names and anchors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Programs => "programs",
        }
    }
}

/// The horizontal axis.
#[derive(Debug)]
pub(super) struct Horizontal {
    /// Name with unit.
    pub(super) name: String,
    /// Values as written in the experiment.
    pub(super) values: Vec<String>,
    /// Drawn logarithmic.
    pub(super) logarithmic: bool,
}

/// How a line looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// CSS class of its colour.
    pub(super) colour: String,
    /// Number of its marker.
    pub(super) marker: usize,
    /// Dashed, with hollow markers: published, not measured.
    pub(super) published: bool,
}

/// A line of the legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Series that have this key among theirs are hidden with it.
    pub(super) key: String,
    /// For people.
    pub(super) label: String,
    /// How its lines look.
    pub(super) look: Look,
}

/// One chart.
#[derive(Debug)]
pub(super) struct Panel {
    /// Heading; empty if there is one chart only.
    pub(super) title: String,
    /// Lines, those behind first.
    pub(super) series: Vec<Series>,
}

/// One line.
#[derive(Debug)]
pub(super) struct Series {
    /// Keys of the legend's entries that it belongs to, separated by spaces.
    pub(super) keys: String,
    /// For people.
    pub(super) label: String,
    /// How it looks.
    pub(super) look: Look,
    /// One for each value of the horizontal axis.
    pub(super) points: Vec<Option<Point>>,
}

/// One point.
#[derive(Debug)]
pub(super) struct Point {
    /// Its value; `None`: the measurement failed.
    pub(super) value: Option<f64>,
    /// Half-width of its interval.
    pub(super) half_width: Option<f64>,
    /// Facts for the reader, one a line.
    pub(super) tip: String,
}

impl Figure {
    /// There is only one chart, which may be large.
    pub(super) fn is_single(&self) -> bool {
        self.panels.len() == 1
    }
}
