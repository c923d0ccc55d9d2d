//! Alternatives in braces, as a shell expands them: `x{a,b}` stands for `xa` and `xb`.

/// Most texts that one stands for.
pub const MAX_ALTERNATIVES: usize = 1024;

/// A text stands for more than [`MAX_ALTERNATIVES`] others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its braces stand for more than {MAX_ALTERNATIVES} names")]
pub struct TooManyAlternatives;

/// Whether a name may have alternatives in braces. They may still be escaped.
pub fn has_braces(name: &[u8]) -> bool {
    let after = |text: &[u8], byte| text.iter().position(|b| *b == byte).map(|at| at + 1);
    let comma = after(name, b'{').and_then(|open| Some(open + after(&name[open..], b',')?));
    comma.is_some_and(|comma| name[comma..].contains(&b'}'))
}

/// The texts that `text` stands for, in a shell's order: groups `{a,b}` may be nested and empty (`a{,b}`). Braces
/// without a comma, or without their other half, are literal, as is a brace or comma after `\`. Escapes are kept, for
/// [`GlobPattern`](super::GlobPattern).
///
/// # Errors
/// There are more than [`MAX_ALTERNATIVES`].
pub fn expand_braces(text: &[u8]) -> Result<Vec<Vec<u8>>, TooManyAlternatives> {
    let mut expanded = Vec::new();
    // The next text is the last one.
    let mut pending = vec![text.to_vec()];
    while let Some(text) = pending.pop() {
        let Some(group) = first_group(&text) else {
            expanded.push(text);
            continue;
        };
        let (before, after) = (&text[..group.open], &text[group.close + 1..]);
        let ends = group.commas.iter().chain([&group.close]);
        let mut start = group.open + 1;
        let mut alternatives = Vec::new();
        for end in ends {
            alternatives.push([before, &text[start..*end], after].concat());
            start = end + 1;
        }
        pending.extend(alternatives.into_iter().rev());
        if expanded.len() + pending.len() > MAX_ALTERNATIVES {
            return Err(TooManyAlternatives);
        }
    }
    Ok(expanded)
}

/// Positions of a group's braces and of the commas that are its own.
#[derive(Debug)]
struct BraceGroup {
    open: usize,
    commas: Vec<usize>,
    close: usize,
}

/// The group that begins first.
fn first_group(text: &[u8]) -> Option<BraceGroup> {
    let mut found: Option<BraceGroup> = None;
    // Open braces, the innermost last, each with its commas.
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut is_escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => {
                is_escaped = false;
                continue;
            }
            b'\\' => is_escaped = true,
            b'{' => open.push((at, Vec::new())),
            b',' => open
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|o| o.1.push(at)),
            b'}' => {
                let Some((start, commas)) = open.pop() else {
                    continue;
                };
                // An enclosing group closes later and begins before those within it.
                let is_first = found.as_ref().is_none_or(|first| start < first.open);
                if is_first && !commas.is_empty() {
                    found = Some(BraceGroup {
                        open: start,
                        commas,
                        close: at,
                    });
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expand(text: &str) -> Vec<String> {
        let expanded = expand_braces(text.as_bytes()).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        expanded.into_iter().map(text).collect()
    }

    #[test]
    fn braces_expand_as_in_a_shell() {
        assert_eq!(expand("x{a,b}y"), ["xay", "xby"]);
        assert_eq!(expand("{a,b}{c,d}"), ["ac", "ad", "bc", "bd"]);
        assert_eq!(expand("{a,b{c,d},e}"), ["a", "bc", "bd", "e"]);
        assert_eq!(expand("f{,.bak}"), ["f", "f.bak"]);
        assert_eq!(expand("{a{b,c}}"), ["{ab}", "{ac}"]);
        assert_eq!(expand("*.{nc,h5}"), ["*.nc", "*.h5"]);
    }

    #[test]
    fn braces_without_a_comma_or_their_other_half_are_literal() {
        for text in [
            "", "{}", "{a}", "a,b", "{a,b", "a,b}", r"\{a,b\}", r"{a\,b}", "}{", "{",
        ] {
            assert_eq!(expand(text), [text]);
        }
        assert_eq!(expand("{{a,b}"), ["{a", "{b"]);
        assert_eq!(expand("{a,b}}"), ["a}", "b}"]);
        assert_eq!(expand(r"{a\,b,c}"), [r"a\,b", "c"]);
    }

    #[test]
    fn names_with_a_comma_between_braces_may_have_alternatives() {
        assert!(has_braces(b"{a,b}") && has_braces(b"x{,y}z") && has_braces(br"\{,}"));
        assert!(!has_braces(b"{a}") && !has_braces(b",{}") && !has_braces(b"}{,"));
    }

    #[test]
    fn the_number_of_texts_is_limited() {
        assert_eq!(expand(&"{a,b}".repeat(10)).len(), MAX_ALTERNATIVES);
        assert_eq!(
            expand_braces("{a,b}".repeat(11).as_bytes()),
            Err(TooManyAlternatives)
        );
        assert_eq!(
            expand_braces(",".repeat(5000).as_bytes()),
            Ok(vec![vec![b','; 5000]])
        );
        let many = format!("{{{}}}", ",".repeat(MAX_ALTERNATIVES));
        assert_eq!(expand_braces(many.as_bytes()), Err(TooManyAlternatives));
    }

    /// Recursive reference: the alternatives of a sequence of literals and groups.
    #[derive(Debug, Clone)]
    enum Part {
        Text(String),
        Group(Vec<Vec<Part>>),
    }

    fn written(parts: &[Part]) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Group(all) => {
                let all: Vec<_> = all.iter().map(|one| written(one)).collect();
                format!("{{{}}}", all.join(","))
            }
        };
        parts.iter().map(part).collect()
    }

    fn model(parts: &[Part]) -> Vec<String> {
        let Some((first, rest)) = parts.split_first() else {
            return vec![String::new()];
        };
        let heads = match first {
            Part::Text(text) => vec![text.clone()],
            Part::Group(all) => all.iter().flat_map(|one| model(one)).collect(),
        };
        let tails = model(rest);
        let join = |head: String| tails.iter().map(move |tail| format!("{head}{tail}"));
        heads.into_iter().flat_map(join).collect()
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let text = "[ab*é.]{0,3}".prop_map(Part::Text);
        let part = text.prop_recursive(3, 12, 3, |inner| {
            let alternative = proptest::collection::vec(inner, 0..3);
            proptest::collection::vec(alternative, 2..4).prop_map(Part::Group)
        });
        proptest::collection::vec(part, 0..3)
    }

    proptest! {
        #[test]
        fn expansion_agrees_with_the_reference(parts in parts()) {
            let expected = model(&parts);
            prop_assume!(expected.len() <= MAX_ALTERNATIVES);
            prop_assert_eq!(expand(&written(&parts)), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in r"[a{},\\]{0,40}") {
            if let Ok(all) = expand_braces(text.as_bytes()) {
                prop_assert!(!all.is_empty() && all.len() <= MAX_ALTERNATIVES);
            }
        }
    }
}
