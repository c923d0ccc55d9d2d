//! The contract of every storage that the batch copies from and to.

use std::any::Any;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::bundle::BundleSource;
use data::store::{Sink, Source};
use proto::bundle::{BundleEntry, BundleOutcome, BundleProof};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::open_source::OpenSource;
use crate::CopyFailure;
use crate::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SourceVersion, SymlinkCheckScope,
};
use crate::partial::WriteTarget;
use crate::session::ServerHabits;
use crate::transfer::series::files::{FileSeries, SeriesReport};
use crate::transfer::{TransferAttempt, TransferSpec};

/// A query that will be sent to a storage when the bytes of a transfer have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowUpQuery<'a> {
    /// [`Storage::checksum`]
    Checksum {
        /// Algorithm.
        algorithm: ChecksumAlgorithm,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes. `None`: to the end.
        length: Option<u64>,
        /// Path of the file.
        path: &'a [u8],
    },
    /// [`Storage::stat`]
    Stat(&'a [u8]),
}

/// One session with a storage: this machine or a server. Paths are bytes in the storage's own form.
/// A session must be dropped after a transient failure.
#[async_trait]
pub(crate) trait Storage: Send + Debug + Any {
    /// Name for messages: `host:port`, `this machine`.
    fn name(&self) -> &str;

    /// Current capabilities. A session may find out that one is missing.
    fn capabilities(&self) -> Capabilities;

