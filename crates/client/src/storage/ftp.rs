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

use super::capabilities::{AvailableChecksums, Capabilities};
use super::contract::{FollowUpQuery, Storage};
use crate::CopyFailure;
use crate::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SymlinkCheckScope,
};
use crate::remove::remove_tree;
use crate::session::{ClientSession, ServerHabits};
use crate::transfer::series::files::{FileSeries, SeriesReport};
use crate::transfer::{self, TransferAttempt, TransferSpec, bundle, series};

/// Most range checksums requested of a server with pipelining...
const MAX_PIPELINED_CHECKSUMS: usize = 128;
/// ...and without it, where each costs a round trip.
const MAX_SEQUENTIAL_CHECKSUMS: usize = 32;

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
            resumes_uploads: true,
            takes_any_name: self.planner.takes_commands_ahead(),
            parallel: features.parallel,
            stores_any_order: self.planner.may_use_extended_mode(),
            sends_markers: self.planner.may_use_extended_mode(),
            adapts_streams: features.tunes_streams,
            checksums_while_storing: features.store_checksum,
            checksums_while_sending: features.retrieve_checksum,
            sets_time: features.mfmt,
            third_party: self.third_party_protocol(),
            bundles: features.bundles,
            // A stored file is compared by size or checksum.
            series: (features.size || !features.checksum_algorithms.is_empty())
                && !self.habits().names_only,
            max_queries: match self.supports_pipelining() {
                true => MAX_PIPELINED_CHECKSUMS,
                false => MAX_SEQUENTIAL_CHECKSUMS,
            },
            is_local: self.is_on_this_machine(),
            rtt: self.rtt(),
        }
    }

    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.path_ends()
    }

    fn advice_service(&self) -> Option<SocketAddr> {
        // Behind a proxy there is none: advice is about the path between the asking machine and the server.
        let (_, server) = self.path_ends()?;
        let port = self.features().enable_port?;
        Some(SocketAddr::new(server, port))
    }

    fn is_usable(&self) -> bool {
        self.is_usable()
    }

    fn keep(&mut self, lease: Arc<()>) {
        self.lease = Some(lease);
    }

    fn habits(&self) -> ServerHabits {
        self.habits()
    }

    fn tells_links(&self) -> bool {
        self.reports_symlinks()
    }

    fn check_path(&self, path: &[u8]) -> Result<(), CopyFailure> {
        self.check_path(path)
    }

    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.stat(path).await
    }

    async fn stat_to_read(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.stat_to_read(path).await
    }

    async fn list(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        self.list_checked(path, scope, visit).await
    }

    async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, CopyFailure> {
        self.list_tree(path, visit).await
    }

    async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, CopyFailure> {
        self.modification_times(paths, may_go_ahead).await
    }

    async fn available_checksums(
        &mut self,
        _path: &[u8],
    ) -> Result<AvailableChecksums, CopyFailure> {
        let features = self.features();
        Ok(AvailableChecksums {
            ranges: features.checksum_algorithms.clone(),
            whole_files: features.x_checksum_algorithms.clone(),
        })
    }

    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure> {
        self.checksum(algorithm, offset, length, path).await
    }

    async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Vec<Result<String, CopyFailure>>, CopyFailure> {
        self.file_checksums(algorithm, paths).await
    }

    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, CopyFailure> {
        self.checksums(algorithm, ranges, path).await
    }

    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        transfer::get(self, path, sink, spec, control).await
    }

    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure> {
        transfer::put(self, source, path, spec, control).await
    }

    async fn transfer_to(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, CopyFailure> {
        let to = ftp_session(to)?;
        transfer::third_party(self, path, to, to_path, spec, progress).await
    }

    async fn fetch_bundle(
        &mut self,
        entries: &[BundleEntry],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleOutcome), CopyFailure> {
        bundle::get_bundle(self, entries, sink, spec, control).await
    }

    async fn store_bundle(
        &mut self,
        entries: &[BundleEntry],
        source: &Arc<BundleSource>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleProof, BundleOutcome), CopyFailure> {
        bundle::put_bundle(self, entries, source, spec, control).await
    }

    async fn pass_bundle_to(
        &mut self,
        entries: &[BundleEntry],
        to: &mut dyn Storage,
        to_entries: &[BundleEntry],
        spec: &TransferSpec,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(TransferAttempt, BundleOutcome), CopyFailure> {
        let to = ftp_session(to)?;
        bundle::pass_bundle((self, entries), (to, to_entries), spec, progress).await
    }

    async fn end_bundle(
        &mut self,
        proof: BundleProof,
        count: usize,
    ) -> Result<BundleOutcome, CopyFailure> {
        bundle::end_bundle(self, proof, count).await
    }

    async fn move_series(
        &mut self,
        series: &FileSeries,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        report: &mut SeriesReport,
    ) -> Result<(), CopyFailure> {
        series::move_series(self, series, spec, control, report).await
    }

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
        self.followup_commands.clear();
    }

    fn pipelines_follow_ups(&self, spec: &TransferSpec) -> bool {
        self.can_pipeline_followups(spec)
    }

    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure> {
        self.make_dir(path).await
    }

    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        may_go_ahead: bool,
    ) -> Result<Vec<bool>, CopyFailure> {
        self.make_dirs(paths, may_go_ahead).await
    }

    async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, CopyFailure> {
        self.make_link(target, absolute, link).await
    }

    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        self.delete(path).await
    }

    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        remove_tree(self, path).await
    }

    async fn remove_dir(&mut self, path: &[u8]) -> Result<(), CopyFailure> {
        ClientSession::remove_dir(self, path).await
    }

    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure> {
        self.set_time_and_rename(from, to, modified).await
    }

    async fn refuses_renames(&mut self, path: &[u8]) -> Result<Option<RenameFailure>, CopyFailure> {
        self.refuses_renames(path).await
    }

    async fn set_metadata(
        &mut self,
        changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, CopyFailure> {
        self.set_metadata(changes).await
    }

    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure> {
        self.set_modified(path, time).await
    }

    async fn close(self: Box<Self>) {
        Self::close(*self).await;
    }
}

/// The session of the other server. PASV at one server and PORT at the other need both control connections (RFC 959
/// section 5.2).
fn ftp_session(to: &mut dyn Storage) -> Result<&mut ClientSession, CopyFailure> {
    let message = format!(
        "{} is not an FTP server: files cannot be transferred to it directly",
        to.name()
    );
    let to: &mut dyn Any = to;
    to.downcast_mut()
        .ok_or_else(|| CopyFailure::protocol(message))
}
