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
