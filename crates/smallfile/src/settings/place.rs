//! The place of a mistake in a settings file: its line and its key.

/// The number of the line at a byte offset, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text
        .get(..at)
        .map_or(0, |before| before.matches('\n').count())
}

/// The key whose value is at a byte offset, or which is there itself. `None`: there is a table, or no key.
pub(super) fn key_of(text: &str, at: usize) -> Option<&str> {
    let here = text.get(at..)?.lines().next().unwrap_or_default();
    let before = text.get(..at)?;
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    if before[line_start..].trim().is_empty() {
        if here.starts_with('[') {
            return None;
        }
        if let Some(key) = assigned(here) {
            return Some(key);
        }
    }
    // An array may have a value in each line.
    before
        .rsplit('\n')
        .take_while(|line| !line.starts_with('['))
        .find_map(assigned)
}

/// The key of a line `key = value`.
fn assigned(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    let is_key_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (!key.is_empty() && key.chars().all(is_key_letter)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_a_line_and_a_key() {
        let text = "a-b = 1\n\n[t.u]\nc = [\n  \"x\", # d = 1\n  \"y\"\n]\n";
        for (mark, line, key) in [
            ("1", 1, Some("a-b")),
            ("a-b", 1, Some("a-b")),
            ("[t.u]", 3, None),
            ("c =", 4, Some("c")),
            ("\"x\"", 5, Some("c")),
            ("\"y\"", 6, Some("c")),
        ] {
            let at = text.find(mark).unwrap();
            assert_eq!((line_of(text, at), key_of(text, at)), (line, key), "{mark}");
        }
        assert_eq!((line_of("", 0), key_of("", 0)), (1, None));
        assert_eq!(key_of("x", 9), None);
    }
}
