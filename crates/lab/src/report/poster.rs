//! A figure as an SVG file: heading, origin of the results, legend, and the charts in a grid.

use maud::{PreEscaped, html};

use super::chart::{LABEL, LARGE, TITLE, accessible_name, draw, size, swatch};
use super::figure::{ChartPanel, Figure};
use super::shapes::{px, text_width, truncated};
use super::{text, theme};
use crate::experiment::results::ExperimentResults;

/// Space around and between charts, in SVG user units.
const MARGIN: f64 = 16.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 22.0;

/// Writes the text of the SVG file.
pub(super) fn svg(results: &ExperimentResults, figure: &Figure) -> String {
    let layout = PosterLayout::of(figure);
    let (width, height) = (px(layout.size.0), px(layout.size.1));
    let heading = match figure.heading.as_str() {
        "" => results.title.clone(),
        heading => format!("{}, {heading}", results.title),
    };
    let source = match results.source.as_str() {
        "" => String::new(),
        source => format!("{source}; "),
    };
    let about = format!("{source}{}", text::describe_origin(results));
    let sentence =
        |panel: &ChartPanel| format!("{}. {}", accessible_name(panel), panel.description);
    let description: Vec<String> = figure.panels.iter().map(sentence).collect();
    let room = layout.size.0 - MARGIN * 2.0;
    let at = |(x, y): &(f64, f64)| format!("translate({} {})", px(*x), px(*y));
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) role="img"
            aria-labelledby="title" aria-describedby="description" {
            title id="title" { (heading) }
            desc id="description" { (description.join(" ")) }
            style { (PreEscaped(theme::file_style())) }
            rect class="c-page" width=(width) height=(height) {}
            text class="c-heading" x=(px(MARGIN)) y="32" { (truncated(&heading, 18.0, room)) }
            text class="c-source" x=(px(MARGIN)) y="52" { (truncated(&about, LABEL, room)) }
            @for (entry, place) in figure.legend.iter().zip(&layout.legend) {
                g transform=(at(place)) {
                    (swatch(&entry.style))
                    text class="c-title c-legend" x="36" y="11" { (entry.label) }
                }
            }
            @for (panel, place) in figure.panels.iter().zip(&layout.panels) {
                g transform=(at(place)) { (draw(panel, layout.panel)) }
            }
        }
    };
    let svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n",
        svg.into_string()
    );
    // XML 1.0 (section 2.2) forbids these characters, even escaped: a reader would reject the whole file.
    let forbidden =
        |c: char| c.is_control() && !"\t\n\r".contains(c) || "\u{fffe}\u{ffff}".contains(c);
    svg.replace(forbidden, "\u{fffd}")
}

/// The layout of an SVG file: sizes, and the top left corners of its parts.
struct PosterLayout {
    size: (f64, f64),
    panel: (f64, f64),
    legend: Vec<(f64, f64)>,
    panels: Vec<(f64, f64)>,
}

impl PosterLayout {
    fn of(figure: &Figure) -> Self {
        let (panel, columns): (_, u32) = match figure.panels.len() {
            0 | 1 => (LARGE, 1),
            2 | 4 => (size(figure), 2),
            _ => (size(figure), 3),
        };
        let width = MARGIN + (panel.0 + MARGIN) * f64::from(columns);
        let (mut x, mut y) = (MARGIN, 68.0);
        let mut legend = Vec::new();
        for entry in &figure.legend {
            let needs = 36.0 + text_width(&entry.label, TITLE) + 18.0;
            if x > MARGIN && x + needs > width - MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            legend.push((x, y));
            x += needs;
        }
        let top = y + LEGEND_LINE + 8.0;
        let place = |index: u32| {
            let (row, column) = (f64::from(index / columns), f64::from(index % columns));
            (
                MARGIN + column * (panel.0 + MARGIN),
                top + row * (panel.1 + MARGIN),
            )
        };
        let panels: Vec<(f64, f64)> = (0..).map(place).take(figure.panels.len()).collect();
        let bottom = panels.last().map_or(top, |(_, y)| *y);
        Self {
            size: (width, bottom + panel.1 + MARGIN),
            panel,
            legend,
            panels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::ResultGrid;
    use super::super::theme::Palette;
    use super::super::{figure, samples};
    use super::*;

    fn figures(results: &ExperimentResults) -> Vec<Figure> {
        figure::sweeps(&ResultGrid::of(results), &Palette::default(), "a")
    }

    #[test]
    fn an_svg_file_is_self_contained_and_its_parts_are_inside() {
        let mut results = samples::two_by_two();
        results.unit = "Mbit\u{0}/s".to_owned();
        for number in 0..9 {
            let mut program = results.programs[1].clone();
            program.key = format!("peer{number}");
            program.label = format!("a peer with a rather long name, number {number}");
            results.programs.push(program);
        }
        for figure in figures(&results) {
            let text = svg(&results, &figure);
            assert!(text.starts_with("<?xml") && text.contains("xmlns=\"http://www.w3.org"));
            assert!(text.contains("Parallel streams against latency, by "));
            assert!(!text.contains("var(") && !text.contains("href") && !text.contains('\0'));
            let layout = PosterLayout::of(&figure);
            assert!(
                layout
                    .legend
                    .iter()
                    .all(|(x, _)| *x < layout.size.0 - MARGIN)
            );
            for (x, y) in &layout.panels {
                assert!(x + layout.panel.0 <= layout.size.0 && y + layout.panel.1 <= layout.size.1);
                assert!(
                    layout
                        .legend
                        .iter()
                        .all(|(_, line)| line + LEGEND_LINE <= y + 0.01)
                );
            }
        }
    }
}
