//! The contract of every storage that files are copied from and to.
//!
//! [`Storage`] is what every storage does. What only some can do are contracts of their own ([`super::optional`]), which a
//! storage offers by an accessor of [`OptionalContracts`]. The methods of `dyn Storage` ask the one or the other, and have
//! an answer for a storage that does not offer it.

use std::any::Any;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::{Sink, Source};
use ftp::Failure;
use ftp::answers::{
    EntryVisitor, ListingVisitor, MetadataChange, RenameFailure, SourceVersion, SymlinkCheckScope,
};
use ftp::session::ServerHabits;
use ftp::transfer::{TransferAttempt, TransferSpec};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;

use super::capabilities::{AvailableChecksums, Capabilities};
use super::open_source::OpenSource;
use super::optional::{
    Bundles, FollowUpQuery, OptionalContracts, SeriesTransfers, ServerConnection,
};
use crate::local::partial::WriteTarget;

/// Whether a session can be used, as its last request left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionCondition {
    /// It can still be used.
    pub(crate) is_usable: bool,
    /// The storage could not be reached by the last request, of one that connects for each.
    pub(crate) is_away: bool,
    /// How long the storage asks to be left alone, with its last refusal (Retry-After, RFC 9110 section 10.2.3).
    pub(crate) retry_after: Option<Duration>,
}

impl Default for SessionCondition {
    fn default() -> Self {
        Self {
            is_usable: true,
            is_away: false,
            retry_after: None,
        }
    }
}

/// Use of the facts of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactsUse {
    /// They decide something.
    Decision,
    /// The path is to be read. A storage that tells nothing about it may take it for a file of unknown size.
    Reading,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Number of bytes. `None`: to the end.
    pub(crate) length: Option<u64>,
}

/// An entry to remove. What is of another kind stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovedKind {
    /// A file or a link.
    File,
    /// A directory that is empty.
    EmptyDirectory,
    /// A file, or a directory with everything below it. Links are removed, never followed.
    Tree,
}

/// One session with a storage: this machine or a server. Paths are bytes in the storage's own form.
/// A session must be dropped after a transient failure.
#[async_trait]
pub(crate) trait Storage: OptionalContracts + Send + Debug + Any {
    /// Name for messages: `host:port`, `this machine`.
    fn name(&self) -> &str;

    /// Current capabilities. A session may find out that one is missing.
    fn capabilities(&self) -> Capabilities;

    /// Whether the session can be used.
    fn condition(&self) -> SessionCondition {
        SessionCondition::default()
    }

    /// Facts of a path, with links followed. The name of the entry is the last component.
    ///
    /// # Errors
    /// `NotFound` if nothing exists there. Otherwise the refusal by its class.
    async fn facts(&mut self, path: &[u8], purpose: FactsUse) -> Result<ListedEntry, Failure>;

    /// The entries of a directory, without `.` and `..`: `visit` receives them as they arrive, in any order, and returns
    /// `Break` to stop. No name is visited twice. `scope` says which of them must be told from links.
    ///
    /// `Ok` means that these are all, unless `visit` stopped. A storage that cannot know that visits what it knows, and ends
    /// with [`IncompleteListing::failure`]. So after any failure: what was visited is there and can be used, but
    /// that something was not visited proves nothing, and the caller neither deletes nor replaces anything for it.
    ///
    /// # Errors
    /// As [`Storage::facts`]. `Protocol` if the listing is not known to be complete, or exceeds the limits. A transient
    /// failure ends the session: the next one visits what this one has visited again.
    ///
    /// [`IncompleteListing::failure`]: ftp::incomplete_listing::IncompleteListing::failure
    async fn list(
        &mut self,
        path: &[u8],
        scope: SymlinkCheckScope,
        visit: &mut ListingVisitor<'_>,
    ) -> Result<(), Failure>;

    /// Says that this file, of `size` bytes, is fetched whole once its checksums are known. A storage may ask for both at once.
    fn expect_fetch(&mut self, _path: &[u8], _size: u64) {}

    /// The checksums that the storage can provide of a file.
    ///
    /// # Errors
    /// As [`Storage::facts`].
    async fn available_checksums(&mut self, path: &[u8]) -> Result<AvailableChecksums, Failure>;

