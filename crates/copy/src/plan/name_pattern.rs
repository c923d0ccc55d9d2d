//! Patterns of names in the last component of a path: wildcards, and alternatives in braces.

use proto::listing::ListedEntry;
use proto::pattern::braces::{expand_braces, has_braces};
use proto::pattern::{GlobPattern, has_wildcard};

use super::paths::last_component;
use ftp::Failure;
use ftp::location::Location;

/// A pattern of names: one of the alternatives that its braces stand for.
#[derive(Debug)]
pub(crate) struct NamePattern {
    text: Vec<u8>,
    alternatives: Vec<PatternAlternative>,
}

#[derive(Debug)]
struct PatternAlternative {
    pattern: GlobPattern,
    /// The text, if it has no wildcard: a name, of which a file is expected.
    name: Option<Vec<u8>>,
}

impl NamePattern {
    /// The pattern in the last component of a location, if any.
    ///
    /// # Errors
    /// `Usage`: the braces stand for too many names.
    pub(crate) fn of(location: &Location) -> Result<Option<Self>, Failure> {
        let Some(text) = last_component(location) else {
            return Ok(None);
        };
        if !has_wildcard(&text) && !has_braces(&text) {
            return Ok(None);
        }
        let texts = expand_braces(&text)
            .map_err(|error| Failure::usage(format!("{}: {error}", location.display())))?;
        let alternatives = texts.into_iter().map(|text| PatternAlternative {
            pattern: GlobPattern::new(&text),
            name: Some(text).filter(|text| !has_wildcard(text)),
        });
        let alternatives = alternatives.collect();
        Ok(Some(Self { text, alternatives }))
    }

    /// Keeps the entries that the pattern stands for: the one of exactly that name, if there is one, otherwise all that
    /// match. Returns whether it was a name.
    pub(crate) fn select(&self, entries: &mut Vec<ListedEntry>) -> bool {
        let is_name = entries.iter().any(|entry| entry.name == self.text);
        match is_name {
            true => entries.retain(|entry| entry.name == self.text),
            false => entries.retain(|entry| self.matches(&entry.name)),
        }
        is_name
    }

    /// A name in the braces, without wildcards, that none of the entries has.
    pub(crate) fn missing_name(&self, entries: &[ListedEntry]) -> Option<&[u8]> {
        let names = self.alternatives.iter();
        let missing = names
            .filter(|expected| expected.name.is_some())
            .find(|expected| !entries.iter().any(|e| expected.pattern.matches(&e.name)));
        missing.and_then(|expected| expected.name.as_deref())
    }

    /// Whether an entry of this name could be one of those that the pattern stands for.
    pub(crate) fn may_stand_for(&self, name: &[u8]) -> bool {
        name == self.text || self.matches(name)
    }

    fn matches(&self, name: &[u8]) -> bool {
        let mut alternatives = self.alternatives.iter();
        alternatives.any(|alternative| alternative.pattern.matches(name))
    }
}
