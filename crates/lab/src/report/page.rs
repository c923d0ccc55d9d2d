//! The page: summary, contents, and a section for each experiment. It needs nothing but itself.

use super::figure::{Entry, Figure};
use super::grid::Grid;
use super::load::Loaded;
use super::markup::Markup;
use super::summary::{self, Statement, Summary};
use super::theme::{self, Palette};
use super::{Skipped, chart, index, number, origin, strip, table, timeline};
use crate::experiment::results::{self, Results};

/// Layout and looks of everything but charts.
const STYLE: &str = include_str!("style.css");

/// Tips, legend switches, the theme switch; the page is complete without.
const SCRIPT: &str = include_str!("script.js");

/// The page may load nothing from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// An experiment with what is drawn from it.
#[derive(Debug)]
pub(super) struct Section<'a> {
    /// Where it comes from.
    pub(super) loaded: &'a Loaded,
    /// Its measures: what it is about, then what was measured beside.
    pub(super) parts: Vec<Part<'a>>,
}

/// One measure of an experiment.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Begins the names of its files and its anchors.
    pub(super) name: String,
    /// The measure; empty for the first, which has the experiment's title.
    pub(super) heading: String,
    /// Its cells.
    pub(super) grid: Grid<'a>,
    /// Its figures, with the names of their SVG files.
    pub(super) figures: Vec<(Figure, String)>,
    /// The name of its CSV file.
    pub(super) csv: String,
}

impl<'a> Section<'a> {
    /// The cells of what the experiment is about.
    fn grid(&self) -> Option<&Grid<'a>> {
        self.parts.first().map(|part| &part.grid)
    }
}

