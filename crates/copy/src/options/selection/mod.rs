//! Which files of a tree are copied: patterns, sizes and times.
//!
//! Patterns and rules are those of rclone for files. The rules for directories that rclone derives from them only save it
//! listings, and leave out files that match: here every directory is looked into.

use std::sync::Arc;

use proto::timestamp::Timestamp;

use ftp::Failure;
use ftp::answers::SourceFacts;

mod pattern;

use pattern::PathPattern;

/// Rules for the files of trees; by default all are copied.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The first that matches decides. Copies of the selection share them.
    rules: Arc<Vec<SelectionRule>>,
    /// A file that no rule matches is left out.
    leaves_others: bool,
    /// Smallest file, bytes.
    pub min_size: Option<u64>,
    /// Largest file, bytes.
    pub max_size: Option<u64>,
    /// Files that were modified at this time or later.
    pub newer: Option<Timestamp>,
    /// Files that were modified at this time or earlier.
    pub older: Option<Timestamp>,
}

#[derive(Debug, Clone)]
struct SelectionRule {
    includes: bool,
    pattern: PathPattern,
}

impl Selection {
    /// Copies files that match, and no others that match no rule. Rules of earlier calls come first.
    ///
    /// # Errors
    /// `Usage`: it is no pattern.
    pub fn include(&mut self, pattern: &str) -> Result<(), Failure> {
        self.leaves_others = true;
        self.add(true, pattern)
    }

    /// Leaves out files that match.
    ///
    /// # Errors
    /// As [`Selection::include`].
    pub fn exclude(&mut self, pattern: &str) -> Result<(), Failure> {
        self.add(false, pattern)
    }

    /// Adds the rules of a file: a line `+ PATTERN` or `- PATTERN` each; `!` forgets all rules before it; empty lines and
    /// those that begin with `#` or `;` say nothing.
    ///
    /// # Errors
    /// As [`Selection::include`]; the line is named.
    pub fn add_rules(&mut self, text: &str) -> Result<(), Failure> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let added = match (line.split_at_checked(2), line) {
                (_, "") => Ok(()),
                (_, comment) if comment.starts_with(['#', ';']) => Ok(()),
                (_, "!") => {
                    self.rules = Arc::default();
                    Ok(())
                }
                (Some(("+ ", pattern)), _) => self.add(true, pattern),
                (Some(("- ", pattern)), _) => self.add(false, pattern),
                _ => Err(Failure::usage("a rule begins with '+ ' or '- '".to_owned())),
            };
            added.map_err(|failure| failure.within(format!("line {}", number + 1)))?;
        }
        Ok(())
    }

    /// Adds a rule as rclone does: one with `/` at its end is about directories, and leaves out everything below them; it
    /// includes no files.
    fn add(&mut self, includes: bool, pattern: &str) -> Result<(), Failure> {
        let invalid =
            |reason: String| Failure::usage(format!("'{pattern}' is not a pattern: {reason}"));
        if pattern.is_empty() {
            return Err(invalid("it is empty".to_owned()));
        }
        let is_of_directory = pattern.ends_with('/');
        let below = if is_of_directory { "**" } else { "" };
        let parsed = PathPattern::parse(&format!("{pattern}{below}")).map_err(invalid)?;
        if !(includes && is_of_directory) {
            Arc::make_mut(&mut self.rules).push(SelectionRule {
                includes,
                pattern: parsed,
            });
        }
        Ok(())
    }

    /// The rules and sizes as a text: equal ones select the same files. Times are left out, because ages depend on the clock.
    pub(crate) fn identity(&self) -> String {
        let rule = |rule: &SelectionRule| (rule.includes, rule.pattern.expression().to_owned());
        let rules: Vec<_> = self.rules.iter().map(rule).collect();
        let sizes = (self.min_size, self.max_size);
        format!("{rules:?} {} {sizes:?}", self.leaves_others)
    }

    /// Whether every file is selected.
    pub(crate) fn selects_all(&self) -> bool {
        let limits = [self.min_size, self.max_size];
        let times = [self.newer, self.older];
        // An include of directories alone leaves no rule.
        !self.leaves_others
            && self.rules.is_empty()
            && limits.iter().all(Option::is_none)
            && times.iter().all(Option::is_none)
    }

    /// Whether a file is selected. `path` is relative to the top of its tree.
    pub(crate) fn judge(&self, path: &[u8], facts: SourceFacts) -> SelectionVerdict {
        let size = facts.size.map(|size| (size, size));
        let time = facts.modified_between();
        let time = time.map(|(earliest, latest)| (earliest.0, latest.0));
        let limits = [
            is_within(size, self.min_size, self.max_size),
            is_within(time, self.newer.map(|t| t.0), self.older.map(|t| t.0)),
        ];
        if limits.contains(&Some(false)) || !self.selects_path(path) {
            return SelectionVerdict::LeftOut;
        }
        match limits.contains(&None) {
            true => SelectionVerdict::Unknown,
            false => SelectionVerdict::Selected,
        }
    }

    /// Whether the rules select a path.
    pub(crate) fn selects_path(&self, path: &[u8]) -> bool {
        let path = readable(path);
        let decides = self.rules.iter().find(|rule| rule.pattern.is_match(&path));
        decides.map_or(!self.leaves_others, |rule| rule.includes)
    }
}

