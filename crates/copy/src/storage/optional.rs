//! Contracts that only some storages offer, beside [`Storage`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::bundle::BundleSource;
use data::store::{Sink, Source};
use ftp::Failure;
use ftp::answers::{EntryVisitor, RenameFailure, SourceVersion};
use ftp::session::ServerHabits;
use ftp::transfer::series::files::{FileSeries, SeriesReport};
use ftp::transfer::{TransferAttempt, TransferSpec};
use proto::bundle::{BundleEntry, BundleOutcome, BundleProof};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::ByteRange;
use proto::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

use super::contract::Storage;
use super::open_source::OpenSource;
use crate::local::partial::WriteTarget;

/// The contracts that a storage offers. Without a method here it offers none.
pub(crate) trait OptionalContracts {
    /// This process reads and writes the files itself.
    fn local_access(&mut self) -> Option<&mut dyn LocalAccess> {
        None
    }

    /// The storage is a server.
    fn server_connection(&self) -> Option<&dyn ServerConnection> {
        None
    }

    /// There are symbolic links.
    fn symbolic_links(&mut self) -> Option<&mut dyn SymbolicLinks> {
        None
    }

    /// Whole trees are listed at once.
    fn tree_listing(&mut self) -> Option<&mut dyn TreeListing> {
        None
    }

    /// A version of a file has a mark of its own.
    fn versioned_files(&mut self) -> Option<&mut dyn VersionedFiles> {
        None
    }

    /// Some names are refused, or some renames.
    fn name_rules(&mut self) -> Option<&mut dyn NameRules> {
        None
    }

    /// Requests about many paths cost less together.
    fn many_paths(&mut self) -> Option<&mut dyn ManyPaths> {
        None
    }

    /// Queries go behind a transfer.
    fn follow_ups(&mut self) -> Option<&mut dyn FollowUps> {
        None
    }

    /// Files move to another storage without passing through this machine.
    fn direct_transfers(&mut self) -> Option<&mut dyn DirectTransfers> {
        None
    }

    /// Many small files move together.
    fn bundles(&mut self) -> Option<&mut dyn Bundles> {
        None
    }

    /// Uploads that are unfinished are kept by their parts.
    fn unfinished_uploads(&mut self) -> Option<&mut dyn UnfinishedUploads> {
        None
    }

    /// Several processes can store parts of one file.
    fn shared_uploads(&mut self) -> Option<&mut dyn SharedUploads> {
        None
    }

    /// Some files have checksums of their parts.
    fn composite_sums(&mut self) -> Option<&mut dyn CompositeSums> {
        None
    }

    /// Many small files move one directly after the other.
    fn series(&mut self) -> Option<&mut dyn SeriesTransfers> {
        None
    }
}

/// Files that this process reads and writes itself.
#[async_trait]
pub(crate) trait LocalAccess: Send {
    /// The open file.
    ///
    /// # Errors
    /// `NotFound`, `Local`.
    async fn open(&mut self, path: &[u8]) -> Result<OpenSource, Failure>;

    /// How to write a file.
    ///
    /// # Errors
    /// `Local`.
    async fn write_target(&mut self, path: &[u8]) -> Result<WriteTarget, Failure>;
}

/// The connection with a server.
pub(crate) trait ServerConnection {
    /// The addresses of this machine and of the server, by which the path is known: those of the session's
    /// connection. `None` if there is none.
    fn path_ends(&self) -> Option<(IpAddr, IpAddr)>;

    /// Whether the session has, or had, a connection with the server.
    fn has_connected(&self) -> bool {
        self.path_ends().is_some()
    }

    /// Whether a transfer finds out how many streams its path needs. One that keeps the number it began with teaches
    /// the next one nothing.
    fn finds_settings(&self) -> bool;

    /// Where the network-advice service of the server's host answers, if one is announced.
    fn advice_service(&self) -> Option<SocketAddr> {
        None
    }

    /// Whether the answers to [`FollowUps::queue_follow_ups`] arrive with the end of the transfer.
    fn pipelines_follow_ups(&self, _spec: &TransferSpec) -> bool {
        false
    }

    /// Habits of the server that the session has found out.
    fn habits(&self) -> ServerHabits {
        ServerHabits::default()
    }
}

/// Symbolic links.
#[async_trait]
pub(crate) trait SymbolicLinks: Send {
    /// Whether [`Storage::facts`] tell a link to a directory from a directory.
    fn tells_links(&self) -> bool {
        true
    }

    /// The path with which absolute links below `path` begin.
    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// Creates the symbolic link `link` with content `target`, which is relative to the link's
    /// directory and leads to `absolute`. An existing link is replaced. `Ok(false)`: the storage
    /// does not support links.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure>;
}

/// Listings of whole trees.
#[async_trait]
pub(crate) trait TreeListing: Send {
    /// All entries below a directory, in one listing: `visit` receives each with its path relative to `path`, a
    /// directory before its content, links not followed. `Ok(false)`: there is no such listing of this directory.
    ///
    /// # Errors
    /// As [`Storage::list`]: which directories are not complete is unknown.
    async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure>;
}

