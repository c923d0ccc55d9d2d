//! A pattern of rclone as a regular expression (rclone, `fs/filter/glob.go` and the page "rclone filtering").

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Largest compiled expression, bytes: `{{...}}` holds any.
const MAX_COMPILED: usize = 1 << 20;

/// A pattern of paths relative to the top of a tree, or of their ends from a name on.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern(Regex);

impl PathPattern {
    /// Translates a pattern.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn parse(pattern: &str) -> Result<Self, String> {
        let (start, rest) = match pattern.strip_prefix('/') {
            Some(rest) => ("^", rest),
            None => ("(?:^|/)", pattern),
        };
        let expression = format!("{start}{}$", translated(rest)?);
        let built = RegexBuilder::new(&expression)
            // A name may contain a line break.
            .dot_matches_new_line(true)
            .size_limit(MAX_COMPILED)
            .build();
        built.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            // The text of a syntax error has several lines, the reason in the last one.
            error => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                reason.trim_start_matches("error: ").to_owned()
            }
        })
    }

    pub(crate) fn is_match(&self, path: &str) -> bool {
        self.0.is_match(path)
    }

    /// The expression, which differs between patterns that match other paths.
    pub(crate) fn expression(&self) -> &str {
        self.0.as_str()
    }
}

/// The expression for a pattern without its anchors.
fn translated(pattern: &str) -> Result<String, String> {
    let mut expression = String::new();
    let mut characters = pattern.chars().peekable();
    let mut braces = 0_u32;
    while let Some(character) = characters.next() {
        match character {
            '*' => expression.push_str(stars(&mut characters)?),
            '?' => expression.push_str("[^/]"),
            '[' => push_class(&mut expression, &mut characters)?,
            ']' => return Err("a ']' has no '['".to_owned()),
            '{' if characters.next_if_eq(&'{').is_some() => {
                push_regular_expression(&mut expression, &mut characters)?;
            }
            '{' => {
                braces += 1;
                expression.push_str("(?:");
            }
            '}' if braces == 0 => return Err("a '}' has no '{'".to_owned()),
            '}' => {
                braces -= 1;
                expression.push(')');
            }
            ',' if braces > 0 => expression.push('|'),
            '\\' => push_escaped(&mut expression, characters.next())?,
            literal => push_literal(&mut expression, literal),
        }
    }
    match braces {
        0 => Ok(expression),
        _ => Err("a '{' has no '}'".to_owned()),
    }
}

fn push_literal(expression: &mut String, literal: char) {
    expression.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
}

