//! The book of docs/: its links lead somewhere, its table of contents is complete, and the pages for users are in plain words.

#![expect(clippy::expect_used, reason = "a test reports by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use house::{MarkdownPage, assert_none, markdown_pages, root, sources};

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages for people who know no network protocol.
const FOR_USERS: &[&str] = &["docs/start/", "docs/how/", "docs/admin/", "docs/install.md"];

/// Words of control connections.
const WIRE_COMMANDS: &[&str] = &[
    "AUTH", "CKSM", "DCAU", "EPRT", "EPSV", "ERET", "ESTO", "FEAT", "MLSD", "MLST", "MODE E",
    "NLST", "OPTS", "PASV", "PBSZ", "PROT", "RETR", "SITE", "SPAS", "SPOR", "STOR",
];

/// How many columns a line of prose may have.
const MAX_COLUMNS: usize = 120;

/// Pages with longer lines: one that a program writes, and those about measurements and other programs.
const WIDE_PAGES: &[&str] = &[
    "docs/benchmarks.md",
    "docs/enable-clients.md",
    "docs/experiments.md",
    "docs/interop.md",
    "docs/measured.md",
    "docs/papers.md",
    "docs/results/README.md",
    "docs/s3.md",
    "docs/served-buckets.md",
    "docs/simulator.md",
];

/// Where texts name pages, besides sources of Rust.
const NAMES_PAGES: &[&str] = &[
    ".ci",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "bindings",
    "docs",
    "packaging",
    "tests",
];

/// A path without `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
}

/// The page, or file, that a link leads to, and its anchor; nothing for links to other sites.
fn target_of(page: &str, link: &str) -> Option<(String, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (link, None),
    };
    let path = match path {
        "" => PathBuf::from(page),
        path => normalized(&Path::new(page).parent().expect("a folder").join(path)),
    };
    Some((path.display().to_string(), anchor))
}

/// The links that lead to nothing. `exists` says whether the repository has a file that is no page.
fn dead_links(pages: &[MarkdownPage], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let anchors = anchors(pages);
    let mut dead = Vec::new();
    for page in pages {
        for (n, link) in page.links() {
            let Some((path, anchor)) = target_of(&page.path, &link) else {
                continue;
            };
            let leads = match (anchors.get(path.as_str()), anchor) {
                (Some(known), Some(anchor)) => known.contains(&anchor),
                (Some(_), None) => true,
                (None, _) => exists(&path),
            };
            if !leads {
                dead.push(format!("{}:{n}: {link}", page.path));
            }
        }
    }
    dead
}

/// The anchors of each page.
fn anchors(pages: &[MarkdownPage]) -> BTreeMap<&str, Vec<String>> {
    let pages = pages.iter();
    pages
        .map(|page| (page.path.as_str(), page.anchors()))
        .collect()
}

/// The pages of docs/ that the table of contents lacks or has twice.
fn not_once_in_summary(pages: &[MarkdownPage]) -> Vec<String> {
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (_, link) in summary.expect("a table of contents").links() {
        let target = target_of(SUMMARY, &link).expect("a page of the book");
        *times.entry(target.0).or_default() += 1;
    }
    pages
        .iter()
        .filter(|page| page.path.starts_with("docs/") && page.path != SUMMARY)
        .map(|page| (page, times.get(&page.path).copied().unwrap_or(0)))
        .filter(|(_, times)| *times != 1)
        .map(|(page, times)| format!("{}: {times} times", page.path))
        .collect()
}

/// Each `docs/NAME.md`, perhaps with `#anchor`, that a text names, with the number of its line.
fn named_pages(text: &str) -> Vec<(usize, String)> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let mut named = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("docs/") {
            // The end of another path, such as that of a URL.
            let before = line[..at].trim_end_matches("../");
            if before.ends_with(is_of_path) {
                continue;
            }
            let rest = &line[at..];
            let path = &rest[..rest.find(|c| !is_of_path(c)).unwrap_or(rest.len())];
            let Some(end) = path.rfind(".md") else {
                continue;
            };
            let (path, behind) = rest.split_at(end + ".md".len());
            let is_of_anchor = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let anchor = behind.strip_prefix('#').map_or("", |anchor| {
                &anchor[..anchor.find(|c| !is_of_anchor(c)).unwrap_or(anchor.len())]
            });
            named.push((
                n + 1,
                if anchor.is_empty() {
                    path.to_owned()
                } else {
                    format!("{path}#{anchor}")
                },
            ));
        }
    }
    named
}

