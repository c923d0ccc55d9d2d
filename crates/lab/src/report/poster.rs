//! A figure as an SVG file: heading, legend, charts side by side, and where it comes from.

use super::chart::{self, Size};
use super::figure::{Entry, Figure};
use super::markup::Markup;
use super::number::coordinate;
use super::{origin, svg, theme};
use crate::experiment::results::Results;

/// Space around everything.
const MARGIN: f64 = 16.0;

/// Space between charts.
const GAP: f64 = 16.0;

/// Height of one line of the legend.
const LEGEND_LINE: f64 = 22.0;

/// Size of the legend's letters, as in the style sheet.
const LEGEND_LETTERS: f64 = 13.0;

/// The file's text.
pub(super) fn file(results: &Results, figure: &Figure) -> String {
    let plan = Plan::of(figure);
    let view = format!(
        "0 0 {} {}",
        coordinate(plan.size.width),
        coordinate(plan.size.height)
    );
    let (width, height) = (coordinate(plan.size.width), coordinate(plan.size.height));
    let attributes = [
        ("xmlns", "http://www.w3.org/2000/svg"),
        ("width", width.as_str()),
        ("height", height.as_str()),
        ("viewBox", view.as_str()),
        ("role", "img"),
        ("aria-labelledby", "title"),
        ("aria-describedby", "description"),
    ];
    let mut markup = Markup::default();
    markup.trusted("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    markup.element("svg", &attributes, |svg| {
        svg.leaf("title", &[("id", "title")], &heading(results, figure));
        svg.leaf("desc", &[("id", "description")], &description(figure));
        svg.element("style", &[], |style| style.trusted(&theme::file_style()));
        let page = [
            ("class", "c-page"),
            ("width", width.as_str()),
            ("height", height.as_str()),
        ];
        svg.void("rect", &page);
        header(svg, results, figure, &plan);
        for (entry, (x, y)) in figure.legend.iter().zip(&plan.legend) {
            legend_entry(svg, entry, *x, *y);
        }
        for (panel, (x, y)) in figure.panels.iter().zip(&plan.panels) {
            at(svg, *x, *y, |group| {
                chart::draw(group, figure, panel, plan.panel);
            });
        }
    });
    markup.trusted("\n");
    markup.finish()
}

/// Where everything goes.
struct Plan {
    size: Size,
    panel: Size,
    legend: Vec<(f64, f64)>,
    panels: Vec<(f64, f64)>,
}

impl Plan {
    fn of(figure: &Figure) -> Self {
        let panel = chart::size(figure);
        let columns = columns(figure.panels.len());
        let across = f64::from(columns);
        let width = MARGIN * 2.0 + panel.width * across + GAP * (across - 1.0);
        let (legend, legend_end) = legend_places(&figure.legend, width);
        let mut panels = Vec::new();
        let (mut x, mut y, mut column) = (MARGIN, legend_end + 8.0, 0);
        for _ in &figure.panels {
            if column == columns {
                (x, column) = (MARGIN, 0);
                y += panel.height + GAP;
            }
            panels.push((x, y));
            x += panel.width + GAP;
            column += 1;
        }
        let size = Size {
            width,
            height: y + panel.height + MARGIN,
        };
        Self {
            size,
            panel,
            legend,
            panels,
        }
    }
}

/// How many charts stand side by side.
fn columns(charts: usize) -> u32 {
    match charts {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    }
}

/// Top left corners of the legend's entries, in as many lines as they need, and where they end.
fn legend_places(legend: &[Entry], width: f64) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y) = (MARGIN, 68.0);
    let mut places = Vec::new();
    for entry in legend {
        let needs = 36.0 + svg::text_width(&entry.label, LEGEND_LETTERS) + 18.0;
        if x > MARGIN && x + needs > width - MARGIN {
            x = MARGIN;
            y += LEGEND_LINE;
        }
        places.push((x, y));
        x += needs;
    }
    (places, y + LEGEND_LINE)
}

fn header(markup: &mut Markup, results: &Results, figure: &Figure, plan: &Plan) {
    let room = plan.size.width - MARGIN * 2.0;
    let x = coordinate(MARGIN);
    let title = svg::fitted(&heading(results, figure), 18.0, room);
    markup.leaf(
        "text",
        &[("class", "c-heading"), ("x", &x), ("y", "32")],
        &title,
    );
    let mut about = origin::line(results);
    if !results.source.is_empty() {
        about = format!("{}; {about}", results.source);
    }
    let about = svg::fitted(&about, 12.0, room);
    markup.leaf(
        "text",
        &[("class", "c-source"), ("x", &x), ("y", "52")],
        &about,
    );
}

fn heading(results: &Results, figure: &Figure) -> String {
    if figure.heading.is_empty() {
        results.title.clone()
    } else {
        format!("{}, {}", results.title, figure.heading)
    }
}

fn description(figure: &Figure) -> String {
    let parts: Vec<String> = figure
        .panels
        .iter()
        .map(|panel| {
            format!(
                "{}. {}",
                chart::name(figure, panel),
                chart::describe(figure, panel)
            )
        })
        .collect();
    parts.join(" ")
}

fn legend_entry(markup: &mut Markup, entry: &Entry, x: f64, y: f64) {
    at(markup, x, y, |group| {
        chart::swatch(group, &entry.look);
        group.leaf(
            "text",
            &[("class", "c-title c-legend"), ("x", "36"), ("y", "11")],
            &entry.label,
        );
    });
}

fn at(markup: &mut Markup, x: f64, y: f64, fill: impl FnOnce(&mut Markup)) {
    let transform = format!("translate({} {})", coordinate(x), coordinate(y));
    markup.element("g", &[("transform", &transform)], fill);
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::super::theme::Palette;
    use super::super::{lines, samples};
    use super::*;

    #[test]
    fn a_file_stands_alone() {
        let results = samples::two_by_two();
        let figures = lines::all(&Grid::of(&results), &Palette::default());
        let text = file(&results, &figures[0]);
        assert!(text.starts_with("<?xml") && text.contains("xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(text.contains("Parallel streams against latency, by parallel streams"));
        assert!(!text.contains("var(") && !text.contains("href"));
        assert_eq!(text.matches("class=\"c-axis\"").count(), 2);
    }

    #[test]
    fn charts_and_legend_stay_inside_the_file() {
        let mut results = samples::two_by_two();
        for number in 0..9 {
            let mut program = results.programs[1].clone();
            program.key = format!("peer{number}");
            program.label = format!("a peer with a rather long name, number {number}");
            results.programs.push(program);
        }
        let figures = lines::all(&Grid::of(&results), &Palette::default());
        for figure in &figures {
            let plan = Plan::of(figure);
            assert!(
                plan.legend
                    .iter()
                    .all(|(x, _)| *x < plan.size.width - MARGIN)
            );
            for (x, y) in &plan.panels {
                assert!(x + plan.panel.width <= plan.size.width);
                assert!(y + plan.panel.height <= plan.size.height);
                assert!(
                    plan.legend
                        .iter()
                        .all(|(_, line)| line + LEGEND_LINE <= y + 0.01)
                );
            }
        }
    }
}
