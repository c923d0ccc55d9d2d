//! FTP and GridFTP servers as storages.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::bundle::BundleSource;
use data::store::{Sink, Source};
use proto::bundle::{BundleEntry, BundleOutcome, BundleProof};
use proto::checksum::ChecksumAlgorithm;
use proto::command::Command;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;
use tune::sessions::FileMovement;

use super::capabilities::{AvailableChecksums, Capabilities, DirectProtocol};
use super::contract::{FactsUse, FilePart, RemovedKind, SessionCondition, Storage};
use super::optional::{
    Bundles, DirectTransfers, FollowUpQuery, FollowUps, ManyPaths, NameRules, OptionalContracts,
    SeriesTransfers, ServerConnection, SharedUpload, SharedUploads, SymbolicLinks, TreeListing,
};
use crate::storage::remove::remove_tree;
use ftp::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SymlinkCheckScope,
};
use ftp::session::{ClientSession, ServerHabits};
use ftp::transfer::series::files::{FileSeries, SeriesReport};
use ftp::transfer::{self, TransferAttempt, TransferSpec, bundle, series};
use ftp::{Failure, ModeChoice};

/// Most range checksums requested of a server with pipelining...
const MAX_PIPELINED_CHECKSUMS: usize = 128;
/// ...and without it, where each costs a round trip.
const MAX_SEQUENTIAL_CHECKSUMS: usize = 32;

/// Most bytes that the process which shares an upload stores itself, at its end.
const SHARED_REST: u64 = 1 << 20;

#[async_trait]
impl Storage for ClientSession {
    fn name(&self) -> &str {
        self.name()
    }

    fn capabilities(&self) -> Capabilities {
        let features = self.features();
        Capabilities {
            ranges: features.eret,
            several_sessions: features.eret || features.rest_stream && !features.ignores_rest,
            connects_here: self.server_can_connect(),
            partial_writes: features.esto,
            resumes_uploads: !features.stores_whole,
            stores_whole: features.stores_whole,
            takes_any_name: self.takes_commands_ahead(),
            parallel: features.parallel,
            stores_any_order: self.may_use_extended_mode(),
            sends_markers: self.may_use_extended_mode(),
            // It sees the path of the connections that it opens.
            adapts_streams: features.tunes_streams
                && (!self.is_carried() || self.server_can_connect()),
            is_carried: self.is_carried(),
            checksums_while_storing: features.store_checksum,
            checksums_while_sending: features.retrieve_checksum,
            sets_time: features.mfmt,
            third_party: self.third_party_protocol().map(DirectProtocol::Ftp),
            bundles: features.bundles,
            // A stored file is compared by size or checksum.
            small_files: ((features.size || !features.checksum_algorithms.is_empty())
                && !self.habits().names_only)
                .then_some(match features.parallel {
                    true => FileMovement::SharedConnections,
                    false => FileMovement::OwnConnections,
                }),
            max_queries: match self.supports_pipelining() {
                true => MAX_PIPELINED_CHECKSUMS,
                false => MAX_SEQUENTIAL_CHECKSUMS,
            },
            is_local: self.is_on_this_machine(),
            length_shows_content: true,
            rtt: self.rtt(),
        }
    }

    fn condition(&self) -> SessionCondition {
        SessionCondition {
            is_usable: self.is_usable(),
            ..SessionCondition::default()
        }
    }

    async fn facts(&mut self, path: &[u8], purpose: FactsUse) -> Result<ListedEntry, Failure> {
        match purpose {
            FactsUse::Decision => self.stat(path).await,
            FactsUse::Reading => self.stat_to_read(path).await,
        }
    }