/// The names of pages in texts that lead to nothing.
fn dead_names<'t>(
    pages: &[MarkdownPage],
    texts: impl Iterator<Item = (&'t str, &'t str)>,
) -> Vec<String> {
    let anchors = anchors(pages);
    let leads = |name: &str| match name.split_once('#') {
        Some((page, anchor)) => anchors
            .get(page)
            .is_some_and(|known| known.iter().any(|one| one == anchor)),
        None => anchors.contains_key(name),
    };
    let dead = texts.flat_map(|(path, text)| {
        let named = named_pages(text).into_iter();
        let dead = named.filter(|(_, name)| !leads(name));
        dead.map(move |(n, name)| format!("{path}:{n}: {name}"))
            .collect::<Vec<_>>()
    });
    dead.collect()
}

/// The text files besides sources of Rust that may name pages.
fn other_texts() -> Vec<(String, String)> {
    let root = root();
    let mut waiting: Vec<PathBuf> = NAMES_PAGES.iter().map(|place| root.join(place)).collect();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder of the repository");
            waiting.extend(entries.map(|entry| entry.expect("its entries").path()));
            continue;
        }
        // Files that are not text name nothing.
        if path.extension().is_none_or(|e| e != "rs")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(&root).expect("below the root");
            found.push((path.display().to_string(), text));
        }
    }
    found
}

/// Wire commands in the prose of a page. A name is one only as a word of its own.
fn wire_commands(page: &MarkdownPage) -> Vec<String> {
    let mut found = Vec::new();
    for (n, line) in page.prose() {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for command in WIRE_COMMANDS {
            let is_there = line.match_indices(command).any(|(at, _)| {
                let behind = &line[at + command.len()..];
                !line[..at].ends_with(is_of_word) && !behind.starts_with(is_of_word)
            });
            if is_there {
                found.push(format!("{}:{n}: {command}", page.path));
            }
        }
    }
    found
}

/// Lines of prose that are too long; rows of tables are not prose.
fn long_lines(page: &MarkdownPage) -> Vec<String> {
    let prose = page.prose().into_iter();
    let long = prose.filter(|(_, line)| {
        line.chars().count() > MAX_COLUMNS && !line.trim_start().starts_with('|')
    });
    long.map(|(n, line)| format!("{}:{n}: {} columns", page.path, line.chars().count()))
        .collect()
}

/// The pages for users.
fn for_users(pages: &[MarkdownPage]) -> impl Iterator<Item = &MarkdownPage> {
    pages
        .iter()
        .filter(|page| FOR_USERS.iter().any(|folder| page.path.starts_with(folder)))
}

#[test]
fn every_link_of_the_documentation_leads_to_something() {
    let pages = markdown_pages();
    let links: usize = pages.iter().map(|page| page.links().len()).sum();
    assert!(links > 200, "links are found");
    let dead = dead_links(&pages, |path| root().join(path).exists());
    assert_none(&dead, "these links lead to nothing");
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let broken = not_once_in_summary(&markdown_pages());
    assert_none(&broken, "these pages are not in docs/SUMMARY.md once");
}

#[test]
fn every_page_that_a_source_or_a_script_names_exists() {
    let sources = sources();
    let others = other_texts();
    // This test's own texts name pages that are missing.
    let sources = sources
        .iter()
        .filter(|source| !source.path.starts_with("tests/house/"))
        .map(|source| (source.path.as_str(), source.text.as_str()));
    let others = others
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()));
    let texts: Vec<_> = sources.chain(others).collect();
    let named: usize = texts.iter().map(|(_, text)| named_pages(text).len()).sum();
    assert!(named > 50, "names are found");
    let dead = dead_names(&markdown_pages(), texts.into_iter());
    assert_none(&dead, "these pages, or their headings, do not exist");
}

