//! Shell patterns over raw bytes, as LIST takes them in the last component.

/// `*` any bytes, `?` one byte, `[a-z]` and `[!a-z]` classes, `\` takes the next byte literally.
/// As in a shell a leading `.` is matched only by a literal `.`. An unclosed `[` is literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Literal(u8),
    AnyOne,
    AnyRun,
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

impl Item {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Literal(literal) => *literal == byte,
            Self::AnyOne | Self::AnyRun => true,
            Self::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|&(low, high)| (low..=high).contains(&byte))
                    != *negated
            }
        }
    }
}

impl Pattern {
    /// Reads a pattern; every byte string is one.
    pub fn new(text: &[u8]) -> Self {
        let mut items = Vec::new();
        let mut rest = text;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            let item = match byte {
                b'*' => Item::AnyRun,
                b'?' => Item::AnyOne,
                b'\\' if !tail.is_empty() => {
                    rest = &tail[1..];
                    Item::Literal(tail[0])
                }
                b'[' => match class(tail) {
                    Some((item, after)) => {
                        rest = after;
                        item
                    }
                    None => Item::Literal(b'['),
                },
                other => Item::Literal(other),
            };
            if item != Item::AnyRun || items.last() != Some(&Item::AnyRun) {
                items.push(item);
            }
        }
        Self { items }
    }

    /// Whether the whole name matches. Takes at most `name` times pattern length steps: only the
    /// last `*` is ever tried again.
    pub fn matches(&self, name: &[u8]) -> bool {
        if name.first() == Some(&b'.') && self.items.first() != Some(&Item::Literal(b'.')) {
            return false;
        }
        let (mut at, mut item) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.items.get(item) {
                Some(Item::AnyRun) => {
                    retry = Some((at, item + 1));
                    item += 1;
                }
                Some(one) if one.matches(name[at]) => {
                    at += 1;
                    item += 1;
                }
                _ => {
                    let Some((from, after)) = retry else {
                        return false;
                    };
                    retry = Some((from + 1, after));
                    (at, item) = (from + 1, after);
                }
            }
        }
        self.items[item..].iter().all(|rest| *rest == Item::AnyRun)
    }
}

/// Reads a class after its `[`; a `]` that stands first is a member.
fn class(text: &[u8]) -> Option<(Item, &[u8])> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let body = &text[usize::from(negated)..];
    let close = 1 + body.iter().skip(1).position(|&b| b == b']')?;
    let mut ranges = Vec::new();
    let mut members = &body[..close];
    while let Some((&low, tail)) = members.split_first() {
        if let [b'-', high, after @ ..] = tail {
            ranges.push((low, *high));
            members = after;
        } else {
            ranges.push((low, low));
            members = tail;
        }
    }
    Some((Item::Class { negated, ranges }, &body[close + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern.as_bytes()).matches(name.as_bytes())
    }

    #[test]
    fn shell_rules() {
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
    fn no_exponential_blow_up() {
        let pattern = "a*".repeat(2000) + "b";
        assert!(!matches(&pattern, &"a".repeat(255)));
    }

    /// The obvious definition.
    fn model(items: &[Item], name: &[u8]) -> bool {
        match items.split_first() {
            None => name.is_empty(),
            Some((Item::AnyRun, rest)) => (0..=name.len()).any(|n| model(rest, &name[n..])),
            Some((one, rest)) => {
                !name.is_empty() && one.matches(name[0]) && model(rest, &name[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(pattern in r"[ab*?\[\]!\\-]{0,10}", name in "[ab-]{0,10}") {
            let pattern = Pattern::new(pattern.as_bytes());
            prop_assert_eq!(pattern.matches(name.as_bytes()), model(&pattern.items, name.as_bytes()));
        }

        #[test]
        fn takes_any_bytes(pattern: Vec<u8>, name: Vec<u8>) {
            Pattern::new(&pattern).matches(&name);
        }
    }
}