/// The page's text.
pub(super) fn write(sections: &[Section<'_>], palette: &Palette, skipped: &[Skipped]) -> String {
    let mut markup = Markup::default();
    markup.trusted("<!DOCTYPE html>\n");
    markup.element("html", &[("lang", "en")], |html| {
        html.element("head", &[], head);
        html.trusted("\n");
        html.element("body", &[], |body| {
            body.leaf(
                "a",
                &[("class", "skip"), ("href", "#summary")],
                "Skip to the summary",
            );
            body.element("header", &[("class", "top")], |header| {
                header.leaf("h1", &[], "longhaul lab");
                header.leaf("p", &[], &subtitle(sections));
            });
            body.element("div", &[("class", "columns")], |columns| {
                contents(columns, sections);
                columns.element("main", &[], |main| {
                    overview(main, sections, skipped);
                    sections
                        .iter()
                        .for_each(|section| experiment(main, section, palette));
                });
            });
            body.element("script", &[], |script| script.trusted(SCRIPT));
        });
    });
    markup.trusted("\n");
    markup.finish()
}

fn head(markup: &mut Markup) {
    markup.void("meta", &[("charset", "utf-8")]);
    markup.void(
        "meta",
        &[
            ("http-equiv", "Content-Security-Policy"),
            ("content", POLICY),
        ],
    );
    let viewport = "width=device-width, initial-scale=1";
    markup.void("meta", &[("name", "viewport"), ("content", viewport)]);
    markup.void(
        "meta",
        &[("name", "color-scheme"), ("content", "light dark")],
    );
    markup.void("link", &[("rel", "icon"), ("href", "data:,")]);
    markup.leaf("title", &[], "longhaul lab: tables and figures");
    markup.element("style", &[], |style| {
        style.trusted(&theme::page_style());
        style.trusted(STYLE);
    });
}

fn subtitle(sections: &[Section<'_>]) -> String {
    let experiments = number::count(sections.len(), "experiment");
    format!("{experiments}, each beside the published values where there are any")
}

/// An index by paper and figure; what reproduces none is under its own heading.
fn contents(markup: &mut Markup, sections: &[Section<'_>]) {
    markup.element("nav", &[("aria-label", "Contents")], |nav| {
        nav.element("p", &[], |line| {
            line.leaf("a", &[("href", "#summary")], "Summary");
        });
        for paper in index::by_paper(sections.iter().map(|section| section.loaded)) {
            nav.leaf("h2", &[], &paper.name);
            nav.element("ol", &[], |list| {
                for entry in &paper.entries {
                    let Some(section) = sections.get(entry.place) else {
                        continue;
                    };
                    let target = format!("#{}", section.loaded.name);
                    list.element("li", &[], |item| {
                        item.element("a", &[("href", &target)], |link| {
                            link.leaf("b", &[], &entry.figure);
                            link.leaf("span", &[], &section.loaded.results.title);
                        });
                    });
                }
            });
        }
    });
}

fn overview(markup: &mut Markup, sections: &[Section<'_>], skipped: &[Skipped]) {
    markup.element("section", &[("id", "summary")], |section| {
        section.leaf("h2", &[], "Summary");
        section.leaf(
            "p",
            &[("class", "quiet")],
            "A ratio is taken at each point of a sweep, between medians; the figure is the median of \
             these ratios. The strips run from \u{d7}0.1 to \u{d7}10 with a mark at \u{d7}1: thin for all points, \
             thick for half of them, a dot for the median. Runs that the lab marked invalid count \
             nowhere.",
        );
        section.element("ol", &[("class", "summary")], |list| {
            sections.iter().for_each(|one| line(list, one));
        });
        if !skipped.is_empty() {
            section.leaf("p", &[], "Left out of this report:");
            section.element("ul", &[], |list| {
                skipped.iter().for_each(|one| list.leaf("li", &[], &one.to_string()));
            });
        }
    });
}

fn line(markup: &mut Markup, section: &Section<'_>) {
    let results = &section.loaded.results;
    let Some(grid) = section.grid() else {
        return;
    };
    let Summary {
        papers,
        peers,
        coverage,
    } = summary::of(grid);
    markup.element("li", &[], |item| {
        item.element("div", &[("class", "which")], |which| {
            let target = format!("#{}", section.loaded.name);
            which.leaf("a", &[("href", &target)], &section.loaded.label());
            which.leaf("span", &[], &results.title);
            which.leaf("small", &[], &coverage);
        });
        statements(item, &papers, "nothing to compare with");
        statements(item, &peers, "no peer to compare with");
    });
}

fn statements(markup: &mut Markup, statements: &[Statement], none: &str) {
    markup.element("div", &[("class", "statements")], |list| {
        if statements.is_empty() {
            list.leaf("p", &[("class", "quiet")], none);
        }
        for statement in statements {
            list.element("p", &[], |line| {
                line.leaf("b", &[], &statement.figure);
                line.leaf("span", &[], &statement.what);
                if statement.spread.points > 1 {
                    strip::draw(line, &statement.spread);
                }
                line.leaf("small", &[], &statement.detail);
            });
        }
    });
}

fn experiment(markup: &mut Markup, section: &Section<'_>, palette: &Palette) {
    let results = &section.loaded.results;
    let name = &section.loaded.name;
    markup.trusted("\n");
    markup.element(
        "section",
        &[("id", name), ("class", "experiment")],
        |part| {
            part.element("h2", &[], |heading| {
                heading.text(&results.title);
                heading.text(" ");
                heading.leaf("span", &[], &section.loaded.label());
            });
            about(part, results);
            for measured in &section.parts {
                measure(part, measured);
            }
            for (index, timeline) in section
                .grid()
                .iter()
                .flat_map(|g| timeline::all(g, palette))
                .enumerate()
            {
                timeline.write(part, &format!("{name}-time-{index}"));
            }
            notes(part, section);
            machine(part, results, palette);
        },
    );
}

/// Figures and table of one measure.
fn measure(markup: &mut Markup, measured: &Part<'_>) {
    let name = &measured.name;
    if !measured.heading.is_empty() {
        markup.leaf("h3", &[("id", name)], &capitalised(&measured.heading));
    }
    markup.element("div", &[("class", "views")], |views| {
        for (figure, file) in &measured.figures {
            view(views, figure, name, file);
        }
    });
    if measured.figures.is_empty() {
        let nothing = "There is no value to draw.";
        markup.leaf("p", &[("class", "quiet")], nothing);
    }
    table::write(markup, &measured.grid, &format!("{name}-table"));
    markup.element("p", &[("class", "files")], |files| {
        files.leaf("a", &[("href", &measured.csv)], "This table as CSV");
    });
}

fn about(markup: &mut Markup, results: &Results) {
    if !results.source.is_empty() {
        markup.leaf(
            "p",
            &[("class", "source")],
            &match results.reference.as_str() {
                results::PUBLISHED => format!("Published values: {}", results.source),
                other => format!("Values called '{other}': {}", results.source),
            },
        );
    }
    let took = number::duration(results.seconds);
    let origin = format!("{}; took {took}", origin::line(results));
    markup.leaf("p", &[("class", "quiet")], &origin);
    markup.element("p", &[("class", "rerun")], |line| {
        line.leaf("span", &[], "Run it again: ");
        line.leaf("code", &[], &origin::command(results));
    });
}

fn view(markup: &mut Markup, figure: &Figure, name: &str, file: &str) {
    let attributes = [("class", "view"), ("data-split", figure.split.name())];
    markup.element("figure", &attributes, |view| {
        if !figure.heading.is_empty() {
            view.leaf("figcaption", &[], &capitalised(&figure.heading));
        }
        legend(view, &figure.legend);
        let class = if figure.is_single() {
            "panels single"
        } else {
            "panels"
        };
        view.element("div", &[("class", class)], |panels| {
            for (index, panel) in figure.panels.iter().enumerate() {
                let id = format!("{name}-{}-{index}", figure.split.name());
                if figure.is_single() {
                    // Letters keep their size on a phone because the chart is drawn for it.
                    let (wide, narrow) = (chart::size(figure), chart::phone_size(figure));
                    chart::inline(panels, figure, panel, wide, &id, "chart wide");
                    let id = format!("{id}-small");
                    chart::inline(panels, figure, panel, narrow, &id, "chart narrow");
                } else {
                    chart::inline(panels, figure, panel, chart::size(figure), &id, "chart");
                }
                panels.trusted("\n");
            }
        });
        view.element("p", &[("class", "files")], |files| {
            files.leaf("a", &[("href", file)], "This figure as SVG");
        });
    });
}

fn legend(markup: &mut Markup, entries: &[Entry]) {
    markup.element(
        "ul",
        &[("class", "legend"), ("aria-label", "Legend")],
        |list| {
            for entry in entries {
                list.element("li", &[("data-key", &entry.key)], |item| {
                    let attributes = [("viewBox", "0 0 28 14"), ("aria-hidden", "true")];
                    item.element("svg", &attributes, |svg| chart::swatch(svg, &entry.look));
                    item.leaf("span", &[], &entry.label);
                });
            }
        },
    );
}

fn notes(markup: &mut Markup, section: &Section<'_>) {
    let mut notes = section.loaded.results.notes.clone();
    let strays = section.grid().map_or(0, |grid| grid.strays);
    if strays > 0 {
        let cells = number::count(strays, "cell");
        notes.push(format!(
            "{cells} of the results file fit no point of the sweep, or come twice."
        ));
    }
    if !notes.is_empty() {
        markup.element("ul", &[("class", "notes")], |list| {
            notes.iter().for_each(|note| list.leaf("li", &[], note));
        });
    }
}

fn machine(markup: &mut Markup, results: &Results, palette: &Palette) {
    let environment = &results.environment;
    markup.element("details", &[], |details| {
        details.leaf("summary", &[], "Programs and settings");
        details.element("dl", &[], |list| {
            for program in &results.programs {
                let class = palette.colour(&program.key);
                let version = environment.versions.get(&program.key);
                list.leaf("dt", &[("class", &class)], &program.label);
                list.leaf("dd", &[], version.map_or("version unknown", String::as_str));
            }
            let known = |key: &&String| results.programs.iter().any(|program| program.key == **key);
            for (key, version) in environment.versions.iter().filter(|(key, _)| !known(key)) {
                list.leaf("dt", &[], key);
                list.leaf("dd", &[], version);
            }
        });
        if !environment.sysctls.is_empty() {
            details.element("pre", &[("tabindex", "0")], |text| {
                for (key, value) in &environment.sysctls {
                    text.text(&format!("{key} = {value}\n"));
                }
            });
        }
    });
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{plan, samples};
    use super::*;

    fn page(results: Results) -> String {
        let loaded = [Loaded::new("one".to_owned(), results)];
        let palette = Palette::of(&loaded);
        let skipped = [Skipped {
            file: PathBuf::from("x<y>.json"),
            why: "no results".to_owned(),
        }];
        write(&plan(&loaded, &palette), &palette, &skipped)
    }

    #[test]
    fn the_page_has_everything_and_loads_nothing() {
        let page = page(samples::two_by_two());
        for text in [
            "Parallel streams against latency",
            "Published values: BBC WHP 178, table 5.1",
            "longhaul lab run bbc-5.1 --quick --seed 7",
            "took 12 min 4 s",
            "globus-url-copy / published",
            "href=\"one.svg\"",
            "href=\"one-table.csv\"",
            "x&lt;y&gt;.json: no results",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"));
        assert_eq!(page.matches("class=\"chart\"").count(), 4);
    }

    #[test]
    fn what_was_measured_beside_and_over_time_is_on_the_page() {
        let page = page(samples::with_more());
        assert!(page.contains("<h3 id=\"one-seconds\">Time</h3>"));
        assert!(page.contains("href=\"one-seconds-table.csv\""));
        assert!(page.contains("Window and flight size over time"));
        assert_eq!(page.matches("class=\"chart\"").count(), 9);
        let ids: Vec<&str> = page.split(" id=\"").skip(1).collect();
        let mut names: Vec<&str> = ids.iter().filter_map(|id| id.split('"').next()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "every id once");
    }

    #[test]
    fn no_string_of_the_results_becomes_markup() {
        let evil = "</script><img src=x onerror=alert(1)>\"'".to_owned();
        let mut results = samples::two_by_two();
        results.experiment.clone_from(&evil);
        results.title.clone_from(&evil);
        results.source.clone_from(&evil);
        results.mode.clone_from(&evil);
        results.started.clone_from(&evil);
        results.unit.clone_from(&evil);
        results.environment.kernel.clone_from(&evil);
        results
            .environment
            .versions
            .insert(evil.clone(), evil.clone());
        results
            .environment
            .sysctls
            .insert(evil.clone(), evil.clone());
        results.notes.push(evil.clone());
        results.programs[0].label.clone_from(&evil);
        results.across.label.clone_from(&evil);
        results.across.unit.clone_from(&evil);
        results.cells[0].samples[0].invalid.push(evil.clone());
        results.cells[0].samples[0].limited_by = Some(evil);
        let page = page(results);
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
