//! The pages: an index with the summary, and a page for each paper with a section for each experiment. A page loads no
//! other file, and has no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::load::CitedPaper;
use super::summary::{self, RatioSpread, SummaryStatement};
use super::{DrawnFigure, ExperimentSection, MeasureSection, SkippedFile, table, text};
use crate::experiment::results::{ExperimentResults, PUBLISHED};
use units::show;

/// Style sheet of everything except charts.
const STYLE: &str = include_str!("style.css");

/// Content security policy: a page may load and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Explanation of the summary for readers.
const STRIPS: &str = "At each point of a sweep, a ratio of two medians is computed; the number shown is the \
    median of these ratios. The strips run from \u{d7}0.1 to \u{d7}10 with a mark at \u{d7}1: the thin line \
    covers all points, the thick line the middle half of them, the dot is the median. Runs that the lab \
    marked as invalid are not counted.";

/// The HTML of the index: the papers with the summary of each of their experiments.
pub(super) fn index(
    papers: &[CitedPaper],
    sections: &[ExperimentSection<'_>],
    skipped: &[SkippedFile],
) -> String {
    let about = show::count(sections.len(), "experiment");
    let content = html! {
        p class="quiet" { (about) ", compared with published values where there are any. " (STRIPS) }
        @for paper in papers {
            section {
                h2 { a href=(paper.page) { (paper.title) } }
                ol class="summary" {
                    @for (figure, index) in &paper.entries {
                        (summary_line(&paper.page, figure, &sections[*index]))
                    }
                }
            }
        }
        @if !skipped.is_empty() {
            section {
                p { "Files that are not in this report:" }
                ul { @for one in skipped { li { (one.to_string()) } } }
            }
        }
    };
    page("longhaul lab", &content)
}

fn summary_line(page: &str, figure: &str, section: &ExperimentSection<'_>) -> Markup {
    let grid = &section.measures[0].grid;
    html! {
        li {
            div class="which" {
                a href={ (page) "#" (section.loaded.name) } { (figure) }
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
                    @if statement.spread.points > 1 { (strip(&statement.spread)) }
                    small { (statement.detail) }
                }
            }
        }
    }
}

/// A strip with a logarithmic scale from ×0.1 to ×10 that shows the spread of ratios: a thin line for all, a
/// thick one for the middle half, a dot for the median. Ratios beyond the scale are at its ends. The text beside it has
/// the numbers, so it is hidden from screen readers.
fn strip(spread: &RatioSpread) -> Markup {
    let place = |ratio: f64| 50.0 + 50.0 * ratio.max(0.1).log10().min(1.0);
    let part = |from: f64, to: f64| {
        let (from, to) = (place(from), place(to));
        format!("left:{from:.1}%;width:{:.1}%", to - from)
    };
    html! {
        span class="strip" aria-hidden="true" {
            i class="all" style=(part(spread.low, spread.high)) {}
            i class="half" style=(part(spread.first_quartile, spread.third_quartile)) {}
            i class="median" style=(part(spread.median, spread.median)) {}
        }
    }
}

/// The HTML of a paper's page.
pub(super) fn paper(paper: &CitedPaper, sections: &[ExperimentSection<'_>]) -> String {
    let content = html! {
        nav aria-label="Contents" {
            a href="index.html" { "All papers" }
            ol {
                @for (figure, index) in &paper.entries {
                    @let loaded = sections[*index].loaded;
                    li { a href={ "#" (loaded.name) } { (figure) } " " (loaded.results.title) }
                }
            }
        }
        @for (_, index) in &paper.entries { "\n" (experiment(&sections[*index])) }
    };
    page(&paper.title, &content)
}

fn page(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) ": tables and figures" }
                style { (PreEscaped(STYLE)) }
            }
            "\n"
            body { main { h1 { (title) } (content) } }
        }
        "\n"
    };
    page.into_string()
}

fn experiment(section: &ExperimentSection<'_>) -> Markup {
    let results = &section.loaded.results;
    let published = match results.reference.as_str() {
        PUBLISHED => format!("Published values: {}", results.source),
        other => format!("Reference values ('{other}'): {}", results.source),
    };
    html! {
        section id=(section.loaded.name) {
            h2 { (results.title) " " small { (section.loaded.label()) } }
            @if !results.source.is_empty() { p { (published) } }
            p class="quiet" { (text::describe_origin(results)) "; took " (text::format_duration(results.seconds)) }
            p { "Command to run it again: " code { (text::rerun_command(results)) } }
            @for measure in &section.measures { (measure_section(measure)) }
            @for figure in &section.timelines { (figure_on_page(figure)) }
            (notes(section))
            (machine(results))
        }
    }
}

