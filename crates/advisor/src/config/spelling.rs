//! Messages about names that the settings file does not know.

/// Largest edit distance at which a known name is suggested.
const MAX_DISTANCE: usize = 3;

/// The parser's message in one line. For an unknown key the parser lists all keys; only the nearest one is
/// kept.
pub(super) fn one_line_reason(message: &str) -> String {
    let line = message.lines().collect::<Vec<_>>().join(" ");
    let unknown = line
        .strip_prefix("unknown field `")
        .map(|rest| (rest, "setting"))
        .or_else(|| {
            line.strip_prefix("unknown variant `")
                .map(|rest| (rest, "value"))
        });
    let Some((rest, noun)) = unknown else {
        return line;
    };
    let mut names = rest.split('`').step_by(2);
    let key = names.next().unwrap_or_default();
    not_known(key, noun, names)
}

/// Says that `key` is no `noun`, and which of `names` is the nearest.
pub(super) fn not_known<'n>(
    key: &str,
    noun: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> String {
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
