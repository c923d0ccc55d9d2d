//! Duties of every storage: the contract that the batch copies over.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data::job::TransferControl;
use data::store::{Sink, Source};
use proto::checksum::ChecksumAlgorithm;
use proto::listing::ListedEntry;
use proto::timestamp::Timestamp;

use crate::answers::{EntryVisitor, RenameFailure, SourceFacts, SymlinkCheckedEntry};
use crate::partial::WriteTarget;
use crate::transfer::{TransferAttempt, TransferSpec};
use crate::{CopyFailure, Exit};

/// Abilities of a storage, which choose how a file is copied; never whether it is copied right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Parts of a file can be asked for.
    pub(crate) ranges: bool,
    /// Bytes can be stored at their place, beside what the file holds already.
    pub(crate) partial_writes: bool,
    /// An upload that broke off can go on from what is stored.
    pub(crate) resumes_uploads: bool,
    /// Several streams can be used for one file.
    pub(crate) parallel: bool,
    /// With several streams, bytes are stored in any order; else strictly from the first to the last.
    pub(crate) any_order: bool,
    /// While it stores it tells which ranges are safe.
    pub(crate) markers: bool,
    /// While it sends it changes the number of its streams by itself.
    pub(crate) adapts_streams: bool,
    /// It sums what it stores while it comes.
    pub(crate) checksums_while_storing: bool,
    /// A file's time can be set.
    pub(crate) sets_time: bool,
    /// It moves files to others of the same kind without their bytes passing here.
    pub(crate) third_party: Option<ThirdPartyProtocol>,
    /// Requests that it takes at a time over one session: sums of ranges asked in one flight.
    pub(crate) concurrency: usize,
    /// On this machine, where nothing is lost and no window is too small.
    pub(crate) is_here: bool,
    /// Round-trip time; zero on this machine.
    pub(crate) rtt: Duration,
}

/// By which protocol two storages move files between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThirdPartyProtocol {
    /// FTP, GridFTP: PASV at one, PORT at the other (RFC 959 §5.2).
    Ftp,
}

/// The checksums that can be had of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AvailableChecksums {
    /// Of any part.
    pub(crate) parts: Vec<ChecksumAlgorithm>,
    /// Of the whole file alone.
    pub(crate) whole: Vec<ChecksumAlgorithm>,
}

impl AvailableChecksums {
    /// Of bytes that this process can read.
    pub(crate) fn all() -> Self {
        Self {
            parts: ChecksumAlgorithm::CHEAPEST_FIRST.to_vec(),
            whole: Vec::new(),
        }
    }
}

/// A question that a storage will be asked when the bytes of a transfer are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowUpQuery<'a> {
    /// [`Storage::checksum`]
    Sum {
        /// Which.
        algorithm: ChecksumAlgorithm,
        /// First byte.
        offset: u64,
        /// Bytes; `None`: to the end.
        length: Option<u64>,
        /// Of this file.
        path: &'a [u8],
    },
    /// [`Storage::stat`]
    Facts(&'a [u8]),
}

/// A file that this process has opened to read it.
#[derive(Debug, Clone)]
pub(crate) struct OpenSource {
    pub(crate) source: Arc<dyn Source>,
    /// Of regular files, which can be read again; `None` of pipes.
    pub(crate) facts: Option<SourceFacts>,
}

/// One session with a storage: this machine, a server. Paths are bytes, as the storage has
/// them. After a transient failure the session is to be dropped.
#[async_trait]
pub(crate) trait Storage: Send + Debug + Any {
    /// For messages: `host:port`, `this machine`.
    fn name(&self) -> &str;

    /// As of now: a session may learn of an ability that is missing.
    fn capabilities(&self) -> Capabilities;

    /// Whether the session can still be used.
    fn is_usable(&self) -> bool {
        true
    }

    /// Whether the storage is better asked one thing at a time than it says of itself.
    fn needs_lockstep(&self) -> bool {
        false
    }

    /// Refuses a path that cannot be told to the storage.
    ///
    /// # Errors
    /// `Usage`.
    fn check_path(&self, _path: &[u8]) -> Result<(), CopyFailure> {
        Ok(())
    }

