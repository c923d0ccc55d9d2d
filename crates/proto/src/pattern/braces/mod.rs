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
mod tests;
