//! docs/papers.md: each row of its tables names what exists, its numbers stand where they were measured, and no figure, table or
//! equation of the papers is missing.

use std::collections::BTreeSet;

use house::{MarkdownPage, SourceFile, assert_none, markdown_pages, root, sources};

const PAGE: &str = "docs/papers.md";

/// How a result may begin.
const RESULTS: &[&str] = &[
    "agrees",
    "differs",
    "not run",
    "not yet",
    "nothing to measure",
];

/// A kind of row, and the numbers that a paper has of it.
type NumberedKind = (&'static str, &'static [&'static str]);

/// The papers by their headings, each with the numbers of its figures, tables and equations.
const PAPERS: &[(&str, &[NumberedKind])] = &[
    (
        "BBC WHP 178, 2010",
        &[
            (
                "Figure",
                &[
                    "2.1", "2.2", "2.3", "2.4", "3.1", "4.1", "5.1", "5.2", "5.3", "5.4",
                ],
            ),
            ("Table", &["5.1", "5.2", "5.3", "5.4"]),
            ("Equation", &["[13]", "[15]"]),
        ],
    ),
    (
        "Dynamic right-sizing, 2003",
        &[(
            "Figure",
            &[
                "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12",
            ],
        )],
    ),
    (
        "drsFTP, 2004",
        &[(
            "Figure",
            &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"],
        )],
    ),
    (
        "Enable, 2001",
        &[
            ("Figure", &["1", "2", "3"]),
            ("Table", &["1", "2", "3", "4", "5"]),
        ],
    ),
    (
        "Automatic parallelism, 2008",
        &[
            ("Figure", &["1", "2", "3", "4", "5", "6", "7"]),
            (
                "Equation",
                &[
                    "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
                ],
            ),
        ],
    ),
];

/// A row of the tables: its paper and its four cells.
struct PaperRow {
    line: usize,
    paper: String,
    cells: Vec<String>,
}

/// The rows of all tables of the page, without their headings.
fn rows(page: &MarkdownPage) -> Vec<PaperRow> {
    let mut paper = String::new();
    let mut rows = Vec::new();
    for (line, text) in page.prose() {
        if let Some(title) = text.strip_prefix("## ") {
            paper = title.trim().to_owned();
        }
        let Some(inner) = text
            .strip_prefix("| ")
            .and_then(|t| t.trim_end().strip_suffix('|'))
        else {
            continue;
        };
        let cells: Vec<String> = inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect();
        let is_heading = cells[0] == "in the paper" || cells[0].starts_with("---");
        if !is_heading {
            rows.push(PaperRow {
                line,
                paper: paper.clone(),
                cells,
            });
        }
    }
    rows
}

/// The words between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a name is one of the workspace: a path of its files, or an item of a crate by its path of modules.
fn exists(name: &str, sources: &[SourceFile]) -> bool {
    if name.contains('/') {
        return root().join(name).exists();
    }
    let parts: Vec<&str> = name.split("::").collect();
    let [krate, .., last] = parts.as_slice() else {
        return false;
    };
    let folder = format!("crates/{krate}/src/");
    let mut files = sources.iter().filter(|file| file.path.starts_with(&folder));
    let is_module = |file: &SourceFile| {
        let below = &file.path[folder.len()..];
        below == format!("{}.rs", parts[1..].join("/"))
            || below == format!("{}/mod.rs", parts[1..].join("/"))
    };
    let kinds = ["fn", "struct", "enum", "trait", "const", "type"];
    let declared = kinds.map(|kind| format!("pub {kind} {last}"));
    files.any(|file| {
        is_module(file)
            || file.lines().any(|(_, line)| {
                let mut declared = declared
                    .iter()
                    .filter_map(|d| line.strip_prefix(d.as_str()));
                declared.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            })
    })
}

/// The mistakes of one row.
fn mistakes(row: &PaperRow, sources: &[SourceFile]) -> Vec<String> {
    let at = format!("{PAGE}:{}", row.line);
    let [_, place, experiment, result] = row.cells.as_slice() else {
        return vec![format!("{at}: {} cells, not 4", row.cells.len())];
    };
    let mut wrong = Vec::new();
    if !RESULTS.iter().any(|begin| result.starts_with(begin)) {
        wrong.push(format!("{at}: the result '{result}'"));
    }
    let has_place = place.contains("](") || !quoted(place).is_empty();
    if !has_place && !result.starts_with("not yet") {
        wrong.push(format!("{at}: no place"));
    }
    for name in quoted(place) {
        if !exists(name, sources) {
            wrong.push(format!("{at}: there is no {name}"));
        }
    }
    for name in quoted(experiment) {
        let file = format!("crates/lab/experiments/{name}.toml");
        if !root().join(file).exists() {
            wrong.push(format!("{at}: there is no experiment {name}"));
        }
    }
    wrong
}

/// The numbers that a row's first cell names after a word: `Figures 6 and 7` are 6 and 7, `Equations 3 to 5` all three.
fn numbers_of(cell: &str, kind: &str) -> Vec<String> {
    let mut numbers: Vec<String> = Vec::new();
    let mut counts = false;
    let mut is_range = false;
    for word in cell.split_whitespace() {
        let bare = word.trim_end_matches([',', ':', ';', '.']);
        let singular = bare.strip_suffix('s').unwrap_or(bare);
        if singular.eq_ignore_ascii_case(kind) {
            counts = true;
        } else if counts && bare == "to" {
            is_range = true;
        } else if counts && bare.starts_with(|c: char| c.is_ascii_digit() || c == '[') {
            let first = numbers.last().and_then(|n| n.parse::<u32>().ok());
            if let (true, Some(first), Ok(last)) = (is_range, first, bare.parse::<u32>()) {
                numbers.extend((first + 1..last).map(|n| n.to_string()));
            }
            numbers.push(bare.to_owned());
            is_range = false;
        } else if bare != "and" {
            counts = false;
        }
        if word.ends_with([',', ':']) {
            counts = false;
        }
    }
    numbers
}

/// The numbers in a text that have three digits or more: what has fewer is a count, a unit, or rounded for the reader. What
/// stands between backquotes is a name, and what a link leads to is one.
fn precise_numbers(text: &str) -> BTreeSet<String> {
    let mut numbers = BTreeSet::new();
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let shown = plain.split("](").enumerate().map(|(n, part)| match n {
        0 => part,
        _ => part.split_once(')').map_or(part, |(_, rest)| rest),
    });
    for part in shown {
        let mut word = String::new();
        for c in part.chars().chain([' ']) {
            // A number within a word is a part of a name.
            if c.is_alphanumeric() || matches!(c, '.' | '_' | '/' | '-') {
                word.push(c);
                continue;
            }
            let number = word.trim_matches(['.', '-']);
            let digits = number.replace('.', "");
            let is_number = !digits.is_empty()
                && digits.chars().all(|c| c.is_ascii_digit())
                && number.parse::<f64>().is_ok();
            if is_number && digits.trim_start_matches('0').len() >= 3 {
                numbers.insert(number.to_owned());
            }
            word.clear();
        }
    }
    numbers
}

/// The part of a page from a heading, by its anchor, to the next one of the same depth or less.
fn section<'a>(page: &'a str, anchor: &str) -> Option<&'a str> {
    let mut from = None;
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        let depth = line.chars().take_while(|c| *c == '#').count();
        if depth > 0 {
            match from {
                Some((start, own)) if depth <= own => return page.get(start..at),
                Some(_) => {}
                None if house::anchor_of(line[depth..].trim()) == anchor => {
                    from = Some((at, depth))
                }
                None => {}
            }
        }
        at += line.len();
    }
    from.and_then(|(start, _)| page.get(start..))
}

