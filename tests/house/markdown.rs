//! Pages of Markdown, as far as the rules about them need it: links, anchors, prose.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// A page of Markdown of the repository.
pub struct MarkdownPage {
    /// From the root of the repository.
    pub path: String,
    /// Content.
    pub text: String,
}

impl MarkdownPage {
    /// The lines outside of code blocks, with their numbers, from 1.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let mut prose = Vec::new();
        let mut fence: Option<&str> = None;
        // Code is indented by four columns behind an empty line; below an entry of a list it is text of that entry.
        let (mut is_behind_gap, mut is_in_list, mut is_code) = (true, false, false);
        for (n, line) in self.text.lines().enumerate() {
            let start = line.trim_start();
            if let Some(end) = fence {
                if start.starts_with(end) {
                    fence = None;
                }
                continue;
            }
            fence = ["```", "~~~"]
                .into_iter()
                .find(|mark| start.starts_with(mark));
            if fence.is_some() {
                continue;
            }
            let is_indented = line.starts_with("    ");
            is_code = is_indented && (is_code || is_behind_gap && !is_in_list);
            if !start.is_empty() && !is_indented {
                is_in_list = is_list_entry(start);
            }
            is_behind_gap = start.is_empty();
            if !is_code {
                prose.push((n + 1, line));
            }
        }
        prose
    }

    /// The targets of the links and pictures, with the numbers of their lines.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (n, line) in self.prose() {
            let line = without_code(line);
            for rest in line.split("](").skip(1) {
                let target = rest.split([')', ' ']).next().unwrap_or_default();
                links.push((n, target.to_owned()));
            }
        }
        links
    }

    /// The names by which links reach the headings.
    pub fn anchors(&self) -> Vec<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut anchors = Vec::new();
        for (_, line) in self.prose() {
            let title = line.trim_start_matches('#');
            if title.len() == line.len() || !title.starts_with(' ') {
                continue;
            }
            let anchor = anchor_of(title.trim());
            let times = seen.entry(anchor.clone()).or_default();
            anchors.push(match *times {
                0 => anchor,
                times => format!("{anchor}-{times}"),
            });
            *times += 1;
        }
        anchors
    }
}

/// README.md, CONTRIBUTING.md and the pages of the folder docs.
///
/// # Panics
/// They cannot be read.
#[expect(clippy::expect_used, reason = "for tests, which report by panicking")]
pub fn markdown_pages() -> Vec<MarkdownPage> {
    let root = root();
    let mut waiting = vec![root.join("docs")];
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("its entries").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    let read = |path: PathBuf| MarkdownPage {
        text: fs::read_to_string(&path).expect("a page"),
        path: below(&path, &root),
    };
    found.into_iter().map(read).collect()
}

/// A path of the repository as seen from its root.
fn below(path: &Path, root: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.display().to_string()
}

/// Whether an unindented line begins an entry of a list.
fn is_list_entry(line: &str) -> bool {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
        || digits.len() < line.len() && digits.starts_with(". ")
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let is_open = parts.len().is_multiple_of(2);
    let text = parts.iter().enumerate().filter(|(n, _)| {
        // A backquote without a second one is a plain character.
        n % 2 == 0 || is_open && n + 1 == parts.len()
    });
    text.map(|(_, part)| *part).collect()
}

/// The name of a heading in links: letters, digits, `-` and `_`, in lower case, with `-` for each space.
pub fn anchor_of(title: &str) -> String {
    // Of a link in a heading, its text counts.
    let mut text = String::new();
    let mut rest = title;
    while let Some((before, target)) = rest.split_once("](") {
        text.push_str(before);
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let named = text.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    named.flat_map(char::to_lowercase).collect()
}