    /// The checksums of parts of a file, in lower-case hex.
    ///
    /// # Errors
    /// For the first part that fails: `Protocol` if the storage cannot provide it. Otherwise the refusal by its class.
    async fn checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        parts: &[FilePart],
        path: &[u8],
    ) -> Result<Vec<String>, Failure>;

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
    ) -> Result<TransferAttempt, Failure>;

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
    ) -> Result<TransferAttempt, Failure>;

    /// Creates a directory. `Ok(false)` if it exists already.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, Failure>;

    /// Removes an entry of this kind, and nothing else.
    ///
    /// # Errors
    /// As [`Storage::facts`]. The refusal by its class if the entry is, or may be, of another kind.
    async fn remove_entry(&mut self, path: &[u8], kind: RemovedKind) -> Result<(), Failure>;

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

    /// Sets times and permissions of files and directories, in this order. Returns for each whether all of it was set.
    ///
    /// # Errors
    /// The storage is lost.
    async fn set_metadata(&mut self, changes: &[MetadataChange<'_>]) -> Result<Vec<bool>, Failure>;

    /// Sets the modification time of a file. `Ok(false)` if the storage does not support it.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, Failure>;

    /// Ends the session with a short exchange (QUIT).
    async fn close(self: Box<Self>) {}
}

/// Questions that the contract answers in another form.
impl dyn Storage + '_ {
    /// See [`SessionCondition::is_usable`].
    pub(crate) fn is_usable(&self) -> bool {
        self.condition().is_usable
    }

    /// See [`SessionCondition::is_away`].
    pub(crate) fn is_away(&self) -> bool {
        self.condition().is_away
    }

    /// See [`SessionCondition::retry_after`].
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.condition().retry_after
    }

    /// [`Storage::facts`] that decide something.
    pub(crate) async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        self.facts(path, FactsUse::Decision).await
    }

    /// [`Storage::facts`] of a path that is to be read.
    pub(crate) async fn stat_to_read(&mut self, path: &[u8]) -> Result<ListedEntry, Failure> {
        self.facts(path, FactsUse::Reading).await
    }

    /// [`Storage::checksums`] of one part.
    pub(crate) async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &[u8],
    ) -> Result<String, Failure> {
        let part = FilePart { offset, length };
        let sums = self.checksums(algorithm, &[part], path).await?;
        let none = || Failure::protocol(format!("{} sent no checksum", self.name()));
        sums.into_iter().next().ok_or_else(none)
    }

    /// Removes a file or a link.
    pub(crate) async fn remove(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.remove_entry(path, RemovedKind::File).await
    }

    /// Removes a file, or a directory with everything below it.
    pub(crate) async fn remove_tree(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.remove_entry(path, RemovedKind::Tree).await
    }

    /// Removes a directory that is empty.
    pub(crate) async fn remove_dir(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.remove_entry(path, RemovedKind::EmptyDirectory).await
    }
}