/// Where the numbers of a row may stand: what the paper has, the results of the row's experiments, and the sections that the row
/// links to.
fn sources_of_numbers(row: &PaperRow) -> String {
    let [paper, place, experiment, result] = row.cells.as_slice() else {
        return String::new();
    };
    let read =
        |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap_or_default();
    let measured = read("measured.md");
    let mut text = paper.clone();
    for name in quoted(experiment) {
        for run in ["full", "quick"] {
            let anchor = house::anchor_of(&format!("{name}-{run}"));
            text += section(&measured, &anchor).unwrap_or_default();
        }
    }
    for link in [place, result]
        .iter()
        .flat_map(|cell| cell.split("](").skip(1))
    {
        let target = link.split_once(')').map_or(link, |(target, _)| target);
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let page = read(file);
        text += match anchor {
            "" => &page,
            anchor => section(&page, anchor).unwrap_or_default(),
        };
    }
    text
}

#[test]
fn every_precise_number_stands_where_it_was_measured() {
    let pages = markdown_pages();
    let page = pages.iter().find(|page| page.path == PAGE).expect(PAGE);
    let mut lost = Vec::new();
    let mut found = 0;
    for row in rows(page) {
        let stated = row.cells.get(3).map(|cell| precise_numbers(cell));
        let known = precise_numbers(&sources_of_numbers(&row));
        for number in stated.unwrap_or_default() {
            match known.contains(&number) {
                true => found += 1,
                false => lost.push(format!("{PAGE}:{}: {number}", row.line)),
            }
        }
    }
    assert!(found > 100, "{found}");
    assert_none(
        &lost,
        "numbers that stand neither in the results nor in a section that the row links to",
    );
}

