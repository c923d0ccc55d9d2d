//! Names that a peer repeats in its lines.

/// The text with `by` in place of `part`, but not where a byte beside it `joins` it to a longer word.
pub fn replace_part(text: &[u8], part: &[u8], by: &[u8], joins: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = 0;
    let mut at = 0;
    while !part.is_empty() && at + part.len() <= text.len() {
        let end = at + part.len();
        let beside = [text[..at].last(), text.get(end)];
        if text[at..].starts_with(part) && !beside.into_iter().flatten().any(|byte| joins(*byte)) {
            replaced.extend_from_slice(&text[rest..at]);
            replaced.extend_from_slice(by);
            (at, rest) = (end, end);
        } else {
            at += 1;
        }
    }
    replaced.extend_from_slice(&text[rest..]);
    replaced
}

/// The text with `by` in place of a path, and of its last component, where they stand alone: without letters, digits,
/// `-`, `_` or a byte of another script beside them.
pub fn replace_path(text: &[u8], path: &[u8], by: &[u8]) -> Vec<u8> {
    let joins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | 0x80..);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let text = replace_part(text, path, by, joins);
    replace_part(&text, name, by, joins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_its_name_are_replaced_where_they_stand_alone() {
        for (text, wanted) in [
            ("550 /d/f1: No such file", "550 ...: No such file"),
            ("550 f1, f1", "550 ..., ..."),
            ("550 /d/f10 of 2f1", "550 /d/f10 of 2f1"),
            ("f1", "..."),
            ("", ""),
        ] {
            let found = replace_path(text.as_bytes(), b"/d/f1", b"...");
            assert_eq!(String::from_utf8(found).unwrap(), wanted);
        }
        assert_eq!(replace_path(b"a b", b"/", b"..."), b"a b");
    }

    #[test]
    fn a_part_that_nothing_joins_is_replaced_within_words() {
        assert_eq!(
            replace_part(b"xsecretx", b"secret", b"***", |_| false),
            b"x***x"
        );
        assert_eq!(
            replace_part(b"secretx", b"secret", b"***", |_| true),
            b"secretx"
        );
    }
}
