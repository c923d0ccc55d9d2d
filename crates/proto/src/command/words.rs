//! Reads the argument of a command word by word.

use std::net::IpAddr;

use super::{CommandError, RawArgument};
use crate::ranges::MAX_FILE_OFFSET;

/// The unread part of an argument. Words are separated by one or more spaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArgumentWords<'a> {
    /// The verb, for error messages.
    pub(super) verb: &'static str,
    /// Unread bytes, including leading spaces.
    rest: &'a [u8],
}

impl<'a> ArgumentWords<'a> {
    pub(super) fn new(verb: &'static str, argument: &'a [u8]) -> Self {
        Self {
            verb,
            rest: argument,
        }
    }

    /// All unread bytes, including leading spaces.
    pub(super) fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// All unread bytes, without leading spaces.
    pub(super) fn remaining_trimmed(&self) -> &'a [u8] {
        without_leading_spaces(self.rest)
    }

    /// Takes the next word, if there is one.
    pub(super) fn next_word(&mut self) -> Option<&'a [u8]> {
        let (word, rest) = split_at_space(self.remaining_trimmed());
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Takes the next word as text; `what` names it in the error.
    pub(super) fn required_word(&mut self, what: &str) -> Result<&'a str, CommandError> {
        let Some(word) = self.next_word() else {
            return Err(self.syntax_error(format!("{what} is missing")));
        };
        str::from_utf8(word).map_err(|_| self.syntax_error(format!("{what} is not text")))
    }

    /// Takes the next word as a number of 0..=[`MAX_FILE_OFFSET`].
    pub(super) fn required_number(&mut self, what: &str) -> Result<u64, CommandError> {
        let word = self.required_word(what)?;
        parse_number(word)
            .ok_or_else(|| self.syntax_error(format!("{what} is not a number in range")))
    }

    /// Takes the next word as a number of 0..2^32.
    pub(super) fn required_u32(&mut self, what: &str) -> Result<u32, CommandError> {
        u32::try_from(self.required_number(what)?)
            .map_err(|_| self.syntax_error(format!("{what} is not a number in range")))
    }

    /// Takes the next word as an IP address.
    pub(super) fn required_ip(&mut self) -> Result<IpAddr, CommandError> {
        let word = self.required_word("address")?;
        word.parse()
            .map_err(|_| self.syntax_error("address is not an IP address"))
    }

    /// Takes the next word as an octal number of 0..=07777.
    pub(super) fn required_octal_mode(&mut self) -> Result<u32, CommandError> {
        let word = self.required_word("mode")?;
        Some(word)
            // `from_str_radix` would accept a leading `+`.
            .filter(|w| w.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|w| u32::from_str_radix(w, 8).ok())
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| self.syntax_error("mode is not an octal number of 0 to 7777"))
    }

    /// Returns `value` if no word is left, otherwise a syntax error.
    pub(super) fn finish_with<T>(&self, value: T) -> Result<T, CommandError> {
        if self.remaining_trimmed().is_empty() {
            return Ok(value);
        }
        Err(self.syntax_error("too many arguments"))
    }

    /// Takes all unread bytes as a path. The one space before the path is consumed already; further
    /// spaces, also at the end, belong to the name.
    pub(super) fn required_path(self) -> Result<RawArgument, CommandError> {
        self.optional_path()
            .ok_or_else(|| self.syntax_error("path is missing"))
    }

    /// Takes all unread bytes as a path, if there are any; see [`Self::required_path`] for spaces.
    pub(super) fn optional_path(self) -> Option<RawArgument> {
        (!self.rest.is_empty()).then(|| self.rest.to_vec())
    }

    /// Takes all unread bytes as text without surrounding spaces. Invalid UTF-8 is replaced.
    pub(super) fn optional_text(self) -> Option<String> {
        let text = String::from_utf8_lossy(self.remaining_trimmed());
        let text = text.trim_end_matches(' ');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Like [`Self::optional_text`], but an error if there is no text.
    pub(super) fn required_text(self, what: &str) -> Result<String, CommandError> {
        self.optional_text()
            .ok_or_else(|| self.syntax_error(format!("{what} is missing")))
    }

    /// Like [`Self::required_text`], but invalid UTF-8 is an error. Replacing it could make two different
    /// names equal.
    pub(super) fn required_utf8(self, what: &str) -> Result<String, CommandError> {
        if str::from_utf8(self.remaining_trimmed()).is_err() {
            return Err(self.syntax_error(format!("{what} is not UTF-8")));
        }
        self.required_text(what)
    }

    pub(super) fn syntax_error(&self, reason: impl Into<String>) -> CommandError {
        CommandError::Syntax {
            verb: self.verb,
            reason: reason.into(),
        }
    }

    pub(super) fn unsupported(&self, reason: impl Into<String>) -> CommandError {
        CommandError::UnsupportedParameter {
            verb: self.verb,
            reason: reason.into(),
        }
    }
}

/// Parses digits up to [`MAX_FILE_OFFSET`]. `FromStr` alone would accept a leading `+`.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|n| *n <= MAX_FILE_OFFSET)
}

/// Splits at the first space: the text before it and the text after it.
pub(super) fn split_at_space(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|b| *b == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

fn without_leading_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| *b != b' ').unwrap_or(text.len());
    &text[start..]
}
