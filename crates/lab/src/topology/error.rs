//! A mistake in a topology, and where it is.

use std::ops::Range;

use crate::LabError;

/// A mistake, before it is known what text it is in.
#[derive(Debug)]
pub(super) struct TopologyError {
    message: String,
    /// Bytes of the text; `None`: no certain place.
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

    /// A file that does not exist.
    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self {
            kind: LabError::NotFound,
            ..Self::new(message)
        }
    }

    /// Here, unless it is known more exactly.
    pub(super) fn at(mut self, place: Range<usize>) -> Self {
        self.span.get_or_insert(place);
        self
    }

    /// In `what`: a key or a path.
    pub(super) fn within(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// In an option of the command line.
    pub(super) fn in_option(self) -> LabError {
        (self.kind)(format!("--{}", one_line(&self.message)))
    }

    /// In this text: one line that names the line.
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
