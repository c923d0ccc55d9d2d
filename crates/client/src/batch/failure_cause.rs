//! Why files fail, apart from their names: many files of a batch fail alike, and are told of together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proto::printable::printable;

use super::lock;
use super::plan::PlannedFile;
use super::totals::BatchTotals;
use crate::location::Location;
use crate::partial::partial_path;
use crate::{CopyEvent, CopyFailure, CopyObserver};

/// The text that stands in a cause for a name.
const ELLIPSIS: &str = "...";
/// Most causes of a batch that are told apart.
const MAX_CAUSES: usize = 256;

/// The source or directory that a failure is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailedPlace {
    /// As shown to people.
    pub(super) shown: String,
    /// The texts by which messages name it.
    names: Vec<String>,
}

impl FailedPlace {
    /// Something without a place of its own.
    pub(crate) fn named(shown: String) -> Self {
        Self {
            shown,
            names: Vec::new(),
        }
    }

    /// A source or a directory.
    pub(crate) fn at(place: &Location) -> Self {
        Self {
            shown: place.display(),
            names: names_of(place),
        }
    }

    /// A file that is copied.
    pub(super) fn of_file(file: &PlannedFile) -> Self {
        let mut place = Self::at(&file.source);
        place.names.extend(names_of(&file.destination));
        place
    }

    /// The message of a failure without the names of what it is about: equal for files that fail alike.
    pub(crate) fn cause_of(&self, failure: &CopyFailure) -> String {
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        // A partial name begins with the name.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let without = |text: String, name| replace_word(&text, name);
        names.into_iter().fold(failure.message.clone(), without)
    }
}

/// Counts and reports a file that failed for good.
pub(crate) fn report_failure(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    place: FailedPlace,
    failure: CopyFailure,
) {
    let cause = place.cause_of(&failure);
    report_shared(observer, totals, place.shown, (failure, cause));
}

/// Like [`report_failure`], with a cause that is known.
pub(super) fn report_shared(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    source: String,
    (failure, cause): (CopyFailure, String),
) {
    lock(totals).file_failed(&failure, &cause);
    observer.on_event(CopyEvent::Failed {
        source,
        failure,
        cause,
    });
}

/// The texts by which messages name a location.
fn names_of(at: &Location) -> Vec<String> {
    let shown = |path: &[u8]| printable(path).to_string();
    let path = at.path();
    let partial = partial_path(path);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    vec![at.display(), shown(&partial), shown(path), shown(last)]
}

/// Replaces a name where it is not a part of a longer one.
fn replace_word(text: &str, name: &str) -> String {
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name).filter(|_| !name.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        replaced.push_str(before);
        let is_alone = !replaced.ends_with(is_part) && !after.starts_with(is_part);
        replaced.push_str(if is_alone { ELLIPSIS } else { name });
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// How many files have failed for each cause.
#[derive(Debug, Default)]
pub(super) struct CauseCounts(HashMap<String, u64>);

impl CauseCounts {
    /// Adds a failed file. A cause is forgotten if there are too many.
    pub(super) fn add(&mut self, cause: &str) {
        if let Some(files) = self.0.get_mut(cause) {
            *files += 1;
        } else if self.0.len() < MAX_CAUSES {
            self.0.insert(cause.to_owned(), 1);
        }
    }

    /// The cause of most failures, and their number; `None`: no two files failed alike.
    pub(super) fn most_frequent(&self) -> Option<(String, u64)> {
        let most = self.0.iter().max_by_key(|(cause, files)| (**files, *cause));
        most.filter(|(_, files)| **files > 1)
            .map(|(cause, files)| (cause.clone(), *files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exit;
    use crate::answers::SourceFacts;

    fn cause(message: &str, from: &str, to: &str) -> String {
        let failure = CopyFailure::new(Exit::Refused, message);
        let [source, destination] = [from, to].map(|text| Location::parse(text).unwrap());
        FailedPlace::of_file(&PlannedFile {
            source,
            destination,
            facts: SourceFacts::default(),
            entry: 0,
        })
        .cause_of(&failure)
    }

    #[test]
    fn files_that_fail_alike_have_one_cause() {
        for (message, wanted) in [
            (
                "h:21 refused to write /e/NAME.longhaul-partial: 550 STOR /e/NAME.longhaul-partial / Denied",
                "h:21 refused to write ...: 550 STOR ... / Denied",
            ),
            (
                "ftp://h/e/NAME: the name is taken",
                "...: the name is taken",
            ),
            (
                "cannot read /d/NAME: Permission denied",
                "cannot read ...: Permission denied",
            ),
            ("550 NAME: No such file", "550 ...: No such file"),
        ] {
            for name in ["f1", "f10", "a", "file.longer-name.dat"] {
                let message = message.replace("NAME", name);
                let found = cause(
                    &message,
                    &format!("/d/{name}"),
                    &format!("ftp://h/e/{name}"),
                );
                assert_eq!(found, wanted, "{message}");
            }
        }
    }

    #[test]
    fn other_reasons_are_other_causes() {
        let denied = cause("cannot read /d/a: Permission denied", "/d/a", "ftp://h/a");
        let missing = cause("cannot read /d/b: no such file", "/d/b", "ftp://h/b");
        assert_ne!(denied, missing);
    }

    #[test]
    fn the_most_frequent_cause_is_found_and_the_number_of_causes_is_bounded() {
        let mut counts = CauseCounts::default();
        counts.add("once");
        assert_eq!(counts.most_frequent(), None);
        for _ in 0..3 {
            counts.add("often");
        }
        assert_eq!(counts.most_frequent(), Some(("often".to_owned(), 3)));
        for n in 0..2 * MAX_CAUSES {
            counts.add(&n.to_string());
        }
        assert_eq!(counts.0.len(), MAX_CAUSES);
    }
}