/// After a `*`: one stays within a name, two cross slashes anywhere.
fn stars(characters: &mut Peekable<Chars<'_>>) -> Result<&'static str, String> {
    if characters.next_if_eq(&'*').is_none() {
        return Ok("[^/]*");
    }
    match characters.peek() {
        Some('*') => Err("three '*' follow each other".to_owned()),
        _ => Ok(".*"),
    }
}

/// After a `\`. Letters and digits would stand for classes of an expression.
fn push_escaped(expression: &mut String, escaped: Option<char>) -> Result<(), String> {
    match escaped {
        None => Err("it ends with '\\': write '\\\\' for a backslash".to_owned()),
        Some(letter) if letter.is_alphanumeric() => Err(format!(
            "'\\{letter}' means nothing: write '\\\\' for a backslash"
        )),
        Some(other) => {
            push_literal(expression, other);
            Ok(())
        }
    }
}

/// After a `[`: a class of characters up to its `]`, which may hold classes such as `[:alpha:]`. It is one of an expression, so
/// `^` negates it.
fn push_class(expression: &mut String, characters: &mut Peekable<Chars<'_>>) -> Result<(), String> {
    expression.push('[');
    if characters.next_if_eq(&'^').is_some() {
        expression.push('^');
    }
    let mut last = None;
    loop {
        let character = characters
            .next()
            .ok_or_else(|| "a '[' has no ']'".to_owned())?;
        match character {
            ']' if last.is_none() => return Err("a '[]' is empty".to_owned()),
            ']' => break,
            '[' if characters.peek() == Some(&':') => {
                let name = |character: &char| character.is_ascii_alphabetic() || *character == '^';
                expression.push_str("[:");
                characters.next();
                while let Some(letter) = characters.next_if(name) {
                    expression.push(letter);
                }
                expression.push_str(":]");
                if characters.next() != Some(':') || characters.next() != Some(']') {
                    return Err("a '[:' has no ':]'".to_owned());
                }
            }
            '\\' => push_escaped(expression, characters.next())?,
            '-' if last == Some('-') => return Err("a class contains '--'".to_owned()),
            // They join classes in this crate, and are plain characters elsewhere.
            '[' | '&' | '~' => {
                expression.push('\\');
                expression.push(character);
            }
            character => expression.push(character),
        }
        last = Some(character);
    }
    expression.push(']');
    Ok(())
}

/// After `{{`: a regular expression up to the last of the next braces.
fn push_regular_expression(
    expression: &mut String,
    characters: &mut Peekable<Chars<'_>>,
) -> Result<(), String> {
    let mut inner = String::new();
    while let Some(character) = characters.next() {
        if character == '}' && characters.next_if_eq(&'}').is_some() {
            while characters.next_if_eq(&'}').is_some() {
                inner.push('}');
            }
            expression.push_str(&format!("(?:{inner})"));
            return Ok(());
        }
        inner.push(character);
    }
    Err("a '{{' has no '}}'".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, path: &str) -> bool {
        PathPattern::parse(pattern).unwrap().is_match(path)
    }

    #[test]
    fn two_stars_cross_slashes_anywhere_and_one_nowhere() {
        for (pattern, path, is_match) in [
            ("a**z", "a/b/z", true),
            ("a**z", "x/abz", true),
            ("/a**z", "x/abz", false),
            ("d**", "d/e/f", true),
            ("**.txt", "d/e/f.txt", true),
            ("a*z", "a/z", false),
            ("/**/x", "d/x", true),
            ("/**/x", "x", false),
            ("**/x", "x", false),
            ("{a,b/**}c", "b/d/c", true),
            ("a\nb**", "d/a\nbc\nd", true),
        ] {
            assert_eq!(matched(pattern, path), is_match, "{pattern} {path:?}");
        }
    }

    #[test]
    fn classes_and_escapes_are_those_of_an_expression() {
        for (pattern, path, is_match) in [
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[!a]x", "!x", true),
            ("[!a]x", "bx", false),
            ("[[:digit:]]x", "1x", true),
            ("[[:digit:]]x", "[x", false),
            ("[a&&b]x", "&x", true),
            ("[a&&b]x", "ax", true),
            ("[a~~b]x", "~x", true),
            (r"[\]a]x", "]x", true),
            (r"\*x", "*x", true),
            (r"\*x", "ax", false),
            (r"\{a,b\}", "{a,b}", true),
            ("a.b", "axb", false),
            ("a+(b)|^$", "a+(b)|^$", true),
            ("#x", "#x", true),
            ("?x", "éx", true),
            ("{{[0-9]{3}}}x", "123x", true),
            ("{{[0-9]{3}}}x", "12x", false),
            ("{,a}x", "x", true),
            ("{a,{b,c}}x", "cx", true),
            ("a,b", "a,b", true),
        ] {
            assert_eq!(matched(pattern, path), is_match, "{pattern} {path:?}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_its_reason() {
        for (pattern, reason) in [
            ("[a", "']'"),
            ("a]", "'['"),
            ("[]a", "empty"),
            ("{a", "'}'"),
            ("a}", "'{'"),
            ("***", "three"),
            ("a\\", "backslash"),
            (r"d\g", "backslash"),
            ("[b-a]", "invalid"),
            ("[+--]", "--"),
            ("{{a", "'}}'"),
            ("{{(}}", "unclosed"),
            ("{{a{100000}}}", "large"),
            ("[[:x]", ":]"),
        ] {
            let refused = PathPattern::parse(pattern).unwrap_err();
            assert!(refused.contains(reason), "{pattern}: {refused}");
            assert!(!refused.contains('\n'), "{pattern}: {refused}");
        }
    }
}
