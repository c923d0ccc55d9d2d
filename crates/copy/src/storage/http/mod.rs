//! HTTP servers as storages: files by ranges (RFC 9110), and what WebDAV adds (RFC 4918).
//!
//! A request blocks its thread, never the runtime. Dropping a future ends the waits of its thread.

mod agent;
mod changes;
pub(super) mod client;
pub(super) mod connections;
pub(super) mod dialect;
mod dialogue;
pub(super) mod errors;
pub(super) mod expected;
pub(super) mod facts;
mod grants;
mod lookup;
pub(super) mod ranges;
pub(super) mod request;
pub(super) mod response;
#[cfg(test)]
pub(super) mod scripted;
pub(super) mod session;
#[cfg(test)]
mod tests;
mod third_party;
pub(super) mod upload;
#[cfg(test)]
pub(crate) mod webdav;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::{EntryKind, ListedEntry};
use proto::timestamp::Timestamp;
use tune::sessions::FileMovement;

use super::capabilities::{AvailableChecksums, Capabilities, DirectProtocol};
use crate::storage::contract::{FactsUse, FilePart, RemovedKind, SessionCondition, Storage};
use crate::storage::optional::{
    DirectTransfers, ManyPaths, NameRules, OptionalContracts, ServerConnection, VersionedFiles,
};
use changes::Removable;
use connections::RequestedFile;
use ftp::Failure;
use ftp::answers::{
    ListingVisitor, MetadataChange, RenameFailure, SourceVersion, SymlinkCheckScope,
    SymlinkCheckedEntry,
};
use ftp::failure::Operation;
use ftp::incomplete_listing::IncompleteListing;
use ftp::transfer::{TransferAttempt, TransferSpec};
use lookup::propfind;
use session::last_name;

pub(crate) use session::HttpStorage;

/// Most sessions for small files. Many web servers hold a process for each connection, and serve others besides.
const MAX_WEB_SESSIONS: usize = 16;

#[async_trait]
impl Storage for HttpStorage {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: true,
            several_sessions: false,
            connects_here: true,
            partial_writes: false,
            resumes_uploads: false,
            stores_whole: false,
            takes_any_name: false,
            parallel: true,
            stores_any_order: true,
            sends_markers: false,
            adapts_streams: false,
            is_carried: false,
            checksums_while_storing: false,
            checksums_while_sending: false,
            sets_time: false,
            third_party: Some(DirectProtocol::HttpCopy),
            bundles: false,
            small_files: Some(FileMovement::Requests {
                most: MAX_WEB_SESSIONS,
            }),
            max_queries: 1,
            is_local: false,
            length_shows_content: true,
            rtt: self.connections.rtt,
        }
    }

    fn condition(&self) -> SessionCondition {
        self.connections.condition()
    }

    async fn facts(&mut self, path: &[u8], _purpose: FactsUse) -> Result<ListedEntry, Failure> {
        self.examine(path).await
    }

    async fn list(
        &mut self,
        path: &[u8],
        _scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        let at = self.urls(path);
        let action = Operation::on("list", &at.collection);
        let listed = self.blocking(move |client| {
            let described = propfind(client, &at.collection, 1, &action);
            let described = described.map_err(|refused| refused.failure)?;
            match at.is_either(&described.url) {
                true => Ok(described),
                // Another directory is there.
                false => Err(errors::redirected(&action, &described.url)),
            }
        });
        let described = listed.await?;
        let listing = described.listing();
        // A server lists a file as itself.
        let itself = listing
            .itself
            .and_then(|itself| itself.to_entry(last_name(path)));
        let file = itself.filter(|itself| itself.kind == EntryKind::File);
        let entries = file.into_iter().chain(listing.members);
        if entries
            .map(SymlinkCheckedEntry::certain)
            .try_for_each(visit)
            .is_break()
        {
            return Ok(());
        }
        let reason = match (listing.unknown.first(), listing.itself) {
            (Some(first), _) => IncompleteListing::NotUnderstood {
                count: listing.unknown.len() as u64,
                first: first.as_bytes().to_vec(),
            },
            (None, None) => IncompleteListing::LacksDirectory,
            (None, Some(_)) => return Ok(()),
        };
        Err(reason.failure(&self.name, path))
    }

    fn expect_fetch(&mut self, path: &[u8], size: u64) {
        if self.next.expect(path, size) {
            self.last_facts = None;
        }
    }

    async fn available_checksums(&mut self, path: &[u8]) -> Result<AvailableChecksums, Failure> {
        let facts = self.facts_to_fetch(path).await?;
        Ok(AvailableChecksums {
            ranges: Vec::new(),
            whole_files: facts
                .checksums
                .iter()
                .map(|(algorithm, _)| *algorithm)
                .collect(),
        })
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let mut sums = Vec::with_capacity(parts.len());
        for part in parts {
            sums.push(self.checksum_of(algorithm, part, path).await?);
        }
        Ok(sums)
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let facts = self.file_facts(path).await?;
        // All requests of this transfer must be for these facts. The next file is examined again.
        self.last_facts = None;
        let begun = self.next.take_begun(path);
        let requested_url = self.url_for(path);
        let action = Operation::on("read", &requested_url);
        if let (None, Some(announced), Some(size)) = (spec.part, spec.size, facts.size)
            && announced != size
        {
            return Err(errors::changed(&action));
        }
        let has_tag = facts.strong_etag().is_some();
        let wanted = RequestedFile {
            requested_url,
            facts,
            action,
            is_object: false,
            begun,
        };
        let mut attempt = self.connections.fetch(wanted, sink, spec, control).await?;
        if spec.streams > 1 && !has_tag {
            attempt.warnings.push(format!(
                "{} sends no strong ETag, which shows that ranges are of one version: files come over one connection",
                self.name
            ));
        }
        Ok(attempt)
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let target = self.url_for(path);
        let (task_control, task_spec) = (Arc::clone(control), spec.clone());
        self.forget();
        let attempt = self
            .connections
            .transfer(spec, control, move |client, settings| {
                upload::put(
                    client,
                    &target,
                    &*source,
                    &task_spec,
                    settings,
                    &task_control,
                )
            })
            .await?;
        self.remember_stored(path);
        Ok(attempt)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        let urls = self.urls(path);
        self.forget();
        let made = self.blocking(move |client| Ok(changes::make_collection(client, &urls)));
        match made.await? {
            Ok(()) => Ok(true),
            // RFC 4918 section 9.3.1: MKCOL on an existing resource. A server without WebDAV sends
            // the same status.
            Err(refused) if refused.status == Some(405) => match self.examine(path).await {
                Ok(entry) if entry.kind == EntryKind::Dir => Ok(false),
                _ => Err(refused.failure),
            },
            Err(refused) => Err(refused.failure),
        }
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        let what = match kind {
            RemovedKind::File if self.has_stored(path) => Removable::OwnFile,
            RemovedKind::File => Removable::File,
            RemovedKind::EmptyDirectory => Removable::EmptyCollection,
            RemovedKind::Tree => Removable::Tree,
        };
        self.remove_what(path, what).await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        _modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        let (source, new_name) = (self.urls(from), self.urls(to));
        let is_own_file = self.has_stored(from);
        self.forget();
        let renamed = self
            .blocking(move |client| Ok(changes::rename(client, &source, &new_name, is_own_file)));
        renamed.await??;
        self.forget_stored(from);
        Ok(())
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        Ok(vec![false; changes.len()])
    }

    async fn set_modified(&mut self, _path: &[u8], _time: Timestamp) -> Result<bool, Failure> {
        Ok(false)
    }
}

