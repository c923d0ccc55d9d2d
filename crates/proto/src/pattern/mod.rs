//! Shell patterns over raw bytes, for the last component of LIST and for sources on the command line.

pub mod braces;

/// Shell pattern: `*` matches any string, `?` one character, `[a-z]` and `[!a-z]` a class, and `\` makes
/// the next character literal. As in a shell, a leading `.` matches only a literal `.`. An unclosed `[` is
/// literal, and so are braces: [`braces::expand_braces`] comes before. A character is a UTF-8 character (RFC 2640) or a byte that is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobPattern {
    items: Vec<PatternItem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternItem {
    Literal(PatternChar),
    AnyChar,
    AnyString,
    Class {
        negated: bool,
        ranges: Vec<(PatternChar, PatternChar)>,
    },
}

/// One character of a name or pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PatternChar {
    Char(char),
    /// A byte that is not valid UTF-8.
    Byte(u8),
}

const DOT: PatternChar = PatternChar::Char('.');

impl PatternItem {
    fn matches(&self, letter: PatternChar) -> bool {
        match self {
            Self::Literal(literal) => *literal == letter,
            Self::AnyChar | Self::AnyString => true,
            Self::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|&(low, high)| (low..=high).contains(&letter))
                    != *negated
            }
        }
    }
}

/// Whether a name contains `*`, `?` or `[` and so is a pattern.
pub fn has_wildcard(name: &[u8]) -> bool {
    name.iter().any(|b| b"*?[".contains(b))
}

impl GlobPattern {
    /// Parses a pattern; every byte string is valid.
    pub fn new(text: &[u8]) -> Self {
        let mut items = Vec::new();
        let mut rest = text;
        while let Some((letter, tail)) = split_first_char(rest) {
            rest = tail;
            let item = match letter {
                PatternChar::Char('*') => PatternItem::AnyString,
                PatternChar::Char('?') => PatternItem::AnyChar,
                PatternChar::Char('\\') => match split_first_char(tail) {
                    Some((literal, after)) => {
                        rest = after;
                        PatternItem::Literal(literal)
                    }
                    None => PatternItem::Literal(letter),
                },
                PatternChar::Char('[') => match parse_class(tail) {
                    Some((item, after)) => {
                        rest = after;
                        item
                    }
                    None => PatternItem::Literal(letter),
                },
                other => PatternItem::Literal(other),
            };
            // Consecutive stars are merged: they match the same, but each would cost a retry.
            if item != PatternItem::AnyString || items.last() != Some(&PatternItem::AnyString) {
                items.push(item);
            }
        }
        Self { items }
    }

    /// Whether the whole name matches. It takes at most name length times pattern length steps, since
    /// only the last `*` is retried.
    pub fn matches(&self, name: &[u8]) -> bool {
        if name.first() == Some(&b'.') && self.items.first() != Some(&PatternItem::Literal(DOT)) {
            return false;
        }
        // The usual iterative algorithm: on a mismatch, the last star takes one more character.
        let (mut rest, mut item) = (name, 0);
        let mut retry: Option<(&[u8], usize)> = None;
        while let Some((letter, tail)) = split_first_char(rest) {
            match self.items.get(item) {
                Some(PatternItem::AnyString) => {
                    retry = Some((rest, item + 1));
                    item += 1;
                }
                Some(one) if one.matches(letter) => {
                    rest = tail;
                    item += 1;
                }
                _ => {
                    let Some((from, after)) = retry else {
                        return false;
                    };
                    let from = split_first_char(from).map_or(from, |(_, shorter)| shorter);
                    retry = Some((from, after));
                    (rest, item) = (from, after);
                }
            }
        }
        self.items[item..]
            .iter()
            .all(|rest| *rest == PatternItem::AnyString)
    }
}