/// Files whose versions have marks.
#[async_trait]
pub(crate) trait VersionedFiles: Send {
    /// The version of a file. [`Storage::fetch`], if it comes next, fetches this one or fails.
    ///
    /// # Errors
    /// As [`Storage::facts`].
    async fn version(&mut self, path: &[u8]) -> Result<SourceVersion, Failure>;
}

/// Rules for names.
#[async_trait]
pub(crate) trait NameRules: Send {
    /// Refuses a path that cannot be sent to the storage.
    ///
    /// # Errors
    /// `Usage`.
    fn check_path(&self, _path: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    /// Why the storage would not rename files beside `path`: it has no rename, or this user may rename nothing there.
    /// `None`: nothing speaks against it.
    ///
    /// # Errors
    /// The storage is lost.
    async fn refuses_renames(&mut self, path: &[u8]) -> Result<Option<RenameFailure>, Failure>;
}

/// Requests about many paths at a time. `may_go_ahead`: a server that does not announce pipelining may be tried.
#[async_trait]
pub(crate) trait ManyPaths: Send {
    /// The exact modification times of files that a listing showed without; `None`: the storage does not tell.
    ///
    /// # Errors
    /// The storage is lost.
    async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        _may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, Failure> {
        Ok(vec![None; paths.len()])
    }

    /// Creates directories, parents first, as far as that is possible without waiting for each. Returns for each whether
    /// it was created; the others may exist, or may be refused.
    ///
    /// # Errors
    /// The storage is lost.
    async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        _may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        Ok(vec![false; paths.len()])
    }

    /// The checksums of whole files, each as [`Storage::checksums`] returns it; `None`: they are to be asked for one by one.
    ///
    /// # Errors
    /// The storage is lost.
    async fn file_checksums(
        &mut self,
        _algorithm: ChecksumAlgorithm,
        _paths: &[&[u8]],
    ) -> Result<Option<Vec<Result<String, Failure>>>, Failure> {
        Ok(None)
    }
}

/// A query that will be sent to a storage when the bytes of a transfer have arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowUpQuery<'a> {
    /// [`Storage::checksums`] of one part.
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
    /// [`Storage::facts`]
    Stat(&'a [u8]),
}

/// Queries that go behind a transfer.
pub(crate) trait FollowUps {
    /// Announces `queries` that will be asked after the transfer of `spec`, which comes next, so
    /// that they can be pipelined with it. The caller must still ask them afterwards, in this
    /// order.
    fn queue_follow_ups(&mut self, spec: &TransferSpec, queries: &[FollowUpQuery<'_>]);

    /// Discards the queries of a transfer that did not begin.
    fn clear_follow_ups(&mut self);
}

/// Transfers to another storage.
#[async_trait]
pub(crate) trait DirectTransfers: Send {
    /// Moves a file to another storage with the same [`Capabilities::third_party`]. Calls
    /// `progress` with the number of bytes moved so far, if the storages report it. `control` gets decisions about the
    /// streams.
    ///
    /// # Errors
    /// As [`Storage::fetch`].
    ///
    /// [`Capabilities::third_party`]: super::capabilities::Capabilities::third_party
    async fn transfer_to(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, Failure>;
}

/// Many small files as one transfer.
#[async_trait]
pub(crate) trait Bundles: Send {
    /// Moves the files `entries` into `sink`, one directly after the other. The outcome names those whose bytes are not
    /// theirs.
    ///
    /// # Errors
    /// As [`Storage::fetch`]. `Protocol` if the storage moves no bundles.
    async fn fetch_bundle(
        &mut self,
        entries: &[BundleEntry],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleOutcome), Failure>;

    /// Moves the files `entries` from `source`, and gives them their names, as [`Bundles::end_bundle`] does, with the proof
    /// of `source`.
    ///
    /// # Errors
    /// As [`Bundles::fetch_bundle`].
    async fn store_bundle(
        &mut self,
        entries: &[BundleEntry],
        source: &Arc<BundleSource>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<(TransferAttempt, BundleProof, BundleOutcome), Failure>;

    /// Moves the files `entries` to another storage with the same [`Capabilities::third_party`], which names them
    /// `to_entries`. They have no names there yet. The outcome is that of this storage.
    ///
    /// # Errors
    /// As [`Bundles::fetch_bundle`].
    ///
    /// [`Capabilities::third_party`]: super::capabilities::Capabilities::third_party
    async fn pass_bundle_to(
        &mut self,
        entries: &[BundleEntry],
        to: &mut dyn Storage,
        to_entries: &[BundleEntry],
        spec: &TransferSpec,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(TransferAttempt, BundleOutcome), Failure>;

    /// Gives the `count` files of the bundle that was stored last their names, if its bytes are those of the proof. The
    /// outcome names those that have none. If the proof is not that of the last bundle, whether stored or sent, the outcome
    /// has the checksum of each file, no file has its name, and the bundle can be ended once more.
    ///
    /// # Errors
    /// The refusal by its class: no file has its name.
    async fn end_bundle(
        &mut self,
        proof: BundleProof,
        count: usize,
    ) -> Result<BundleOutcome, Failure>;
}

/// A part of an unfinished upload, as the storage has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftPart {
    /// Its place in the file.
    pub(crate) range: ByteRange,
    /// Algorithm of the checksum.
    pub(crate) algorithm: ChecksumAlgorithm,
    /// Checksum of its bytes, lower-case hex.
    pub(crate) checksum: String,
}

/// A checksum of the checksums of a file's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompositeSum {
    /// The algorithm of the parts' checksums, and of that of their bytes one after the other.
    pub(crate) algorithm: ChecksumAlgorithm,
    /// The parts, in order: together they are the file.
    pub(crate) parts: Vec<ByteRange>,
    /// Lower-case hex.
    pub(crate) sum: String,
    /// Another value proves that the bytes differ. Otherwise it may be of another kind.
    pub(crate) is_certain: bool,
}

/// Files that are stored in parts, and have a checksum of these.
#[async_trait]
pub(crate) trait CompositeSums: Send {
    /// That of a file. `None`: it has none, or its parts are not known.
    ///
    /// # Errors
    /// The refusal by its class; the storage is lost.
    async fn composite_sum(&mut self, path: &[u8]) -> Result<Option<CompositeSum>, Failure>;
}

/// An unfinished upload, whoever began it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// Path of its file.
    pub path: Vec<u8>,
    /// Its name at the storage.
    pub id: String,
    /// Bytes of the parts that are there.
    pub bytes: u64,
    /// When the last part arrived, or it began. `None`: unknown.
    pub last_change: Option<Timestamp>,
}

/// The last upload of a page, after which the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadMark {
    /// Key of its file.
    pub(crate) key: String,
    /// Its name at the storage.
    pub(crate) id: String,
}

/// An unfinished upload that several processes store parts of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedUpload {
    /// Its name at the storage, if it has one beside its path.
    pub(crate) id: String,
    /// Bytes of each part but the last one.
    pub(crate) part: u64,
}