    /// The addresses of this machine and of the storage, by which the path is known: those of the session's
    /// connection. `None` if there is none.
    fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        None
    }

    /// Whether a transfer finds out how many streams its path needs. One that keeps the number it began with teaches
    /// the next one nothing.
    fn finds_settings(&self) -> bool {
        true
    }

    /// Where the network-advice service of the storage's host answers, if one is announced.
    fn advice_service(&self) -> Option<SocketAddr> {
        None
    }

    /// Whether the session can still be used.
    fn is_usable(&self) -> bool {
        true
    }

    /// Whether the storage could not be reached by the last request, of one that connects for each.
    fn is_away(&self) -> bool {
        false
    }

    /// How long the storage asks to be left alone, with its last refusal (Retry-After, RFC 9110 section 10.2.3).
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Keeps `lease` for as long as the session lives.
    fn keep(&mut self, _lease: Arc<()>) {}

    /// Habits of the server that the session has found out.
    fn habits(&self) -> ServerHabits {
        ServerHabits::default()
    }

    /// Whether [`Storage::stat`] tells a link to a directory from a directory.
    fn tells_links(&self) -> bool {
        true
    }

    /// Refuses a path that cannot be sent to the storage.
    ///
    /// # Errors
    /// `Usage`.
    fn check_path(&self, _path: &[u8]) -> Result<(), CopyFailure> {
        Ok(())
    }

    /// The path with which absolute links below `path` begin.
    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// Facts of a path, with links followed. The name of the entry is the last component.
    ///
    /// # Errors
    /// `NotFound` if nothing exists there. Otherwise the refusal by its class.
    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure>;

    /// As [`Storage::stat`], of a path that is to be read. A storage that tells nothing about it may take it for a file of
    /// unknown size.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn stat_to_read(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure> {
        self.stat(path).await
    }

    /// The entries of a directory, without `.` and `..`: `visit` receives them as they arrive, in any order, and returns
    /// `Break` to stop. No name is visited twice. `scope` says which of them must be told from links.
    ///
    /// `Ok` means that these are all, unless `visit` stopped. A storage that cannot know that visits what it knows, and ends
    /// with [`IncompleteListing::failure`]. So after any failure: what was visited is there and can be used, but
    /// that something was not visited proves nothing, and the caller neither deletes nor replaces anything for it.
    ///
    /// # Errors
    /// As [`Storage::stat`]. `Protocol` if the listing is not known to be complete, or exceeds the limits. A transient
    /// failure ends the session: the next one visits what this one has visited again.
    ///
    /// [`IncompleteListing::failure`]: crate::incomplete_listing::IncompleteListing::failure
    async fn list(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), CopyFailure>;

    /// All entries below a directory, in one listing: `visit` receives each with its path relative to `path`, a
    /// directory before its content, links not followed. `Ok(false)`: the storage has no such listing.
    ///
    /// # Errors
    /// As [`Storage::list`]: which directories are not complete is unknown.
    async fn list_tree(
        &mut self,
        _path: &[u8],
        _visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, CopyFailure> {
        Ok(false)
    }

    /// The version of a file. [`Storage::fetch`], if it comes next, fetches this one or fails.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn version(&mut self, _path: &[u8]) -> Result<SourceVersion, CopyFailure> {
        Ok(SourceVersion::Facts)
    }

    /// The exact modification times of files that a listing showed without; `None`: the storage does not tell.
    ///
    /// `may_go_ahead`: a server that does not announce pipelining may be tried.
    ///
    /// # Errors
    /// The storage is lost.
    async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        _may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, CopyFailure> {
        Ok(vec![None; paths.len()])
    }

    /// The checksums that the storage can provide of a file.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn available_checksums(&mut self, path: &[u8])
    -> Result<AvailableChecksums, CopyFailure>;

    /// Checksum of a file or of a part, in lower-case hex.
    ///
    /// # Errors
    /// `Protocol` if the storage cannot provide it. Otherwise the refusal by its class.
    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, CopyFailure>;

    /// The checksums of ranges (offset and length).
    ///
    /// # Errors
    /// As [`Storage::checksum`], for the first failing range.
    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        ranges: &[(u64, u64)],
        path: &[u8],
    ) -> Result<Vec<String>, CopyFailure> {
        let mut sums = Vec::with_capacity(ranges.len());
        for (offset, length) in ranges {
            sums.push(
                self.checksum(algorithm, *offset, Some(*length), path)
                    .await?,
            );
        }
        Ok(sums)
    }

    /// The checksums of whole files, each as [`Storage::checksum`] returns it.
    ///
    /// # Errors
    /// The storage is lost.
    async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Vec<Result<String, CopyFailure>>, CopyFailure> {
        let mut sums = Vec::with_capacity(paths.len());
        for path in paths {
            sums.push(self.checksum(algorithm, 0, None, path).await);
        }
        Ok(sums)
    }

    /// The open file, if this process can read it itself.
    ///
    /// # Errors
    /// `NotFound`, `Local`.
    async fn open(&mut self, _path: &[u8]) -> Result<Option<OpenSource>, CopyFailure> {
        Ok(None)
    }

    /// How to write a file, if this process can write it itself.
    ///
    /// # Errors
    /// `Local`.
    async fn write_target(&mut self, _path: &[u8]) -> Result<Option<WriteTarget>, CopyFailure> {
        Ok(None)
    }

    /// Moves the ranges of the file `path` that are missing according to `spec` into `sink`. After
    /// a failed attempt, `control` holds the stored ranges, and `spec.confirmation` says whether
    /// the storage confirms them.
    ///
    /// # Errors
    /// The refusal by its class. `Local` for errors of the sink. `Integrity` if fewer than
    /// `spec.size` bytes arrived. `Unreachable` (transient) for lost connections.
    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure>;

    /// Moves the ranges that are missing in the file `path` of the storage from `source`. Ranges
    /// that the storage reports as stored are in `spec.stored_ranges`.
    ///
    /// # Errors
    /// As [`Storage::fetch`].
    async fn store(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure>;

    /// Moves the files `entries` into `sink`, one directly after the other. The outcome names those whose bytes are not
    /// theirs.
    ///
    /// # Errors
    /// As [`Storage::fetch`]. `Protocol` if the storage moves no bundles.
    async fn fetch_bundle(
        &mut self,
        _entries: &[BundleEntry],
        _sink: Arc<dyn Sink>,
        _spec: &TransferSpec,
        _control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleOutcome), CopyFailure> {
        Err(no_bundles(self.name()))
    }

    /// Moves the files `entries` from `source`, and gives them their names, as [`Storage::end_bundle`] does, with the proof of
    /// `source`.
    ///
    /// # Errors
    /// As [`Storage::fetch_bundle`].
    async fn store_bundle(
        &mut self,
        _entries: &[BundleEntry],
        _source: &Arc<BundleSource>,
        _spec: &TransferSpec,
        _control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleProof, BundleOutcome), CopyFailure> {
        Err(no_bundles(self.name()))
    }

    /// Moves the files `entries` to another storage with the same [`Capabilities::third_party`], which names them
    /// `to_entries`. They have no names there yet. The outcome is that of this storage.
    ///
    /// # Errors
    /// As [`Storage::fetch_bundle`].
    async fn pass_bundle_to(
        &mut self,
        _entries: &[BundleEntry],
        _to: &mut dyn Storage,
        _to_entries: &[BundleEntry],
        _spec: &TransferSpec,
        _progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(TransferAttempt, BundleOutcome), CopyFailure> {
        Err(no_bundles(self.name()))
    }

    /// Gives the `count` files of the bundle that was stored last their names, if its bytes are those of the proof. The
    /// outcome names those that have none. If the proof is not that of the last bundle, whether stored or sent, the outcome
    /// has the checksum of each file, no file has its name, and the bundle can be ended once more.
    ///
    /// # Errors
    /// The refusal by its class: no file has its name.
    async fn end_bundle(
        &mut self,
        _proof: BundleProof,
        _count: usize,
    ) -> Result<BundleOutcome, CopyFailure> {
        Err(no_bundles(self.name()))
    }

    /// Moves the files of `series`, each by itself, with commands ahead of replies. `report` counts also after an error.
    ///
    /// # Errors
    /// As [`Storage::fetch`], for the session; `Protocol` if the storage moves no series.
    async fn move_series(
        &mut self,
        _series: &FileSeries,
        _spec: &TransferSpec,
        _control: &Arc<TransferControl>,
        _report: &mut SeriesReport,
    ) -> Result<(), CopyFailure> {
        Err(no_bundles(self.name()))
    }

    /// Moves a file to another storage with the same [`Capabilities::third_party`]. Calls
    /// `progress` with the number of bytes moved so far, if the storages report it.
    ///
    /// # Errors
    /// As [`Storage::fetch`].
    async fn transfer_to(
        &mut self,
        _path: &[u8],
        to: &mut dyn Storage,
        _to_path: &[u8],
        _spec: &TransferSpec,
        _progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, CopyFailure> {
        Err(CopyFailure::protocol(format!(
            "{} cannot transfer files to {} directly",
            self.name(),
            to.name()
        )))
    }

    /// Announces `queries` that will be asked after the transfer of `spec`, which comes next, so
    /// that they can be pipelined with it. The caller must still ask them afterwards, in this
    /// order.
    fn queue_follow_ups(&mut self, _spec: &TransferSpec, _queries: &[FollowUpQuery<'_>]) {}

    /// Discards the queries of a transfer that did not begin.
    fn clear_follow_ups(&mut self) {}

    /// Whether the answers to [`Storage::queue_follow_ups`] arrive with the end of the transfer.
    fn pipelines_follow_ups(&self, _spec: &TransferSpec) -> bool {
        false
    }

    /// Creates a directory. `Ok(false)` if it exists already.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure>;

    /// Creates directories, parents first, as far as that is possible without waiting for each. Returns for each whether
    /// it was created; the others may exist, or may be refused.
    ///
    /// `may_go_ahead`: a server that does not announce pipelining may be tried.
    ///
    /// # Errors
    /// The storage is lost.
    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        _may_go_ahead: bool,
    ) -> Result<Vec<bool>, CopyFailure> {
        Ok(vec![false; paths.len()])
    }

    /// Creates the symbolic link `link` with content `target`, which is relative to the link's
    /// directory and leads to `absolute`. An existing link is replaced. `Ok(false)`: the storage
    /// does not support links.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn make_link(
        &mut self,
        _target: &[u8],
        _absolute: &[u8],
        _link: &[u8],
    ) -> Result<bool, CopyFailure> {
        Ok(false)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn remove(&mut self, path: &[u8]) -> Result<(), CopyFailure>;

    /// Removes a file, or a directory with everything below it. Links are removed, never followed.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure>;

    /// Removes a directory that is empty, and nothing else.
    ///
    /// # Errors
    /// As [`Storage::stat`]. The refusal by its class if something is in it, or may be.
    async fn remove_dir(&mut self, path: &[u8]) -> Result<(), CopyFailure>;

    /// Renames a file and sets its time, if the storage supports that. A failure to set the time is
    /// ignored.
    ///
    /// # Errors
    /// The refusal by its class, with the path that was refused.
    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure>;

    /// Why the storage would not rename files beside `path`: it has no rename, or this user may rename nothing there.
    /// `None`: nothing speaks against it.
    ///
    /// # Errors
    /// The storage is lost.
    async fn refuses_renames(
        &mut self,
        _path: &[u8],
    ) -> Result<Option<RenameFailure>, CopyFailure> {
        Ok(None)
    }

    /// Sets the modification time of a file. `Ok(false)` if the storage does not support it.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure>;

    /// Sets times and permissions of files and directories, in this order. Returns for each whether all of it was set.
    ///
    /// # Errors
    /// The storage is lost.
    async fn set_metadata(
        &mut self,
        changes: &[MetadataChange<'_>],
    ) -> Result<Vec<bool>, CopyFailure> {
        Ok(vec![false; changes.len()])
    }

    /// Ends the session with a short exchange (QUIT).
    async fn close(self: Box<Self>) {}
}

fn no_bundles(storage: &str) -> CopyFailure {
    CopyFailure::protocol(format!("{storage} moves no bundles of files"))
}
