//! The identity of a copy: its source, the part of it, and its version.

use super::{CopyState, FileCopy, StorageSessions, verification};
use crate::local::journal::CopyIdentity;
use ftp::Failure;
use ftp::answers::SourceVersion;

impl FileCopy<'_> {
    /// The identity of the copy, for its journal.
    pub(super) async fn identify(
        &mut self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
    ) -> Result<CopyIdentity, Failure> {
        let version = self.source_version(state, sessions).await?;
        Ok(CopyIdentity {
            source: self.ctx.place_key(&self.item.source),
            destination: self.ctx.place_key(&self.item.destination),
            size: match state.source {
                Some(_) => state.range.size,
                None => state.facts.size,
            },
            modified: match version {
                SourceVersion::Unknown => None,
                _ => state.facts.modified.map(|t| t.0),
            },
            version: match (version, &state.source) {
                (SourceVersion::Tag(tag), _) => Some(tag),
                (_, Some(opened)) => opened.version(),
                (SourceVersion::Facts, None) => {
                    state.facts.version.map(|version| format!("{version:x}"))
                }
                (SourceVersion::Unknown, None) => None,
            },
            part: state.range.part,
            in_order: self.stream_plan.unwrap_or_default().in_order,
        })
    }

    /// The version of the source, which must be that of the attempts before.
    async fn source_version(
        &mut self,
        state: &CopyState<'_>,
        sessions: &mut StorageSessions,
    ) -> Result<SourceVersion, Failure> {
        let source = &self.item.source;
        let version = match state.source_is_local() {
            true => SourceVersion::Facts,
            false => sessions.from.version(source.path()).await?,
        };
        match *self.version.get_or_insert_with(|| version.clone()) == version {
            true => Ok(version),
            false => Err(verification::source_changed_failure(source)),
        }
    }
}
