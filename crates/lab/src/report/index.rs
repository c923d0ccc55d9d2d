//! Experiments by the paper that they reproduce, and by its tables and figures.

use super::load::{Loaded, file_name};
use crate::experiment::results::PUBLISHED;

/// A paper and what there is of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paper {
    /// `BBC WHP 178 (2010)`.
    pub(super) name: String,
    /// In the order of the results.
    pub(super) entries: Vec<Entry>,
}

/// A table or figure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `table 5.1 (quick)`, or the experiment's name where it is of no table or figure.
    pub(super) figure: String,
    /// Which of the results.
    pub(super) place: usize,
}

/// Where experiments are that reproduce nothing published.
const OWN: &str = "longhaul itself";

/// How the last part of a source begins that names a place in a paper.
const PLACES: [&str; 4] = ["table", "figure", "section", "network"];

/// Papers in the order in which they first come, longhaul's own experiments last.
pub(super) fn by_paper<'a>(results: impl Iterator<Item = &'a Loaded>) -> Vec<Paper> {
    let mut papers: Vec<Paper> = Vec::new();
    for (place, one) in results.enumerate() {
        let (name, figure) = split(one);
        let entry = Entry { figure, place };
        match papers.iter_mut().find(|paper| paper.name == name) {
            Some(paper) => paper.entries.push(entry),
            None => papers.push(Paper {
                name,
                entries: vec![entry],
            }),
        }
    }
    papers.sort_by_key(|paper| paper.name == OWN);
    for paper in papers.iter_mut().filter(|paper| paper.name != OWN) {
        paper
            .entries
            .sort_by(|one, other| number(one).total_cmp(&number(other)));
    }
    papers
}

/// The number of a table or figure: 5.1 of `table 5.1 (quick)`.
fn number(entry: &Entry) -> f64 {
    let from = entry.figure.find(|c: char| c.is_ascii_digit());
    let text = entry.figure.get(from.unwrap_or(0)..).unwrap_or_default();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let number = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    number.parse().unwrap_or(f64::INFINITY)
}

/// The paper, and the table or figure in it.
fn split(loaded: &Loaded) -> (String, String) {
    let results = &loaded.results;
    if results.source.is_empty() || results.reference != PUBLISHED {
        return (OWN.to_owned(), loaded.label());
    }
    match results.source.rsplit_once(", ") {
        Some((paper, place)) if PLACES.iter().any(|known| place.starts_with(known)) => {
            let mode = match results.mode.as_str() {
                "" => String::new(),
                mode => format!(" ({mode})"),
            };
            // Two files may be of one figure.
            let file = match loaded.base() {
                base if base == file_name(&results.experiment) => String::new(),
                base => format!(", {base}"),
            };
            (paper.to_owned(), format!("{place}{file}{mode}"))
        }
        _ => (results.source.clone(), loaded.label()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn of(file: &str, experiment: &str, source: &str) -> Loaded {
        let results = crate::experiment::results::Results {
            experiment: experiment.to_owned(),
            source: source.to_owned(),
            ..samples::two_by_two()
        };
        Loaded::new(file.to_owned(), results)
    }

    #[test]
    fn experiments_are_found_under_their_papers_figures_and_files_are_told_apart() {
        let bbc = "BBC WHP 178 (2010), table 5.1";
        let mut tool = of("ns2-static-quick", "ns2-static", "ns-2 2.35, section 4");
        tool.results.reference = "ns-2".to_owned();
        let all = [
            of("auto-oracle-lan-quick", "auto-oracle", ""),
            of("auto-oracle-quick", "auto-oracle", ""),
            of("bbc-5.1-quick", "bbc-5.1", bbc),
            of(
                "drs-b-quick",
                "drs-b",
                "A, B: Title (IPDPS 2004), figure 10",
            ),
            of(
                "drs-quick",
                "drs",
                "A, B: Title (IPDPS 2004), figures 6 to 8",
            ),
            of("bbc-5.1-lan-quick", "bbc-5.1", bbc),
            tool,
            of("odd-quick", "odd", "Some memo, 1999"),
        ];
        let papers = by_paper(all.iter());
        let told: Vec<(&str, Vec<&str>)> = papers
            .iter()
            .map(|p| (&*p.name, p.entries.iter().map(|e| &*e.figure).collect()))
            .collect();
        let own = [
            "auto-oracle-lan (quick)",
            "auto-oracle (quick)",
            "ns2-static (quick)",
        ];
        assert_eq!(
            told,
            [
                (
                    "BBC WHP 178 (2010)",
                    vec!["table 5.1 (quick)", "table 5.1, bbc-5.1-lan (quick)"]
                ),
                (
                    "A, B: Title (IPDPS 2004)",
                    vec!["figures 6 to 8 (quick)", "figure 10 (quick)"]
                ),
                ("Some memo, 1999", vec!["odd (quick)"]),
                (OWN, own.to_vec()),
            ]
        );
        assert_eq!(papers[0].entries[1].place, 5);
    }
}