/// The figures and the table of one measure.
fn measure_section(measure: &MeasureSection<'_>) -> Markup {
    html! {
        @if !measure.heading.is_empty() {
            h3 id=(measure.name) { (text::capitalize(&measure.heading)) }
        }
        @for figure in &measure.figures { (figure_on_page(figure)) }
        @if measure.figures.is_empty() { p class="quiet" { "There are no values to draw." } }
        (table::html(&measure.grid, &format!("{}-table", measure.name)))
        p class="file" { a href=(measure.csv) { "This table as CSV" } }
    }
}

fn figure_on_page(figure: &DrawnFigure) -> Markup {
    html! {
        figure class="scroll" tabindex="0" { (PreEscaped(&figure.svg)) }
        p class="file" { a href=(figure.file) { "This figure as SVG" } }
    }
}

fn notes(section: &ExperimentSection<'_>) -> Markup {
    let ignored_cells = section.measures[0].grid.ignored_cells;
    let ignored = (ignored_cells > 0).then(|| {
        let cells = show::count(ignored_cells, "cell");
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

fn machine(results: &ExperimentResults) -> Markup {
    let machine = &results.environment;
    let label = |key: &String| {
        let named = results.programs.iter().find(|program| program.key == *key);
        named.map_or(key, |program| &program.label).clone()
    };
    html! {
        details {
            summary { "Program versions and kernel settings" }
            dl { @for (key, version) in &machine.versions { dt { (label(key)) } dd { (version) } } }
            @if !machine.sysctls.is_empty() {
                pre tabindex="0" { @for (key, value) in &machine.sysctls { (key) " = " (value) "\n" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::load::{self, LoadedResults};
    use super::super::{samples, section};
    use super::*;

    /// The index and the only paper's page.
    fn pages(results: ExperimentResults) -> [String; 2] {
        let loaded = [LoadedResults::new("one".to_owned(), results)];
        let sections = [section(&loaded[0]).unwrap()];
        let papers = load::by_paper(&loaded);
        let skipped = [SkippedFile {
            file: PathBuf::from("x<y>.json"),
            why: "no results".to_owned(),
        }];
        [
            index(&papers, &sections, &skipped),
            paper(&papers[0], &sections),
        ]
    }

    #[test]
    fn the_index_links_the_papers_and_summarizes_their_experiments() {
        let [index, _] = pages(samples::with_more());
        for text in [
            "<h2><a href=\"bbc-whp-178.html\">BBC WHP 178</a></h2>",
            "<a href=\"bbc-whp-178.html#one\">table 5.1 (quick)</a>",
            "globus-url-copy / published",
            "x&lt;y&gt;.json: no results",
        ] {
            assert!(index.contains(text), "{text}");
        }
    }

    #[test]
    fn a_paper_has_all_sections_and_loads_nothing() {
        let [_, page] = pages(samples::with_more());
        for text in [
            "href=\"index.html\"",
            "<a href=\"#one\">table 5.1 (quick)</a>",
            "Parallel streams against latency",
            "Published values: BBC WHP 178, table 5.1",
            "longhaul lab run bbc-5.1 --quick --seed 7",
            "took 12 min 4 s",
            "href=\"one.svg\"",
            "href=\"one-time-0.svg\"",
            "href=\"one-table.csv\"",
            "<h3 id=\"one-seconds\">Time</h3>",
            "href=\"one-seconds-table.csv\"",
            "Window and flight size over time",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(
            !page.contains("http://") && !page.contains("https://") && !page.contains("<script")
        );
        assert_eq!(page.matches("<svg").count(), 5);
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
        let pages = pages(results);
        let text = pages.concat();
        assert!(text.matches("&lt;/script&gt;").count() > 20);
        for page in pages {
            assert!(!page.contains("<img") && !page.contains("</script>"));
        }
    }

    #[test]
    fn a_strip_is_logarithmic_and_extremes_are_at_its_ends() {
        let strip = strip(&RatioSpread::of(vec![0.01, 1.0, 500.0]).unwrap()).into_string();
        assert!(
            strip.contains("class=\"all\" style=\"left:0.0%;width:100.0%\""),
            "{strip}"
        );
        assert!(
            strip.contains("class=\"median\" style=\"left:50.0%;width:0.0%\""),
            "{strip}"
        );
    }
}