    async fn list(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure> {
        self.list_checked(path, scope, visit).await
    }

    async fn available_checksums(&mut self, _path: &[u8]) -> Result<AvailableChecksums, Failure> {
        let features = self.features();
        Ok(AvailableChecksums {
            ranges: features.checksum_algorithms.clone(),
            whole_files: features.x_checksum_algorithms.clone(),
        })
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure> {
        let ranges: Option<Vec<_>> = parts
            .iter()
            .map(|part| part.length.map(|length| (part.offset, length)))
            .collect();
        if let Some(ranges) = ranges.filter(|ranges| ranges.len() > 1) {
            return self.checksums(algorithm, &ranges, path).await;
        }
        let mut sums = Vec::with_capacity(parts.len());
        for part in parts {
            let sum = self.checksum(algorithm, part.offset, part.length, path);
            sums.push(sum.await?);
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
        transfer::get(self, path, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        transfer::put(self, source, path, spec, control).await
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.make_dir(path).await
    }

    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure> {
        match kind {
            RemovedKind::File => self.delete(path).await,
            RemovedKind::EmptyDirectory => self.remove_dir(path).await,
            RemovedKind::Tree => remove_tree(self, path).await,
        }
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        self.set_time_and_rename(from, to, modified).await
    }

    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure> {
        self.set_metadata(changes).await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure> {
        self.set_modified(path, time).await
    }

    async fn close(self: Box<Self>) {
        Self::close(*self).await;
    }
}

impl OptionalContracts for ClientSession {
    fn server_connection(&self) -> Option<&dyn ServerConnection> {
        Some(self)
    }

    fn symbolic_links(&mut self) -> Option<&mut dyn SymbolicLinks> {
        Some(self)
    }

    fn tree_listing(&mut self) -> Option<&mut dyn TreeListing> {
        Some(self)
    }

    fn name_rules(&mut self) -> Option<&mut dyn NameRules> {
        Some(self)
    }

    fn many_paths(&mut self) -> Option<&mut dyn ManyPaths> {
        Some(self)
    }

    fn follow_ups(&mut self) -> Option<&mut dyn FollowUps> {
        Some(self)
    }

    fn direct_transfers(&mut self) -> Option<&mut dyn DirectTransfers> {
        Some(self)
    }

    fn bundles(&mut self) -> Option<&mut dyn Bundles> {
        Some(self)
    }

    fn shared_uploads(&mut self) -> Option<&mut dyn SharedUploads> {
        Some(self)
    }

    fn series(&mut self) -> Option<&mut dyn SeriesTransfers> {
        Some(self)
    }
}

impl ServerConnection for ClientSession {
    fn pipelines_follow_ups(&self, spec: &TransferSpec) -> bool {
        self.can_pipeline_followups(spec)
    }

    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.path_ends()
    }

    fn finds_settings(&self) -> bool {
        true
    }

    fn advice_service(&self) -> Option<SocketAddr> {
        // Behind a proxy there is none: advice is about the path between the asking machine and the server.
        let (_, server) = self.path_ends()?;
        let port = self.features().enable_port?;
        Some(SocketAddr::new(server, port))
    }

    fn habits(&self) -> ServerHabits {
        self.habits()
    }
}

#[async_trait]
impl SymbolicLinks for ClientSession {
    fn tells_links(&self) -> bool {
        self.reports_symlinks()
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure> {
        self.make_link(target, absolute, link).await
    }
}

#[async_trait]
impl TreeListing for ClientSession {
    async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure> {
        self.list_tree(path, visit).await
    }
}

#[async_trait]
impl NameRules for ClientSession {
    fn check_path(&self, path: &[u8]) -> Result<(), Failure> {
        self.check_path(path)
    }

    async fn refuses_renames(&mut self, path: &[u8]) -> Result<Option<RenameFailure>, Failure> {
        self.refuses_renames(path).await
    }
}

#[async_trait]
impl ManyPaths for ClientSession {
    async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, Failure> {
        self.modification_times(paths, may_go_ahead).await
    }

    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        self.make_dirs(paths, may_go_ahead).await
    }

    async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Option<Vec<Result<String, Failure>>>, Failure> {
        self.file_checksums(algorithm, paths).await.map(Some)
    }
}

impl FollowUps for ClientSession {
    fn queue_follow_ups(&mut self, spec: &TransferSpec, questions: &[FollowUpQuery<'_>]) {
        let commands = questions.iter().flat_map(|question| match *question {
            FollowUpQuery::Checksum {
                algorithm,
                offset,
                length,
                path,
            } => self.checksum_commands(algorithm, offset, length, path),
            FollowUpQuery::Stat(path) => self.stat_commands(path),
        });
        let commands: Vec<Command> = commands.collect();
        self.pipeline_followups(spec, commands);
    }

    fn clear_follow_ups(&mut self) {
        self.discard_followups();
    }
}

#[async_trait]
impl DirectTransfers for ClientSession {
    async fn transfer_to(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, Failure> {
        let to = ftp_session(to)?;
        transfer::third_party(self, path, to, to_path, spec, control, progress).await
    }
}

#[async_trait]
impl Bundles for ClientSession {
    async fn fetch_bundle(
        &mut self,
        entries: &[BundleEntry],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleOutcome), Failure> {
        bundle::get_bundle(self, entries, sink, spec, control).await
    }

    async fn store_bundle(
        &mut self,
        entries: &[BundleEntry],
        source: &Arc<BundleSource>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleProof, BundleOutcome), Failure> {
        bundle::put_bundle(self, entries, source, spec, control).await
    }

    async fn pass_bundle_to(
        &mut self,
        entries: &[BundleEntry],
        to: &mut dyn Storage,
        to_entries: &[BundleEntry],
        spec: &TransferSpec,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(TransferAttempt, BundleOutcome), Failure> {
        let to = ftp_session(to)?;
        bundle::pass_bundle(self, entries, to, to_entries, spec, progress).await
    }

    async fn end_bundle(
        &mut self,
        proof: BundleProof,
        count: usize,
    ) -> Result<BundleOutcome, Failure> {
        bundle::end_bundle(self, proof, count).await
    }
}

#[async_trait]
impl SeriesTransfers for ClientSession {
    async fn move_series(
        &mut self,
        series: &FileSeries,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        report: &mut SeriesReport,
    ) -> Result<(), Failure> {
        series::move_series(self, series, spec, control, report).await
    }
}

/// Each process stores its parts at their offsets (ESTO A, GFD.20 §3.6), which leaves the other bytes of the file alone.
#[async_trait]
impl SharedUploads for ClientSession {
    fn takes_parts(&self) -> bool {
        let features = self.features();
        features.esto && !features.stores_whole && self.may_use_extended_mode()
    }

    async fn share_upload(
        &mut self,
        source: &Arc<dyn Source>,
        path: &[u8],
        (spec, _size): (&TransferSpec, u64),
        control: &Arc<TransferControl>,
    ) -> Result<Option<SharedUpload>, Failure> {
        // The queries are for the file that is complete.
        self.discard_followups();
        if spec.completed_ranges.is_empty() {
            // A store of nothing takes away what an older partial file has, and is refused while another copy writes it: stores
            // at offsets would not be.
            let nothing = TransferSpec {
                size: Some(0),
                part: Some((0, 0)),
                chunks: None,
                streams: 1,
                max_streams: 1,
                server_checksum: None,
                stored_ranges: Arc::default(),
                confirmation: Arc::default(),
                ..spec.clone()
            };
            transfer::put(self, Arc::clone(source), path, &nothing, control).await?;
        }
        Ok(Some(SharedUpload {
            id: String::new(),
            part: SHARED_REST,
        }))
    }

    async fn keep_alive(&mut self) {
        self.keep_alive().await;
    }

    async fn store_parts(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        _upload: &SharedUpload,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure> {
        let Some((offset, length)) = spec.part else {
            return Err(Failure::protocol("a part of a file has a range"));
        };
        let spec = TransferSpec {
            size: Some(length),
            destination_offset: Some(offset),
            chunks: None,
            // Its blocks have offsets.
            mode: ModeChoice::Extended,
            ..spec.clone()
        };
        transfer::put(self, source, path, &spec, control).await
    }
}

/// The session of the other server. PASV at one server and PORT at the other need both control connections (RFC 959
/// section 5.2).
fn ftp_session(to: &mut dyn Storage) -> Result<&mut ClientSession, Failure> {
    let message = format!(
        "{} is not an FTP server: files cannot be transferred to it directly",
        to.name()
    );
    let to: &mut dyn Any = to;
    to.downcast_mut().ok_or_else(|| Failure::protocol(message))
}