/// Uploads of files whose parts other processes store. [`Storage::store`] stores the last part, and so completes the file.
#[async_trait]
pub(crate) trait SharedUploads: Send {
    /// Whether the storage takes parts from several processes at all.
    fn takes_parts(&self) -> bool;

    /// Goes on with the upload of a file of `size` bytes that [`Storage::store`] would store with `spec`, or begins one, with no
    /// bytes. [`Storage::store`] completes it, with the parts of the others in its `completed_ranges`. `None`: such a file has one
    /// part, or one writer.
    ///
    /// # Errors
    /// As [`Storage::store`].
    async fn share_upload(
        &mut self,
        source: &Arc<dyn Source>,
        path: &[u8],
        (spec, size): (&TransferSpec, u64),
        control: &Arc<TransferControl>,
    ) -> Result<Option<SharedUpload>, Failure>;

    /// Called now and then while the others store, so that the storage does not end a silent session.
    async fn keep_alive(&mut self) {}

    /// After a failure of those processes: keeps the parts for a later attempt if there can be one, and otherwise discards the upload.
    /// Returns the failure, which then says what has become of the parts.
    async fn give_up_shared(
        &mut self,
        _path: &[u8],
        _upload: &SharedUpload,
        failure: Failure,
    ) -> Failure {
        failure
    }

    /// Stores the parts of a file of `spec.size` bytes that are in `spec.part`, into the upload of another process.
    ///
    /// # Errors
    /// As [`Storage::store`]. `Protocol`: the range is not one of whole parts.
    async fn store_parts(
        &mut self,
        source: Arc<dyn Source>,
        path: &[u8],
        upload: &SharedUpload,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, Failure>;
}

/// Uploads of files that get their names when they are complete, and are kept by their parts until then.
#[async_trait]
pub(crate) trait UnfinishedUploads: Send {
    /// The parts that earlier copies have left of a file of `size` bytes, never all of them. The caller has the
    /// lock of the destination. [`Storage::store`] goes on with those that are in its `completed_ranges`; if none are, it
    /// discards the upload, provided this machine has begun it.
    ///
    /// # Errors
    /// The refusal by its class; the storage is lost.
    async fn left_parts(&mut self, path: &[u8], size: u64) -> Result<Vec<LeftPart>, Failure>;

    /// A page of the uploads of the file at a path and of all files below it, and the mark of the next page. A path that ends
    /// with a slash means the files below it alone. The path of the whole storage is `/`.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn unfinished(
        &mut self,
        path: &[u8],
        after: Option<UploadMark>,
    ) -> Result<(Vec<UnfinishedUpload>, Option<UploadMark>), Failure>;

    /// Discards an upload with its parts. One that has ended meanwhile is no error.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn abort_upload(&mut self, upload: &UnfinishedUpload) -> Result<(), Failure>;
}

/// Many small files, one directly after the other.
#[async_trait]
pub(crate) trait SeriesTransfers: Send {
    /// Moves the files of `series`, each by itself, with commands ahead of replies. `report` counts also after an error.
    ///
    /// # Errors
    /// As [`Storage::fetch`], for the session.
    async fn move_series(
        &mut self,
        series: &FileSeries,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        report: &mut SeriesReport,
    ) -> Result<(), Failure>;
}