#[test]
fn pages_for_users_have_no_wire_commands() {
    let pages = markdown_pages();
    assert!(for_users(&pages).count() > 10, "pages are found");
    let commands: Vec<String> = for_users(&pages).flat_map(wire_commands).collect();
    assert_none(&commands, "say it in plain words, or link docs/glossary.md");
}

#[test]
fn pages_have_no_long_lines() {
    let pages = markdown_pages();
    let is_wide = |page: &&MarkdownPage| WIDE_PAGES.contains(&page.path.as_str());
    assert_eq!(pages.iter().filter(is_wide).count(), WIDE_PAGES.len());
    let narrow = pages.iter().filter(|page| !is_wide(page));
    let long: Vec<String> = narrow.flat_map(long_lines).collect();
    assert_none(&long, "these lines are too long");
}

fn page(path: &str, text: &str) -> MarkdownPage {
    MarkdownPage {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn a_link_that_leads_to_nothing_is_found() {
    let one = "# One `-p`: [b](b.md)\n\n## Same\n## Same\n\
        [1](#one--p-b) [2](#same-1) [3](#same-2) [4](how/b.md#two) [5](how/b.md#one) [6](c.md)\n\
        `[7](x.md)` [8](data.csv) [9](https://host/x.md)\n\
        ```\n[10](x.md)\n```\n\n    [11](x.md)\n\n- entry\n\n    [12](x.md)\n";
    let two = "# Two\n[1](../a.md#same) [2](a.md)\n";
    let pages = [page("docs/a.md", one), page("docs/how/b.md", two)];
    let dead = dead_links(&pages, |path| path == "docs/data.csv");
    let expected = [
        "docs/a.md:1: b.md",
        "docs/a.md:5: #same-2",
        "docs/a.md:5: how/b.md#one",
        "docs/a.md:5: c.md",
        "docs/a.md:15: x.md",
        "docs/how/b.md:2: a.md",
    ];
    assert_eq!(dead, expected);
}

#[test]
fn a_page_that_the_table_of_contents_lacks_is_found() {
    let pages = [
        page("README.md", ""),
        page(SUMMARY, "- [A](a.md)\n- [B](how/b.md)\n- [B](how/b.md)\n"),
        page("docs/a.md", ""),
        page("docs/how/b.md", ""),
        page("docs/c.md", ""),
    ];
    let broken = not_once_in_summary(&pages);
    assert_eq!(broken, ["docs/how/b.md: 2 times", "docs/c.md: 0 times"]);
}

#[test]
fn a_name_of_a_missing_page_is_found() {
    let pages = [page("docs/a.md", "# A\n## The end\n")];
    let text = "see docs/a.md, (docs/a.md#the-end).\nhttps://host/docs/x.md docs/results/*.csv\n\
        \"docs/b.md: more\" docs/a.md#start include_str!(\"../../docs/c.md\")\n";
    let dead = dead_names(&pages, [("source.rs", text)].into_iter());
    let expected = [
        "source.rs:3: docs/b.md",
        "source.rs:3: docs/a.md#start",
        "source.rs:3: docs/c.md",
    ];
    assert_eq!(dead, expected);
}

#[test]
fn wire_commands_and_long_lines_in_prose_are_found() {
    let text = format!(
        "The reply to `FEAT` and MODE E.\n\n    PASV\n\nFEATURES, RETRY and STORE are words.\n{}\n| {} |\n",
        "ä".repeat(121),
        "x".repeat(130)
    );
    let page = page("docs/how/a.md", &text);
    let commands: BTreeSet<String> = wire_commands(&page).into_iter().collect();
    let expected = ["docs/how/a.md:1: FEAT", "docs/how/a.md:1: MODE E"];
    assert_eq!(commands, expected.map(str::to_owned).into());
    assert_eq!(long_lines(&page), ["docs/how/a.md:6: 121 columns"]);
}