impl HttpStorage {
    /// The checksum of a file that the server tells in a header.
    async fn checksum_of(
        &mut self,
        algorithm: ChecksumAlgorithm,
        part: &FilePart,
        path: &[u8],
    ) -> Result<String, Failure> {
        // Requested again, because the file may have changed since. The next transfer is still of the version that was told.
        let facts = self.current_facts(path).await?;
        facts.checksum_of(algorithm, part, &self.name)
    }
}

impl OptionalContracts for HttpStorage {
    fn server_connection(&self) -> Option<&dyn ServerConnection> {
        Some(self)
    }

    fn versioned_files(&mut self) -> Option<&mut dyn VersionedFiles> {
        Some(self)
    }

    fn name_rules(&mut self) -> Option<&mut dyn NameRules> {
        Some(self)
    }

    fn many_paths(&mut self) -> Option<&mut dyn ManyPaths> {
        Some(self)
    }

    fn direct_transfers(&mut self) -> Option<&mut dyn DirectTransfers> {
        Some(self)
    }
}

impl ServerConnection for HttpStorage {
    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.connections.path_ends
    }

    fn finds_settings(&self) -> bool {
        false
    }
}

#[async_trait]
impl VersionedFiles for HttpStorage {
    async fn version(&mut self, path: &[u8]) -> Result<SourceVersion, Failure> {
        let facts = self.file_facts(path).await?;
        Ok(match facts.strong_etag() {
            Some(etag) => SourceVersion::Tag(etag.to_owned()),
            None => SourceVersion::Unknown,
        })
    }
}

#[async_trait]
impl NameRules for HttpStorage {
    async fn refuses_renames(&mut self, path: &[u8]) -> Result<Option<RenameFailure>, Failure> {
        // WebDAV is what is asked for; it tells nothing about permissions.
        if self.has_webdav() {
            return Ok(None);
        }
        let urls = self.urls(path);
        self.blocking(move |client| changes::refuses_renames(client, &urls))
            .await
    }
}

#[async_trait]
impl ManyPaths for HttpStorage {
    async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        _may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, Failure> {
        let mut times = Vec::with_capacity(paths.len());
        for path in paths {
            times.push(match self.current_facts(path).await {
                Err(failure) if failure.may_retry() => return Err(failure),
                facts => facts
                    .ok()
                    .and_then(|facts| facts.entry(path, EntryKind::File).modified),
            });
        }
        Ok(times)
    }
}
