//! Errors in a topology, with their position in the text.

use std::ops::Range;

use crate::LabError;

/// An error in a topology, not yet related to a file or an option.
#[derive(Debug)]
pub(super) struct TopologyError {
    message: String,
    /// Byte range in the text; `None` if unknown.
    span: Option<Range<usize>>,
    kind: fn(String) -> LabError,
}

impl TopologyError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span: None,
            kind: LabError::Usage,
        }
    }

    /// The error for a file that does not exist.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self {
            kind: LabError::NotFound,
            ..Self::new(message)
        }
    }

    /// Sets the position, unless a more exact one is set already.
    pub(super) fn at(mut self, place: Range<usize>) -> Self {
        self.span.get_or_insert(place);
        self
    }

    /// Puts the name of a key or a path before the message.
    pub(super) fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The error as one in a command-line option, whose name begins the message.
    pub(super) fn in_option(self) -> LabError {
        (self.kind)(format!("--{}", one_line(&self.message)))
    }

    /// The error as one line, with its line number in this text.
    pub(super) fn into_error(self, text: &str) -> LabError {
        let message = one_line(&self.message);
        let before = self.span.and_then(|place| text.get(..place.start));
        (self.kind)(match before {
            Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
            None => message,
        })
    }
}

impl From<toml::de::Error> for TopologyError {
    fn from(error: toml::de::Error) -> Self {
        let fault = Self::new(error.message());
        match error.span() {
            Some(place) => fault.at(place),
            None => fault,
        }
    }
}

fn one_line(message: &str) -> String {
    message
        .split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
