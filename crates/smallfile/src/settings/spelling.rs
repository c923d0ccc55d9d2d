//! Messages about names that a settings file may not have.

/// Largest edit distance at which a known name is suggested.
const MAX_DISTANCE: usize = 3;

/// The parser's message in one line. For an unknown key the parser lists all keys; only the nearest one is
/// kept.
pub(super) fn one_line_reason(message: &str) -> String {
    let line = message.lines().collect::<Vec<_>>().join(" ");
    if let Some(rest) = line.strip_prefix("unknown field `") {
        let mut names = rest.split('`').step_by(2);
        return unknown_name(names.next().unwrap_or_default(), "setting", names);
    }
    if let Some(rest) = line.strip_prefix("unknown variant `") {
        let mut names = rest.split('`').step_by(2);
        return unknown_value(names.next().unwrap_or_default(), names);
    }
    line
}

/// Says which values there are; they are few.
fn unknown_value<'n>(value: &str, values: impl Iterator<Item = &'n str>) -> String {
    let mut values: Vec<String> = values
        .filter(|value| !value.is_empty())
        .map(|value| format!("{value:?}"))
        .collect();
    let last = values.pop().unwrap_or_default();
    match values.is_empty() {
        true => format!("{value:?} is not a value; use {last}"),
        false => format!(
            "{value:?} is not a value; use {} or {last}",
            values.join(", ")
        ),
    }
}

/// Says that `key` is no `noun`, and which of `names` is the nearest.
pub fn unknown_name<'n>(key: &str, noun: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let nearest = names
        .into_iter()
        .map(|name| (edit_distance(key, name), name))
        .min()
        .filter(|(distance, _)| *distance <= MAX_DISTANCE);
    match nearest {
        Some((_, name)) => format!("{key:?} is not a {noun}; is {name:?} meant?"),
        None => format!("{key:?} is not a {noun}"),
    }
}

/// Number of letters to insert, delete or replace (Levenshtein distance).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_key_is_suggested() {
        let message =
            "unknown field `max-streems`, expected one of `listen`, `max-streams`, `drain`";
        assert_eq!(
            one_line_reason(message),
            "\"max-streems\" is not a setting; is \"max-streams\" meant?"
        );
        let message = "unknown field `colour`, expected one of `listen`, `drain`";
        assert_eq!(one_line_reason(message), "\"colour\" is not a setting");
        assert_eq!(
            one_line_reason("unknown variant `pairwize`, expected `pairwise` or `prefix`"),
            "\"pairwize\" is not a value; use \"pairwise\" or \"prefix\""
        );
        assert_eq!(
            one_line_reason("unknown variant `on`, expected one of `auto`, `off`, `required`"),
            "\"on\" is not a value; use \"auto\", \"off\" or \"required\""
        );
        assert_eq!(
            one_line_reason("invalid type: string \"x\",\nexpected u64"),
            "invalid type: string \"x\", expected u64"
        );
    }

    #[test]
    fn the_edit_distance_counts_letters() {
        for (a, b, letters) in [
            ("", "", 0),
            ("a", "", 1),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edit_distance(a, b), letters, "{a} {b}");
        }
    }
}