/// Questions of the optional contracts, with the answer for a storage that does not offer them.
impl dyn Storage + '_ {
    /// [`LocalAccess::open`](super::optional::LocalAccess::open); `None`: this process cannot read the file itself.
    pub(crate) async fn open(&mut self, path: &[u8]) -> Result<Option<OpenSource>, Failure> {
        match self.local_access() {
            Some(local) => local.open(path).await.map(Some),
            None => Ok(None),
        }
    }

    /// [`LocalAccess::write_target`](super::optional::LocalAccess::write_target); `None`: this process cannot write the
    /// file itself.
    pub(crate) async fn write_target(
        &mut self,
        path: &[u8],
    ) -> Result<Option<WriteTarget>, Failure> {
        match self.local_access() {
            Some(local) => local.write_target(path).await.map(Some),
            None => Ok(None),
        }
    }

    /// The addresses of this machine and of the server, by which the path is known. `None` if there is none.
    pub(crate) fn path_ends(&self) -> Option<(IpAddr, IpAddr)> {
        self.server_connection()?.path_ends()
    }

    /// Whether the session has shown that its server can be reached.
    pub(crate) fn has_connected(&self) -> bool {
        self.server_connection()
            .is_some_and(ServerConnection::has_connected)
    }

    /// Where the network-advice service of the storage's host answers, if one is announced.
    pub(crate) fn advice_service(&self) -> Option<SocketAddr> {
        self.server_connection()?.advice_service()
    }

    /// Whether a transfer finds out how many streams its path needs.
    pub(crate) fn finds_settings(&self) -> bool {
        self.server_connection()
            .is_none_or(ServerConnection::finds_settings)
    }

    /// Habits of the server that the session has found out.
    pub(crate) fn habits(&self) -> ServerHabits {
        let server = self.server_connection();
        server.map_or_else(ServerHabits::default, ServerConnection::habits)
    }

    /// Whether [`Storage::facts`] tell a link to a directory from a directory. A storage without links has none to tell.
    pub(crate) fn tells_links(&mut self) -> bool {
        self.symbolic_links()
            .is_none_or(|links| links.tells_links())
    }

    /// The path with which absolute links below `path` begin.
    pub(crate) fn resolve_path(&mut self, path: &[u8]) -> Vec<u8> {
        match self.symbolic_links() {
            Some(links) => links.resolve_path(path),
            None => path.to_vec(),
        }
    }

    /// [`SymbolicLinks::make_link`](super::optional::SymbolicLinks::make_link); `Ok(false)`: the storage has no links.
    pub(crate) async fn make_link(
        &mut self,
        target: &[u8],
        absolute: &[u8],
        link: &[u8],
    ) -> Result<bool, Failure> {
        match self.symbolic_links() {
            Some(links) => links.make_link(target, absolute, link).await,
            None => Ok(false),
        }
    }

    /// [`TreeListing::list_tree`](super::optional::TreeListing::list_tree); `Ok(false)`: the storage has no such listing.
    pub(crate) async fn list_tree(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<bool, Failure> {
        match self.tree_listing() {
            Some(listing) => listing.list_tree(path, visit).await,
            None => Ok(false),
        }
    }

    /// The version of a file. [`Storage::fetch`], if it comes next, fetches this one or fails.
    pub(crate) async fn version(&mut self, path: &[u8]) -> Result<SourceVersion, Failure> {
        match self.versioned_files() {
            Some(files) => files.version(path).await,
            None => Ok(SourceVersion::Facts),
        }
    }

    /// Refuses a path that cannot be sent to the storage.
    pub(crate) fn check_path(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.name_rules()
            .map_or(Ok(()), |rules| rules.check_path(path))
    }

    /// [`NameRules::refuses_renames`](super::optional::NameRules::refuses_renames); `None`: nothing speaks against it.
    pub(crate) async fn refuses_renames(
        &mut self,
        path: &[u8],
    ) -> Result<Option<RenameFailure>, Failure> {
        match self.name_rules() {
            Some(rules) => rules.refuses_renames(path).await,
            None => Ok(None),
        }
    }

    /// [`ManyPaths::modification_times`](super::optional::ManyPaths::modification_times); `None`: the storage does not tell.
    pub(crate) async fn modification_times(
        &mut self,
        paths: &[Vec<u8>],
        may_go_ahead: bool,
    ) -> Result<Vec<Option<Timestamp>>, Failure> {
        match self.many_paths() {
            Some(many) => many.modification_times(paths, may_go_ahead).await,
            None => Ok(vec![None; paths.len()]),
        }
    }

    /// [`ManyPaths::make_dirs`](super::optional::ManyPaths::make_dirs); `false`: the storage makes one at a time.
    pub(crate) async fn make_dirs(
        &mut self,
        paths: &[&[u8]],
        may_go_ahead: bool,
    ) -> Result<Vec<bool>, Failure> {
        match self.many_paths() {
            Some(many) => many.make_dirs(paths, may_go_ahead).await,
            None => Ok(vec![false; paths.len()]),
        }
    }

    /// The checksums of whole files, each as [`Storage::checksums`] returns it.
    ///
    /// # Errors
    /// The storage is lost.
    pub(crate) async fn file_checksums(
        &mut self,
        algorithm: ChecksumAlgorithm,
        paths: &[&[u8]],
    ) -> Result<Vec<Result<String, Failure>>, Failure> {
        if let Some(many) = self.many_paths()
            && let Some(sums) = many.file_checksums(algorithm, paths).await?
        {
            return Ok(sums);
        }
        let mut sums = Vec::with_capacity(paths.len());
        for path in paths {
            sums.push(self.checksum(algorithm, 0, None, path).await);
        }
        Ok(sums)
    }

    /// [`FollowUps::queue_follow_ups`](super::optional::FollowUps::queue_follow_ups)
    pub(crate) fn queue_follow_ups(&mut self, spec: &TransferSpec, queries: &[FollowUpQuery<'_>]) {
        if let Some(follow_ups) = self.follow_ups() {
            follow_ups.queue_follow_ups(spec, queries);
        }
    }

    /// [`FollowUps::clear_follow_ups`](super::optional::FollowUps::clear_follow_ups)
    pub(crate) fn clear_follow_ups(&mut self) {
        if let Some(follow_ups) = self.follow_ups() {
            follow_ups.clear_follow_ups();
        }
    }

    /// Whether the answers to [`Self::queue_follow_ups`] arrive with the end of the transfer.
    pub(crate) fn pipelines_follow_ups(&self, spec: &TransferSpec) -> bool {
        self.server_connection()
            .is_some_and(|server| server.pipelines_follow_ups(spec))
    }

    /// [`DirectTransfers::transfer_to`](super::optional::DirectTransfers::transfer_to)
    pub(crate) async fn transfer_to(
        &mut self,
        path: &[u8],
        to: &mut dyn Storage,
        to_path: &[u8],
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<TransferAttempt, Failure> {
        let refused = format!(
            "{} cannot transfer files to {} directly",
            self.name(),
            to.name()
        );
        match self.direct_transfers() {
            Some(direct) => {
                direct
                    .transfer_to(path, to, to_path, spec, control, progress)
                    .await
            }
            None => Err(Failure::protocol(refused)),
        }
    }

    /// The contract of bundles.
    ///
    /// # Errors
    /// `Protocol`: the storage moves none.
    pub(crate) fn bundle_mover(&mut self) -> Result<&mut dyn Bundles, Failure> {
        let refused = Failure::protocol(format!("{} moves no bundles of files", self.name()));
        self.bundles().ok_or(refused)
    }

    /// [`OptionalContracts::series`]
    ///
    /// # Errors
    /// `Protocol`: it moves none.
    pub(crate) fn series_mover(&mut self) -> Result<&mut dyn SeriesTransfers, Failure> {
        let refused = Failure::protocol(format!("{} moves no series of files", self.name()));
        self.series().ok_or(refused)
    }
}
