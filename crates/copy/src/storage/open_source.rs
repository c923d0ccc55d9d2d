//! A source that is open in this process.

use std::sync::Arc;

use data::store::Source;
use data::store::root::{FileChange, FileIdentity};

use ftp::answers::{SourceFacts, version_text};
use ftp::{Failure, FailureKind};

/// A source that this process has opened for reading.
#[derive(Debug, Clone)]
pub(crate) struct OpenSource {
    pub(crate) source: Arc<dyn Source>,
    /// Facts of a regular file, which can be read again. `None` for pipes.
    pub(crate) facts: Option<SourceFacts>,
    /// The identity of the open file at the last look, if it can be looked at.
    pub(crate) identity: Option<FileIdentity>,
}

impl OpenSource {
    /// Marks of this version of the file beside size and time, as text.
    pub(crate) fn version(&self) -> Option<String> {
        self.identity.as_ref().map(version_text)
    }

    /// Looks at the open file again: what has happened to it since the last look.
    ///
    /// # Errors
    /// `Local`
    pub(crate) fn change_since_last_look(&mut self) -> Result<FileChange, Failure> {
        let (Some(before), Some(file)) = (&mut self.identity, self.source.fd()) else {
            return Ok(FileChange::None);
        };
        let now = FileIdentity::once_settled(file)
            .map_err(|error| Failure::about(FailureKind::Local, self.source.name(), error))?;
        Ok(std::mem::replace(before, now).change_until(&now))
    }
}
