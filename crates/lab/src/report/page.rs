//! The page: summary, contents, and a section for each experiment. It loads no other file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::{Figure, FigureKind};
use super::summary::{self, SummaryStatement};
use super::theme::{self, Palette};
use super::{ExperimentSection, MeasureSection, SkippedFile, chart, load, shapes, table, text};
use crate::experiment::results::{ExperimentResults, PUBLISHED};

/// Style sheet of everything except charts.
const STYLE: &str = include_str!("style.css");

/// Script for tooltips, legend buttons and the theme button. The page is complete without it.
const SCRIPT: &str = include_str!("script.js");

/// Content security policy: the page may load nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

/// Explanation of the summary for readers.
const STRIPS: &str = "At each point of a sweep, a ratio of two medians is computed; the number shown is the \
    median of these ratios. The strips run from \u{d7}0.1 to \u{d7}10 with a mark at \u{d7}1: the thin line \
    covers all points, the thick line the middle half of them, the dot is the median. Runs that the lab \
    marked as invalid are not counted.";

/// Writes the HTML of the page.
pub(super) fn write(
    sections: &[ExperimentSection<'_>],
    palette: &Palette,
    skipped: &[SkippedFile],
) -> String {
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { "longhaul lab: tables and figures" }
                style { (PreEscaped(theme::page_style())) (PreEscaped(STYLE)) }
            }
            "\n"
            body {
                a class="skip" href="#summary" { "Skip to the summary" }
                header class="top" {
                    h1 { "longhaul lab" }
                    p {
                        (text::format_count(sections.len(), "experiment"))
                        ", compared with published values where there are any"
                    }
                }
                div class="columns" {
                    (contents(sections))
                    main {
                        (overview(sections, skipped))
                        @for section in sections { "\n" (experiment(section, palette)) }
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
        "\n"
    };
    page.into_string()
}

/// The contents by paper and figure; longhaul's own experiments have a heading of their own.
fn contents(sections: &[ExperimentSection<'_>]) -> Markup {
    html! {
        nav aria-label="Contents" {
            p { a href="#summary" { "Summary" } }
            @for (paper, figures) in load::by_paper(sections.iter().map(|section| section.loaded)) {
                h2 { (paper) }
                ol {
                    @for (figure, index) in figures {
                        @let loaded = sections[index].loaded;
                        li {
                            a href={ "#" (loaded.name) } {
                                b { (figure) }
                                span { (loaded.results.title) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn overview(sections: &[ExperimentSection<'_>], skipped: &[SkippedFile]) -> Markup {
    html! {
        section id="summary" {
            h2 { "Summary" }
            p class="quiet" { (STRIPS) }
            ol class="summary" {
                @for section in sections { (summary_line(section)) }
            }
            @if !skipped.is_empty() {
                p { "Files that are not in this report:" }
                ul { @for one in skipped { li { (one.to_string()) } } }
            }
        }
    }
}

fn summary_line(section: &ExperimentSection<'_>) -> Markup {
    let grid = &section.measures[0].grid;
    html! {
        li {
            div class="which" {
                a href={ "#" (section.loaded.name) } { (section.loaded.label()) }
                span { (section.loaded.results.title) }
                small { (summary::coverage(grid)) }
            }
            (statements(&summary::compare_with_published(grid), "no published values to compare with"))
            (statements(&summary::compare_with_peers(grid), "no other program to compare with"))
        }
    }
}

fn statements(statements: &[SummaryStatement], none: &str) -> Markup {
    html! {
        div class="statements" {
            @if statements.is_empty() { p class="quiet" { (none) } }
            @for statement in statements {
                p {
                    b { (statement.median) }
                    span { (statement.name) }
                    @if statement.spread.points > 1 { (shapes::strip(&statement.spread)) }
                    small { (statement.detail) }
                }
            }
        }
    }
}

fn experiment(section: &ExperimentSection<'_>, palette: &Palette) -> Markup {
    let results = &section.loaded.results;
    let published = match results.reference.as_str() {
        PUBLISHED => format!("Published values: {}", results.source),
        other => format!("Reference values ('{other}'): {}", results.source),
    };
    html! {
        section id=(section.loaded.name) class="experiment" {
            h2 { (results.title) " " span { (section.loaded.label()) } }
            @if !results.source.is_empty() { p class="source" { (published) } }
            p class="quiet" { (text::describe_origin(results)) "; took " (text::format_duration(results.seconds)) }
            p class="rerun" { span { "Command to run it again: " } code { (text::rerun_command(results)) } }
            @for measure in &section.measures { (measure_section(measure)) }
            @for figure in &section.timelines { (view(figure)) }
            (notes(section))
            (machine(results, palette))
        }
    }
}

/// The figures and the table of one measure.
fn measure_section(measure: &MeasureSection<'_>) -> Markup {
    html! {
        @if !measure.heading.is_empty() {
            h3 id=(measure.name) { (text::capitalize(&measure.heading)) }
        }
        div class="views" { @for figure in &measure.figures { (view(figure)) } }
        @if measure.figures.is_empty() { p class="quiet" { "There are no values to draw." } }
        (table::html(&measure.grid, &format!("{}-table", measure.name)))
        p class="files" { a href=(measure.csv) { "This table as CSV" } }
    }
}

fn view(figure: &Figure) -> Markup {
    let over_time = figure.kind == FigureKind::Time;
    let split = (!over_time).then(|| figure.kind.name());
    html! {
        figure class=(if over_time { "view over-time" } else { "view" }) data-split=[split] {
            @if !figure.heading.is_empty() { figcaption { (text::capitalize(&figure.heading)) } }
            (chart::legend(&figure.legend))
            (chart::panels(figure))
            @if !over_time { p class="files" { a href=(figure.file) { "This figure as SVG" } } }
        }
    }
}

fn notes(section: &ExperimentSection<'_>) -> Markup {
    let ignored_cells = section.measures[0].grid.ignored_cells;
    let ignored = (ignored_cells > 0).then(|| {
        let cells = text::format_count(ignored_cells, "cell");
        format!("Ignored {cells} of the results file: not in the sweep, or duplicates.")
    });
    let notes: Vec<&String> = section
        .loaded
        .results
        .notes
        .iter()
        .chain(&ignored)
        .collect();
    html! {
        @if !notes.is_empty() { ul class="notes" { @for note in notes { li { (note) } } } }
    }
}

fn machine(results: &ExperimentResults, palette: &Palette) -> Markup {
    let machine = &results.environment;
    let is_other = |key: &str| !results.programs.iter().any(|program| program.key == key);
    html! {
        details {
            summary { "Program versions and kernel settings" }
            dl {
                @for program in &results.programs {
                    @let version = machine.versions.get(&program.key);
                    dt class=(palette.colour(&program.key)) { (program.label) }
                    dd { (version.map_or("version unknown", String::as_str)) }
                }
                @for (key, version) in machine.versions.iter().filter(|(key, _)| is_other(key)) {
                    dt { (key) }
                    dd { (version) }
                }
            }
            @if !machine.sysctls.is_empty() {
                pre tabindex="0" { @for (key, value) in &machine.sysctls { (key) " = " (value) "\n" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::load::LoadedResults;
    use super::super::{samples, sections};
    use super::*;

    fn page(results: ExperimentResults) -> String {
        let loaded = [LoadedResults::new("one".to_owned(), results)];
        let palette = Palette::of(&loaded);
        let skipped = [SkippedFile {
            file: PathBuf::from("x<y>.json"),
            why: "no results".to_owned(),
        }];
        write(&sections(&loaded, &palette), &palette, &skipped)
    }

    #[test]
    fn the_page_has_all_sections_and_loads_nothing() {
        let page = page(samples::with_more());
        for text in [
            "Parallel streams against latency",
            "Published values: BBC WHP 178, table 5.1",
            "longhaul lab run bbc-5.1 --quick --seed 7",
            "took 12 min 4 s",
            "globus-url-copy / published",
            "href=\"one.svg\"",
            "href=\"one-table.csv\"",
            "x&lt;y&gt;.json: no results",
            "<h3 id=\"one-seconds\">Time</h3>",
            "href=\"one-seconds-table.csv\"",
            "Window and flight size over time",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"));
        assert_eq!(page.matches("class=\"chart\"").count(), 9);
        let mut ids: Vec<&str> = page.split(" id=\"").skip(1).collect();
        ids.iter_mut()
            .for_each(|id| *id = id.split('"').next().unwrap());
        let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(unique.len(), ids.len(), "ids are unique");
    }

    #[test]
    fn no_string_of_the_results_becomes_markup() {
        let evil = "</script><img src=x onerror=alert(1)>\"'";
        let json = serde_json::to_value(samples::with_more()).unwrap();
        let mut json = json.to_string();
        for harmless in [
            "bbc-5.1",
            "Parallel streams against latency",
            "BBC WHP 178, table 5.1",
            "quick",
            "Mbit/s",
            "6.18.0",
            "globus-url-copy",
            "one-way latency",
            "Window and flight size",
            "flight size",
        ] {
            let escaped = serde_json::to_string(evil).unwrap();
            json = json.replace(&format!("\"{harmless}\""), &escaped);
        }
        let mut results: ExperimentResults = serde_json::from_str(&json).unwrap();
        results.started = evil.to_owned();
        results.notes.push(evil.to_owned());
        results
            .environment
            .versions
            .insert(evil.to_owned(), evil.to_owned());
        results
            .environment
            .sysctls
            .insert(evil.to_owned(), evil.to_owned());
        results.cells[0].samples[0].invalid.push(evil.to_owned());
        results.cells[0].samples[0].limited_by = Some(evil.to_owned());
        let page = page(results);
        assert!(page.matches("&lt;/script&gt;").count() > 20);
        assert!(!page.contains("<img"));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