/// A path as text. As for rclone, each byte that is no part of a character is one by itself.
fn readable(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// A file's place in a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectionVerdict {
    Selected,
    LeftOut,
    /// Its size or its time is not known as exactly as the selection needs.
    Unknown,
}

/// Whether a value lies within limits; `None` if that is unknown. The value is only known to lie between two others.
fn is_within<T: PartialOrd + Copy>(
    value: Option<(T, T)>,
    least: Option<T>,
    most: Option<T>,
) -> Option<bool> {
    if least.is_none() && most.is_none() {
        return Some(true);
    }
    let (lowest, highest) = value?;
    let is_below = least.is_some_and(|least| highest < least);
    let is_above = most.is_some_and(|most| lowest > most);
    let is_surely_within =
        least.is_none_or(|least| lowest >= least) && most.is_none_or(|most| highest <= most);
    match is_below || is_above {
        true => Some(false),
        false => is_surely_within.then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use proto::listing::CoarseTime;

    use super::*;
    use ftp::FailureKind;

    fn selected<'p>(selection: &Selection, paths: &[&'p str]) -> Vec<&'p str> {
        let all = paths.iter().copied();
        all.filter(|path| selection.selects_path(path.as_bytes()))
            .collect()
    }

    const PATHS: [&str; 7] = [
        "a.txt",
        "b.bin",
        "d/a.txt",
        "d/e/c.txt",
        "d/e/cache/x",
        "cache",
        "cache2/y",
    ];

    fn with(includes: &[&str], excludes: &[&str]) -> Vec<&'static str> {
        let mut selection = Selection::default();
        for pattern in includes {
            selection.include(pattern).unwrap();
        }
        for pattern in excludes {
            selection.exclude(pattern).unwrap();
        }
        selected(&selection, &PATHS)
    }

    #[test]
    fn patterns_are_those_of_rclone() {
        assert_eq!(with(&[], &[]), PATHS);
        assert_eq!(with(&["*.txt"], &[]), ["a.txt", "d/a.txt", "d/e/c.txt"]);
        assert_eq!(with(&["/*.txt"], &[]), ["a.txt"]);
        assert_eq!(
            with(&["/d/**"], &[]),
            ["d/a.txt", "d/e/c.txt", "d/e/cache/x"]
        );
        assert_eq!(with(&["d/*"], &[]), ["d/a.txt"]);
        assert_eq!(with(&["cache/**"], &[]), ["d/e/cache/x"]);
        assert_eq!(with(&["a**"], &[]), ["a.txt", "d/a.txt"]);
        assert_eq!(with(&["/d**t"], &[]), ["d/a.txt", "d/e/c.txt"]);
        assert_eq!(with(&["*.{bin,exe}"], &[]), ["b.bin"]);
        assert_eq!(with(&["[ab].*"], &[]), ["a.txt", "b.bin", "d/a.txt"]);
        assert_eq!(with(&["?.bin"], &[]), ["b.bin"]);
        assert_eq!(
            with(&[], &["*.txt", "cache*/"]),
            ["b.bin", "cache"],
            "left out"
        );
        assert_eq!(
            with(&["*.txt"], &["d/**"]),
            ["a.txt", "d/a.txt", "d/e/c.txt"]
        );
    }

    #[test]
    fn an_include_of_directories_includes_no_files() {
        let mut selection = Selection::default();
        selection.add_rules("+ */\n+ *.txt\n- *\n").unwrap();
        assert_eq!(
            selected(&selection, &PATHS),
            ["a.txt", "d/a.txt", "d/e/c.txt"]
        );
        let mut selection = Selection::default();
        selection.include("d/").unwrap();
        assert!(selected(&selection, &PATHS).is_empty() && !selection.selects_all());
    }

    #[test]
    fn names_that_are_no_text_are_matched_byte_by_byte() {
        let mut selection = Selection::default();
        selection.include("?x").unwrap();
        for (name, is_selected) in [
            (&b"\xffx"[..], true),
            (b"\xe2\x82x", false),
            (b"\xc3\xa9x", true),
        ] {
            assert_eq!(selection.selects_path(name), is_selected);
        }
    }

    #[test]
    fn the_first_rule_of_a_file_that_matches_decides() {
        let mut selection = Selection::default();
        let rules = "# of a site\n\n- cache/\n+ *.txt\n+ x\n- *\n";
        selection.add_rules(rules).unwrap();
        assert_eq!(
            selected(&selection, &PATHS),
            ["a.txt", "d/a.txt", "d/e/c.txt"]
        );
        selection.add_rules("!\n- *.txt").unwrap();
        assert_eq!(
            selected(&selection, &PATHS),
            ["b.bin", "d/e/cache/x", "cache", "cache2/y"]
        );
        let failure = selection.add_rules("+ a\nb").unwrap_err();
        assert!(failure.to_string().starts_with("line 2:"), "{failure}");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["", "[a", "{a", "a***"] {
            let failure = Selection::default().exclude(pattern).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Usage, "{pattern}");
        }
    }

    #[test]
    fn sizes_and_times_leave_out_files_beyond_them_and_unknown_ones_are_undecided() {
        let facts = |size, time: i64| SourceFacts {
            size: Some(size),
            modified: Some(Timestamp(time)),
            ..SourceFacts::default()
        };
        let selection = Selection {
            min_size: Some(10),
            max_size: Some(20),
            newer: Some(Timestamp(100)),
            older: Some(Timestamp(200)),
            ..Selection::default()
        };
        let judge = |facts| selection.judge(b"f", facts);
        for inside in [facts(10, 100), facts(20, 200)] {
            assert_eq!(judge(inside), SelectionVerdict::Selected);
        }
        for outside in [facts(9, 150), facts(21, 150), facts(15, 99), facts(15, 201)] {
            assert_eq!(judge(outside), SelectionVerdict::LeftOut);
        }
        assert_eq!(judge(SourceFacts::default()), SelectionVerdict::Unknown);
        let anything = Selection::default().judge(b"f", SourceFacts::default());
        assert_eq!(anything, SelectionVerdict::Selected);
    }

    #[test]
    fn a_coarse_time_selects_where_its_whole_span_is_on_one_side() {
        const DAY: i64 = 86_400;
        let selection = Selection {
            newer: Some(Timestamp(100 * DAY)),
            ..Selection::default()
        };
        for (day, verdict) in [
            (97, SelectionVerdict::LeftOut),
            (99, SelectionVerdict::Unknown),
            (100, SelectionVerdict::Unknown),
            (102, SelectionVerdict::Selected),
        ] {
            let facts = SourceFacts {
                coarse_time: Some(CoarseTime {
                    start: Timestamp(day * DAY),
                    span: 86_400,
                }),
                ..SourceFacts::default()
            };
            assert_eq!(selection.judge(b"f", facts), verdict, "{day}");
        }
    }
}