#[test]
fn every_row_names_what_exists() {
    let pages = markdown_pages();
    let page = pages.iter().find(|page| page.path == PAGE).expect(PAGE);
    let sources = sources();
    let rows = rows(page);
    assert!(rows.len() > 80, "{}", rows.len());
    let wrong: Vec<String> = rows
        .iter()
        .flat_map(|row| mistakes(row, &sources))
        .collect();
    assert_none(&wrong, "rows that name what does not exist");
}

#[test]
fn every_figure_table_and_equation_has_a_row() {
    let pages = markdown_pages();
    let page = pages.iter().find(|page| page.path == PAGE).expect(PAGE);
    let rows = rows(page);
    let mut missing = Vec::new();
    for (paper, kinds) in PAPERS {
        for (kind, numbers) in *kinds {
            let of_paper = rows.iter().filter(|row| row.paper == *paper);
            let named: BTreeSet<String> = of_paper
                .flat_map(|row| numbers_of(&row.cells[0], kind))
                .collect();
            let lacks = numbers.iter().filter(|number| !named.contains(**number));
            missing.extend(lacks.map(|number| format!("{paper}: {kind} {number}")));
        }
    }
    assert_none(&missing, "not in the tables");
}

#[test]
fn every_experiment_that_repeats_a_paper_has_a_row() {
    let pages = markdown_pages();
    let page = pages.iter().find(|page| page.path == PAGE).expect(PAGE);
    let named: BTreeSet<String> = rows(page)
        .iter()
        .flat_map(|row| {
            quoted(&row.cells[2])
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let begins = ["bbc-", "drs2003-", "drsftp2004-", "enable-", "autopar-"];
    let folder = root().join("crates/lab/experiments");
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the experiments") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        // The route metrics of `enforce` are longhaul's own.
        let is_of_a_paper = begins.iter().any(|begin| name.starts_with(begin));
        if is_of_a_paper && name != "enable-enforce" && !named.contains(&name) {
            missing.push(name);
        }
    }
    assert_none(&missing, "experiments without a row");
}

#[test]
fn a_row_that_names_nothing_is_found() {
    let row = |cells: [&str; 4]| PaperRow {
        line: 1,
        paper: String::new(),
        cells: cells.map(str::to_owned).to_vec(),
    };
    let sources = sources();
    let wrong = |cells| mistakes(&row(cells), &sources).len();
    let good = [
        "x",
        "`tune::streams::model::ModelPath::goodput`",
        "`bbc-5.1`",
        "agrees",
    ];
    assert_eq!(wrong(good), 0);
    assert_eq!(
        wrong([
            "x",
            "`tune::streams::model`, `crates/sim/src/lib.rs`",
            "–",
            "not run"
        ]),
        0
    );
    assert_eq!(wrong(["x", "–", "–", "not yet"]), 0);
    assert_eq!(wrong(["x", "–", "–", "agrees"]), 1);
    assert_eq!(
        wrong(["x", "`tune::no_such_item`", "`bbc-9.9`", "perhaps"]),
        3
    );
    assert_eq!(wrong(["x", "`docs/none.md`", "–", "agrees"]), 1);
}

#[test]
fn precise_numbers_and_sections_are_found() {
    let numbers =
        precise_numbers("19 396 ± 4.16, ×0.095; bbc-5.4, [34.0](a.md#b-123) `567` 0.123.");
    let expected = ["0.123", "34.0", "396", "4.16"].map(str::to_owned);
    assert_eq!(numbers, expected.into());
    let page = "# A\n1\n## B c\n2\n### D\n3\n## E\n4\n";
    assert_eq!(section(page, "b-c"), Some("## B c\n2\n### D\n3\n"));
    assert_eq!(section(page, "e"), Some("## E\n4\n"));
    assert_eq!(section(page, "f"), None);
}

#[test]
fn numbers_are_read_from_the_first_cell() {
    assert_eq!(numbers_of("Figures 6 and 7, window", "Figure"), ["6", "7"]);
    assert_eq!(
        numbers_of("Equations 3 to 5, mode MI", "Equation"),
        ["3", "4", "5"]
    );
    assert_eq!(
        numbers_of("Table 5.1 and figure 5.1, windows", "Figure"),
        ["5.1"]
    );
    assert_eq!(numbers_of("Equation [13], buffer", "Equation"), ["[13]"]);
    assert_eq!(numbers_of("Figure 5, 64 MB in 240 s", "Figure"), ["5"]);
}
