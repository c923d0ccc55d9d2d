//! Failures that many files have in common are told once, with their number.

use std::collections::HashMap;
use units::show;

/// Most causes that are told apart: further ones are told of for each file.
const MAX_CAUSES: usize = 256;
/// Most further files of a cause that are named.
const MAX_NAMED: usize = 3;

/// The failures of a copy by their causes.
#[derive(Default)]
pub(super) struct FailureGroups {
    /// In the order of their first failures.
    groups: Vec<FailureGroup>,
    /// Position of the group of each cause.
    by_cause: HashMap<String, usize>,
}

struct FailureGroup {
    /// The source whose failure was told.
    first: String,
    /// Further files that failed alike.
    more: u64,
    /// Sources of some of them.
    named: Vec<String>,
    /// The message tells one file from another.
    has_names: bool,
}

impl FailureGroups {
    /// Takes note of the failure of `source`. Returns whether it is to be told: it is the first one of its cause.
    pub(super) fn is_new(&mut self, (source, message): (&str, &str), cause: &str) -> bool {
        if let Some(group) = self
            .by_cause
            .get(cause)
            .and_then(|position| self.groups.get_mut(*position))
        {
            group.more += 1;
            if group.named.len() < MAX_NAMED {
                group.named.push(source.to_owned());
            }
            return false;
        }
        if self.groups.len() < MAX_CAUSES {
            self.by_cause.insert(cause.to_owned(), self.groups.len());
            self.groups.push(FailureGroup {
                first: source.to_owned(),
                more: 0,
                named: Vec::new(),
                has_names: cause != message,
            });
        }
        true
    }

    /// The lines about those that were not told, once.
    pub(super) fn take_rest(&mut self) -> Vec<String> {
        let is_only = self.groups.len() == 1;
        let rest = self.groups.iter_mut().filter(|group| group.more > 0);
        rest.map(|group| group.take_rest(is_only)).collect()
    }
}

impl FailureGroup {
    /// `is_only`: the failure that was told stands above.
    fn take_rest(&mut self, is_only: bool) -> String {
        let more = std::mem::take(&mut self.more);
        let (files, names) = (show::count(more, "more file"), self.names(more));
        match is_only {
            true => format!("longhaul: the same for {files}{names}"),
            false => format!("longhaul: {files} failed as {} did{names}", self.first),
        }
    }

    /// `: a, b and c`, or some of them.
    fn names(&mut self, more: u64) -> String {
        let named = std::mem::take(&mut self.named);
        let others = more.saturating_sub(named.len() as u64);
        let names = named.join(", ");
        match (self.has_names, others) {
            (false, _) => String::new(),
            (true, 0) => format!(": {names}"),
            (true, others) => {
                format!(
                    ": {names} and {} (-v names each)",
                    show::count(others, "other")
                )
            }
        }
    }
}

/// The retries that were told since something moved.
#[derive(Default)]
pub(super) struct KnownRetries(HashMap<String, u32>);

impl KnownRetries {
    /// Whether no file has told of this attempt for this reason.
    pub(super) fn is_new(&mut self, reason: &str, attempt: u32) -> bool {
        if self.0.len() >= MAX_CAUSES {
            self.0.clear();
        }
        let last = self.0.entry(reason.to_owned()).or_default();
        let is_new = attempt > *last;
        *last = attempt.max(*last);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_wait_for_the_same_reason_are_told_of_once_for_each_attempt() {
        let mut known = KnownRetries::default();
        assert!(known.is_new("h is gone", 2));
        assert!(!known.is_new("h is gone", 2));
        assert!(known.is_new("i is gone", 2));
        assert!(known.is_new("h is gone", 3));
        assert!(!known.is_new("h is gone", 2));
    }

    /// Whether each failure is told, and the lines at the end.
    fn told(failures: &[(&str, &str, &str)]) -> (Vec<bool>, Vec<String>) {
        let mut groups = FailureGroups::default();
        let told = failures
            .iter()
            .map(|(source, message, cause)| groups.is_new((source, message), cause));
        let told = told.collect();
        let rest = groups.take_rest();
        assert!(groups.take_rest().is_empty(), "once");
        (told, rest)
    }

    #[test]
    fn a_failure_without_names_is_told_once_with_its_number() {
        let gone = |source| (source, "h is gone", "h is gone");
        let (told, rest) = told(&[gone("a"), gone("b"), gone("c")]);
        assert_eq!(told, [true, false, false]);
        assert_eq!(rest, ["longhaul: the same for 2 more files"]);
    }

    #[test]
    fn some_of_those_that_failed_alike_are_named() {
        let sources: Vec<String> = (0..40).map(|n| format!("f{n}")).collect();
        let messages: Vec<String> = sources
            .iter()
            .map(|name| format!("{name}: denied"))
            .collect();
        let files = sources.iter().zip(&messages);
        let failures: Vec<_> = files
            .map(|(source, message)| (source.as_str(), message.as_str(), "...: denied"))
            .collect();
        let (_, rest) = told(&failures[..3]);
        assert_eq!(rest, ["longhaul: the same for 2 more files: f1, f2"]);
        let (_, rest) = told(&failures);
        assert_eq!(
            rest,
            ["longhaul: the same for 39 more files: f1, f2, f3 and 36 others (-v names each)"]
        );
    }

    #[test]
    fn causes_that_alternate_are_told_once_each() {
        let mut failures = Vec::new();
        for _ in 0..4 {
            failures.push(("a", "h is gone", "h is gone"));
            failures.push(("b", "b: denied", "...: denied"));
        }
        let (told, rest) = told(&failures);
        assert_eq!(told.iter().filter(|told| **told).count(), 2);
        assert_eq!(
            rest,
            [
                "longhaul: 3 more files failed as a did",
                "longhaul: 3 more files failed as b did: b, b, b"
            ]
        );
    }

    #[test]
    fn the_number_of_causes_is_bounded() {
        let mut groups = FailureGroups::default();
        for n in 0..2 * MAX_CAUSES {
            let message = n.to_string();
            assert!(groups.is_new(("a", &message), &message));
        }
        assert_eq!(groups.groups.len(), MAX_CAUSES);
    }
}