/// Splits off the first character; `None` at the end of the text.
fn split_first_char(text: &[u8]) -> Option<(PatternChar, &[u8])> {
    let (&byte, tail) = text.split_first()?;
    if byte.is_ascii() {
        return Some((PatternChar::Char(char::from(byte)), tail));
    }
    // A UTF-8 character has at most four bytes.
    let chunk = text[..text.len().min(4)].utf8_chunks().next()?;
    Some(match chunk.valid().chars().next() {
        Some(char) => (PatternChar::Char(char), &text[char.len_utf8()..]),
        None => (PatternChar::Byte(byte), tail),
    })
}

/// Parses a class after its `[`. A `]` in first place is a member.
fn parse_class(text: &[u8]) -> Option<(PatternItem, &[u8])> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let body = &text[usize::from(negated)..];
    // The search skips the first member, which may be a literal `]`.
    let close = 1 + body.iter().skip(1).position(|&b| b == b']')?;
    let mut ranges = Vec::new();
    let mut members = &body[..close];
    while let Some((low, tail)) = split_first_char(members) {
        let range = tail.strip_prefix(b"-").and_then(split_first_char);
        let (high, after) = range.unwrap_or((low, tail));
        ranges.push((low, high));
        members = after;
    }
    Some((PatternItem::Class { negated, ranges }, &body[close + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        GlobPattern::new(pattern.as_bytes()).matches(name.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        assert!(matches("*", "a") && matches("*", ""));
        assert!(matches("a*b*c", "aXbYbZc") && !matches("a*b*c", "aXbYbZ"));
        assert!(matches("?.da?", "x.dat") && !matches("?", ""));
        assert!(matches("[a-c]x", "bx") && !matches("[!a-c]x", "bx"));
        assert!(matches("[]-]", "]") && matches("[]-]", "-"));
        assert!(matches("[x", "[x") && matches("[", "["));
        assert!(matches(r"\*", "*") && !matches(r"\*", "x"));
        assert!(!matches("*", ".hidden") && matches(".*", ".hidden"));
        assert!(!matches("?hidden", ".hidden") && !matches("[.]h", ".h"));
    }

    #[test]
    fn a_character_is_valid_utf8_or_a_single_byte() {
        assert!(matches("caf?", "café") && matches("caf[è-ê]", "café"));
        assert!(!matches("caf?", "cafés") && !matches("caf[!é]", "café"));
        assert!(GlobPattern::new(b"?\xff[\xfe]").matches(b"\xfd\xff\xfe"));
        assert!(!GlobPattern::new(b"?").matches(b"\xc3\xc3"), "two bytes");
        assert!(GlobPattern::new(b"*\xa9").matches(b"\xa9\xa9"));
    }

    #[test]
    fn names_with_wildcards_are_patterns() {
        assert!(has_wildcard(b"*.dat") && has_wildcard(b"a?") && has_wildcard(b"[x"));
        assert!(!has_wildcard(br"a\b") && !has_wildcard(b""));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(2000) + "b";
        assert!(!matches(&pattern, &"a".repeat(255)));
    }

    /// Recursive reference implementation.
    fn model(items: &[PatternItem], name: &[u8]) -> bool {
        let hit = |one: &PatternItem, rest| {
            split_first_char(name)
                .is_some_and(|(letter, tail)| one.matches(letter) && model(rest, tail))
        };
        match items.split_first() {
            None => name.is_empty(),
            Some((PatternItem::AnyString, rest)) => {
                model(rest, name) || hit(&PatternItem::AnyString, items)
            }
            Some((one, rest)) => hit(one, rest),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_reference(pattern in r"[abé*?\[\]!\\-]{0,10}", name in "[abé-]{0,10}") {
            let pattern = GlobPattern::new(pattern.as_bytes());
            prop_assert_eq!(pattern.matches(name.as_bytes()), model(&pattern.items, name.as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(pattern: Vec<u8>, name: Vec<u8>) {
            GlobPattern::new(&pattern).matches(&name);
        }
    }
}