    /// The path that absolute links below `path` begin with.
    fn resolve_path(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// Facts of what is at a path, links followed. The entry's name is the last component.
    ///
    /// # Errors
    /// `NotFound` when there is nothing; otherwise the refusal by its class.
    async fn stat(&mut self, path: &[u8]) -> Result<ListedEntry, CopyFailure>;

    /// The entries of a directory, without itself and the one above, in any order.
    ///
    /// # Errors
    /// As [`Storage::stat`]; `Protocol` for more than can be held.
    async fn list(&mut self, path: &[u8]) -> Result<Vec<SymlinkCheckedEntry>, CopyFailure>;

    /// [`Storage::list`] for large directories: `visit` gets the entries as they come, in any order, and
    /// breaks when it has enough.
    ///
    /// # Errors
    /// As [`Storage::list`]; entries may have been visited before.
    async fn list_each(
        &mut self,
        path: &[u8],
        visit: &mut EntryVisitor<'_>,
    ) -> Result<(), CopyFailure> {
        for marked in self.list(path).await? {
            if visit(marked.entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The checksums that can be had of a file.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn available_checksums(&mut self, path: &[u8])
    -> Result<AvailableChecksums, CopyFailure>;

    /// A checksum of a file or of a part, lower-case hex.
    ///
    /// # Errors
    /// `Protocol` when it cannot be had, otherwise the refusal by its class.
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
    /// As [`Storage::checksum`]; the first one.
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

    /// The open file, where this process can read it itself.
    ///
    /// # Errors
    /// `NotFound`, `Local`.
    async fn open(&mut self, _path: &[u8]) -> Result<Option<OpenSource>, CopyFailure> {
        Ok(None)
    }

    /// The target to write a file through, where this process can write it itself.
    ///
    /// # Errors
    /// `Local`.
    fn write_target(&mut self, _path: &[u8]) -> Result<Option<WriteTarget>, CopyFailure> {
        Ok(None)
    }

    /// Moves what `spec` says is missing from the file `path` into `sink`. What arrived in a failed
    /// attempt is in `control`, whether the storage stands by it in `spec.said`.
    ///
    /// # Errors
    /// The refusal by its class; `Local` for the sink's errors; `Integrity` when not all of `spec.size`
    /// came; `Unreachable` (transient) for lost connections.
    async fn fetch(
        &mut self,
        path: &[u8],
        sink: Arc<dyn Sink>,
        spec: &TransferSpec,
        control: &Arc<TransferControl>,
    ) -> Result<TransferAttempt, CopyFailure>;

    /// Moves what `spec` says is missing at the file `path` there from `source`. What the storage tells of
    /// as stored is in `spec.marked`.
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

    /// Has a file moved to another storage of the same [`Capabilities::third_party`]; bytes so far in
    /// `progress`, where they are told.
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
        Err(CopyFailure::new(
            Exit::Protocol,
            format!("{} moves nothing to {} by itself", self.name(), to.name()),
        ))
    }

    /// Has `questions` asked together with the transfer of `spec`, which comes next, where that can be.
    /// They are to be asked afterwards all the same, in this order.
    fn queue_follow_ups(&mut self, _spec: &TransferSpec, _questions: &[FollowUpQuery<'_>]) {}

    /// Questions of a transfer that did not begin are not asked any more.
    fn clear_follow_ups(&mut self) {}

    /// Whether the answers to [`Storage::queue_follow_ups`] come with the transfer's end.
    fn pipelines_follow_ups(&self, _spec: &TransferSpec) -> bool {
        false
    }

    /// Makes a directory; `Ok(false)` when it exists already.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn make_dir(&mut self, path: &[u8]) -> Result<bool, CopyFailure>;

    /// Makes the symbolic link `link` to `target`, which is relative to the link's directory and leads
    /// to `absolute`. A link that is there already is replaced. `Ok(false)`: the storage has no links.
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

    /// Removes what a path names, and of a directory everything below: links are removed, never followed.
    ///
    /// # Errors
    /// As [`Storage::stat`].
    async fn remove_tree(&mut self, path: &[u8]) -> Result<(), CopyFailure>;

    /// Renames a file and gives it its time, if that can be: the time is a courtesy.
    ///
    /// # Errors
    /// The refusal by its class, and of which name.
    async fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        modified: Option<Timestamp>,
    ) -> Result<(), RenameFailure>;

    /// Gives a file its time; `Ok(false)` where that cannot be.
    ///
    /// # Errors
    /// The refusal by its class.
    async fn set_modified(&mut self, path: &[u8], time: Timestamp) -> Result<bool, CopyFailure>;

    /// The end of the session, politely and briefly.
    async fn close(self: Box<Self>) {}
}
