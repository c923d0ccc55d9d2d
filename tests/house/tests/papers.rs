//! docs/papers.md: each row of its tables names what exists, and no figure, table or equation of the papers is missing.

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
